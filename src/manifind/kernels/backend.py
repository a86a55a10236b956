"""Where the work is done: two small protocols, and the table of devices that implement them.

`Rows` are the descriptors of a collection's regions, wherever they lie and however they are kept. `System` is the
matrix S of its graph, however it is kept. A `Backend` makes both on one device, and the affinity that S comes from.
Whoever holds them owns what makes them fast: compressed rows, an ordered matrix, a divided one. ``repr`` says what is
there.

A new device is a new `Backend`, and one line in `BACKENDS`. A store of vectors is another `Rows`: nothing else is asked
of it. ``tests/test_backend.py`` runs one contract over all of them.
"""

import importlib
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.checks import choice
from manifind.errors import ManifindError
from manifind.layout import Runs
from manifind.types import FloatArray, IntArray, Progress, Vectors

if TYPE_CHECKING:
    from manifind.kernels.cpu.local import Divided, Division

log = logging.getLogger("manifind.device")

SCRATCH = 2**28
"""How many bytes of scratch a search may take, unless its `memory` says otherwise."""

PRECISE = 2**14
"""Systems of up to this many regions are solved in float64 on every device, which costs little there. On a graph of a
few hundred regions, 20 steps of conjugate gradient nearly exhaust the Krylov space, and rounding in float32 was seen to
grow to 0.5 % of the scores; on one of 106,887 it stays at 2e-6."""
FLOOR = 1e-10
"""Relative residual at which a column stops whatever `tol` says: in float32 it cannot be told from zero."""


class Solution(NamedTuple):
    """What a solver returns: the scores, and how far it came with each column."""

    scores: FloatArray
    """f, (n, b) float32."""
    iterations: IntArray
    """How many products with S each column took, (b,)."""
    residuals: FloatArray
    """The relative residual ‖b − (I − αS) f‖ / ‖b‖ that each column reached, where b = (1 − α) y, (b,)."""
    regions: IntArray | None = None
    """How many regions of each column were solved for one by one, (b,); None means that all of them were."""
    column: Callable[[int], FloatArray] | None = None
    """A function that returns the scores of all regions of a column, (n,). It is there where `scores` are those of
    images (`Pooling`)."""

    def of_regions(self, column: int) -> FloatArray:
        """Return the scores of all regions of a column, (n,)."""
        return self.scores[:, column] if self.column is None else self.column(column)


@runtime_checkable
class Rows(Protocol):
    """The unit descriptors of n regions in d dimensions."""

    @property
    def shape(self) -> tuple[int, int]:
        """The number of regions, n, and the number of dimensions, d."""

    def take(self, rows: npt.NDArray[np.integer]) -> FloatArray:
        """Return the descriptors of some regions, (r, d) float32, in a new array."""

    def nearest(
        self, queries: FloatArray, k: int, *, among: IntArray | None = None, memory: int = SCRATCH
    ) -> tuple[IntArray, FloatArray]:
        """Return the `k` regions most similar to each query, best first: ids (m, k) and similarities (m, k).

        Parameters
        ----------
        queries : (m, d) float32
        k : int
            At most the number of regions that are searched.
        among : (r,) int32, ascending, optional
            Search among these regions only. The ids are then places in this array.
        memory : int
            Bytes of scratch, roughly.
        """


@runtime_checkable
class Choosing(Protocol):
    """Rows that choose a shortlist without putting it in order."""

    def choose(self, queries: FloatArray, k: int) -> list[npt.NDArray[np.intp]]:
        """Return the `k` regions most similar to each query, ascending."""


@runtime_checkable
class SearchingRuns(Protocol):
    """Rows on a device that makes the list of the regions of `Runs` itself."""

    def search_runs(
        self, runs: Runs, queries: FloatArray, k: int, *, memory: int = SCRATCH
    ) -> Callable[[], tuple[IntArray, FloatArray]]:
        """Begin what `Rows.nearest` does among the regions of ascending runs.

        The function that is returned waits for the device and returns the result. Meanwhile the caller can give the
        device more to do.
        """


