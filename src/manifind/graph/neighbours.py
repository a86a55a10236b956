"""The k most similar other regions of each region.

`exact_neighbours` compares all pairs, a block at a time: n²d multiplications, memory bounded by a parameter.
`nn_descent_neighbours` is the approximate construction of Dong, Charikar and Li (WWW 2011), "a neighbour of a
neighbour is probably a neighbour", whose cost grows as about n^1.1. Its candidates are scored exactly: an approximate
*score* costs retrieval quality where a missing neighbour hardly does.

k counts other regions. A region is never its own neighbour; another region with the same descriptor may well be.
Among equally similar regions any may make the list; where a region has more equals than k, each links to those around
it in a ring, so that all stay connected.

`update_neighbours` brings lists to a collection that changed, at the cost of the change. Lists are kept somewhat longer
than k, by a reserve: where a region leaves, the reserve moves up, and a list that runs short of k is searched for anew.
A new region is searched for among all, and enters the lists of those that it is nearer to than their last. So a list
always has the most similar others, as many as it has.
"""

import warnings
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.checks import UNIT_TOLERANCE, check_int, integers
from manifind.errors import InvalidInputError, ManifindWarning
from manifind.kernels import (
    EXACT,
    JOIN_BLOCK_ROWS,
    MAX_BYTES,
    NN_DESCENT,
    NO_NEIGHBOUR,
    SCRATCH_BYTES,
    Backend,
    KnnGraphBuilder,
    Neighbours,
    VectorSet,
    backend,
)
from manifind.types import FloatArray, IntArray, Progress, Vectors

SAME = 1e-6
"""Entries of a descriptor that differ by no more are the same."""
MAX_SINGLE_INSERTS = 4
"""Newcomers to a list up to which each is inserted by itself; more are merged, which costs as many columns as there are
newcomers in all."""


def insert_new_rows(
    lists: Neighbours, products: FloatArray, coming: IntArray, complete: npt.NDArray[np.bool_]
) -> Neighbours:
    """Let regions that have come into the lists of others.

    `products` (m, c) are the similarities of the m regions of `lists` to the c new regions `coming`; `complete` (m,)
    says whether a list has every other region but the new ones.
    """
    counts = (lists.ids >= 0).sum(axis=1)
    # Into a list of everybody whoever comes belongs; into others, who is nearer than the last.
    open_ = complete & (counts < lists.ids.shape[1])
    last = np.where(open_, -np.inf, lists.similarities[np.arange(len(counts)), np.maximum(counts, 1) - 1])
    return _insert_marked(lists, products, products > last[:, None], coming)


def _insert_marked(lists: Neighbours, products: FloatArray, enters: npt.NDArray[np.bool_], new: IntArray) -> Neighbours:
    """Let each list take in the new regions marked in its row, each at its place; what falls off the end is gone."""
    ids, similarities = lists
    coming = enters.sum(axis=1)
    few = np.flatnonzero((coming > 0) & (coming <= MAX_SINGLE_INSERTS))
    if len(few):
        row, column = np.nonzero(enters[few])
        row = few[row]
        turn = np.arange(len(row)) - np.searchsorted(row, row)  # the how-manieth of its row
        for turn_number in range(MAX_SINGLE_INSERTS):
            of_turn = turn == turn_number
            _insert(ids, similarities, row[of_turn], new[column[of_turn]], products[row[of_turn], column[of_turn]])
    many = np.flatnonzero(coming > MAX_SINGLE_INSERTS)
    if len(many):
        width = ids.shape[1]
        joined = np.concatenate([similarities[many], np.where(enters[many], products[many], -np.inf)], axis=1)
        known = np.concatenate([ids[many], np.broadcast_to(new.astype(np.int32), (len(many), len(new)))], axis=1)
        known[np.isneginf(joined)] = NO_NEIGHBOUR
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


