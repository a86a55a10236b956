"""The arrays of a fitted manifold as they come back from a disk: whether they fit together, and where their ids lead.

Compiled loops follow these ids without looking. Files may have been altered, so what they could trip over is looked at
first: shapes and types when the arrays are opened, which reads nothing, and ids when they are first used.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.diffusion import SOLVERS
from manifind.errors import DamagedError
from manifind.groups import Layout

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
    for name, types in TYPES.items():
        if name not in arrays:
            raise DamagedError(f"{name} is missing; restore what was saved, or save it again.")
        if arrays[name].dtype not in types or not arrays[name].flags.c_contiguous:
            raise DamagedError(f"{name} is of {arrays[name].dtype}, not of {types[0]}; restore it, or save it again.")
    vectors, lists = arrays["vectors"], arrays["neighbour_ids"]
    n, images = len(vectors), len(arrays["images"])
    d = vectors.shape[1] if vectors.ndim == 2 else -1
    width = lists.shape[1] if lists.ndim == 2 else -1
    globals_ = arrays["global_vectors"]
    fit: dict[str, tuple[int, ...]] = {
        "vectors": (n, d),
        "images": (images,),
        "starts": (images + 1,),
        "neighbour_ids": (n, max(width, min(k, n - 1))),
        "neighbour_similarities": (n, width),
        "S_data": arrays["S_indices"].shape[:1],
        "S_indices": arrays["S_indices"].shape[:1],
        "S_indptr": (n + 1,),
        "degrees": (n,),
        "weights": (n,),
        "global_vectors": (images, globals_.shape[1] if globals_.ndim == 2 else -1),
    }
    for name, shape in fit.items():
        if arrays[name].shape != shape:
            raise DamagedError(
                f"{name} has shape {arrays[name].shape} where {shape} would fit the other arrays: it belongs to "
                "something else; restore it, or save again."
            )


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
