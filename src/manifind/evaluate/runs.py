"""Methods run on data: every method the same way, its rankings kept between runs."""

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.errors import ManifindWarning, MissingExtra
from manifind.evaluate import measures
from manifind.evaluate.cache import Cache, checksum_of_code
from manifind.evaluate.confidence import interval
from manifind.evaluate.data import Data
from manifind.evaluate.methods import Choice
from manifind.evaluate.protocol import Task
from manifind.graph import Neighbours, exact_neighbours
from manifind.ranking import Ranking
from manifind.types import FloatArray, Progress, StageProgress

AT = (1, 5, 10)
"""Ranks at which the mean precision is given, as in the Revisited protocol."""
ALONE = 5
"""How many queries are searched one by one, to time a single search."""
LAYOUT = 2
"""The number of the layout in which runs are kept."""
ROOMS = ("baselines", "manifold", "ranking.py", "compact.py", "diffusion", "graph", "kernels", "layout.py")
"""The rooms whose code rankings depend on."""


@dataclass(frozen=True)
class Run:
    """What one method made of one protocol's queries."""

    choice: Choice
    data: Data
    rankings: tuple[npt.NDArray[np.int32], ...]
    """The images of each query, best first."""
    costs: dict[str, float]
    """``fit_seconds`` off line, without the neighbours that methods share, ``batch_seconds`` of a query with all in one
    batch, ``single_seconds`` of one alone, the ``residual`` of a solver, and what the method itself says of costs."""
    kept: bool
    """Whether the rankings were kept from an earlier run."""
    lines: tuple[int, ...] | None = None
    """How many images of each query the method believes in; None where it draws no line."""
    _measured: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False, compare=False)
    """What was measured so far, by task and measure. It is kept because every table and file asks for it again."""

    def _each(self, task: Task, measure: Callable[..., float]) -> npt.NDArray[np.float64]:
        """Return a measure of each query; NaN for one without positives in this task."""
        return np.array(
            [
                measure(ranked, wanted, junk=passed_over) if len(wanted) else np.nan
                for ranked, wanted, passed_over in zip(self.rankings, task.positives, task.junk, strict=True)
            ]
        )

    def average_precisions(self, task: Task, definition: str) -> npt.NDArray[np.float64]:
        """Return the average precision of each query; NaN for one without positives in this task."""
        key = (task.name, definition)
        if key not in self._measured:
            self._measured[key] = self._each(task, partial(measures.average_precision, definition=definition))
        found: npt.NDArray[np.float64] = self._measured[key]
        return found

    def mean_average_precision(self, task: Task, definition: str) -> float:
        """Return mAP in percent."""
        return float(100 * np.nanmean(self.average_precisions(task, definition)))

    def right_of_first(self, task: Task, k: int) -> list[int]:
        """Return how many of the first k images of each query are positives, junk passed over."""
        found = self._each(task, partial(measures.precision_at, k=k, last=False))
        return [round(k * value) for value in np.nan_to_num(found)]

    def precision_of_positives(self, task: Task, query: int) -> npt.NDArray[np.float64]:
        """Return the precision of each of a query's positives at its rank."""
        if not len(task.positives[query]):
            return np.empty(0)
        return measures.precision_of_positives(self.rankings[query], task.positives[query], task.junk[query])

    def figures(self, task: Task) -> dict[str, float]:
        """Return everything that is measured, in percent, by name."""
        if (task.name, "everything") not in self._measured:
            self._measured[task.name, "everything"] = self._figures(task)
        return dict(self._measured[task.name, "everything"])

    def _figures(self, task: Task) -> dict[str, float]:
        found = {}
        for definition in measures.DEFINITIONS:
            each = 100 * self.average_precisions(task, definition)
            found[f"mAP_{definition}"] = float(np.nanmean(each))
            found[f"mAP_{definition}_low"], found[f"mAP_{definition}_high"] = interval(each)
        if self.lines is not None:
            pairs = [
                measures.precision_and_recall(ranked, wanted, line, passed_over)
                for ranked, wanted, line, passed_over in zip(
                    self.rankings, task.positives, self.lines, task.junk, strict=True
                )
                if len(wanted)
            ]
            found["line_precision"], found["line_recall"] = (100 * np.mean(pairs, axis=0)).tolist()
        for k in AT:
            found[f"mP@{k}"] = float(100 * np.nanmean(self._each(task, partial(measures.precision_at, k=k))))
        return found


