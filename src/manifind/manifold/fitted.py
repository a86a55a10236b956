"""The checked parameters and the fitted state of a manifold, with the copies that make searches fast.

Compiled loops follow the ids of a graph unchecked, and files may be altered. Shapes and types are checked when arrays
are opened, which reads nothing; ids are checked when they are first used.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.checks import check_choice, check_float, check_int
from manifind.diffusion import SEEDINGS, SOLVERS, Solver, SolverOptions
from manifind.diffusion.solvers import AUTO as AUTO_SOLVER
from manifind.errors import DamagedError, InvalidInputError
from manifind.graph import AUTO, GRAPHS, UNKNOWN, KnnReport, normalise, normalised_affinity
from manifind.groups import Layout
from manifind.kernels import (
    DEVICES,
    MAX_BYTES,
    Backend,
    KnnGraphBuilder,
    Neighbours,
    Operator,
    Pool,
    VectorSet,
    backend,
)
from manifind.ranking import POOLINGS
from manifind.types import FloatArray, Vectors

GRAPH_PARAMETERS = ("k", "gamma", "pooling", "gmp_lambda", "knn", "reserve")
"""Parameters that made the graph, and hold until the next fit; the others hold from the next search."""

MACHINE_PARAMETERS = ("device",)
"""Parameters that are not saved: what was built on one machine is searched on another."""

MAX_INT32 = 2**31 - 1
"""The most that neighbours and iterations can be: the core counts them in 32 bits."""


FLOATS = (np.dtype(np.float32),)
TYPES = {
    "vectors": (np.dtype(np.float16), *FLOATS),
    "images": (np.dtype(np.int32),),
    "starts": (np.dtype(np.int64),),
    "neighbour_ids": (np.dtype(np.int32),),
    "neighbour_similarities": FLOATS,
    "S_data": FLOATS,
    "S_indices": (np.dtype(np.int32), np.dtype(np.int64)),
    "S_indptr": (np.dtype(np.int32), np.dtype(np.int64)),
    "degrees": FLOATS,
    "weights": FLOATS,
    "global_vectors": FLOATS,
}


@dataclass(frozen=True)
class Parameters:
    """Parameters of `Manifold` whose values were checked."""

    k: int
    query_k: int
    alpha: float
    gamma: float
    pooling: str
    solver: str
    max_iter: int
    tol: float
    gmp_lambda: float
    seeding: str
    knn: str
    reserve: int
    memory: int
    device: str

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return parameters in the form that the other packages take, or raise `InvalidInputError`."""
        return cls(
            k=check_int(given["k"], "k", most=MAX_INT32),
            query_k=check_int(given["query_k"], "query_k", most=MAX_INT32),
            alpha=check_float(given["alpha"], "alpha", above=0, below=1),
            gamma=check_float(given["gamma"], "gamma", above=0),
            pooling=check_choice(given["pooling"], POOLINGS, "pooling"),
            solver=check_choice(given["solver"], (AUTO_SOLVER, *SOLVERS), "solver"),
            max_iter=check_int(given["max_iter"], "max_iter", most=MAX_INT32),
            tol=check_float(given["tol"], "tol", above=0, below=1),
            gmp_lambda=check_float(given["gmp_lambda"], "gmp_lambda", above=0),
            seeding=check_choice(given["seeding"], SEEDINGS, "seeding"),
            knn=check_choice(given["knn"], (AUTO, *GRAPHS), "knn"),
            reserve=check_int(given["reserve"], "reserve", least=0, most=MAX_INT32),
            memory=check_int(given["memory"], "memory", most=MAX_BYTES),
            device=check_choice(given["device"], DEVICES, "device"),
        )

    @property
    def solver_options(self) -> SolverOptions:
        """The parameters of a solution."""
        return SolverOptions(self.alpha, self.max_iter, self.tol)


NOT_PICKLED = ("backend", "prepared", "_rows", "_global_rows", "_system", "_lock")
"""Fields of `Fitted` without a place in a pickle: locks, and memory of the device."""


