"""The search pipeline, the one way to search an index.

::

    retrieve ─▶ verify ─▶ expand the query ─▶ retrieve ─▶ verify ─▶ verify at full resolution

`search_steps` is a generator. It yields a `SearchResult` after every step, each surer than the one before, and a
`Retrieve` request where images are to be ranked: whoever drives it sends the `Retrieval`. So the retrievals of many
searches can share one pass over the graph. `run` drives one search, `run_many` several together; a service drives each
search in threads and batches the retrievals of all its clients. While a step verifies images, the last result is
yielded again, with its `progress`.

The last result is complete: it depends on the query, the snapshot and the configuration alone. Where the deadline
passes first, the last result is not complete, and `SearchResult.unchecked` names the images that were next.
`resume_steps` goes on from there: every retrieval and verification is computed once, and the steps are the same, so the
end is that of a search without a deadline.

Full-resolution verification runs last. Where nothing was verified before, it also runs before query expansion.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from manifind.geometry import PackedFeatures
from manifind.index.config import SearchConfig
from manifind.index.search.grading import grade_verifications
from manifind.index.search.image_features import FeatureSource, ImageFile, load_or_locate_features
from manifind.index.search.query import (
    NO_DEADLINE,
    Deadline,
    QueryFeatures,
    QueryRegions,
    SearchQuery,
    view_numbers,
)
from manifind.index.search.query_expansion import expand_query
from manifind.index.search.results import Progress, SearchResult, SearchState, Stage
from manifind.index.search.retrieval import Retrieval, retrieve
from manifind.index.search.verification import (
    Verification,
    full_resolution_candidates,
    max_candidates,
    surest,
    verify_view,
    vote_for_images,
)
from manifind.index.storage.snapshot import AnySnapshot
from manifind.kernels.threads import thread_count


@dataclass(frozen=True, eq=False)
class Retrieve:
    """A request of the pipeline: rank the images of a snapshot."""

    snapshot: AnySnapshot
    query: QueryRegions
    top: int | None
    """How many images to return; None for all. More do no harm."""
    method: str


Pipeline = Generator[Retrieve | SearchResult, Retrieval | None, None]
Steps = Generator[SearchResult, None, SearchResult]
"""Yields the progress of a step, and returns its result."""
RetrievingSteps = Generator[Retrieve | SearchResult, Retrieval | None, SearchResult]
"""Yields the progress of a step and what it retrieves, and returns its result."""
Verifying = Generator[SearchResult, None, dict[int, Verification]]
"""Yields progress, and returns the verifications of some images."""


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
        Asked before files are read to verify at full resolution; where it says no, the result is not complete.
    """
    config = config or SearchConfig()
    candidates = None if query.top is None else max(query.top, max_candidates(query.verify, config))
    depth = None if candidates is None else candidates + max(len(query.excluded), query.max_excluded)
    retrieval = yield Retrieve(snapshot, query.regions, depth, query.method)
    assert retrieval is not None  # noqa: S101 (the driver's side of the protocol)
    if query.number_images is not None:
        by_view, excluded = query.number_images(retrieval.snapshot)
        query = replace(query, own=frozenset().union(*by_view), own_by_view=tuple(by_view), excluded=excluded)
    state = SearchState(query, depth, candidates)
    ranked = SearchResult.of(query, retrieval, config=config, candidates=candidates, state=state)
    if not query.verify or query.local_features is None:
        yield replace(ranked.head(query.top), complete=True)
        return
    yield ranked.head(query.top)
    yield from VerifyingSteps(ranked.head(query.top), deadline, may_read_files).steps(ranked)


def resume_steps(
    result: SearchResult,
    deadline: Deadline = NO_DEADLINE,
    *,
    may_read_files: Callable[[], bool] = lambda: True,
) -> Pipeline:
    """Yield the results that follow one that a deadline cut short; a complete result is yielded as it is."""
    state = result.state
    if result.complete or state is None:
        yield result
        return
    ranked = SearchResult.of(
        state.query, result.original, config=result.config, candidates=state.candidates, state=state
    )
    yield from VerifyingSteps(result, deadline, may_read_files).steps(ranked)


