"""Methods run on data: every method the same way, its rankings kept between runs."""

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.baselines import Baseline
from manifind.errors import ManifindWarning, MissingExtraError
from manifind.evaluation.cache import Cache, code_checksum
from manifind.evaluation.dataset import EvaluationSet
from manifind.evaluation.methods import MethodSpec
from manifind.evaluation.result import EvaluationResult, evaluate
from manifind.graph import Neighbours, exact_neighbours
from manifind.types import FloatArray, Progress, StageProgress

LAYOUT = 3
"""The number of the layout in which runs are kept."""
RANKING_CODE = ("baselines", "manifold", "ranking.py", "gmm.py", "diffusion", "graph", "kernels", "groups.py")
"""The packages and modules that rankings depend on."""
INDEX_CODE = ("index", "features", "io", "geometry")
"""Further packages that a search of an index depends on."""


@dataclass(frozen=True)
class Run(EvaluationResult):
    """The result of one method of the table."""

    spec: MethodSpec = field(kw_only=True)
    from_cache: bool = field(kw_only=True)
    """Whether the rankings were kept from an earlier run."""


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

    def run(self, data: EvaluationSet, specs: Iterable[MethodSpec]) -> dict[str, Run]:
        """Run methods on data, each thing that is to be computed once.

        Returns what came of each by `MethodSpec.key`, without those that the descriptors are not for.
        """
        wanted = {spec.key: spec for spec in specs if data.serves(spec.method.wants)}
        found = {key: run for key, spec in wanted.items() if (run := self._from_cache(data, spec)) is not None}
        missing = [spec for key, spec in wanted.items() if key not in found]
        # The longest lists first, which the others take a part of; those on equal graphs one after the other.
        missing.sort(key=lambda one: (one.method.make.__qualname__, -_k(one), one.key))
        lists = SharedNeighbours(data)
        estimator: Any = None
        for number, spec in enumerate(missing):
            self._progress(f"methods, {data.protocol.name}", number, len(missing))
            try:
                estimator, run = self._compute(data, spec, estimator, lists)
                found[spec.key] = run
            except MissingExtraError as missing_extra:
                self._say(f"{spec.method.name} is left out: {missing_extra}")
        if missing:
            self._progress(f"methods, {data.protocol.name}", len(missing), len(missing))
        return found

    def _from_cache(self, data: EvaluationSet, spec: MethodSpec) -> Run | None:
        stored = None if self._fresh else self._cache.get(_key(data, spec))
        if stored is None or len(stored[1]["images"]) != len(data.protocol.queries):
            return None
        return _run(spec, data, stored[1], stored[0]["costs"], from_cache=True)

    def _compute(self, data: EvaluationSet, spec: MethodSpec, last: Any, lists: "SharedNeighbours") -> tuple[Any, Run]:
        parameters = dict(spec.parameters)
        # The estimator of the method before is used again where it serves this method too.
        serves = type(last) is spec.method.make and isinstance(last, Baseline) and last.try_params(parameters)
        estimator = last if serves else spec.method.make(**parameters)
        progress = partial(self._progress, f"{spec.method.name}, {data.protocol.name}")
        shared = lists.seconds
        with warnings.catch_warnings():
            # An iteration that was cut short on purpose says so; its curve is the point.
            warnings.filterwarnings("ignore", message="solver=", category=ManifindWarning)
            result = evaluate(estimator, data, fit=not serves, find=lists.find, progress=progress)
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
        # What was written is memory-mapped: of many methods on many queries it need not all be in memory.
        stored = self._cache.get(key)
        return estimator, _run(spec, data, arrays if stored is None else stored[1], costs, from_cache=False)


class SharedNeighbours:
    """The neighbours of all regions of one dataset, those of its index or found once, for all methods."""

    def __init__(self, data: EvaluationSet) -> None:
        self._vectors = data.images.regional.vectors if data.images.regional is not None else None
        self._found = data.neighbours
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
    return Run(data, _unpadded(arrays["images"]), costs, n_matches, spec=spec, from_cache=from_cache)


def _unpadded(table: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], ...]:
    """Return the rows of a table without the -1 at their ends, as views."""
    return tuple(row[: np.count_nonzero(row >= 0)] for row in table)


def _key(data: EvaluationSet, spec: MethodSpec) -> dict[str, Any]:
    code = code_checksum(*RANKING_CODE)
    key = {"descriptors": data.checksum, "method": spec.key, "code": code, "layout": LAYOUT}
    if data.index is not None and spec.method.wants == "index":
        index = data.index
        key |= {"index": index.state.stamp, "index code": code_checksum(*INDEX_CODE)}
    return key
