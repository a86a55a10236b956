"""What the service answers: searches, explanations and photos, ready for JSON or a table."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from manifind.index import Generation, Index, Query, Search, evidence
from manifind.index.catalogue import ImageRecord
from manifind.pages.text import cell
from manifind.serve.problems import Problem
from manifind.serve.schemas import SearchRequest


class Job(NamedTuple):
    """A query for the solver."""

    now: Generation
    query: Query
    request: SearchRequest
    own: frozenset[int]
    """Photos of the collection that the query was taken from."""
    rejected: frozenset[int]
    """Photos that were marked as not meant: they are left out of the answer."""
    explain: bool = False


def table(answer: dict[str, Any]) -> str:
    """Return the results of a search as CSV, the best region of each."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(["rank", "key", "score", "x0", "y0", "x1", "y1", "share"])
    for one in answer["results"]:
        best = one["regions"][0] if one["regions"] else None
        region = [*best["box"], best["share"]] if best else [""] * 5
        writer.writerow([one["rank"], cell(one["key"]), one["score"], *region])
    return buffer.getvalue()


def answer_of(search: Search, job: Job, record_of: Callable[[Generation, int], ImageRecord]) -> bytes:
    """Return the answer to a search as JSON, all but the times."""
    kept = [
        (int(image), float(score))
        for image, score in zip(search.ranking.images, search.ranking.scores, strict=True)
        if score > 0 and int(image) not in job.rejected
    ][: job.request.top]
    results = []
    for place, (image, score) in enumerate(kept, 1):
        record = record_of(search.generation, image)
        regions = [{"box": one.box, "share": round(one.share, 4)} for one in search.shares(image)]
        where = search.where(image)
        results.append({"rank": place, "score": score, "where": where, "regions": regions, **shown(record)})
    found = evidence(search, job.own | job.rejected)
    told = None
    if found is not None:
        if found.score > 0:
            likely = sum(score >= found.score for _, score in kept)
        else:
            likely = next((i for i, (image, _) in enumerate(kept) if image not in job.own), len(kept))
        told = {
            "likely": likely,
            "similarity": found.similarity,
            "chance": found.chance,
            "score": found.score,
        }
    request = job.request
    query = {
        "views": [one.model_dump() for one in request.views],
        "not_this": [one.model_dump() for one in request.not_this],
        "vectors": 0 if request.vectors is None else len(request.vectors),
    }
    answer = {
        "query": query,
        "method": request.method,
        "generation": search.generation.number,
        "results": results,
        "evidence": told,
    }
    return json.dumps(answer).encode()


def explained(index: Index, search: Search, image: int) -> dict[str, Any]:
    """Return why a photo was found: the chain of photos to it, and what each part of it contributes."""
    hit = search.hit(image)
    if hit is None:
        raise Problem(404, "The photo is not among those that a search of so large a collection looks at closely.")
    chain = index.explain(hit)
    return {
        "key": hit.key,
        "rank": hit.rank,
        "score": hit.score,
        "where": search.where(image),
        "links": [
            {
                "source": {"key": link.source.key, "box": link.source.box, "view": link.source.view},
                "target": {"key": link.target.key, "box": link.target.box, "view": link.target.view},
                "similarity": link.similarity,
                "flow": link.flow,
            }
            for link in chain.links
        ],
        "regions": [{"box": one.box, "share": one.share} for one in search.shares(image, most=None)],
    }


def shown(record: ImageRecord) -> dict[str, Any]:
    """Return what is told of a photo."""
    return {"key": record.key, "width": record.width, "height": record.height, "version": record.sha256[:12]}
