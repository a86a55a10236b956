"""Methods run on data: rankings, kept between runs, and how good they are."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from manifind.checks import whole_number
from manifind.diffusion import ENGINES
from manifind.errors import ManifindWarning, MissingExtra
from manifind.evaluate.average_precision import (
    DEFINITIONS,
    average_precision,
    precision_at,
    precision_of_positives,
)
from manifind.evaluate.cache import Cache
from manifind.evaluate.data import Data
from manifind.evaluate.methods import OF_SEARCH, Choice
from manifind.evaluate.protocol import Task
from manifind.graph import Neighbours, exact_neighbours
from manifind.manifold import Manifold
from manifind.ranking import Ranking
from manifind.types import StageProgress
from manifind.version import VERSION

T = TypeVar("T")
AT = (1, 5, 10)
"""Ranks at which the mean precision is given, as in the Revisited protocol."""
OF_GRAPH = ("k", "gamma", "pooling", "lam", "graph")


@dataclass(frozen=True)
class Run:
    """What one method made of one protocol's queries."""

    choice: Choice
    data: Data
    rankings: tuple[npt.NDArray[np.int32], ...]
    """The images of each query, best first."""
    fit_seconds: float
    """Off line, without finding neighbours for the graph of all regions, which methods share."""
    query_seconds: float
    """On line, for each query on average, all queries in one batch."""
    kept: bool
    """Whether it was taken from an earlier run."""

    def average_precisions(self, task: Task, definition: str) -> npt.NDArray[np.float64]:
        """Return the average precision of each query; NaN for one without positives in this task."""
        return np.array(
            [
                average_precision(ranked, wanted, passed_over, definition=definition) if len(wanted) else np.nan
                for ranked, wanted, passed_over in zip(self.rankings, task.positives, task.junk, strict=True)
            ]
        )

    def mean_average_precision(self, task: Task, definition: str) -> float:
        """Return mAP in percent."""
        return float(100 * np.nanmean(self.average_precisions(task, definition)))

    def precisions_at(self, task: Task, k: int) -> npt.NDArray[np.float64]:
        """Return the precision of each query at rank k, as `precision_at`; NaN for one without positives."""
        return np.array(
            [
                precision_at(ranked, wanted, k, passed_over) if len(wanted) else np.nan
                for ranked, wanted, passed_over in zip(self.rankings, task.positives, task.junk, strict=True)
            ]
        )

    def right_of_first(self, task: Task, k: int) -> list[int]:
        """Return how many of the first k images of each query are positives, junk passed over."""
        return [
            round(k * precision_at(ranked, wanted, k, passed_over, last=False)) if len(wanted) else 0
            for ranked, wanted, passed_over in zip(self.rankings, task.positives, task.junk, strict=True)
        ]

    def mean_precision_at(self, task: Task, k: int) -> float:
        """Return mP@k in percent."""
        return float(100 * np.nanmean(self.precisions_at(task, k)))

    def precision_of_positives(self, task: Task, query: int) -> npt.NDArray[np.float64]:
        """Return the precision of each of a query's positives at its rank."""
        return precision_of_positives(self.rankings[query], task.positives[query], task.junk[query])

    def figures(self, task: Task) -> dict[str, float]:
        """Return everything that is measured, in percent, by name."""
        found = {f"mAP_{one}": self.mean_average_precision(task, one) for one in DEFINITIONS}
        return found | {f"mP@{k}": self.mean_precision_at(task, k) for k in AT}


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
        self._done: dict[str, Run] = {}
        self._graph: _Graph | None = None

    def run(self, data: Data, choices: Sequence[Choice], stage: str = "methods") -> list[Run | None]:
        """Run methods on data, in order; None for one that the descriptors are not for."""
        found: dict[int, Run | None] = {i: self._kept(data, choice) for i, choice in enumerate(choices)}
        missing = [i for i, run in found.items() if run is None and data.serves(choices[i].method.wants)]
        ks = [whole_number(choices[i].parameters["k"], "k") for i in missing if _on_exact_graph(choices[i])]
        longest = max(ks, default=0)
        # Those with equal graphs one after the other, so that each graph is made once.
        missing.sort(key=lambda i: repr([choices[i].parameters.get(name) for name in OF_GRAPH]))
        for number, i in enumerate(missing):
            self._progress(stage, number, len(missing))
            try:
                found[i] = self._computed(data, choices[i], longest)
            except MissingExtra as missing_extra:
                self._say(f"{choices[i].method.name} is left out: {missing_extra}")
        if missing:
            self._progress(stage, len(missing), len(missing))
        return [found[i] for i in range(len(choices))]

    def _kept(self, data: Data, choice: Choice) -> Run | None:
        key = _key(data, choice)
        if repr(key) in self._done:
            return replace(self._done[repr(key)], choice=choice)
        stored = None if self._fresh else self._cache.get(key)
        if stored is None:
            return None
        fields, arrays = stored
        if len(arrays["images"]) != len(data.protocol.queries):
            return None
        run = Run(choice, data, _unpadded(arrays["images"]), fields["fit_seconds"], fields["query_seconds"], kept=True)
        return self._note(key, run)

    def _computed(self, data: Data, choice: Choice, longest: int) -> Run:
        with warnings.catch_warnings():
            # An iteration that was cut short on purpose says so; its curve is the point.
            warnings.filterwarnings("ignore", message="engine=", category=ManifindWarning)
            rankings, fit_seconds, seconds = self._searched(data, choice, longest)
        each = seconds / len(rankings)
        table = np.full((len(rankings), max(map(len, rankings))), -1, np.int32)
        for row, ranking in zip(table, rankings, strict=True):
            row[: len(ranking)] = ranking.images
        key = _key(data, choice)
        self._cache.put(key, {"fit_seconds": fit_seconds, "query_seconds": each}, {"images": table})
        # What was written is memory-mapped: of many methods on many queries it need not all be in memory.
        stored = self._cache.get(key)
        images = table if stored is None else stored[1]["images"]
        return self._note(key, Run(choice, data, _unpadded(images), fit_seconds, each, kept=False))

    def _searched(self, data: Data, choice: Choice, longest: int) -> tuple[list[Ranking], float, float]:
        parameters = dict(choice.parameters)
        size = parameters.pop("size", None)
        of_search = {name: parameters.pop(name) for name in OF_SEARCH if choice.method.on_graph}
        began = time.perf_counter()
        if choice.method.wants == "photos":
            images, queries = _there(data.for_photos())
            name = f"{choice.method.name}, {data.protocol.name}"
            estimator = choice.method.make(**parameters).fit(
                images, progress=lambda done, all_: self._progress(name, done, all_)
            )
            fitted = time.perf_counter()
            return estimator.search_many(queries), fitted - began, time.perf_counter() - fitted
        descriptors, regions = _there(data.for_method(choice.method.wants))
        if choice.method.on_graph:
            if self._graph is None or self._graph.data is not data:
                self._graph = _Graph(data, self._progress)
            lists = self._graph.lists(longest) if _on_exact_graph(choice) else None
            began = time.perf_counter()
            estimator = self._graph.manifold(lists, parameters)
        else:
            name = f"{choice.method.name}, {data.protocol.name}"
            estimator = choice.method.make(**parameters).fit(
                descriptors.vectors, descriptors.of, progress=lambda done, all_: self._progress(name, done, all_)
            )
        engine = str(choice.parameters.get("engine"))
        if engine in ENGINES and ENGINES[engine].whole:
            name = f"{choice.method.name}, off line, {data.protocol.name}"
            manifold = estimator if isinstance(estimator, Manifold) else estimator.manifold_
            manifold.prepare(engine, size=size, progress=lambda done, all_: self._progress(name, done, all_))
        fitted = time.perf_counter()
        rankings = estimator.search_many(regions, **of_search)
        return rankings, fitted - began, time.perf_counter() - fitted

    def _note(self, key: Any, run: Run) -> Run:
        self._done[repr(key)] = run
        return run


