"""What the service answers: searches, explanations and photos, ready for JSON."""

from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import Any, NamedTuple

from manifind.index import Answer, Generation, QueryRegions, Search, explained
from manifind.index.asking.features import Sought
from manifind.index.asking.verify import deepest, first_photos
from manifind.index.state.catalogue import ImageRecord
from manifind.index.state.generation import State
from manifind.pages.answers import answer_data, links_data, regions_data
from manifind.serve.problems import Problem
from manifind.serve.schemas import SearchRequest


class Job(NamedTuple):
    """A query for the solver."""

    now: State
    query: QueryRegions
    request: SearchRequest
    own: frozenset[str]
    """Photos of the collection that the query was taken from."""
    rejected: frozenset[str]
    """Photos that were marked as not meant: they are left out of the answer."""
    sought: tuple[Sought, ...] = ()
    """What geometry looks for; nothing where it is not asked."""
    outside: frozenset[int] = frozenset()
    """The numbers of photos that lie outside of the folder or the dates that were asked for."""
    whole: bool = False
    """Return the whole ranking, to be explained."""

    @property
    def first(self) -> int:
        """How many photos geometry looks at."""
        return first_photos(self.now, self.request.method, self.request.verify) if self.sought else 0

    @property
    def top(self) -> int | None:
        """How many photos the solver is to return."""
        return (
            None if self.whole else max(self.request.top, deepest(self.first)) + len(self.rejected) + len(self.outside)
        )


def answer_of(answer: Answer, job: Job, record_of: Callable[[Generation, int], ImageRecord]) -> dict[str, Any]:
    """Return an answer as it is told, all but the times."""
    told = answer_data(query_data(job.request), answer)
    for one, hit in zip(told["results"], answer, strict=True):
        one.update(shown(record_of(answer.search.generation, hit.image)), where=hit.box)
    found = answer.evidence
    return {
        **told,
        "verified": answer.verified,
        "generation": answer.generation,
        "evidence": None if found is None else {**asdict(found), "likely": answer.likely, "best": _best(told, job)},
    }


def query_data(request: SearchRequest) -> dict[str, Any]:
    """Return what was asked for, as an answer repeats it."""
    return {
        "views": [one.model_dump() for one in request.views],
        "not_this": [one.model_dump() for one in request.not_this],
        "vectors": 0 if request.vectors is None else len(request.vectors),
    }


def _best(told: dict[str, Any], job: Job) -> float:
    """Return the best score of a photo that the query was not taken from; zero where there is none."""
    return max((float(one["score"]) for one in told["results"] if one["key"] not in job.own), default=0.0)


def found_by(search: Search, job: Job, top: int | None = None) -> Answer:
    """Return the photos of a search that score, as many as were asked for or `top`."""
    top = job.request.top if top is None else top
    own, rejected = (_numbers(search, keys) for keys in (job.own, job.rejected))
    return Answer(search, own=own, left_out=[*rejected, *job.outside], top=top, reached=True)


def _numbers(search: Search, keys: Collection[str]) -> list[int]:
    """Return the numbers of photos in the state that was searched; a shortlist may lack some."""
    records = (search.generation.catalogue.of_key(key) for key in keys)
    return [record.number for record in records if record is not None]


def explanation(search: Search, key: str) -> dict[str, Any]:
    """Return why a photo was found: the chain of photos to it, and what each part of it contributes."""
    record = search.generation.catalogue.photo_of(key)
    hit = None if record is None else Answer(search).of_image(record.number)
    if record is None or hit is None:
        raise Problem(404, "The photo is not among those that a search of so large a collection looks at closely.")
    return {
        "key": hit.key,
        "rank": hit.rank,
        "score": hit.score,
        "where": hit.box,
        "links": links_data(explained(search, record.number)),
        "regions": regions_data(search.shares(record.number, most=None)),
        **shown(record),
    }


def shown(record: ImageRecord) -> dict[str, Any]:
    """Return what is told of a photo."""
    return {"key": record.key, "width": record.width, "height": record.height, "version": record.sha256[:12]}
