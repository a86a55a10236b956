"""The k most similar other regions of each region.

`exact_neighbours` compares all pairs, a block at a time: n²d multiplications, memory bounded by a parameter.
`nn_descent_neighbours` is the approximate construction of Dong, Charikar and Li (WWW 2011), "a neighbour of a
neighbour is probably a neighbour", whose cost grows as about n^1.1; what it finds is scored exactly, because an
approximate *score* costs retrieval quality where a missing neighbour hardly does.

k counts other regions. A region is never its own neighbour; another region with the same descriptor may well be.
Among equally similar regions any may make the list; where a region has more equals than k, each links to those around
it in a ring, so that all stay connected.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manifind.checks import UNIT_TOLERANCE, whole_number
from manifind.errors import InvalidInput, ManifindWarning
from manifind.kernels import SCRATCH, Descending, Rows, SelfComparing, as_rows
from manifind.types import FloatArray, IntArray, Progress, Vectors

BLOCK = 4096
"""How many rows are searched at a time. faiss multiplies blocks of this many, so that more would gain nothing."""


NOBODY = -1
"""The id that fills up a list with fewer neighbours than others have. Its similarity is −∞."""


class Neighbours(NamedTuple):
    """Neighbour lists, best first."""

    ids: IntArray
    """(n, k) int32."""
    similarities: FloatArray
    """(n, k) float32."""

    def first(self, k: int) -> "Neighbours":
        """Return the `k` best of each list, or all where they are fewer."""
        return Neighbours(self.ids[:, :k], self.similarities[:, :k])

    def of(self, rows: slice) -> "Neighbours":
        """Return the lists of some rows."""
        return Neighbours(self.ids[rows], self.similarities[rows])


def exact_neighbours(
    vectors: Vectors | Rows,
    k: int,
    *,
    reserve: int = 0,
    memory: int = SCRATCH,
    progress: Progress | None = None,
) -> Neighbours:
    """Find the `k` nearest other rows of each unit row by comparing all pairs.

    Parameters
    ----------
    vectors : (n, d) float32 or float16, or Rows
    k : int
        Cut to n − 1 with a warning where it is larger.
    reserve : int
        How many more to list, for `update_neighbours` to draw on.
    memory : int
        Bytes of scratch beyond `vectors` and the lists returned.
    progress : callable, optional
        Called with the rows done and the rows in all, after each block.
    """
    rows = as_rows(vectors)
    n = rows.shape[0]
    k = _possible(k, n)
    width = min(k + reserve, n - 1)
    ids, similarities = nearest_others(rows, width, memory=memory, progress=progress)
    link_duplicates(rows, ids, similarities, k)
    return Neighbours(ids, similarities)


def nearest_others(
    rows: Rows, k: int, *, memory: int = SCRATCH, progress: Progress | None = None
) -> tuple[IntArray, FloatArray]:
    """Find the `k` nearest other rows of each row, by the fastest way that the rows offer; equals are left as found."""
    if isinstance(rows, SelfComparing) and k:
        return rows.nearest_others(k, memory=memory, progress=progress)
    return _by_blocks(rows, k, memory, progress)


def _by_blocks(rows: Rows, k: int, memory: int, progress: Progress | None) -> tuple[IntArray, FloatArray]:
    """Search for the rows themselves, a block of them at a time."""
    n = rows.shape[0]
    ids, similarities = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
    step = max(1, min(BLOCK, memory // ((k + 1) * 24)))
    for start in range(0, n, step):
        own = np.arange(start, min(start + step, n))
        ids[own], similarities[own] = without_self(*rows.nearest(rows.take(own), k + 1, memory=memory), own)
        if progress is not None:
            progress(min(start + step, n), n)
    return ids, similarities


def nn_descent_neighbours(
    vectors: Vectors | Rows,
    k: int,
    *,
    reserve: int = 0,
    memory: int = SCRATCH,
    progress: Progress | None = None,
    seed: int = 0,
) -> Neighbours:
    """Find nearly the `k` nearest other rows of each unit row by NN-Descent, scored exactly.

    It found 99.7 % of the 50 neighbours of 106,887 real descriptors in half the time of `exact_neighbours`, and 99.8 %
    of those of 500,000 (real ones and others made of them) in a quarter of the time of pynndescent; for k = 200 it
    begins to be the faster at about 100,000 (``benchmarks/speed.py descent``).

    The same seed gives the same lists, whatever the number of threads. NN-Descent is in the compiled core alone.
    """
    rows = as_rows(vectors)
    n = rows.shape[0]
    k = _possible(k, n)
    width = min(k + reserve, n - 1)
    if width + 1 >= n:  # all others are neighbours, and there is nothing to descend
        return exact_neighbours(rows, k, reserve=reserve, memory=memory, progress=progress)
    if not isinstance(rows, Descending):
        raise InvalidInput(
            "NN-Descent is in the compiled core, which these rows do without; use exact_neighbours (graph='exact')."
        )
    ids, similarities = rows.descend(width, seed=seed, progress=progress)
    link_duplicates(rows, ids, similarities, k)
    return Neighbours(ids, similarities)


def given_neighbours(neighbours: tuple[npt.ArrayLike, npt.ArrayLike], vectors: FloatArray, k: int) -> Neighbours:
    """Check lists that were found elsewhere, and cut them to `k`."""
    if len(neighbours) != 2:
        raise InvalidInput(f"neighbours has {len(neighbours)} parts; give two arrays, ids and similarities.")
    n = len(vectors)
    ids, similarities = np.asarray(neighbours[0]), np.asarray(neighbours[1])
    if ids.dtype.kind not in "iu" or similarities.dtype.kind != "f":
        raise InvalidInput(
            f"neighbours has dtypes {ids.dtype} and {similarities.dtype}; give integer ids and floating similarities."
        )
    k = min(k, n - 1)
    if ids.ndim != 2 or ids.shape != similarities.shape or len(ids) != n or ids.shape[1] < k:
        raise InvalidInput(
            f"neighbours has shapes {ids.shape} and {similarities.shape}; give both ({n}, {k}), or longer lists."
        )
    ids, similarities = ids[:, :k], similarities[:, :k]
    if ids.size and (ids.min() < 0 or ids.max() >= n):
        raise InvalidInput(f"neighbours has ids from {ids.min()} to {ids.max()}; give rows of vectors, 0 to {n - 1}.")
    own = (ids == np.arange(n)[:, None]).any(axis=1)
    if own.any():
        raise InvalidInput(f"neighbours lists region {own.argmax()} as its own neighbour; leave it out of its list.")
    if not np.isfinite(similarities).all() or (np.diff(similarities, axis=1) > 0).any():
        raise InvalidInput("neighbours has similarities that are not finite or not best first; sort each list.")
    checked = Neighbours(ids.astype(np.int32), similarities.astype(np.float32))
    sample = np.unique(np.linspace(0, n - 1, min(n, 200)).astype(int))
    if k:
        exact = np.einsum("id,ikd->ik", vectors[sample], vectors[checked.ids[sample]])
        worst = float(np.abs(exact - checked.similarities[sample]).max())
        if worst > UNIT_TOLERANCE:
            raise InvalidInput(
                f"neighbours has similarities that are off by up to {worst:.2g}; give the inner products of vectors "
                "again: approximate scores cost retrieval quality."
            )
    return checked


GRAPHS: dict[str, Callable[..., Neighbours]] = {
    "exact": exact_neighbours,
    "nn-descent": nn_descent_neighbours,
}
"""The ways to find neighbours, by the name that `Manifold` knows them by."""


def _possible(k: int, n: int) -> int:
    whole_number(k, "k")
    if k < n:
        return k
    warnings.warn(
        f"k is {k} but each of the {n} regions has only {n - 1} others; k is {n - 1} here.",
        ManifindWarning,
        stacklevel=4,
    )
    return n - 1


def link_duplicates(rows: Rows, ids: IntArray, similarities: FloatArray, k: int) -> None:
    """Spread the lists of regions that have more than `k` equals, in place.

    A search gives all of them the same k equals, which would make neighbours of those few and leave the others without
    a mutual one: blank margins of scanned pages, say. Each gets those around it instead, in a ring of its equals.
    """
    if k == 0:
        return
    full = np.flatnonzero(similarities[:, k - 1] > 1 - UNIT_TOLERANCE)
    if not len(full):
        return
    # Equal rows have equal projections, and others hardly ever; the rows themselves are not sorted or copied.
    direction = np.random.default_rng(0).standard_normal(rows.shape[1])
    blocks = (rows.take(full[at : at + BLOCK]).astype(np.float64) for at in range(0, len(full), BLOCK))
    projected = np.concatenate([np.einsum("ij,j->i", block, direction) for block in blocks])
    order = np.argsort(projected, kind="stable")
    _, starts, sizes = np.unique(projected[order], return_index=True, return_counts=True)
    around = np.concatenate([np.arange(1, k // 2 + 1), -np.arange(1, k - k // 2 + 1)])
    for start, size in zip(starts[sizes > k].tolist(), sizes[sizes > k].tolist(), strict=True):
        equals = full[order[start : start + size]]
        ids[equals, :k] = equals[(np.arange(size)[:, None] + around) % size]
        (same,) = rows.take(equals[:1])
        similarities[equals, :k] = same @ same
        # Who else of the equals would be next in line is not known.
        ids[equals, k:] = NOBODY
        similarities[equals, k:] = -np.inf


def without_self(
    ids: IntArray, similarities: FloatArray, own: npt.NDArray[np.signedinteger[Any]]
) -> tuple[IntArray, FloatArray]:
    """Drop each row's own id from lists of k + 1, or the last of a list that duplicates pushed it out of."""
    n, width = ids.shape
    drop = ids == own[:, None]
    drop[~drop.any(axis=1), -1] = True
    keep = ~drop
    return ids[keep].reshape(n, width - 1), similarities[keep].reshape(n, width - 1)
