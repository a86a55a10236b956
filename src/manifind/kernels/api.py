"""The numerical interfaces: `VectorSet`, `Operator` and `KnnGraphBuilder`, and the table of devices.

- `VectorSet`: the region descriptors of a collection, and top-k search over them.
- `Operator`: the matrix S of the graph, and the solution of (I − αS) f = (1 − α) y.
- `KnnGraphBuilder`: builds and updates k-NN lists, and joins them to the mutual graph.

Each is an abstract class. The abstract methods are all that an implementation needs; every other method has a default
in terms of these, which a device overrides where it has a faster way. A `Backend` makes the first two on one device. A
new device is a new `Backend` and one line in `BACKENDS`. ``tests/test_backend.py`` runs one contract over all of them.
"""

import importlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.checks import check_choice
from manifind.errors import InvalidInputError, ManifindError
from manifind.groups import RowRanges
from manifind.types import FloatArray, IntArray, Progress, Vectors

if TYPE_CHECKING:
    from manifind.kernels.cpu.two_level import Aggregation, TwoLevelSolver

log = logging.getLogger("manifind.device")

SCRATCH_BYTES = 2**28
"""Scratch memory of a search, unless its `memory` says otherwise."""
MAX_BYTES = 2**62
"""The most bytes of scratch that may be asked for: the core counts them in 64 bits."""
JOIN_BLOCK_ROWS = 4096
"""Rows that `VectorSet.self_join` searches at a time. faiss multiplies blocks of this size; more would gain nothing."""
FLOAT64_MAX_REGIONS = 2**14
"""Systems of up to this many regions are solved in float64 on every device, which costs little there. On a graph of a
few hundred regions, 20 steps of conjugate gradient nearly exhaust the Krylov space, and rounding in float32 was seen to
grow to 0.5 % of the scores; on one of 106,887 it stays at 2e-6."""
MIN_RESIDUAL = 1e-10
"""Relative residual at which a column stops whatever `tol` says: float32 cannot tell it from zero."""

MAX_BATCH, BATCH_BYTES = 64, 2**28
"""Queries that are solved for at once at most, and bytes that their right-hand sides and scores may take together."""
COLUMN_BLOCK = 32
"""Columns that the core solves for together: 33 columns cost as much as 64."""

EXACT, NN_DESCENT = "exact", "nn-descent"
"""The methods of `KnnGraphBuilder.build`."""
NO_NEIGHBOUR = -1
"""The id that pads a list with fewer neighbours than others have. Its similarity is −∞."""


class Neighbours(NamedTuple):
    """k-NN lists, best first."""

    ids: IntArray
    """(n, k) int32."""
    similarities: FloatArray
    """(n, k) float32."""

    def head(self, k: int) -> "Neighbours":
        """Return the `k` best of each list, or all where they are fewer."""
        return Neighbours(self.ids[:, :k], self.similarities[:, :k])

    def rows(self, rows: slice) -> "Neighbours":
        """Return the lists of a range of rows."""
        return Neighbours(self.ids[rows], self.similarities[rows])

    def without_self(self, own: npt.NDArray[np.integer]) -> "Neighbours":
        """Drop each row's own id from lists of k + 1, or the last entry where duplicates pushed the own id out."""
        n, width = self.ids.shape
        drop = self.ids == own[:, None]
        drop[~drop.any(axis=1), -1] = True
        return Neighbours(*(lists[~drop].reshape(n, width - 1) for lists in self))


@dataclass(frozen=True, eq=False)
class Pool:
    """How the scores of regions, which lie image by image, become scores of images (eq. 13)."""

    starts: npt.NDArray[np.int64]
    """Where the regions of each image start. The last entry is where the regions of the last image end."""
    weights: FloatArray
    """The pooling weight of each region."""
    ranges: RowRanges | None = None
    """Where in `weights` the regions are; None where they are all of them, in order."""

    @property
    def region_weights(self) -> FloatArray:
        """The weight of each pooled region, in order."""
        return self.weights if self.ranges is None else np.take(self.weights, self.ranges.regions, mode="clip")

    @cached_property
    def matrix(self) -> sp.csr_array:
        """The weights as an (images, regions) matrix."""
        weights, starts = self.region_weights, self.starts
        columns = np.arange(len(weights), dtype=np.int32)
        return sp.csr_array((weights, columns, starts.astype(np.int32)), shape=(len(starts) - 1, len(weights)))

    def pool_scores(self, scores: FloatArray) -> FloatArray:
        """Return the scores of images, (images, b), from those of their regions, (regions, b): eq. 13."""
        return np.asarray(self.matrix @ scores)