@dataclass(eq=False)
class Fitted:
    """The fitted state: plain arrays, and the backend's copies of them.

    `rows` and `system` are created at the first search, so opening a saved manifold reads nothing. They own their
    quantized rows, and their ordered or aggregated matrix.
    """

    parameters: Parameters
    """The parameters that the manifold was fitted with."""
    backend: Backend
    vectors: Vectors
    layout: Layout
    lists: Neighbours
    """The neighbour lists, with the reserve that `update` draws on."""
    knn_report: KnnReport
    S: sp.csr_array
    degrees: FloatArray
    weights: FloatArray
    global_vectors: FloatArray
    validated: bool
    """Whether the ids of the graph are known to be in range. Ids from a file are checked once."""
    prepared: dict[str, Any] = field(default_factory=dict)
    """What solvers prepared off line, by the name of the solver."""
    saved: dict[str, Mapping[str, npt.NDArray[Any]]] = field(default_factory=dict)
    """What solvers had prepared when the manifold was saved, by the name of the solver. It becomes `prepared` when it
    is first used."""
    _rows: VectorSet | None = None
    _global_rows: VectorSet | None = None
    reorder: bool = True
    """Whether `system` may put its matrix in order, which pays for many queries only."""
    _system: Operator | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @cached_property
    def pool(self) -> Pool:
        """How region scores become scores of all images."""
        return Pool(self.layout.starts, self.weights)

    @classmethod
    def of(
        cls,
        parameters: Parameters,
        backend: Backend,
        builder: KnnGraphBuilder,
        vectors: Vectors,
        layout: Layout,
        lists: Neighbours,
        knn_report: KnnReport,
        weights: FloatArray,
        global_vectors: FloatArray,
    ) -> Self:
        """Return the state of a collection whose neighbour lists were found."""
        neighbours = lists.head(min(parameters.k, len(vectors) - 1))
        S, degrees = normalised_affinity(neighbours, parameters.gamma, builder=builder)
        return cls(
            parameters,
            backend,
            vectors,
            layout,
            lists,
            knn_report,
            S,
            degrees,
            weights,
            global_vectors,
            True,
            _rows=builder.vectors,
        )

    @classmethod
    def from_arrays(cls, parameters: Parameters, knn_report: KnnReport, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Return the state that `to_arrays` wrote, or raise `DamagedError` where shapes or types do not fit."""
        check_arrays(arrays, parameters.k)
        n = len(arrays["vectors"])
        try:
            S = sp.csr_array((arrays["S_data"], arrays["S_indices"], arrays["S_indptr"]), shape=(n, n))
        except ValueError as error:
            raise DamagedError(
                "S_indptr does not divide the edges among the regions; restore it, or save again."
            ) from error
        S.has_sorted_indices = True
        return cls(
            parameters,
            backend(parameters.device),
            arrays["vectors"],
            Layout(arrays["images"], arrays["starts"]),
            Neighbours(arrays["neighbour_ids"], arrays["neighbour_similarities"]),
            knn_report,
            S,
            arrays["degrees"],
            arrays["weights"],
            arrays["global_vectors"],
            validated=False,
            saved=solver_arrays(arrays),
        )

    @classmethod
    def of_affinity(
        cls,
        parameters: Parameters,
        vectors: Vectors,
        layout: Layout,
        A: sp.csr_array,
        weights: FloatArray,
        global_vectors: FloatArray | None,
    ) -> Self:
        """Return the state of a part of a collection whose affinity was found elsewhere; A is spent."""
        check_affinity(vectors, layout, A, weights, global_vectors)
        if global_vectors is None:
            global_vectors = np.empty((len(layout.images), 0), np.float32)
        device, n = backend(parameters.device), len(vectors)
        S, degrees = normalise(A)
        none = Neighbours(np.empty((n, 0), np.int32), np.empty((n, 0), np.float32))
        report = KnnReport.by(UNKNOWN)
        return cls(
            parameters,
            device,
            vectors,
            layout,
            none,
            report,
            S,
            degrees,
            weights,
            global_vectors,
            True,
            reorder=False,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the arrays, and what solvers made that is worth saving; the rest is made anew where it is used."""
        state = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in NOT_PICKLED}
        return {**state, "prepared": {}, "saved": self._saved_preparations()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.backend = backend(self.parameters.device)
        self._rows = self._global_rows = self._system = None
        self._lock = threading.RLock()

    @property
    def neighbours(self) -> Neighbours:
        """The k neighbours of each region, or all others where they are fewer."""
        return self.lists.head(min(self.parameters.k, len(self.vectors) - 1))

    @property
    def rows(self) -> VectorSet:
        """The descriptors as the backend searches them."""
        with self._lock:
            if self._rows is None:
                self._rows = self.backend.vector_set(self.vectors)
            return self._rows

    @property
    def global_rows(self) -> VectorSet:
        """The images' global descriptors as the backend searches them."""
        with self._lock:
            if self._global_rows is None:
                same = self.global_vectors is self.vectors
                self._global_rows = self.rows if same else self.backend.vector_set(self.global_vectors)
            return self._global_rows

    @property
    def system(self) -> Operator:
        """The graph as the backend solves on it; raises `DamagedError` for ids out of range."""
        with self._lock:
            if self._system is None:
                self.check()
                self._system = self.backend.operator(self.S, self.degrees, reorder=self.reorder)
            return self._system

    def prepare(self, solver: Solver) -> Any:
        """Return what a solver needs for a search: what was prepared or saved, or what it prepares now."""
        if solver.prepare is None:
            return None
        with self._lock:
            if solver.name not in self.prepared:
                saved = self.saved.get(solver.name)
                self.prepared[solver.name] = (
                    solver.prepare(self.system)
                    if saved is None or solver.from_arrays is None
                    else solver.from_arrays(self.system, saved)
                )
            return self.prepared[solver.name]

    def has(self, solver: str) -> bool:
        """Whether a search by this solver can begin at once, without preparing anything."""
        return solver in self.prepared or (solver in self.saved and SOLVERS[solver].is_available(self.system))

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all of it as named arrays, with what solvers made that is worth saving."""
        arrays = {
            "vectors": self.vectors,
            "images": self.layout.images,
            "starts": self.layout.starts,
            "neighbour_ids": self.lists.ids,
            "neighbour_similarities": self.lists.similarities,
            "S_data": self.S.data,
            "S_indices": self.S.indices,
            "S_indptr": self.S.indptr,
            "degrees": self.degrees,
            "weights": self.weights,
            "global_vectors": self.global_vectors,
        }
        made = self._saved_preparations()
        return arrays | {f"{name}_{part}": array for name, parts in made.items() for part, array in parts.items()}

    def _saved_preparations(self) -> dict[str, Mapping[str, npt.NDArray[Any]]]:
        made = dict(self.saved)
        for name, prepared in self.prepared.items():
            to_arrays = SOLVERS[name].to_arrays
            if to_arrays is not None:
                made[name] = to_arrays(prepared)
        return made

    def check(self) -> None:
        """Raise `DamagedError` for ids of the graph out of range; checked once."""
        with self._lock:
            if not self.validated:
                check_ids(self.S, self.layout)
                self.validated = True

    def words(self) -> list[str]:
        """Describe the copies that make searches fast."""
        return [repr(held) for held in (self._rows, self._system) if held is not None]


def check_arrays(arrays: Mapping[str, npt.NDArray[Any]], k: int) -> None:
    """Raise `DamagedError` unless these are the arrays of one manifold with `k` neighbours a region."""
    if not isinstance(arrays, Mapping):
        raise InvalidInputError(f"arrays is a {type(arrays).__name__}; give the mapping that `to_arrays` returned.")
    for name, types in TYPES.items():
        if name not in arrays:
            raise DamagedError(f"{name} is missing; restore what was saved, or save it again.")
        if not isinstance(arrays[name], np.ndarray) or not arrays[name].ndim:
            raise DamagedError(f"{name} is a {type(arrays[name]).__name__}, not an array with rows; save it again.")
        if arrays[name].dtype not in types or not arrays[name].flags.c_contiguous:
            raise DamagedError(f"{name} is of {arrays[name].dtype}, not of {types[0]}; restore it, or save it again.")
    vectors, lists = arrays["vectors"], arrays["neighbour_ids"]
    n, images = len(vectors), len(arrays["images"])
    width = _width(lists)
    fit: dict[str, tuple[int, ...]] = {
        "vectors": (n, _width(vectors)),
        "images": (images,),
        "starts": (images + 1,),
        "neighbour_ids": (n, max(width, min(k, n - 1))),
        "neighbour_similarities": (n, width),
        "S_data": arrays["S_indices"].shape[:1],
        "S_indices": arrays["S_indices"].shape[:1],
        "S_indptr": (n + 1,),
        "degrees": (n,),
        "weights": (n,),
        "global_vectors": (images, _width(arrays["global_vectors"])),
    }
    for name, shape in fit.items():
        if arrays[name].shape != shape:
            raise DamagedError(
                f"{name} has shape {arrays[name].shape} where {shape} would fit the other arrays: it belongs to "
                "something else; restore it, or save again."
            )


def check_affinity(
    vectors: Vectors, layout: Layout, A: sp.csr_array, weights: FloatArray, global_vectors: FloatArray | None
) -> None:
    """Raise `InvalidInputError` unless these are the regions and the affinity of one collection."""
    if not isinstance(layout, Layout) or not len(layout.starts):
        raise InvalidInputError(f"layout is a {type(layout).__name__} without images; give a manifind.groups.Layout.")
    n = int(layout.starts[-1])
    if not isinstance(A, sp.csr_array | sp.csr_matrix):
        raise InvalidInputError(f"A is a {type(A).__name__}; give a scipy.sparse.csr_array.")
    shapes: dict[str, tuple[Any, tuple[int, ...]]] = {
        "vectors": (vectors, (n, _width(vectors))),
        "A": (A, (n, n)),
        "weights": (weights, (n,)),
    }
    if global_vectors is not None:
        shapes["global_vectors"] = global_vectors, (len(layout.images), _width(global_vectors))
    for name, (array, shape) in shapes.items():
        if np.shape(array) != shape or getattr(array, "dtype", np.dtype(object)).kind != "f":
            raise InvalidInputError(
                f"{name} has shape {np.shape(array)} and dtype {getattr(array, 'dtype', type(array).__name__)}; give "
                f"floating-point numbers of shape {shape}, as the layout has them."
            )
    check_ids(A, layout)
    if not (A.data >= 0).all():
        raise InvalidInputError("A has entries that are negative or NaN; give affinities of 0 or more.")


def _width(rows: Any) -> int:
    """Return the number of columns of a 2-D array, or -1."""
    return int(rows.shape[1]) if isinstance(rows, np.ndarray) and rows.ndim == 2 else -1


def check_ids(S: sp.csr_array, layout: Layout) -> None:
    """Raise `DamagedError` where an id leads out of the graph or the collection."""
    n = S.shape[0]
    starts, indptr, indices = layout.starts, S.indptr, S.indices
    if starts[0] != 0 or starts[-1] != n or (np.diff(starts) <= 0).any() or (np.diff(layout.images) <= 0).any():
        raise DamagedError(
            "images or starts do not say which regions belong to which image; restore them, or save again."
        )
    if indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise DamagedError("S_indptr does not divide the edges among the regions; restore it, or save again.")
    if len(indices) and (indices.min() < 0 or indices.max() >= n):
        raise DamagedError(f"S_indices has ids beyond the {n} regions; restore it, or save again.")


def solver_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Mapping[str, npt.NDArray[Any]]]:
    """Return the arrays of solvers whose preparation was saved, by solver: those whose names begin with its name."""
    by_solver: dict[str, Mapping[str, npt.NDArray[Any]]] = {}
    for name, solver in SOLVERS.items():
        prefix = f"{name}_"
        parts = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
        if solver.from_arrays is not None and parts:
            by_solver[name] = parts
    return by_solver
