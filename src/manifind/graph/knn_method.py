"""How to find neighbours, and how many of the true ones were found.

`choose_knn_method` weighs comparing all pairs against NN-Descent by their expected times. `estimate_recall` compares a
sample of lists with exact search. The `KnnReport` that it returns is kept with the graph and tells how far to trust it.
"""

import logging
import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from manifind import kernels
from manifind.errors import DamagedError, ManifindWarning
from manifind.kernels import EXACT, NN_DESCENT, SCRATCH_BYTES, KnnGraphBuilder, Neighbours, VectorSet, as_vector_set
from manifind.kernels.costs import COSTS
from manifind.types import Vectors

log = logging.getLogger("manifind")

AUTO, GIVEN, UNKNOWN = "auto", "given", "unknown"

RECALL_SAMPLE = 300
"""How many lists `estimate_recall` compares with exact search, in one pass over the vectors."""

TIE_TOLERANCE = 1e-6
"""Similarities that differ by less than this count as equal, because products are rounded in different orders."""

POOR_RECALL = 0.9
"""A recall below this is logged as a warning."""


class KnnReport(NamedTuple):
    """How the neighbour lists of a graph were found, and which part of the true neighbours they have."""

    method: str
    """One of "exact", "nn-descent", "given" (to `fit`), and "unknown", for a graph that was saved before this was
    recorded."""
    expected_recall: float | None
    """The recall that was expected before the lists were found; None where nothing was known."""
    recall: float | None
    """The share of true neighbours that the lists have. It is 1 where all pairs were compared. Otherwise it was
    measured when the lists were found; None means that it was not."""
    sample: int
    """On how many regions the recall was measured; 0 where it was not."""
    updated: bool = False
    """Whether the collection changed since the recall was measured. Lists from comparing all pairs stay complete."""

    @classmethod
    def by(cls, method: str) -> Self:
        """Return what is known before anything is measured."""
        expected = {EXACT: 1.0, NN_DESCENT: COSTS.descent_recall}.get(method)
        return cls(method, expected, 1.0 if method == EXACT else None, 0)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return what `_asdict` wrote, or raise `DamagedError`."""
        try:
            report = cls(**record)
            numbers = (report.expected_recall, report.recall)
            valid = all(number is None or 0 <= number <= 1 for number in numbers) and report.sample >= 0
        except TypeError:
            valid = False
        if not valid or not isinstance(report.method, str):
            raise DamagedError(
                f"what is said of the graph's making is none ({record!r}); restore it, or save it again."
            )
        return report

    def after_update(self) -> Self:
        """Return what is known of the lists after some of them were repaired."""
        return self if self.method == EXACT else self._replace(updated=True)

    def words(self) -> str:
        """Say in a sentence how the neighbours were found."""
        if self.method == EXACT:
            return "Neighbours were found by comparing all pairs: none is missing."
        if self.method == UNKNOWN:
            return "How neighbours were found is not known."
        how = "were found by NN-Descent" if self.method == NN_DESCENT else "were given"
        if self.recall is None:
            return f"Neighbours {how}; how many of the true ones was not measured."
        when = " when the graph was built, before it last changed" if self.updated else ""
        remedy = "; knn='exact' (--knn exact) finds all" if self.recall < POOR_RECALL else ""
        share = math.floor(1000 * self.recall) / 10  # never 100 unless it is
        return f"Neighbours {how}: {share:.1f} % of the true ones, estimated on {self.sample} regions{when}{remedy}."


def choose_knn_method(n: int, k: int, threads: int | None = None, *, compiled: bool | None = None) -> str:
    """Return the way to find the `k` neighbours of each of `n` regions: "exact" or "nn-descent".

    Exact, unless there are more than `CostModel.max_exact_regions` regions, NN-Descent is expected to be faster, and
    the compiled core is there, which has it.

    Parameters
    ----------
    n, k : int
    threads : int, optional
        How many threads will search; by default as many as a call may use now.
    compiled : bool, optional
        Whether the compiled core will search; by default whether it is there.
    """
    compiled = kernels.compiled() if compiled is None else compiled
    if n <= COSTS.max_exact_regions or not compiled:
        return EXACT
    exact, descent = (expected_seconds(way, n, k, 512, threads, compiled=compiled) for way in (EXACT, NN_DESCENT))
    return EXACT if exact <= descent else NN_DESCENT


def expected_seconds(
    method: str, n: int, k: int, d: int, threads: int | None = None, *, compiled: bool | None = None
) -> float:
    """Return about how long a way takes to find the `k` neighbours of each of `n` regions of `d` dimensions."""
    threads = kernels.thread_count() if threads is None else threads
    compiled = kernels.compiled() if compiled is None else compiled
    if method == EXACT:
        return float(n * n * d / (COSTS.core_rate if compiled else COSTS.numpy_rate) / threads)
    alone = COSTS.descent_seconds * d * n * k**COSTS.descent_exponent
    return float(alone / threads**COSTS.descent_speedup)


def resolve_method(graph: str, builder: KnnGraphBuilder, k: int) -> str:
    """Return the method that `graph` means here: itself, or the choice of "auto", which the log names.

    A builder without NN-Descent compares all pairs, and a warning says so where NN-Descent was asked for.
    """
    n = builder.vectors.shape[0]
    if graph == NN_DESCENT and not builder.has_nn_descent:
        warnings.warn(
            "graph is 'nn-descent', which needs the compiled core (manifind info --system says whether it is there); "
            "all pairs are compared instead.",
            ManifindWarning,
            stacklevel=4,
        )
        return EXACT
    if graph != AUTO:
        return graph
    method = choose_knn_method(n, k) if builder.has_nn_descent else EXACT
    recall = KnnReport.by(method).expected_recall
    log.info("graph: %s for %s regions and k = %d, expected recall %g", method, f"{n:,}", k, recall)
    return method


def estimate_recall(
    method: str,
    lists: Neighbours,
    vectors: Vectors | VectorSet,
    k: int,
    *,
    sample: int = RECALL_SAMPLE,
    memory: int = SCRATCH_BYTES,
) -> KnnReport:
    """Return how the lists were found and their recall: nothing to measure where all pairs were compared.

    Recall is the share of the `k` places of a list whose region is as similar as the true k-th neighbour or more, so
    that any of equally similar regions counts as found, over a random sample of the regions.

    Parameters
    ----------
    method : {"exact", "nn-descent", "given"}
    lists : Neighbours
        At least `k` long, or n − 1.
    vectors : (n, d) float32 or float16, or VectorSet
    k, sample, memory : int
        Neighbours that count, regions to look at, and bytes of scratch.
    """
    report = KnnReport.by(method)
    regions = as_vector_set(vectors)
    n = regions.shape[0]
    k = min(k, n - 1)
    if method == EXACT or k < 1:
        return report
    rows = np.sort(np.random.default_rng(0).choice(n, min(n, sample), replace=False)).astype(np.int32)
    vectors_of_rows = regions.gather(rows)
    _, similarities = Neighbours(*regions.search(vectors_of_rows, k + 1, memory=memory)).without_self(rows)
    n_found = 0
    for row, vector, last in zip(rows.tolist(), vectors_of_rows, similarities[:, -1].tolist(), strict=True):
        ids = np.unique(lists.ids[row, :k])
        n_found += int((regions.gather(ids[ids >= 0]) @ vector >= last - TIE_TOLERANCE).sum())
    report = report._replace(recall=min(1.0, n_found / (len(rows) * k)), sample=len(rows))
    log.log(logging.WARNING if n_found < POOR_RECALL * len(rows) * k else logging.INFO, "graph: %s", report.words())
    return report
