"""The compiled core, if it is there, and what is kept for it between calls.

`core` is the extension module, or None where the install found no compiler: NumPy, SciPy and faiss serve then, and a
line of the log says so once. ``MANIFIND_CORE`` may be ``off``, or the file of another build of it.
"""

import importlib
import importlib.util
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import faiss
import numpy as np
import numpy.typing as npt
import scipy
import scipy.sparse as sp
from threadpoolctl import threadpool_info

from manifind.kernels.threads import thread_count
from manifind.types import FloatArray, IntArray, Vectors

if TYPE_CHECKING:
    from manifind.kernels import _core


def _loaded() -> Any:
    wanted = os.environ.get("MANIFIND_CORE")
    if wanted == "off":
        raise ImportError("MANIFIND_CORE is off")
    if not wanted:
        return importlib.import_module("manifind.kernels._core")
    spec = importlib.util.spec_from_file_location("_core", wanted)
    if spec is None or spec.loader is None:
        raise ImportError(f"MANIFIND_CORE, {wanted}, is no extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


core: Any = None
try:
    core = _loaded()
except ImportError as reason:
    logging.getLogger("manifind").info(
        "the compiled core is not there (%s); NumPy, SciPy and faiss serve, several times slower", reason
    )


class Parts(NamedTuple):
    """A graph divided into parts of regions that exchange much with each other; see `manifind.kernels.local`."""

    order: IntArray
    """The regions, part by part."""
    starts: npt.NDArray[np.int64]
    """Where each part begins in `order`, and the end."""
    root: FloatArray
    """In that order: the vector that S leaves as it is, of unit norm on each part."""
    flow: sp.csr_array
    """What parts exchange: CᵀSC, where column c of C is `root` on part c."""


ENOUGH = 16
"""Right-hand sides solved on one matrix from which ordering it pays."""


class Prepared:
    """A symmetric matrix as the core takes it: checked, and after enough use in breadth-first order."""

    def __init__(self, S: sp.csr_array) -> None:
        self.source = S.indptr, S.indices, S.data
        values = np.ascontiguousarray(S.data, np.float32)
        columns = S.indices.astype(np.int32, copy=False)
        self._arrays = S.indptr.astype(np.int64, copy=False), columns, values
        self.matrix: _core.Matrix = core.Matrix(*self._arrays)
        self.ordered: tuple[_core.Matrix, IntArray] | None = None
        self.divided: tuple[Parts, _core.Matrix] | None = None
        """For `solve_locally`, made by it: the parts, and the matrix in their order."""
        self.local: list[_core.LocalSolver] = []
        """Likewise: those not in use, of as many as there were threads at it."""
        self._solved = 0

    def for_columns(self, columns: int) -> tuple["_core.Matrix", IntArray | None]:
        """Return the matrix to solve so many right-hand sides on, and the order of its regions.

        Once it was used enough they are in breadth-first order: neighbours then lie near each other in memory, which
        half of the time of a batch depends on. The ordered matrix is a copy, and one column gains nothing by it.
        """
        self._solved += columns
        if self.ordered is None and self._solved >= ENOUGH and columns > 1:
            order = np.empty(len(self._arrays[0]) - 1, np.int32)
            core.breadth_first(self.matrix, order)
            self.ordered = self.in_order(order), order
        return (self.matrix, None) if self.ordered is None or columns == 1 else self.ordered

    def in_order(self, order: IntArray) -> "_core.Matrix":
        """Return the matrix with its rows and columns in an order, a copy."""
        arrays = tuple(np.empty_like(array) for array in self._arrays)
        core.reorder(self.matrix, order, *arrays)
        matrix: _core.Matrix = core.Matrix(*arrays)
        return matrix


_prepared: dict[int, Prepared] = {}


def prepared(S: sp.csr_array) -> Prepared:
    """Return `S` as the core takes it; made once, and kept while `S` lives. Its values must not change meanwhile."""
    key = id(S)
    found = _prepared.get(key)
    if found is None or any(a is not b for a, b in zip(found.source, (S.indptr, S.indices, S.data), strict=True)):
        if key not in _prepared:
            weakref.finalize(S, _prepared.pop, key, None)
        found = _prepared[key] = Prepared(S)
    return found


COMPRESSED_FROM = 2**24
"""Values in a collection from which compressing it pays, at the second search."""
_compressed: "dict[int, _core.CompressedRows]" = {}
_searched: set[int] = set()
_compressing = threading.Lock()


def compressed(vectors: Vectors) -> "_core.CompressedRows | None":
    """Return the rows in eight bits, for searching: a byte a value, made at the second search.

    They are kept while `vectors` lives, whose values must not change meanwhile. None where the processor has no
    products of eight bits: they would take four bytes a value, and gain little.
    """
    key = id(vectors)
    if key in _compressed:
        return _compressed[key]
    if vectors.size < COMPRESSED_FROM or not vectors.flags.c_contiguous or not core.low_precision():
        return None
    if key not in _searched:
        _searched.add(key)
        weakref.finalize(vectors, _forget, key)
        return None
    with _compressing:
        if key not in _compressed:
            _compressed[key] = core.CompressedRows(vectors, thread_count())
    return _compressed[key]


def _forget(key: int) -> None:
    _searched.discard(key)
    _compressed.pop(key, None)


def compiled() -> bool:
    """Whether the compiled core is there."""
    return core is not None


def restrict(S: sp.csr_array, degrees: FloatArray, rows: IntArray) -> sp.csr_array:
    """Keep the given ascending rows and columns of the affinity behind S and normalise anew, in one pass.

    `manifind.graph.restrict` has the plain twin.
    """
    rows = np.ascontiguousarray(rows, np.int32)
    degrees = np.ascontiguousarray(degrees, np.float32)
    starts, columns, values = core.restrict(prepared(S).matrix, degrees, rows, thread_count())
    return sp.csr_array((values, columns, starts), shape=(len(rows), len(rows)))


def mutual_affinity(
    ids: IntArray, similarities: FloatArray, gamma: float, *, slack: float, normalised: bool
) -> tuple[sp.csr_array, FloatArray]:
    """Return the affinity of the pairs that are in each other's lists, or its normalisation, and the degrees.

    `manifind.graph.affinity` has the plain twin. Beside the result it takes some 30 bytes a region, and 8 more for each
    thread up to 16.
    """
    if ids.shape[1] > 1 and not ids.strides[1] == similarities.strides[1] == 4:
        ids, similarities = np.ascontiguousarray(ids), np.ascontiguousarray(similarities)
    found = core.mutual_affinity(ids, similarities, gamma, slack, normalised, thread_count())
    starts, columns, values, degrees = found
    if len(columns) <= np.iinfo(np.int32).max:
        starts = starts.astype(np.int32)
    A = sp.csr_array((values, columns, starts), shape=(len(ids), len(ids)))
    A.has_canonical_format = True
    return A, degrees


def system() -> dict[str, Any]:
    """Return what the kernels run on."""
    blas = sorted({f"{pool['internal_api']} {pool.get('version')}" for pool in threadpool_info()})
    return {
        "threads": thread_count(),
        "core": "compiled" if compiled() else "not compiled: NumPy, SciPy and faiss serve, several times slower",
        "instructions": core.level() if compiled() else None,
        "could_run": core.levels() if compiled() else [],
        "blas": blas,
        "faiss": faiss.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
