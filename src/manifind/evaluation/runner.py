"""Methods run on data: `evaluate` measures one estimator, a `Runner` many methods, whose rankings it caches."""

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.baselines import Baseline
from manifind.baselines.scorer import FindNeighbours
from manifind.errors import ConvergenceWarning, MissingExtraError
from manifind.evaluation import measures
from manifind.evaluation.cache import Cache, code_checksum
from manifind.evaluation.dataset import EvaluationSet
from manifind.evaluation.measures import bootstrap_ci
from manifind.evaluation.methods import MethodSpec
from manifind.evaluation.protocol import Task
from manifind.graph import Neighbours, exact_neighbours
from manifind.types import FloatArray, Progress, StageProgress

PRECISION_RANKS = (1, 5, 10)
"""Ranks at which the mean precision is given, as in the Revisited protocol."""
DEFAULT_DEFINITION = "trapezoid"
TIMED_QUERIES, TIMED_SECONDS = 5, 5.0
"""A single search is timed on so many queries, fewer once they have taken so long."""


@dataclass(frozen=True)
class EvaluationResult:
    """The rankings of a dataset's queries by one estimator, their measures, and what they cost."""

    data: EvaluationSet
    rankings: tuple[npt.NDArray[np.int32], ...]
    """The images of each query, best first."""
    costs: dict[str, float]
    """``fit_seconds`` off line, without the neighbours that methods share; ``batch_seconds`` of a query with all in one
    batch, ``single_seconds`` of one alone; the ``residual`` of a solver; the costs that the method itself reports."""
    n_matches: tuple[int, ...] | None = None
    """How many of the first images of each query the estimator calls matches; None where it has no cutoff."""
    _measured: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False, compare=False)
    """Measures computed so far, by task and measure: every table and file needs them again."""

    def _task(self, task: Task | None) -> Task:
        """Return the task, by default the dataset's first."""
        return self.data.protocol.tasks[0] if task is None else task

    def _each(self, task: Task, measure: Callable[..., float]) -> npt.NDArray[np.float64]:
        """Return a measure of each query; NaN for one without positives in this task."""
        return np.array(
            [
                measure(ranked, positives, junk=junk) if len(positives) else np.nan
                for ranked, positives, junk in zip(self.rankings, task.positives, task.junk, strict=True)
            ]
        )

    def average_precisions(
        self, task: Task | None = None, definition: str = DEFAULT_DEFINITION
    ) -> npt.NDArray[np.float64]:
        """Return the average precision of each query; NaN for one without positives in this task."""
        task = self._task(task)
        key = (task.name, definition)
        if key not in self._measured:
            self._measured[key] = self._each(task, partial(measures.average_precision, definition=definition))
        precisions: npt.NDArray[np.float64] = self._measured[key]
        return precisions

    def mean_average_precision(self, task: Task | None = None, definition: str = DEFAULT_DEFINITION) -> float:
        """Return mAP in percent."""
        return float(100 * np.nanmean(self.average_precisions(task, definition)))

    def positives_in_first(self, task: Task, k: int) -> list[int]:
        """Return how many of the first k images of each query are positives, junk ignored."""
        precisions = self._each(task, partial(measures.precision_at, k=k, last=False))
        return [round(k * value) for value in np.nan_to_num(precisions)]

    def precision_of_positives(self, task: Task, query: int) -> npt.NDArray[np.float64]:
        """Return the precision of each of a query's positives at its rank."""
        if not len(task.positives[query]):
            return np.empty(0)
        return measures.precision_of_positives(self.rankings[query], task.positives[query], task.junk[query])

    def figures(self, task: Task | None = None) -> dict[str, float]:
        """Return every measure in percent, by name: mAP by each definition with its interval, mP@k, the cutoff's."""
        task = self._task(task)
        if (task.name, "everything") not in self._measured:
            self._measured[task.name, "everything"] = self._figures(task)
        return dict(self._measured[task.name, "everything"])

    def _figures(self, task: Task) -> dict[str, float]:
        figures = {}
        for definition in measures.DEFINITIONS:
            each = 100 * self.average_precisions(task, definition)
            figures[f"mAP_{definition}"] = float(np.nanmean(each))
            figures[f"mAP_{definition}_low"], figures[f"mAP_{definition}_high"] = bootstrap_ci(each)
        if self.n_matches is not None:
            pairs = [
                measures.precision_and_recall(ranked, positives, cutoff, junk)
                for ranked, positives, cutoff, junk in zip(
                    self.rankings, task.positives, self.n_matches, task.junk, strict=True
                )
                if len(positives)
            ]
            figures["cutoff_precision"], figures["cutoff_recall"] = (100 * np.mean(pairs, axis=0)).tolist()
        for k in PRECISION_RANKS:
            figures[f"mP@{k}"] = float(100 * np.nanmean(self._each(task, partial(measures.precision_at, k=k))))
        return figures


