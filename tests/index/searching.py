"""Steps of the search pipeline, one by one, on the index of these tests."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from manifind.index import Index, SearchConfig, SearchResult, Stage, Verification
from manifind.index.search.pipeline import Retrieve, VerifyingSteps, search_steps
from manifind.index.search.query import NO_DEADLINE, Deadline, QueryFeatures, SearchQuery
from manifind.index.search.results import SearchState
from manifind.index.search.retrieval import Retrieval


def configured(index: Index, **parts: Any) -> Index:
    """The same index, opened with a configuration that has these parts."""
    return Index.open(index.path, config=SearchConfig(**parts))


def ranked(index: Index, image: Any, box: Any = None, **options: Any) -> SearchResult:
    """All images in the order of their scores, none verified."""
    return index.search(image, box, **{"top": None, "verify": 0, **options})


def result_of(retrieval: Retrieval, *, config: SearchConfig | None = None, **query: Any) -> SearchResult:
    """The result of a retrieval."""
    return SearchResult.of(SearchQuery(retrieval.query, **query), retrieval, config=config or SearchConfig())


def knowing(result: SearchResult, known: Mapping[int, Verification], *, is_part: bool = False) -> SearchResult:
    """A result with these verifications."""
    return result.with_verifications(known, Stage.VERIFIED, is_part=is_part)


def verified(
    result: SearchResult, views: Sequence[QueryFeatures], first: int = 50, config: SearchConfig | None = None
) -> SearchResult:
    """A result whose first images are verified: the pipeline's second step on this very ranking."""
    config = config or replace(result.config, full_resolution=replace(result.config.full_resolution, max_images=0))
    retrieval = result.retrieval
    query = SearchQuery(retrieval.query, lambda: views, retrieval.method, None, first, expand=False, own=result.own)
    steps = search_steps(retrieval.snapshot, query, config)
    assert isinstance(next(steps), Retrieve)
    ranked = steps.send(retrieval)
    assert isinstance(ranked, SearchResult)
    return [step for step in steps if isinstance(step, SearchResult)][-1]


def looked_closer(
    result: SearchResult, views: Sequence[QueryFeatures], deadline: Deadline = NO_DEADLINE
) -> tuple[SearchResult, dict[int, Verification], tuple[int, ...]]:
    """A result with what full resolution says as well, what is new of it, and the images that there was no time for."""
    query = SearchQuery(result.original.query, lambda: views, verify=50, own=result.own)
    state = SearchState(query, None, None, tuple(views))
    steps = VerifyingSteps(replace(result, state=state), deadline, lambda: True)
    step = steps.verify_full_resolution(result)
    while True:
        try:
            next(step)
        except StopIteration as end:
            found: SearchResult = end.value
            break
    new = {image: one for image, one in state.full_resolution.items() if one.verified is not None}
    return found, new, tuple(steps.unchecked)