class Runner:
    """Runs methods, taking what was kept from earlier runs.

    Parameters
    ----------
    cache
        Where rankings are kept.
    progress
        Called with a stage, how much of it is done, and how much there is.
    say : callable
        Told of methods that are left out because a package is not installed.
    fresh : bool
        Compute everything again, and keep it.
    """

    def __init__(
        self,
        cache: Cache,
        progress: StageProgress = lambda *_: None,
        say: Callable[[str], None] = lambda _: None,
        *,
        fresh: bool = False,
    ) -> None:
        self._cache = cache
        self._say = say
        self._progress = progress
        self._fresh = fresh

    def run(self, data: Data, choices: Iterable[Choice]) -> dict[str, Run]:
        """Run methods on data, each thing that is to be computed once.

        Returns what came of each by `Choice.key`, without those that the descriptors are not for.
        """
        wanted = {choice.key: choice for choice in choices if data.serves(choice.method.wants)}
        found = {key: run for key, choice in wanted.items() if (run := self._kept(data, choice)) is not None}
        missing = [choice for key, choice in wanted.items() if key not in found]
        # The longest lists first, which the others take a part of; those on equal graphs one after the other.
        missing.sort(key=lambda one: (one.method.make.__qualname__, -_k(one), one.key))
        lists = _Lists(data)
        estimator: Any = None
        for number, choice in enumerate(missing):
            self._progress(f"methods, {data.protocol.name}", number, len(missing))
            try:
                estimator, run = self._computed(data, choice, estimator, lists)
                found[choice.key] = run
            except MissingExtra as missing_extra:
                self._say(f"{choice.method.name} is left out: {missing_extra}")
        if missing:
            self._progress(f"methods, {data.protocol.name}", len(missing), len(missing))
        return found

    def _kept(self, data: Data, choice: Choice) -> Run | None:
        stored = None if self._fresh else self._cache.get(_key(data, choice))
        if stored is None or len(stored[1]["images"]) != len(data.protocol.queries):
            return None
        return _run(choice, data, stored[1], stored[0]["costs"], kept=True)

    def _computed(self, data: Data, choice: Choice, last: Any, lists: "_Lists") -> tuple[Any, Run]:
        with warnings.catch_warnings():
            # An iteration that was cut short on purpose says so; its curve is the point.
            warnings.filterwarnings("ignore", message="engine=", category=ManifindWarning)
            estimator, rankings, costs = self._searched(data, choice, last, lists)
        table = np.full((len(rankings), max(map(len, rankings))), -1, np.int32)
        for row, ranking in zip(table, rankings, strict=True):
            row[: len(ranking)] = ranking.images
        key = _key(data, choice)
        arrays = {"images": table}
        lines = [getattr(ranking, "likely", None) for ranking in rankings]
        if None not in lines:
            arrays["lines"] = np.array(lines, np.int32)
        self._cache.put(key, {"costs": costs}, arrays)
        # What was written is memory-mapped: of many methods on many queries it need not all be in memory.
        stored = self._cache.get(key)
        return estimator, _run(choice, data, arrays if stored is None else stored[1], costs, kept=False)

    def _searched(
        self, data: Data, choice: Choice, last: Any, lists: "_Lists"
    ) -> tuple[Any, list[Ranking], dict[str, float]]:
        """Return the fitted estimator, its rankings, and its costs.

        The estimator of the method before is used again where it serves this method too.
        """
        parameters = dict(choice.parameters)
        serves = type(last) is choice.method.make and hasattr(last, "serves") and last.serves(parameters)
        stage = f"{choice.method.name}, {data.protocol.name}"
        progress = partial(self._progress, stage)
        began, shared = time.perf_counter(), lists.seconds
        estimator = last if serves else data.fit(choice.method.make(**parameters), lists.find, progress)
        fitted = time.perf_counter()
        rankings = data.search(estimator)
        searched = time.perf_counter()
        alone = []
        for number in range(min(ALONE, len(rankings))):
            start = time.perf_counter()
            data.search(estimator, [number])
            alone.append(time.perf_counter() - start)
        costs = {
            "fit_seconds": fitted - began - (lists.seconds - shared),
            "batch_seconds": (searched - fitted) / len(rankings),
            "single_seconds": float(np.median(alone)),
            "residual": float(np.median([ranking.residual for ranking in rankings])),
        }
        if hasattr(estimator, "costs"):
            costs |= estimator.costs()
            if lists.seconds and "affinity_seconds" in costs and data.regional:
                costs["neighbours_seconds"] = lists.seconds
        return estimator, rankings, costs


class _Lists:
    """The neighbours of all regions of one collection, found once for all methods on them."""

    def __init__(self, data: Data) -> None:
        self._vectors = data.images.regional.vectors if data.images.regional is not None else None
        self._found: Neighbours | None = None
        self.seconds = 0.0

    def find(self, vectors: FloatArray, k: int, progress: Progress | None) -> Neighbours:
        """Return the lists of these vectors; only those of the collection's own regions are kept."""
        if vectors is not self._vectors:
            return exact_neighbours(vectors, k, progress=progress)
        if self._found is None or self._found.ids.shape[1] < k:
            self._found = None
            began = time.perf_counter()
            self._found = exact_neighbours(vectors, k, progress=progress)
            self.seconds += time.perf_counter() - began
        return self._found


def _k(choice: Choice) -> int:
    k = choice.parameters.get("k", 0)
    return k if isinstance(k, int) else 0


def _run(
    choice: Choice, data: Data, arrays: dict[str, npt.NDArray[Any]], costs: dict[str, float], *, kept: bool
) -> Run:
    lines = tuple(arrays["lines"].tolist()) if "lines" in arrays else None
    return Run(choice, data, _unpadded(arrays["images"]), costs, kept, lines)


def _unpadded(table: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], ...]:
    """Return the rows of a table without the -1 at their ends, as views."""
    return tuple(row[: np.count_nonzero(row >= 0)] for row in table)


def _key(data: Data, choice: Choice) -> dict[str, Any]:
    code = checksum_of_code(*ROOMS)
    key = {"descriptors": data.checksum, "method": choice.key, "code": code, "layout": LAYOUT}
    if data.index is not None and choice.method.wants == "index":
        index = data.index
        key |= {"index": index.state.stamp, "index code": checksum_of_code("index", "describe", "geometry")}
    return key