class VerifyingSteps:
    """The verifying steps of one search, from its ranking on.

    Where a deadline cuts a step short, the steps after it return the result as it is.
    """

    def __init__(self, latest: SearchResult, deadline: Deadline, may_read_files: Callable[[], bool]) -> None:
        assert latest.state is not None  # noqa: S101 (the pipeline made it)
        self._state, self._query, self._config = latest.state, latest.state.query, latest.config
        self._deadline, self._may_read_files = deadline, may_read_files
        self._latest = latest
        """The last result that was yielded, or the one that is resumed."""
        self._advanced = False
        """Whether anything was computed: a resumed search does not yield once more what it repeats."""
        self._complete = True
        self.unchecked: list[int] = []
        """The images that there was no time for."""

    def steps(self, ranked: SearchResult) -> Pipeline:
        """Yield the results after the ranking, and the retrieval of the expanded query."""
        query = self._query
        result = yield from self.verify(ranked)
        yield from self._shown(result)
        result = yield from self.verify_shorter(result)
        if query.expand and not result.has_verified:
            result = yield from self.verify_full_resolution(result)
        if query.expand:
            result = yield from self.expand(result)
        if result.has_verified or not query.expand:
            result = yield from self.verify_full_resolution(result)
        last = replace(result.head(query.top), complete=self._complete, unchecked_images=tuple(self.unchecked))
        # A deadline that leaves no time to go on leaves a resumed result as it was.
        yield (
            last if self._advanced or self._complete else replace(self._latest, unchecked_images=last.unchecked_images)
        )

    @property
    def _views(self) -> Sequence[QueryFeatures]:
        """The local features of the query; none where there was no time to extract them."""
        if not self._state.views and self._query.local_features is not None:
            self._state.views = tuple(self._query.local_features())
        return self._state.views

    def _shown(self, result: SearchResult) -> Iterator[SearchResult]:
        """Yield a result, unless nothing is new in it."""
        if self._advanced and self._complete:
            self._latest = result.head(self._query.top)
            yield self._latest

    def _may_go_on(self) -> bool:
        """Return whether there is time for another computation; the search is cut short if there is none."""
        if self._deadline.has_passed:
            self._complete = False
            return False
        self._advanced = True
        return True

    def verify(self, ranked: SearchResult) -> Steps:
        """Verify the first images of a ranking, more while many of them are verified, then those with most votes."""
        state, first, limits = self._state, self._query.verify, self._config.depth
        snapshot = ranked.retrieval.snapshot
        limit = first if snapshot.local is None else limits.max_factor * first
        images = ranked.images[:limit].tolist()
        known = last = yield from self._verify_stored(ranked, images[:first])
        while (
            self._complete and len(known) < len(images) and _n_verified(last) >= limits.min_verified_share * len(last)
        ):
            last = yield from self._verify_stored(ranked, images[len(known) : len(known) + first])
            known = {**known, **last}
        if self._complete and state.voted is None and self._may_go_on():
            # Each view votes for as many: a further example takes no place from what the others verify.
            votes = (vote_for_images(snapshot, ranked.images, [view], first, self._config) for view in self._views)
            state.voted = list(dict.fromkeys(chain.from_iterable(votes)))
        if self._complete:
            voted = [image for image in state.voted or () if image not in known]
            known = {**known, **(yield from self._verify_stored(ranked, voted))}
        return self._with(ranked, known, Stage.VERIFIED) if known or self._complete else ranked

    def verify_shorter(self, before: SearchResult) -> RetrievingSteps:
        """Search for the query without its last photo, and add what is verified there.

        One more photo changes the ranking, the expansion and with them the images that are verified. So whatever is
        verified for some photos of an object stays verified when another is added to them.
        """
        state, shorter = self._state, self._shorter()
        if shorter is None or not self._complete:
            return before
        if state.shorter_retrieval is None:
            if not self._may_go_on():
                return before
            request = Retrieve(before.retrieval.snapshot, shorter.query.regions, state.depth, self._query.method)
            state.shorter_retrieval = yield request
            assert state.shorter_retrieval is not None  # noqa: S101 (the driver's side of the protocol)
        last = ranked = SearchResult.of(
            shorter.query,
            state.shorter_retrieval,
            config=self._config,
            candidates=state.candidates,
            state=shorter,
        )
        verifying = VerifyingSteps(ranked, self._deadline, self._may_read_files)
        steps = verifying.steps(ranked)
        step = next(steps, None)
        while step is not None:
            if isinstance(step, Retrieve):
                step = steps.send((yield step))
                continue
            last = step
            if step.progress is not None:
                yield replace(self._latest, progress=step.progress)
            step = next(steps, None)
        self._complete &= last.complete
        self._advanced |= verifying._advanced
        self.unchecked += last.unchecked_images
        ungraded = {image: one.ungraded or one for image, one in last.verifications.items()}
        verified = {image: one for image, one in ungraded.items() if one.verified}
        known = dict(before.verifications)
        if self._complete:
            known |= yield from self._verify_stored(before, [image for image in verified if image not in known])
        known |= {image: surest((known.get(image, one), one)) for image, one in verified.items()}
        return self._with(before, known, Stage.VERIFIED)

    def _shorter(self) -> SearchState | None:
        """Return the search for the query without its last photo; None for a single photo, and for one too many."""
        state, query = self._state, self._query
        if state.n_containing >= self._config.depth.max_shorter:
            return None
        numbers = view_numbers(self._views)
        n = len(set(numbers)) - 1
        # The regions of a view may be given without its photo, which has no local features then.
        if n < 1 or n + 1 != query.regions.n_views:
            return None
        if state.shorter is None:
            views = tuple(view for view, number in zip(self._views, numbers, strict=True) if number < n)
            own = query.own_by_view[:n]
            shorter = replace(
                query,
                regions=query.regions.first_views(n),
                local_features=lambda: views,
                top=None,
                own=frozenset().union(*own) if own else query.own,
                own_by_view=own,
            )
            state.shorter = SearchState(
                shorter, state.depth, state.candidates, views, state.by_view, n_containing=state.n_containing + 1
            )
        return state.shorter

    def expand(self, before: SearchResult) -> RetrievingSteps:
        """Retrieve the images for the query expanded by verified images, and verify the first that are not yet."""
        state, query = self._state, self._query
        expanded = (
            expand_query(before.retrieval, before.verifications, self._config.expansion) if self._complete else None
        )
        if expanded is None:
            return before
        name = expanded.rows.tobytes()
        if name not in state.retrievals:
            if not self._may_go_on():
                return before
            # On the snapshot that was searched: its regions are those of the expanded query.
            retrieval = yield Retrieve(before.retrieval.snapshot, expanded, state.depth, query.method)
            assert retrieval is not None  # noqa: S101 (the driver's side of the protocol)
            state.retrievals[name] = retrieval
        ranked = SearchResult.of(
            query,
            state.retrievals[name],
            config=self._config,
            candidates=state.candidates,
            unexpanded=before,
            state=state,
        )
        first = ranked.images[: self._config.depth.expanded_factor * query.verify].tolist()
        new = yield from self._verify_stored(ranked, [image for image in first if image not in before.verifications])
        result = self._with(ranked, {**before.verifications, **new}, Stage.EXPANDED)
        yield from self._shown(result)
        return result

    def verify_full_resolution(self, result: SearchResult) -> Steps:
        """Verify the most promising unverified images from their files, more while these are verified."""
        limits, known = self._config.full_resolution, self._state.full_resolution
        snapshot = result.retrieval.snapshot
        ranked = [image for image in result.by_score.images.tolist() if image not in result.own]
        candidates = islice(
            full_resolution_candidates(snapshot, ranked, result.verifications, self._views, self._config),
            limits.max_images,
        )
        new: dict[int, Verification] = {}
        while self._complete and (batch := dict(islice(candidates, limits.batch_size))):
            if not (batch.keys() <= known.keys() or self._may_read_files()):
                self._complete = False
                self.unchecked += batch
                break
            checked = yield from self._verify_each(known, batch, thread_count())
            new |= checked
            if _n_verified(checked) < limits.min_verified_to_continue:
                break
        # A file that cannot be read says nothing, and takes nothing back.
        new = {image: one for image, one in new.items() if one.verified is not None}
        return self._with(result, {**result.verifications, **new}, Stage.FULL_RESOLUTION) if new else result

    def _verify_stored(self, ranked: SearchResult, images: Sequence[int]) -> Verifying:
        """Verify images from stored features, or from their files in an index without."""
        snapshot = ranked.retrieval.snapshot
        sources = load_or_locate_features(snapshot, [snapshot.catalogue[image] for image in images])
        size = thread_count() if snapshot.local is None else self._config.depth.batch_size
        return (yield from self._verify_each(self._state.verifications, dict(zip(images, sources, strict=True)), size))

    def _verify_each(
        self, known: dict[int, Verification], sources: Mapping[int, FeatureSource], size: int
    ) -> Verifying:
        """Verify images that are not yet `known`, `size` at a time until the deadline; return the known ones of all."""
        left = [image for image in sources if image not in known]
        while left:
            if not (self._may_go_on() and self._views):
                self._complete = False
                self.unchecked += left
                break
            n_checked, batch, left = len(sources) - len(left), left[:size], left[size:]
            reads_files = any(not isinstance(sources[image], PackedFeatures) for image in batch)
            yield replace(self._latest, progress=Progress(n_checked, len(sources), reads_files))
            known |= self._verify_batch({image: sources[image] for image in batch})
        return {image: known[image] for image in sources if image in known}

    def _verify_batch(self, sources: Mapping[int, FeatureSource]) -> dict[int, Verification]:
        """Verify images against all views; what a shorter query verified is known."""
        full_resolution = any(isinstance(source, ImageFile) for source in sources.values())
        both_ways = any(view.mirrored for view in self._views)
        by_view = []
        for number, view in zip(view_numbers(self._views), self._views, strict=True):
            known = self._state.by_view.setdefault((number, view.mirrored, full_resolution), {})
            left = [image for image in sources if image not in known]
            found = verify_view(view, number, [sources[image] for image in left], self._config, both_ways=both_ways)
            known |= zip(left, found, strict=True)
            by_view.append(known)
        return {image: surest(known[image] for known in by_view) for image in sources}

    def _with(self, result: SearchResult, verifications: Mapping[int, Verification], stage: Stage) -> SearchResult:
        is_part = all(view.is_part for view in self._views)
        if is_part:
            verifications = grade_verifications(
                result.retrieval.snapshot,
                verifications,
                result.own,
                self._state.matches_of_results,
                self._config,
                lambda: self._complete and self._may_go_on(),
            )
        return result.with_verifications(verifications, stage, is_part=is_part)


def _n_verified(verifications: Mapping[int, Verification]) -> int:
    return sum(one.verified is True for one in verifications.values())


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