class Solution(NamedTuple):
    """The scores that a solver returns, and how far each column converged."""

    scores: FloatArray
    """f, (n, b) float32; the scores of images, (images, b), from `Operator.solve_and_pool`."""
    iterations: IntArray
    """Products with S that each column took, (b,)."""
    residuals: FloatArray
    """The relative residual ‖b − (I − αS) f‖ / ‖b‖ of each column, where b = (1 − α) y, (b,)."""
    regions: IntArray | None = None
    """How many regions of each column were solved for one by one, (b,); None means all of them."""
    column: Callable[[int], FloatArray] | None = None
    """Returns the scores of all regions of a column, (n,), where `scores` are those of images."""

    def region_scores(self, column: int) -> FloatArray:
        """Return the scores of all regions of a column, (n,)."""
        return self.scores[:, column] if self.column is None else self.column(column)


Seeds = Sequence[tuple[IntArray, FloatArray]]
"""The non-zero entries of each right-hand side: the regions, and their values."""


def dense_columns(seeds: Seeds, n: int) -> FloatArray:
    """Return seeds as the columns of an (n, b) array."""
    y = np.zeros((n, len(seeds)), np.float32)
    for column, (regions, values) in enumerate(seeds):
        y[regions, column] = values
    return y


class VectorSet(ABC):
    """The unit descriptors of n regions in d dimensions, wherever they lie, and top-k search by inner product."""

    has_nn_descent = False
    """Whether `nn_descent` is implemented."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """The number of regions, n, and the number of dimensions, d."""

    @abstractmethod
    def gather(self, rows: npt.NDArray[np.integer]) -> FloatArray:
        """Return the descriptors of the given regions, (r, d) float32, in a new array."""

    @abstractmethod
    def search(
        self, queries: FloatArray, k: int, *, subset: IntArray | None = None, memory: int = SCRATCH_BYTES
    ) -> tuple[IntArray, FloatArray]:
        """Return the top `k` regions of each query, best first: ids (m, k) and similarities (m, k).

        Parameters
        ----------
        queries : (m, d) float32
        k : int
            At most the number of regions that are searched.
        subset : (r,) int32, ascending, optional
            Search these regions only. The ids are then places in this array.
        memory : int
            Bytes of scratch, roughly.
        """

    def search_ranges(
        self, ranges: RowRanges, queries: FloatArray, k: int, *, memory: int = SCRATCH_BYTES
    ) -> Callable[[], tuple[IntArray, FloatArray]]:
        """Begin a `search` of the regions of ascending ranges, and return a function that waits for the result.

        A device that works by itself takes further work meanwhile.
        """
        result = self.search(queries, k, subset=ranges.regions, memory=memory)
        return lambda: result

    def choose_shortlist(self, queries: FloatArray, k: int) -> list[npt.NDArray[np.intp]]:
        """Return the top `k` regions of each query, ascending."""
        return [np.sort(row).astype(np.intp) for row in self.search(queries, k)[0]]

    def self_join(
        self, k: int, *, memory: int = SCRATCH_BYTES, progress: Progress | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Return the `k` other regions most similar to each region, best first: (n, k) and (n, k)."""
        n = self.shape[0]
        ids, similarities = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
        step = max(1, min(JOIN_BLOCK_ROWS, memory // ((k + 1) * 24)))
        for start in range(0, n, step):
            rows = np.arange(start, min(start + step, n))
            block = Neighbours(*self.search(self.gather(rows), k + 1, memory=memory))
            ids[rows], similarities[rows] = block.without_self(rows)
            if progress is not None:
                progress(min(start + step, n), n)
        return ids, similarities

    def nn_descent(
        self,
        k: int,  # noqa: ARG002 (what implementations take)
        *,
        seed: int = 0,  # noqa: ARG002
        progress: Progress | None = None,  # noqa: ARG002
    ) -> tuple[IntArray, FloatArray]:
        """Return nearly the `k` other regions most similar to each region, by NN-Descent: (n, k) and (n, k)."""
        raise InvalidInputError("NN-Descent is in the compiled core, which is not used here; use knn='exact'.")


class Operator(ABC):
    """The matrix S of a graph of n regions, and the system (I − αS) f = (1 − α) y."""

    has_aggregation = False
    """Whether `aggregate` is implemented."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of regions, n."""

    @property
    def batch_size(self) -> int:
        """How many queries to solve for at once."""
        return batch_size(self.size)

    @abstractmethod
    def matmul(self, x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Return Sx for the columns of x, (n, b), in the precision of x."""

    @abstractmethod
    def solve(self, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
        """Solve for the columns of y, (n, b), by conjugate gradient from f = 0.

        A column stops after `max_iter` products with S, or at a relative residual of `tol`. The result of a column does
        not depend on the columns beside it.
        """

    @abstractmethod
    def restrict(self, rows: IntArray) -> "Operator":
        """Return the operator of these ascending regions: their part of the affinity, normalised anew (Sec. 4.4)."""

    def restrict_ranges(self, ranges: RowRanges) -> "Operator":
        """Return what `restrict` does for the regions of ascending ranges."""
        return self.restrict(ranges.regions)

    def solve_seeds(self, seeds: Seeds, alpha: float, max_iter: int, tol: float) -> Solution:
        """Solve as `solve` does for right-hand sides that are given by their non-zero entries."""
        return self.solve(dense_columns(seeds, self.size), alpha, max_iter, tol)

    def solve_and_pool(
        self,
        seeds: Seeds,
        pool: Pool,
        alpha: float,
        max_iter: int,
        tol: float,
        *,
        keep_regions: bool = False,  # noqa: ARG002 (in memory they are there anyway)
    ) -> Solution:
        """Solve as `solve_seeds` does, and return the scores of images, (images, b).

        With `keep_regions`, `Solution.region_scores` returns the scores of regions.
        """
        solution = self.solve_seeds(seeds, alpha, max_iter, tol)
        return pooled_solution(solution, pool)

    def aggregate(self, aggregation: "Aggregation | None" = None) -> "TwoLevelSolver":  # noqa: ARG002
        """Return a two-level solver on aggregates of the graph, found now or by a saved aggregation."""
        raise InvalidInputError(
            "solver='local' is in the compiled core (manifind info --system says whether it is there); use solver='cg'."
        )


def batch_size(regions: int) -> int:
    """Return how many queries are solved for at once on a graph of so many regions."""
    size = max(1, min(MAX_BATCH, BATCH_BYTES // (8 * regions)))
    return size - size % COLUMN_BLOCK if size > COLUMN_BLOCK else size


def pooled_solution(solution: Solution, pool: Pool) -> Solution:
    """Return a solution with the scores of images in place of those of regions, which it still holds."""
    return solution._replace(
        scores=pool.pool_scores(solution.scores), column=lambda i: np.asarray(solution.scores[:, i])
    )


class KnnGraphBuilder(ABC):
    """Builds the k-NN lists of one `VectorSet`, updates them, and joins them to the mutual graph.

    `manifind.graph` has the builder of this process, `LocalKnnBuilder`; another may spread the work over machines and
    keep its lists in files. `Manifold.fit(builder=...)` takes any. The functions of `manifind.graph` check the
    arguments, call a builder, and treat duplicates; a builder only finds and joins.
    """

    @property
    @abstractmethod
    def vectors(self) -> VectorSet:
        """The descriptors, as this process searches them for queries."""

    @property
    def has_nn_descent(self) -> bool:
        """Whether `build` knows the method "nn-descent"."""
        return self.vectors.has_nn_descent

    @abstractmethod
    def build(
        self,
        method: str,
        k: int,
        *,
        seed: int = 0,
        memory: int = SCRATCH_BYTES,
        progress: Progress | None = None,
    ) -> Neighbours:
        """Return the `k` other regions most similar to each region, best first.

        Parameters
        ----------
        method : {"exact", "nn-descent"}
        k : int
            Less than the number of regions.
        seed : int
            Of NN-Descent.
        memory : int
            Bytes of scratch, roughly.
        progress : callable, optional
            Called with the regions done and the regions in all.
        """

    def allocate(self, width: int) -> Neighbours:
        """Return uninitialised lists (n, width), which `update` fills: arrays in memory, or maps of files."""
        n = self.vectors.shape[0]
        return Neighbours(np.empty((n, width), np.int32), np.empty((n, width), np.float32))

    @abstractmethod
    def update(
        self,
        lists: Neighbours,
        *,
        searched: IntArray,
        new: IntArray,
        complete: npt.NDArray[np.bool_],
        memory: int = SCRATCH_BYTES,
        progress: Progress | None = None,
    ) -> None:
        """Search for the lists of the regions in `searched`, and insert new regions into all others, in place.

        Parameters
        ----------
        lists : Neighbours
            (n, width), as `allocate` returned them.
        searched, new : ascending
            The regions whose lists are searched for, and the new regions, which are among the former.
        complete : (n,)
            Whether a list held every other region before the new ones came.
        memory, progress
            As in `build`.
        """

    @abstractmethod
    def mutual_graph(
        self, lists: Neighbours, gamma: float, *, slack: float, normalised: bool
    ) -> tuple[sp.csr_array, FloatArray]:
        """Return the mutual-neighbour affinity of lists, or S, and the degrees: see `Backend.mutual_graph`."""


class Backend(ABC):
    """What one device does: it holds descriptors, solves systems, and builds affinities."""

    name: str

    @abstractmethod
    def vector_set(self, vectors: Vectors) -> VectorSet:
        """Return descriptors, (n, d) and C-contiguous, as this device searches them.

        The array is not copied at once, so its values must not change afterwards.
        """

    @abstractmethod
    def operator(self, S: sp.csr_array, degrees: FloatArray | None = None, *, reorder: bool = True) -> Operator:
        """Return a matrix as this device solves on it.

        `degrees` are the row sums of the affinity behind S; `Operator.restrict` needs them. With `reorder`, the first
        solution may put the matrix in another order, which pays for many solutions only.
        """

    @abstractmethod
    def mutual_graph(
        self, ids: IntArray, similarities: FloatArray, gamma: float, *, slack: float, normalised: bool
    ) -> tuple[sp.csr_array, FloatArray]:
        """Return the affinity of the pairs that are in each other's lists, or S, and the degrees.

        Parameters
        ----------
        ids, similarities : (n, k)
            k-NN lists, best first; a negative id is padding.
        gamma : float
            Exponent of the kernel.
        slack : float
            How far the similarity of a pair in one list may be from that in the other.
        normalised : bool
            Return S in place of the affinity.
        """


CPU, CUDA, AUTO = "cpu", "cuda", "auto"
BACKENDS = {CPU: "manifind.kernels.cpu", CUDA: "manifind.kernels.cuda"}
"""The devices, and the module of each, whose function `make` returns its `Backend`."""

DEVICES = (AUTO, *BACKENDS)


def backend(device: str = CPU) -> Backend:
    """Return the backend of a device.

    "auto" means the GPU where one can be used, and the processor otherwise; the log says which.
    """
    name = check_choice(device, DEVICES, "device")
    if name == AUTO:
        name = _choose_device()
    made: Backend = importlib.import_module(BACKENDS[name]).make()
    return made


def _choose_device() -> str:
    reason: ManifindError | None = importlib.import_module(BACKENDS[CUDA]).unavailable_reason()
    if reason is None:
        log.info("device: cuda")
        return CUDA
    log.info("device: cpu, because %s", reason)
    return CPU


def as_vector_set(vectors: Vectors | VectorSet) -> VectorSet:
    """Return an array as a vector set of the default backend; a vector set is returned as it is."""
    return backend().vector_set(vectors) if isinstance(vectors, np.ndarray) else vectors


class ArrayVectorSet(VectorSet):
    """Descriptors of regions in an array, (n, d). Each device adds its own way to search them."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors: Vectors = vectors if vectors.flags.c_contiguous else vectors.copy()

    def __repr__(self) -> str:
        n, d = self.shape
        return f"<{n:,} rows of {d} dimensions, {self.vectors.dtype}, {self._describe_storage()}>"

    def _describe_storage(self) -> str:
        """Say in words what is held beside the array."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows there are, and of how many dimensions."""
        n, d = self.vectors.shape
        return n, d

    def gather(self, rows: npt.NDArray[np.integer]) -> FloatArray:
        """Return some rows in float32."""
        taken: FloatArray = self.vectors[rows].astype(np.float32, copy=False)
        return taken


def kernel(similarities: npt.NDArray[np.floating], gamma: float) -> FloatArray:
    """Return max(s, 0)^gamma, the affinity of regions with inner product s."""
    positive: FloatArray = np.maximum(similarities, 0, dtype=np.float32)
    if gamma == 3:  # a general power is forty times as slow
        return positive * positive * positive
    return cast("FloatArray", positive ** np.float32(gamma))
