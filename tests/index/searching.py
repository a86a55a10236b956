"""Steps of the search pipeline, one by one, on the index of these tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from manifind.index import Index, SearchConfig, SearchResult, Stage, Verification
from manifind.index.search.query import QueryFeatures, SearchQuery
from manifind.index.search.retrieval import Retrieval
from manifind.index.search.verification import verify_ranking


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
    result: SearchResult,
    views: Sequence[QueryFeatures],
    first: int = 50,
    config: SearchConfig | None = None,
    **deadlines: Any,
) -> SearchResult:
    """A result whose first images are verified."""
    known, _ = verify_ranking(
        result.retrieval.snapshot, result.images, views, first, config or result.config, **deadlines
    )
    return knowing(result, known, is_part=all(view.is_part for view in views))