class LocalKnnBuilder(KnnGraphBuilder):
    """The builder of this process: its vector set compares, and its backend joins."""

    def __init__(self, vectors: VectorSet, device: Backend | None = None) -> None:
        self._vectors = vectors
        self._backend = backend() if device is None else device

    @property
    def vectors(self) -> VectorSet:
        """The descriptors."""
        return self._vectors

    def build(
        self,
        method: str,
        k: int,
        *,
        seed: int = 0,
        memory: int = SCRATCH_BYTES,
        progress: Progress | None = None,
    ) -> Neighbours:
        """Return the `k` other regions most similar to each region."""
        if method == NN_DESCENT:
            return Neighbours(*self._vectors.nn_descent(k, seed=seed, progress=progress))
        return Neighbours(*self._vectors.self_join(k, memory=memory, progress=progress))

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
        """Search for some lists, and insert new regions into the others, in place."""
        regions, (ids, similarities) = self._vectors, lists
        (n, width), d = ids.shape, regions.shape[1]
        entered = np.setdiff1d(np.arange(n, dtype=np.int32), searched, assume_unique=True)
        total, done = len(searched) + (len(entered) if len(new) else 0), 0
        step = max(1, min(JOIN_BLOCK_ROWS, memory // ((width + 1) * 24 + 4 * d)))
        for start in range(0, len(searched), step):
            rows = searched[start : start + step]
            searched_lists = Neighbours(*regions.search(regions.gather(rows), width + 1, memory=memory))
            ids[rows], similarities[rows] = searched_lists.without_self(rows)
            done += len(rows)
            if progress is not None:
                progress(done, total)

        # New regions in groups that fit the memory, and the lists that they may enter in blocks.
        group = max(1, memory // (8 * d))
        for first in range(0, len(new), group):
            coming = new[first : first + group]
            arrivals = regions.gather(coming).T
            step = max(1, min(JOIN_BLOCK_ROWS, memory // (32 * (len(coming) + width))))
            for start in range(0, len(entered), step):
                rows = entered[start : start + step]
                lists_of_rows = Neighbours(ids[rows], similarities[rows])
                products = regions.gather(rows) @ arrivals
                ids[rows], similarities[rows] = insert_new_rows(lists_of_rows, products, coming, complete[rows])
                if first == 0:
                    done += len(rows)
                if progress is not None:
                    progress(done, total)

    def mutual_graph(
        self, lists: Neighbours, gamma: float, *, slack: float, normalised: bool
    ) -> tuple[sp.csr_array, FloatArray]:
        """Return the affinity or S, and the degrees, by the backend."""
        return self._backend.mutual_graph(*lists, gamma, slack=slack, normalised=normalised)


def as_builder(vectors: Vectors | VectorSet | KnnGraphBuilder) -> KnnGraphBuilder:
    """Return the local builder of an array or a vector set; a builder is returned as it is."""
    if isinstance(vectors, KnnGraphBuilder):
        return vectors
    return LocalKnnBuilder(vectors if isinstance(vectors, VectorSet) else backend().vector_set(vectors))


def exact_neighbours(
    vectors: Vectors | VectorSet | KnnGraphBuilder,
    k: int,
    *,
    reserve: int = 0,
    memory: int = SCRATCH_BYTES,
    progress: Progress | None = None,
) -> Neighbours:
    """Find the `k` nearest other rows of each unit row by comparing all pairs.

    Parameters
    ----------
    vectors : (n, d) float32 or float16, VectorSet or KnnGraphBuilder
    k : int
        Cut to n − 1 with a warning where it is larger.
    reserve : int
        How many more to list, for `update_neighbours` to draw on.
    memory : int
        Bytes of scratch beyond `vectors` and the lists returned.
    progress : callable, optional
        Called with the rows done and the rows in all, after each block.
    """
    return _build(EXACT, vectors, k, reserve, memory, progress)


def nn_descent_neighbours(
    vectors: Vectors | VectorSet | KnnGraphBuilder,
    k: int,
    *,
    reserve: int = 0,
    memory: int = SCRATCH_BYTES,
    progress: Progress | None = None,
    seed: int = 0,
) -> Neighbours:
    """Find nearly the `k` nearest other rows of each unit row by NN-Descent, scored exactly.

    It found 99.7 % of the 50 neighbours of 106,887 real descriptors in half the time of `exact_neighbours`, and 99.8 %
    of those of 500,000 (real ones and others made of them) in a quarter of the time of pynndescent; for k = 200 it
    begins to be the faster at about 100,000 (``benchmarks/speed.py descent``).

    The same seed gives the same lists, whatever the number of threads. NN-Descent is in the compiled core alone.
    """
    return _build(NN_DESCENT, vectors, k, reserve, memory, progress, seed)


def _build(
    method: str,
    vectors: Vectors | VectorSet | KnnGraphBuilder,
    k: int,
    reserve: int,
    memory: int,
    progress: Progress | None,
    seed: int = 0,
) -> Neighbours:
    memory, reserve = check_int(memory, "memory", most=MAX_BYTES), check_int(reserve, "reserve", least=0)
    seed = check_int(seed, "seed", least=0, most=2**64 - 1)
    builder = as_builder(vectors)
    n = builder.vectors.shape[0]
    k = _at_most_others(k, n)
    width = min(k + reserve, n - 1)
    if width + 1 >= n:  # all others are neighbours, and there is nothing to descend
        method = EXACT
    lists = builder.build(method, width, seed=seed, memory=memory, progress=progress)
    link_duplicates(builder.vectors, lists, k)
    return lists


def given_neighbours(neighbours: tuple[npt.ArrayLike, npt.ArrayLike], vectors: FloatArray, k: int) -> Neighbours:
    """Check lists that were found elsewhere, and cut them to `k`."""
    if not isinstance(neighbours, tuple | list) or len(neighbours) != 2:
        raise InvalidInputError(
            f"neighbours is a {type(neighbours).__name__}; give two arrays, ids and similarities.", code="wrong-type"
        )
    n = len(vectors)
    ids, similarities = np.asarray(neighbours[0]), np.asarray(neighbours[1])
    if ids.dtype.kind not in "iu" or similarities.dtype.kind != "f":
        raise InvalidInputError(
            f"neighbours has dtypes {ids.dtype} and {similarities.dtype}; give integer ids and floating similarities.",
            code="wrong-dtype",
        )
    k = min(k, n - 1)
    if ids.ndim != 2 or ids.shape != similarities.shape or len(ids) != n or ids.shape[1] < k:
        raise InvalidInputError(
            f"neighbours has shapes {ids.shape} and {similarities.shape}; give both ({n}, {k}), or longer lists.",
            code="wrong-shape",
        )
    ids, similarities = ids[:, :k], similarities[:, :k]
    if ids.size and (ids.min() < 0 or ids.max() >= n):
        raise InvalidInputError(
            f"neighbours has ids from {ids.min()} to {ids.max()}; give rows of vectors, 0 to {n - 1}.",
            code="out-of-range",
        )
    lists_itself = (ids == np.arange(n)[:, None]).any(axis=1)
    if lists_itself.any():
        raise InvalidInputError(
            f"neighbours lists region {lists_itself.argmax()} as its own neighbour; leave it out of its list.",
            code="own-neighbour",
        )
    if not np.isfinite(similarities).all() or (np.diff(similarities, axis=1) > 0).any():
        raise InvalidInputError(
            "neighbours has similarities that are not finite or not best first; sort each list.", code="not-descending"
        )
    checked = Neighbours(ids.astype(np.int32), similarities.astype(np.float32))
    sample = np.unique(np.linspace(0, n - 1, min(n, 200)).astype(int))
    if k:
        exact = np.einsum("id,ikd->ik", vectors[sample], vectors[checked.ids[sample]])
        worst = float(np.abs(exact - checked.similarities[sample]).max())
        if worst > UNIT_TOLERANCE:
            raise InvalidInputError(
                f"neighbours has similarities that are off by up to {worst:.2g}; give the inner products of vectors "
                "again: approximate scores cost retrieval quality.",
                code="wrong-similarities",
            )
    return checked


GRAPHS: dict[str, Callable[..., Neighbours]] = {
    EXACT: exact_neighbours,
    NN_DESCENT: nn_descent_neighbours,
}
"""The ways to find neighbours, by the name that `Manifold` knows them by."""


def _at_most_others(k: int, n: int) -> int:
    check_int(k, "k")
    if k < n:
        return k
    warnings.warn(
        f"k is {k} but each of the {n} regions has only {n - 1} others; k is {n - 1} here.",
        ManifindWarning,
        stacklevel=5,
    )
    return n - 1


def link_duplicates(vectors: VectorSet, lists: Neighbours, k: int) -> None:
    """Spread the lists of regions that have more than `k` equals, in place.

    A search gives all of them the same k equals, which would make neighbours of those few and leave the others without
    a mutual one: blank margins of scanned pages, say. Each gets those around it instead, in a ring of its equals.
    """
    ids, similarities = lists
    if k == 0:
        return
    full = np.flatnonzero(similarities[:, k - 1] > 1 - UNIT_TOLERANCE)
    if not len(full):
        return
    # Equal rows have equal projections, and others hardly ever; the rows themselves are not sorted or copied.
    direction = np.random.default_rng(0).standard_normal(vectors.shape[1])
    blocks = (
        vectors.gather(full[at : at + JOIN_BLOCK_ROWS]).astype(np.float64)
        for at in range(0, len(full), JOIN_BLOCK_ROWS)
    )
    projected = np.concatenate([np.einsum("ij,j->i", block, direction) for block in blocks])
    order = np.argsort(projected, kind="stable")
    _, starts, sizes = np.unique(projected[order], return_index=True, return_counts=True)
    around = np.concatenate([np.arange(1, k // 2 + 1), -np.arange(1, k - k // 2 + 1)])
    for start, size in zip(starts[sizes > k].tolist(), sizes[sizes > k].tolist(), strict=True):
        equals = full[order[start : start + size]]
        ids[equals, :k] = equals[(np.arange(size)[:, None] + around) % size]
        (same,) = vectors.gather(equals[:1])
        similarities[equals, :k] = same @ same
        # Which other equals would be next is not known.
        ids[equals, k:] = NO_NEIGHBOUR
        similarities[equals, k:] = -np.inf


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
    searched, new = (np.flatnonzero(mask).astype(np.int32) for mask in (short, origin < 0))
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
        ids_before = before.ids[origin[rows]]
        values = before.similarities[origin[rows]]
        renumbered = np.where(ids_before >= 0, place[ids_before], NO_NEIGHBOUR)
        holed = np.flatnonzero(((renumbered < 0) & (ids_before >= 0)).any(axis=1))
        if len(holed):
            order = np.argsort(renumbered[holed] < 0, axis=1, kind="stable")
            renumbered[holed] = np.take_along_axis(renumbered[holed], order, axis=1)
            values[holed] = np.take_along_axis(values[holed], order, axis=1)
        values[renumbered < 0] = -np.inf
        common = min(width, ids_before.shape[1])
        ids[rows, :common] = renumbered[:, :common]
        similarities[rows, :common] = values[:, :common]
        counts[rows] = (renumbered[:, :common] >= 0).sum(axis=1)
    return counts
