"""`evaluate`: an estimator fitted on a dataset and measured by its rankings of the dataset's queries."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.baselines import Baseline
from manifind.baselines.scorer import FindNeighbours
from manifind.evaluation import measures
from manifind.evaluation.confidence import bootstrap_ci
from manifind.evaluation.dataset import EvaluationSet
from manifind.evaluation.protocol import Task
from manifind.types import Progress

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
    """``fit_seconds`` off line, without the neighbours that methods share, ``batch_seconds`` of a query with all in one
    batch, ``single_seconds`` of one alone, the ``residual`` of a solver, and what the method itself says of costs."""
    n_matches: tuple[int, ...] | None = None
    """How many of the first images of each query the estimator calls matches; None where it has no cutoff."""
    _measured: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False, compare=False)
    """What was measured so far, by task and measure. It is kept because every table and file asks for it again."""

    def _task(self, task: Task | None) -> Task:
        """Return the task, by default the dataset's first."""
        return self.data.protocol.tasks[0] if task is None else task

    def _each(self, task: Task, measure: Callable[..., float]) -> npt.NDArray[np.float64]:
        """Return a measure of each query; NaN for one without positives in this task."""
        return np.array(
            [
                measure(ranked, wanted, junk=ignored) if len(wanted) else np.nan
                for ranked, wanted, ignored in zip(self.rankings, task.positives, task.junk, strict=True)
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
        found: npt.NDArray[np.float64] = self._measured[key]
        return found

    def mean_average_precision(self, task: Task | None = None, definition: str = DEFAULT_DEFINITION) -> float:
        """Return mAP in percent."""
        return float(100 * np.nanmean(self.average_precisions(task, definition)))

    def positives_in_first(self, task: Task, k: int) -> list[int]:
        """Return how many of the first k images of each query are positives, junk ignored."""
        found = self._each(task, partial(measures.precision_at, k=k, last=False))
        return [round(k * value) for value in np.nan_to_num(found)]

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
        found = {}
        for definition in measures.DEFINITIONS:
            each = 100 * self.average_precisions(task, definition)
            found[f"mAP_{definition}"] = float(np.nanmean(each))
            found[f"mAP_{definition}_low"], found[f"mAP_{definition}_high"] = bootstrap_ci(each)
        if self.n_matches is not None:
            pairs = [
                measures.precision_and_recall(ranked, wanted, cutoff, ignored)
                for ranked, wanted, cutoff, ignored in zip(
                    self.rankings, task.positives, self.n_matches, task.junk, strict=True
                )
                if len(wanted)
            ]
            found["cutoff_precision"], found["cutoff_recall"] = (100 * np.mean(pairs, axis=0)).tolist()
        for k in PRECISION_RANKS:
            found[f"mP@{k}"] = float(100 * np.nanmean(self._each(task, partial(measures.precision_at, k=k))))
        return found


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