@runtime_checkable
class SelfComparing(Protocol):
    """Rows that find the neighbours of all their own regions faster than one query at a time."""

    def nearest_others(
        self, k: int, *, memory: int = SCRATCH, progress: Progress | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Return the `k` other regions most similar to each region, best first: (n, k) and (n, k)."""


@runtime_checkable
class Descending(Protocol):
    """Rows that can find nearly all neighbours of all their own regions by NN-Descent."""

    def descend(self, k: int, *, seed: int = 0, progress: Progress | None = None) -> tuple[IntArray, FloatArray]:
        """Return nearly the `k` other regions most similar to each region, best first: (n, k) and (n, k)."""


@runtime_checkable
class System(Protocol):
    """The system (I − αS) f = (1 − α) y of a graph with n regions."""

    @property
    def size(self) -> int:
        """The number of regions, n."""

    def multiply(self, x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Return Sx for the columns of x, (n, b), in the precision of x."""

    def solve(self, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
        """Solve for the columns of y, (n, b), by conjugate gradient from f = 0.

        A column stops after `max_iter` products with S, or at a relative residual of `tol`. What a column comes to
        does not depend on the columns beside it.
        """

    def restrict(self, rows: IntArray) -> "System":
        """Keep these ascending regions of the affinity behind S, and normalise it anew (Sec. 4.4)."""


@runtime_checkable
class Dividing(Protocol):
    """A system whose graph can be divided into parts, so that it is solved in detail near y alone."""

    def divide(self, division: "Division | None" = None) -> "Divided":
        """Return the graph divided, now or by a division that was saved (`kernels.cpu.local`)."""


@runtime_checkable
class RestrictingToRuns(Protocol):
    """A system on a device that makes the list of the regions of `Runs` itself."""

    def restrict_to(self, runs: Runs) -> System:
        """Do what `System.restrict` does for the regions of ascending runs."""


@runtime_checkable
class Seeded(Protocol):
    """A system that takes each right-hand side as its few non-zero entries, and fills the columns on its own device."""

    def solve_seeds(
        self, seeds: Sequence[tuple[IntArray, FloatArray]], alpha: float, max_iter: int, tol: float
    ) -> Solution:
        """Solve as `System.solve` does. A column is given by the regions of its non-zero entries, and their values."""


class Pool(NamedTuple):
    """How the scores of regions, which lie image by image, become scores of images (eq. 13)."""

    starts: npt.NDArray[np.int64]
    """Where the regions of each image start. The last entry is where the regions of the last image end."""
    weights: FloatArray
    """What each region weighs in the sum."""
    runs: Runs | None = None
    """Where in `weights` the regions are; None where they are all of them, in order."""

    @property
    def own_weights(self) -> FloatArray:
        """What each of the regions weighs, in order."""
        return self.weights if self.runs is None else np.take(self.weights, self.runs.regions, mode="clip")


@runtime_checkable
class Pooling(Protocol):
    """A system that pools scores where it solves, so that only the scores of images leave the device."""

    def solve_images(
        self,
        seeds: Sequence[tuple[IntArray, FloatArray]],
        pool: Pool,
        alpha: float,
        max_iter: int,
        tol: float,
        *,
        keep: bool = False,
    ) -> Solution:
        """Solve as `Seeded.solve_seeds` does, and return the scores of images, (images, b).

        With `keep` the scores of regions stay on the device, so that `Solution.column` can return them.
        """


@runtime_checkable
class Joining(Protocol):
    """What makes a graph of neighbour lists: a device, or rows whose lists lie elsewhere."""

    def affinity(
        self, ids: IntArray, similarities: FloatArray, gamma: float, *, slack: float, normalised: bool
    ) -> tuple[sp.csr_array, FloatArray]:
        """Return the affinity of the pairs that are in each other's lists, or S, and the degrees.

        Parameters
        ----------
        ids, similarities : (n, k)
            Neighbour lists, best first; a negative id is nobody.
        gamma : float
            Exponent of the kernel.
        slack : float
            How far the similarity of a pair in one list may be from that in the other.
        normalised : bool
            Return S in place of the affinity.
        """


class Backend(Joining, Protocol):
    """What one device can do: hold descriptors, solve systems, and build affinities."""

    name: str

    def rows(self, vectors: Vectors) -> Rows:
        """Return descriptors, (n, d) and C-contiguous, as this device searches them.

        The array is not copied at once, so its values must not change afterwards.
        """

    def system(self, S: sp.csr_array, degrees: FloatArray | None = None) -> System:
        """Return a matrix as this device solves on it.

        `degrees` are the row sums of the affinity that S was made from; `System.restrict` needs them.
        """


CPU, CUDA, AUTO = "cpu", "cuda", "auto"
BACKENDS = {CPU: "manifind.kernels.cpu", CUDA: "manifind.kernels.cuda"}
"""The devices, and the module of each, which has a function `make` that returns its `Backend`."""

DEVICES = (AUTO, *BACKENDS)


def backend(device: str = CPU) -> Backend:
    """Return the backend of a device.

    "auto" means the GPU where one can be used, and the processor otherwise. The log says which of the two was chosen.
    """
    name = choice(device, DEVICES, "device")
    if name == AUTO:
        name = _chosen()
    made: Backend = importlib.import_module(BACKENDS[name]).make()
    return made


def _chosen() -> str:
    reason: ManifindError | None = importlib.import_module(BACKENDS[CUDA]).lacking()
    if reason is None:
        log.info("device: cuda")
        return CUDA
    log.info("device: cpu, because %s", reason)
    return CPU


def as_rows(vectors: Vectors | Rows) -> Rows:
    """Return an array as rows of the default backend; rows are returned as they are."""
    if isinstance(vectors, np.ndarray):
        return backend().rows(vectors)
    return vectors
