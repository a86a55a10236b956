"""Neighbour lists of a collection that changed, from those before: the cost is that of the change.

Lists are kept somewhat longer than k, by a reserve. A region that leaves is struck from the lists that have it, and the
reserve moves up; a list that runs short of k is searched for anew. A region that comes is searched for among all, and
enters the lists of those that it is nearer to than their last. A list is therefore at all times exactly the most
similar others, as many as it has: `exact_neighbours` on the collection as it now is finds the same, up to ties.

One pass over the vectors is spent on each new region and each list run short, two on new regions.
"""

import numpy as np
import numpy.typing as npt

from manifind.checks import integers
from manifind.errors import InvalidInputError
from manifind.graph.neighbours import as_builder, link_duplicates
from manifind.kernels import (
    JOIN_BLOCK_ROWS,
    NO_NEIGHBOUR,
    SCRATCH_BYTES,
    KnnGraphBuilder,
    Neighbours,
    VectorSet,
)
from manifind.types import IntArray, Progress, Vectors

SAME = 1e-6
"""Entries of a descriptor that differ by no more are the same."""


def update_neighbours(
    before: Neighbours,
    vectors: Vectors | VectorSet | KnnGraphBuilder,
    origin: IntArray,
    k: int,
    *,
    reserve: int = 0,
    memory: int = SCRATCH_BYTES,
    progress: Progress | None = None,
) -> Neighbours:
    """Return the neighbour lists of `vectors`, of which most have lists already.

    Parameters
    ----------
    before : Neighbours
        Lists of the collection as it was, (m, at least k), padded with `NO_NEIGHBOUR`.
    vectors : (n, d) float32 or float16, VectorSet or KnnGraphBuilder
        The collection as it is.
    origin : (n,) int32
        The row that each region had before, -1 where it is new. Rows that do not occur are gone.
    k, reserve : int
        Neighbours wanted, and how many more to keep in store.
    memory : int
        Bytes of scratch beyond the arguments and the lists returned.
    progress : callable, optional
        Called with the regions done and the regions in all that are searched for or compared.
    """
    builder = as_builder(vectors)
    n = builder.vectors.shape[0]
    k, width = min(k, n - 1), min(k + reserve, n - 1)
    kept = np.flatnonzero(origin >= 0).astype(np.int32)
    lists = builder.allocate(width)
    counts = _carry_over(before, origin, kept, lists)

    complete = counts == len(kept) - 1  # the list has every other region, so that any new one belongs there too
    short = (counts < k) & ~complete
    short[origin < 0] = True
    searched, new = (np.flatnonzero(some).astype(np.int32) for some in (short, origin < 0))
    builder.update(lists, searched=searched, new=new, complete=complete, memory=memory, progress=progress)
    link_duplicates(builder.vectors, lists, k)
    return lists


def given_origin(origin: npt.ArrayLike, vectors: Vectors, before: Vectors) -> IntArray:
    """Check where the rows of a changed collection were before."""
    rows = integers(origin, "origin")
    if not isinstance(vectors, np.ndarray):
        raise InvalidInputError(f"vectors is a {type(vectors).__name__}; give an array, as `fit` holds it.")
    if rows.shape != (len(vectors),):
        raise InvalidInputError(
            f"origin has shape {rows.shape} for {len(vectors)} regions; give a row before for each."
        )
    if vectors.ndim != 2 or vectors.shape[1] != before.shape[1] or vectors.dtype not in (np.float32, np.float16):
        raise InvalidInputError(
            f"vectors has shape {vectors.shape} and dtype {vectors.dtype}; give (n, {before.shape[1]}) of float32 or "
            "float16."
        )
    if len(rows) and (rows.min() < -1 or rows.max() >= len(before)):
        raise InvalidInputError(
            f"origin runs from {rows.min()} to {rows.max()}; give rows from 0 to {len(before) - 1}, or -1."
        )
    kept = np.flatnonzero(rows >= 0)
    if len(np.unique(rows[kept])) != len(kept):
        raise InvalidInputError("origin names a row twice; each region before can be one region now.")
    sample = kept[np.unique(np.linspace(0, max(0, len(kept) - 1), min(len(kept), 200)).astype(int))]
    if len(sample) and np.abs(vectors[sample].astype(np.float32) - before[rows[sample]]).max() > SAME:
        raise InvalidInputError(
            "origin leads to rows with other descriptors; give -1 for regions whose descriptor changed."
        )
    return rows.astype(np.int32, copy=False)


def _carry_over(before: Neighbours, origin: IntArray, kept: IntArray, lists: Neighbours) -> npt.NDArray[np.int64]:
    """Renumber the lists of the regions that stay, close the gaps that others left, and count what remains."""
    ids, similarities = lists
    width = ids.shape[1]
    place = np.full(len(before.ids), NO_NEIGHBOUR, np.int32)
    place[origin[kept]] = kept
    ids[:], similarities[:] = NO_NEIGHBOUR, -np.inf
    counts = np.zeros(len(origin), np.int64)
    for start in range(0, len(kept), JOIN_BLOCK_ROWS):
        rows = kept[start : start + JOIN_BLOCK_ROWS]
        own = before.ids[origin[rows]]
        values = before.similarities[origin[rows]]
        renumbered = np.where(own >= 0, place[own], NO_NEIGHBOUR)
        holed = np.flatnonzero(((renumbered < 0) & (own >= 0)).any(axis=1))
        if len(holed):
            order = np.argsort(renumbered[holed] < 0, axis=1, kind="stable")
            renumbered[holed] = np.take_along_axis(renumbered[holed], order, axis=1)
            values[holed] = np.take_along_axis(values[holed], order, axis=1)
        values[renumbered < 0] = -np.inf
        common = min(width, own.shape[1])
        ids[rows, :common] = renumbered[:, :common]
        similarities[rows, :common] = values[:, :common]
        counts[rows] = (renumbered[:, :common] >= 0).sum(axis=1)
    return counts
