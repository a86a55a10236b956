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
from manifind.errors import InvalidInput
from manifind.graph.neighbours import BLOCK, NOBODY, Neighbours, link_duplicates, without_self
from manifind.kernels import SCRATCH, Following, Rows, as_rows
from manifind.types import FloatArray, IntArray, Progress, Vectors

FEW = 4
"""Newcomers to a list up to which each is inserted by itself; more are merged, which costs as many columns as there are
newcomers in all."""

SAME = 1e-6
"""Entries of a descriptor that differ by no more are the same."""


def update_neighbours(
    before: Neighbours,
    vectors: Vectors | Rows,
    origin: IntArray,
    k: int,
    *,
    reserve: int = 0,
    memory: int = SCRATCH,
    progress: Progress | None = None,
) -> Neighbours:
    """Return the neighbour lists of `vectors`, of which most have lists already.

    Parameters
    ----------
    before : Neighbours
        Lists of the collection as it was, (m, at least k), padded with `NOBODY` where they ran short of their width.
    vectors : (n, d) float32 or float16, or Rows
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
    regions = as_rows(vectors)
    n = regions.shape[0]
    k, width = min(k, n - 1), min(k + reserve, n - 1)
    kept = np.flatnonzero(origin >= 0).astype(np.int32)
    room = regions.room(width) if isinstance(regions, Following) else _room(n, width)
    ids, similarities = room
    counts = _carried_over(before, origin, kept, room)

    complete = counts == len(kept) - 1  # everybody is in the list, so that whoever comes belongs there too
    short = (counts < k) & ~complete
    short[origin < 0] = True
    searched, new = (np.flatnonzero(some).astype(np.int32) for some in (short, origin < 0))
    if isinstance(regions, Following):
        regions.follow(ids, similarities, searched=searched, new=new, complete=complete, progress=progress)
    else:
        _follow(regions, room, searched, new, complete, memory, progress)
    link_duplicates(regions, ids, similarities, k)
    return Neighbours(ids, similarities)


def _room(n: int, width: int) -> tuple[IntArray, FloatArray]:
    return np.empty((n, width), np.int32), np.empty((n, width), np.float32)


def _follow(
    regions: Rows,
    lists: tuple[IntArray, FloatArray],
    searched: IntArray,
    new: IntArray,
    complete: npt.NDArray[np.bool_],
    memory: int,
    progress: Progress | None,
) -> None:
    """Search for the lists of some regions, and let new regions into the lists of the others, in place."""
    ids, similarities = lists
    (n, width), d = ids.shape, regions.shape[1]
    entered = np.setdiff1d(np.arange(n, dtype=np.int32), searched, assume_unique=True)
    total, done = len(searched) + (len(entered) if len(new) else 0), 0
    step = max(1, min(BLOCK, memory // ((width + 1) * 24 + 4 * d)))
    for start in range(0, len(searched), step):
        rows = searched[start : start + step]
        found = regions.nearest(regions.take(rows), width + 1, memory=memory)
        ids[rows], similarities[rows] = without_self(*found, rows)
        done += len(rows)
        if progress is not None:
            progress(done, total)

    # Newcomers in groups that fit the memory, and the lists that they may enter in blocks.
    group = max(1, memory // (8 * d))
    for first in range(0, len(new), group):
        coming = new[first : first + group]
        arrivals = regions.take(coming).T
        step = max(1, min(BLOCK, memory // (32 * (len(coming) + width))))
        for start in range(0, len(entered), step):
            rows = entered[start : start + step]
            own = Neighbours(ids[rows], similarities[rows])
            ids[rows], similarities[rows] = joined_by(own, regions.take(rows) @ arrivals, coming, complete[rows])
            if first == 0:
                done += len(rows)
            if progress is not None:
                progress(done, total)


def joined_by(lists: Neighbours, products: FloatArray, coming: IntArray, complete: npt.NDArray[np.bool_]) -> Neighbours:
    """Let regions that have come into the lists of others.

    Parameters
    ----------
    lists : Neighbours
        Of m regions.
    products : (m, c)
        The similarities of these to the regions that have come.
    coming : (c,)
        The numbers of the regions that have come.
    complete : (m,)
        Whether a list has everybody else but those who are coming.
    """
    counts = (lists.ids >= 0).sum(axis=1)
    # Into a list of everybody whoever comes belongs; into others, who is nearer than the last.
    open_ = complete & (counts < lists.ids.shape[1])
    last = np.where(open_, -np.inf, lists.similarities[np.arange(len(counts)), np.maximum(counts, 1) - 1])
    return _entered(lists, products, products > last[:, None], coming)


def given_origin(origin: npt.ArrayLike, vectors: Vectors, before: Vectors) -> IntArray:
    """Check where the rows of a changed collection were before."""
    rows = integers(origin, "origin")
    if rows.shape != (len(vectors),):
        raise InvalidInput(f"origin has shape {rows.shape} for {len(vectors)} regions; give a row before for each.")
    if vectors.ndim != 2 or vectors.shape[1] != before.shape[1] or vectors.dtype not in (np.float32, np.float16):
        raise InvalidInput(
            f"vectors has shape {vectors.shape} and dtype {vectors.dtype}; give (n, {before.shape[1]}) of float32 or "
            "float16."
        )
    if len(rows) and (rows.min() < -1 or rows.max() >= len(before)):
        raise InvalidInput(
            f"origin runs from {rows.min()} to {rows.max()}; give rows from 0 to {len(before) - 1}, or -1."
        )
    kept = np.flatnonzero(rows >= 0)
    if len(np.unique(rows[kept])) != len(kept):
        raise InvalidInput("origin names a row twice; each region before can be one region now.")
    sample = kept[np.unique(np.linspace(0, max(0, len(kept) - 1), min(len(kept), 200)).astype(int))]
    if len(sample) and np.abs(vectors[sample].astype(np.float32) - before[rows[sample]]).max() > SAME:
        raise InvalidInput("origin leads to rows with other descriptors; give -1 for regions whose descriptor changed.")
    return rows.astype(np.int32, copy=False)


def _carried_over(
    before: Neighbours, origin: IntArray, kept: IntArray, room: tuple[IntArray, FloatArray]
) -> npt.NDArray[np.int64]:
    """Renumber the lists of the regions that stay, close the gaps that others left, and count what remains."""
    ids, similarities = room
    width = ids.shape[1]
    place = np.full(len(before.ids), NOBODY, np.int32)
    place[origin[kept]] = kept
    ids[:], similarities[:] = NOBODY, -np.inf
    counts = np.zeros(len(origin), np.int64)
    for start in range(0, len(kept), BLOCK):
        rows = kept[start : start + BLOCK]
        own = before.ids[origin[rows]]
        values = before.similarities[origin[rows]]
        renumbered = np.where(own >= 0, place[own], NOBODY)
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


def _entered(lists: Neighbours, products: FloatArray, enters: npt.NDArray[np.bool_], new: IntArray) -> Neighbours:
    """Let each list take in the new regions marked in its row, each at its place; what falls off the end is gone."""
    ids, similarities = lists
    coming = enters.sum(axis=1)
    few = np.flatnonzero((coming > 0) & (coming <= FEW))
    if len(few):
        row, column = np.nonzero(enters[few])
        row = few[row]
        turn = np.arange(len(row)) - np.searchsorted(row, row)  # the how-manieth of its row
        for one in range(FEW):
            of_turn = turn == one
            _insert(ids, similarities, row[of_turn], new[column[of_turn]], products[row[of_turn], column[of_turn]])
    many = np.flatnonzero(coming > FEW)
    if len(many):
        width = ids.shape[1]
        joined = np.concatenate([similarities[many], np.where(enters[many], products[many], -np.inf)], axis=1)
        known = np.concatenate([ids[many], np.broadcast_to(new.astype(np.int32), (len(many), len(new)))], axis=1)
        known[np.isneginf(joined)] = NOBODY
        best = np.argpartition(-joined, width - 1, axis=1)[:, :width]
        known, joined = np.take_along_axis(known, best, axis=1), np.take_along_axis(joined, best, axis=1)
        order = np.lexsort((known, -joined))  # of equals the lower id is first
        ids[many] = np.take_along_axis(known, order, axis=1)
        similarities[many] = np.take_along_axis(joined, order, axis=1)
    return Neighbours(ids, similarities)


def _insert(
    ids: IntArray,
    similarities: FloatArray,
    rows: npt.NDArray[np.intp],
    new: IntArray,
    similarity: FloatArray,
) -> None:
    """Insert one new region into each of the lists of different `rows`, in place."""
    columns = np.arange(ids.shape[1])
    nearer = similarities[rows] > similarity[:, None]
    first = (similarities[rows] == similarity[:, None]) & (ids[rows] < new[:, None])  # of equals the lower id is first
    at = (nearer | first).sum(axis=1)[:, None]
    source, here = columns - (columns > at), columns == at
    ids[rows] = np.where(here, new[:, None], np.take_along_axis(ids[rows], source, axis=1))
    similarities[rows] = np.where(here, similarity[:, None], np.take_along_axis(similarities[rows], source, axis=1))