class _Graph:
    """The neighbours of all regions of one collection, and the last graph made of them."""

    def __init__(self, data: Data, progress: StageProgress) -> None:
        self.data = data
        self._progress = progress
        self._lists: Neighbours | None = None
        self._manifold: Manifold | None = None

    def lists(self, k: int) -> Neighbours:
        vectors = _there(self.data.images.regional).vectors
        k = min(k, len(vectors) - 1)
        if self._lists is None or self._lists.ids.shape[1] < k:
            self._lists = None
            name = f"neighbours, {self.data.protocol.name}"
            self._lists = exact_neighbours(vectors, k, progress=lambda done, all_: self._progress(name, done, all_))
        return self._lists

    def manifold(self, lists: Neighbours | None, parameters: dict[str, Any]) -> Manifold:
        """Return a manifold with these parameters, of these lists or its own; the last one if its graph is the same."""
        last = self._manifold
        if last is not None and all(last.get_params()[name] == parameters[name] for name in OF_GRAPH):
            return last.set_params(**parameters)
        self._manifold = None
        regional = _there(self.data.images.regional)
        self._manifold = Manifold(**parameters).fit(regional.vectors, regional.of, neighbours=lists)
        return self._manifold


def _on_exact_graph(choice: Choice) -> bool:
    """Whether it is on the lists that are found once for all: "auto" too, so that figures are every machine's."""
    return choice.method.on_graph and choice.parameters["graph"] in ("auto", "exact")


def _unpadded(table: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], ...]:
    """Return the rows of a table without the -1 at their ends, as views."""
    return tuple(row[: np.count_nonzero(row >= 0)] for row in table)


def _there(found: T | None) -> T:
    assert found is not None  # noqa: S101 (`Runner.run` asks `Data.serves` first)
    return found


def _key(data: Data, choice: Choice) -> dict[str, Any]:
    return {
        "descriptors": data.checksum,
        "method": choice.method.name,
        "make": f"{choice.method.make.__module__}.{choice.method.make.__qualname__}",
        "parameters": dict(choice.parameters),
        "version": VERSION,
    }