def evaluate(
    estimator: Any,
    data: EvaluationSet,
    *,
    fit: bool = True,
    find: FindNeighbours | None = None,
    progress: Progress | None = None,
) -> EvaluationResult:
    """Fit an estimator on the images of a dataset, search for its queries, and return the measured rankings.

    Parameters
    ----------
    estimator
        `Manifold`, a baseline, or any object with ``fit(vectors, image_of)`` and ``search_many(queries)``, which
        returns for each query an object with ``images``: image numbers, best first.
    data : EvaluationSet
        Descriptors, queries and ground truth: `EvaluationSet.from_arrays`, or what `prepare` returned.
    fit : bool, default True
        False for an estimator that was fitted on these images before.
    find : callable, optional
        Finds neighbours in place of a baseline's own search, so that several share their lists.
    progress : callable, optional
        Called where all regions are compared with all, with the rows done and the rows in all.

    Examples
    --------
    >>> data = EvaluationSet.from_arrays(vectors, image_of, queries=queries, positives=positives)
    >>> evaluate(Manifold(k=50), data).mean_average_precision()
    """
    began = time.perf_counter()
    if fit:
        estimator = data.fit(estimator, find, progress)
    fitted = time.perf_counter()
    rankings = data.search(estimator)
    searched = time.perf_counter()
    single = list[float]()
    while len(single) < min(TIMED_QUERIES, len(rankings)) and sum(single) < TIMED_SECONDS:
        start = time.perf_counter()
        data.search(estimator, [len(single)])
        single.append(time.perf_counter() - start)
    costs = {
        "fit_seconds": fitted - began,
        "batch_seconds": (searched - fitted) / len(rankings),
        "single_seconds": float(np.median(single)),
        "residual": float(np.median([getattr(ranking, "residual", 0.0) for ranking in rankings])),
        **(estimator.costs() if isinstance(estimator, Baseline) else {}),
    }
    cutoffs = [count for ranking in rankings if (count := getattr(ranking, "n_matches", None)) is not None]
    n_matches = tuple(cutoffs) if len(cutoffs) == len(rankings) else None
    return EvaluationResult(data, tuple(np.asarray(ranking.images) for ranking in rankings), costs, n_matches)


LAYOUT = 3
"""The version of the layout of cached runs."""
RANKING_CODE = ("baselines", "manifold", "ranking.py", "gmm.py", "diffusion", "graph", "kernels", "groups.py")
"""The packages and modules that rankings depend on."""
INDEX_CODE = ("index", "features", "io", "geometry")
"""Further packages that a search of an index depends on."""


@dataclass(frozen=True)
class Run(EvaluationResult):
    """The result of one method of the table."""

    spec: MethodSpec = field(kw_only=True)
    from_cache: bool = field(kw_only=True)
    """Whether the rankings come from an earlier run."""


