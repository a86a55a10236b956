"""The answers of several collections, made into one ranking.

Scores of two collections are not on one scale: each has a graph of its own, and what one photo scores depends on how
many others are like it. Three things mean the same in every collection: that geometry confirms a photo, that a photo
stands above its collection's line, and the largest similarity of a part of the query to a part of a photo that was
found. So verified photos come first, then the others above their line, then the rest. Within each of the three, photos
are merged by their score as a part of the best that their collection has, times that similarity; a photo never goes
before one that its own collection ranked higher. Where geometry had no time for one of the collections, verified
photos do not go before the others above the line. By methods that know no line, scores are compared as they are.

``benchmarks/collections_merged.py`` prints how well that does beside one index of all photos.
"""

import heapq
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from manifind.serve.answers import query_data
from manifind.serve.schemas import SearchRequest


def merged(request: SearchRequest, answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one answer in place of several, each of a collection of its own, whose keys say which."""
    if len(answers) == 1:
        return {**answers[0], "query": query_data(request)}
    all_looked_at = all(answer["verified"] is not None for answer in answers)
    rankings = [
        [
            (_comparable(one, answer["evidence"], all_looked_at), one)
            for one in sorted(answer["results"], key=lambda one: one["rank"])
        ]
        for answer in answers
    ]
    # Heads of rankings are compared, again and again: the order within each stays as it is.
    ordered = [one for _, one in heapq.merge(*rankings, key=itemgetter(0))][: request.top]
    if request.sort == "date":
        ordered.sort(key=lambda one: one["date"] or "")
    known = [answer["likely"] for answer in answers]
    verified = [answer["verified"] for answer in answers if answer["verified"] is not None]
    likely = None if None in known else sum(one["likely"] is True for one in ordered)
    return {
        "query": query_data(request),
        "method": request.method,
        "likely": likely,
        "verified": sum(one["verified"] is True for one in ordered) if verified else None,
        "generation": sum(answer["generation"] for answer in answers),
        "results": [{**one, "rank": rank} for rank, one in enumerate(ordered, 1)],
        "evidence": _evidence([answer["evidence"] for answer in answers], likely),
        "milliseconds": _slowest([answer["milliseconds"] for answer in answers]),
    }


def _comparable(one: dict[str, Any], evidence: dict[str, Any] | None, all_looked_at: bool) -> tuple[int, float]:
    """Return what photos of different collections are compared by, less for the better."""
    # Where geometry had no time for a collection, that its photos are not verified says nothing.
    first = 0 if one["verified"] and all_looked_at else 1 if one["likely"] else 2
    scale = 1.0 if evidence is None else evidence["similarity"] / max(evidence["best"], 1e-30)
    return first, -scale * one["score"]


def _evidence(each: Sequence[dict[str, Any] | None], likely: int | None) -> dict[str, Any] | None:
    """Return what speaks for the best collection: the one whose photos resemble the query most beyond chance."""
    known = [one for one in each if one is not None]
    if not known:
        return None
    return {**max(known, key=lambda one: float(one["similarity"] - one["chance"])), "likely": likely}


def _slowest(each: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return how long each step took where it took longest: collections are asked side by side."""
    names = dict.fromkeys(name for times in each for name in times)
    return {name: max(times.get(name, 0.0) for times in each) for name in names}
