"""The search pipeline, the one way to search an index.

::

    retrieve ─▶ verify ─▶ expand the query ─▶ retrieve ─▶ verify ─▶ verify at full resolution

`search_steps` is a generator. It yields a `SearchResult` after every step, each surer than the one before, and a
`Retrieve` request where images are to be ranked: whoever drives it sends the `Retrieval`. So the retrievals of many
searches can share one pass over the graph. `run` drives one search, `run_many` several together; a service drives each
search in threads and batches the retrievals of all its clients.

The last result is complete: it depends on the query, the snapshot and the configuration alone. Where the deadline
passes first, the last result says that it is not complete.

Full-resolution verification runs last. Where nothing was verified before, it also runs before query expansion.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from manifind.index.config import SearchConfig
from manifind.index.search.deadline import NO_DEADLINE, Deadline
from manifind.index.search.query import QueryFeatures, QueryRegions, SearchQuery
from manifind.index.search.query_expansion import expand_query
from manifind.index.search.results import SearchResult, Stage
from manifind.index.search.retrieval import Retrieval, retrieve
from manifind.index.search.verification import (
    Verification,
    max_candidates,
    verify_full_resolution,
    verify_images,
    verify_ranking,
)
from manifind.index.storage.snapshot import AnySnapshot


@dataclass(frozen=True, eq=False)
class Retrieve:
    """A request of the pipeline: rank the images of a snapshot."""

    snapshot: AnySnapshot
    query: QueryRegions
    top: int | None
    """How many images to return; None for all. More do no harm."""
    method: str


Pipeline = Generator[Retrieve | SearchResult, Retrieval | None, None]


def search_steps(
    snapshot: AnySnapshot,
    query: SearchQuery,
    config: SearchConfig | None = None,
    deadline: Deadline = NO_DEADLINE,
    *,
    may_read_files: Callable[[], bool] = lambda: True,
) -> Pipeline:
    """Yield the results of a search and the retrievals that it needs.

    Parameters
    ----------
    snapshot : Snapshot, or that of a remote collection
    query : SearchQuery
    config : SearchConfig, optional
    deadline : Deadline
    may_read_files : callable
        Asked before each verification at full resolution; a busy service may say no, and the result is not complete.
    """
    config = config or SearchConfig()
    candidates = None if query.top is None else max(query.top, max_candidates(query.verify, config))
    depth = None if candidates is None else candidates + max(len(query.excluded), query.max_excluded)
    retrieval = yield Retrieve(snapshot, query.regions, depth, query.method)
    assert retrieval is not None  # noqa: S101 (the driver's side of the protocol)
    if query.number_images is not None:
        own, excluded = query.number_images(retrieval.snapshot)
        query = replace(query, own=own, excluded=excluded)
    ranked = SearchResult.of(query, retrieval, config=config, candidates=candidates)
    if not query.verify or query.local_features is None:
        yield replace(ranked.head(query.top), complete=True)
        return
    yield ranked.head(query.top)

    views = query.local_features()
    if not views:  # there was no time to extract them
        return
    search = _Verifier(query, views, config, deadline, may_read_files)
    try:
        result = search.verify(ranked)
    except TimeoutError:
        return
    yield search.shown(result)

    if query.expand:
        if not result.has_verified:
            result = search.verify_full_resolution(result)
        expanded = search.expand(result)
        if expanded is not None:
            # On the snapshot that was searched: its regions are those of the expanded query.
            retrieval = yield Retrieve(result.retrieval.snapshot, expanded, depth, query.method)
            assert retrieval is not None  # noqa: S101
            again = SearchResult.of(query, retrieval, config=config, candidates=candidates, unexpanded=result)
            result = search.verify_expanded(again)
            yield search.shown(result)
    if result.has_verified or not query.expand:
        result = search.verify_full_resolution(result)
    yield replace(search.shown(result), complete=search.complete)


class _Verifier:
    """The verifying steps of one search; remembers whether a deadline cut one short."""

    def __init__(
        self,
        query: SearchQuery,
        views: Sequence[QueryFeatures],
        config: SearchConfig,
        deadline: Deadline,
        may_read_files: Callable[[], bool],
    ) -> None:
        self._query, self._views, self._config = query, views, config
        self._deadline, self._may_read_files = deadline, may_read_files
        self._deeper = deadline.share(config.deadline.deeper_share)
        self._expand_until = deadline.share(1 - config.deadline.min_share_for_expansion)
        self._is_part = all(view.is_part for view in views)
        self.complete = True

    def shown(self, result: SearchResult) -> SearchResult:
        return result.head(self._query.top)

    def verify(self, ranked: SearchResult) -> SearchResult:
        """Verify the first images of a ranking; `TimeoutError` is raised where there is no time for them."""
        verifications, done = verify_ranking(
            ranked.retrieval.snapshot,
            ranked.images,
            self._views,
            self._query.verify,
            self._config,
            self._deadline,
            deeper_deadline=self._deeper,
        )
        self.complete &= done
        return self._with(ranked, verifications, Stage.VERIFIED)

    def expand(self, result: SearchResult) -> QueryRegions | None:
        """Return the expanded query; None where nothing expands it, or too little time is left."""
        if self._expand_until.seconds_left < 0:
            self.complete = False
            return None
        return expand_query(result.retrieval, result.verifications, self._config.expansion)

    def verify_expanded(self, ranked: SearchResult) -> SearchResult:
        """Verify the first images of an expanded query's ranking, those that are not yet known.

        Without the time for that, the result before the expansion is returned.
        """
        before = ranked.unexpanded
        assert before is not None  # noqa: S101
        first = self._config.depth.expanded_factor * self._query.verify
        unknown = [image for image in ranked.images[:first].tolist() if image not in before.verifications]
        try:
            new = verify_images(ranked.retrieval.snapshot, unknown, self._views, self._config, self._deadline)
        except TimeoutError:
            self.complete = False
            return before
        return self._with(ranked, {**before.verifications, **new}, Stage.EXPANDED)

    def verify_full_resolution(self, result: SearchResult) -> SearchResult:
        """Verify the most promising unverified images from their files."""
        if not self._may_read_files():
            self.complete = False
            return result
        ranked = [image for image in result.by_score.images.tolist() if image not in result.own]
        new, done = verify_full_resolution(
            result.retrieval.snapshot,
            ranked,
            result.verifications,
            self._views,
            self._config,
            self._deadline.share(self._config.deadline.full_resolution_share),
        )
        self.complete &= done
        return self._with(result, {**result.verifications, **new}, Stage.FULL_RESOLUTION) if new else result

    def _with(self, result: SearchResult, verifications: Mapping[int, Verification], stage: Stage) -> SearchResult:
        return result.with_verifications(verifications, stage, is_part=self._is_part)


# -- drivers ----------------------------------------------------------------------------------------------------------


def run(pipeline: Pipeline, config: SearchConfig) -> Iterator[SearchResult]:
    """Yield the results of one search."""
    for _, result in run_many([pipeline], config):
        yield result


def run_many(pipelines: Sequence[Pipeline], config: SearchConfig) -> Iterator[tuple[int, SearchResult]]:
    """Yield the results of searches with their places, those of one stage after the other.

    The retrievals that wait at the same time share one pass over the graph.
    """
    waiting: dict[int, Retrieve] = {}
    for place, pipeline in enumerate(pipelines):
        yield from _advance(place, pipeline, None, waiting)
    while waiting:
        requests, waiting = waiting, {}
        for place, retrieval in _retrieve_together(requests, config).items():
            yield from _advance(place, pipelines[place], retrieval, waiting)


def _advance(
    place: int, pipeline: Pipeline, send: Retrieval | None, waiting: dict[int, Retrieve]
) -> Iterator[tuple[int, SearchResult]]:
    """Yield the results of a pipeline until it ends or requests a retrieval, which then waits."""
    step: Retrieve | SearchResult | None
    try:
        step = next(pipeline) if send is None else pipeline.send(send)
        while isinstance(step, SearchResult):
            yield place, step
            step = next(pipeline)
    except StopIteration:
        return
    waiting[place] = step


def _retrieve_together(requests: Mapping[int, Retrieve], config: SearchConfig) -> dict[int, Retrieval]:
    """Rank the images for requests, those on the same snapshot by the same method in one pass."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, request in requests.items():
        groups.setdefault((request.snapshot.stamp, request.method), []).append(place)
    retrievals: dict[int, Retrieval] = {}
    for places in groups.values():
        of_group = [requests[place] for place in places]
        top = None if any(one.top is None for one in of_group) else max(one.top or 0 for one in of_group)
        snapshot, method = of_group[0].snapshot, of_group[0].method
        queries = [one.query for one in of_group]
        answers = retrieve(snapshot, queries, top, method, config=config.retrieval)
        retrievals |= zip(places, answers, strict=True)
    return retrievals