class Runner:
    """Runs methods, or takes their rankings from the cache of earlier runs.

    With `fresh`, everything is computed and cached again. `warn` is called with a sentence about each method that is
    left out because a package is not installed.
    """

    def __init__(
        self,
        cache: Cache,
        progress: StageProgress = lambda *_: None,
        warn: Callable[[str], None] = lambda _: None,
        *,
        fresh: bool = False,
    ) -> None:
        self._cache = cache
        self._warn = warn
        self._progress = progress
        self._fresh = fresh

    def run(self, data: EvaluationSet, specs: Iterable[MethodSpec]) -> dict[str, Run]:
        """Run methods on data, equal ones once; return the runs by `MethodSpec.key`.

        Methods that need what the data do not have are left out.
        """
        distinct = {spec.key: spec for spec in specs if data.provides(spec.method.needs)}
        runs = {key: run for key, spec in distinct.items() if (run := self._from_cache(data, spec)) is not None}
        missing = [spec for key, spec in distinct.items() if key not in runs]
        # The longest lists first: the others take their first columns. Methods on equal graphs run one after another.
        missing.sort(key=lambda spec: (spec.method.make.__qualname__, -_k(spec), spec.key))
        lists = SharedNeighbours(data)
        estimator: Any = None
        for number, spec in enumerate(missing):
            self._progress(f"methods, {data.protocol.name}", number, len(missing))
            try:
                estimator, run = self._compute(data, spec, estimator, lists)
                runs[spec.key] = run
            except MissingExtraError as missing_extra:
                self._warn(f"{spec.method.name} is left out: {missing_extra}")
        if missing:
            self._progress(f"methods, {data.protocol.name}", len(missing), len(missing))
        return runs

    def _from_cache(self, data: EvaluationSet, spec: MethodSpec) -> Run | None:
        stored = None if self._fresh else self._cache.get(_key(data, spec))
        if stored is None or len(stored[1]["images"]) != len(data.protocol.queries):
            return None
        return _run(spec, data, stored[1], stored[0]["costs"], from_cache=True)

    def _compute(self, data: EvaluationSet, spec: MethodSpec, last: Any, lists: "SharedNeighbours") -> tuple[Any, Run]:
        parameters = dict(spec.parameters)
        # The previous estimator is used again where it fits this method too.
        reused = type(last) is spec.method.make and isinstance(last, Baseline) and last.try_params(parameters)
        estimator = last if reused else spec.method.make(**parameters)
        progress = partial(self._progress, f"{spec.method.name}, {data.protocol.name}")
        shared = lists.seconds
        with warnings.catch_warnings():
            # Curves cut iterations short on purpose.
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = evaluate(estimator, data, fit=not reused, find=lists.find, progress=progress)
        costs = dict(result.costs)
        costs["fit_seconds"] -= lists.seconds - shared
        if lists.seconds and "affinity_seconds" in costs and data.regional:
            costs["neighbours_seconds"] = lists.seconds
        table = np.full((len(result.rankings), max(map(len, result.rankings))), -1, np.int32)
        for row, images in zip(table, result.rankings, strict=True):
            row[: len(images)] = images
        arrays = {"images": table}
        if result.n_matches is not None:
            arrays["n_matches"] = np.array(result.n_matches, np.int32)
        key = _key(data, spec)
        self._cache.put(key, {"costs": costs}, arrays)
        # The cached arrays are memory-mapped: rankings of many methods need not fit in memory.
        stored = self._cache.get(key)
        return estimator, _run(spec, data, arrays if stored is None else stored[1], costs, from_cache=False)


class SharedNeighbours:
    """The neighbours of all regions of one dataset, from its index or computed once, for all methods."""

    def __init__(self, data: EvaluationSet) -> None:
        self._vectors = data.images.regional.vectors if data.images.regional is not None else None
        self._lists = data.neighbours
        self.seconds = 0.0

    def find(self, vectors: FloatArray, k: int, progress: Progress | None) -> Neighbours:
        """Return the lists of these vectors; the lists of the collection's own regions are shared."""
        if vectors is not self._vectors:
            return exact_neighbours(vectors, k, progress=progress)
        if self._lists is None or self._lists.ids.shape[1] < k:
            self._lists = None
            began = time.perf_counter()
            self._lists = exact_neighbours(vectors, k, progress=progress)
            self.seconds += time.perf_counter() - began
        return self._lists


def _k(spec: MethodSpec) -> int:
    k = spec.parameters.get("k", 0)
    return k if isinstance(k, int) else 0


def _run(
    spec: MethodSpec,
    data: EvaluationSet,
    arrays: dict[str, npt.NDArray[Any]],
    costs: dict[str, float],
    *,
    from_cache: bool,
) -> Run:
    n_matches = tuple(arrays["n_matches"].tolist()) if "n_matches" in arrays else None
    return Run(data, _strip_padding(arrays["images"]), costs, n_matches, spec=spec, from_cache=from_cache)


def _strip_padding(table: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], ...]:
    """Return the rows of a table without the -1 at their ends, as views."""
    return tuple(row[: np.count_nonzero(row >= 0)] for row in table)


def _key(data: EvaluationSet, spec: MethodSpec) -> dict[str, Any]:
    code = code_checksum(*RANKING_CODE)
    key = {"descriptors": data.checksum, "method": spec.key, "code": code, "layout": LAYOUT}
    if data.index is not None and spec.method.needs == "index":
        index = data.index
        key |= {"index": index.state.stamp, "index code": code_checksum(*INDEX_CODE)}
    return key
