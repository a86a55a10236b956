"""Checks of the arrays of a fitted manifold that come from a file or a store.

Compiled loops follow the ids of a graph unchecked, and files may be altered. Shapes and types are checked when arrays
are opened, which reads nothing; ids are checked when they are first used.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.diffusion import SOLVERS
from manifind.errors import DamagedError, InvalidInputError
from manifind.groups import Layout
from manifind.types import FloatArray, Vectors

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
    found: dict[str, Mapping[str, npt.NDArray[Any]]] = {}
    for name, solver in SOLVERS.items():
        prefix = f"{name}_"
        own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
        if solver.from_arrays is not None and own:
            found[name] = own
    return found
