"""Exact search by inner product, and exact inner products of given pairs.

The compiled core multiplies in eight bits and scores anew, in float32, every pair that the rounding leaves in doubt
(``core/neighbours.h``); without it, and for what is small, faiss multiplies in float32.
"""

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING

import faiss
import numpy as np

from manifind.kernels import native
from manifind.kernels.threads import thread_count
from manifind.types import FloatArray, IntArray, Progress, Vectors

if TYPE_CHECKING:
    from manifind.kernels import _core

PAIR_BYTES = 2**24
"""Scratch for the rows gathered by `similarities`; small enough to stay in cache, where gathering is cheap."""

PART_BYTES = 2**25
"""Rows gathered or widened at a time by `nearest`: few enough that they are still in cache when they are multiplied."""

FEWEST_FOR_BLAS = 5
"""Queries from which a matrix product is faster than faiss's own loop, which it prefers for up to hundreds: three times
as fast for the 21 regions of one photo, against 106,887 regions of 512 dimensions."""


class _LoweredThreshold:
    """While anybody is inside, faiss multiplies matrices however few the queries; afterwards it is as it was."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = faiss.cvar.distance_compute_blas_threshold
                faiss.cvar.distance_compute_blas_threshold = 1
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                faiss.cvar.distance_compute_blas_threshold = self._before


_BLAS = _LoweredThreshold()


def nearest(
    queries: FloatArray, vectors: Vectors, k: int, *, rows: IntArray | None = None, memory: int = 2**28
) -> tuple[IntArray, FloatArray]:
    """Find the `k` most similar of `vectors` for each query, best first.

    Parameters
    ----------
    queries : (m, d) float32, C-contiguous
    vectors : (n, d) float32 or float16, C-contiguous
        Products are of float32 in either case: half-precision rows are widened, in blocks where there is no core.
    k : int
        At most the number of rows searched.
    rows : (r,) int32, optional
        Search among these rows of `vectors` only; the ids returned are places in `rows`. The rows are gathered a
        block at a time.
    memory : int
        Bytes of scratch, roughly: for results in faiss's own types and for rows gathered or widened.

    Returns
    -------
    ids : (m, k) int32
    similarities : (m, k) float32
    """
    m, d = queries.shape
    ids = np.empty((m, k), np.int32)
    scores = np.empty((m, k), np.float32)
    threads = thread_count()
    if native.core is not None and rows is None and m and k and (found := native.compressed(vectors)) is not None:
        found.search(vectors, np.ascontiguousarray(queries, np.float32), None, memory, threads, ids, scores)
        return ids, scores
    step = max(1, memory // (k * 12))
    for start in range(0, m, step):
        block = slice(start, start + step)
        if rows is None and vectors.dtype == np.float32:
            scores[block], ids[block] = _search(queries[block], vectors, k)
        else:
            parts = _parts(vectors, rows, max(k, min(memory, PART_BYTES) // (4 * d)))
            scores[block], ids[block] = _search_parts(queries[block], parts, k)
    return ids, scores


def nearest_others(
    vectors: Vectors,
    k: int,
    *,
    memory: int = 2**28,
    progress: Progress | None = None,
) -> tuple[IntArray, FloatArray]:
    """Find the `k` most similar other rows of each row, best first, in the compiled core: each pair once.

    Parameters
    ----------
    vectors : (n, d) float32 or float16, C-contiguous
    k : int
        Between 1 and n − 1.
    memory : int
        Bytes of scratch for candidates. They take 4k or more a row: with room for all rows, each pair is multiplied
        once, and with less nearly twice.
    progress : callable, optional
        Called with the rows done and the rows in all.

    Returns
    -------
    ids : (n, k) int32
    similarities : (n, k) float32
    """
    n = len(vectors)
    ids, scores = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
    search = native.core.NeighbourSearch(vectors, memory, thread_count(), ids, scores)
    return _stepped(search, ids, scores, progress)


def descend(
    vectors: Vectors, k: int, *, seed: int = 0, progress: Progress | None = None
) -> tuple[IntArray, FloatArray]:
    """Find nearly the `k` most similar other rows of each row, best first, in the compiled core: NN-Descent.

    See ``core/descent.h``. The similarities are exact; which rows they are of is decided in eight bits, and in float32
    where eight bits cannot tell a row's neighbours apart, as with frames of a video. The same seed gives the same
    lists, whatever the number of threads.

    It takes memory for a copy of `vectors` in eight bits, for lists of 12 bytes an entry beside those returned, and
    about a kilobyte a row for what was compared already; most of it is free again when the lists returned are written.

    Parameters
    ----------
    vectors : (n, d) float32 or float16, C-contiguous
    k : int
        Between 1 and n − 1.
    seed : int
        Of the rows that the means of the first order are drawn from.
    progress : callable, optional
        Called with the share of the work that is done, counted in rows, and the rows in all.

    Returns
    -------
    ids : (n, k) int32
    similarities : (n, k) float32
    """
    n = len(vectors)
    ids, scores = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
    descent = native.core.NeighbourDescent(vectors, seed, thread_count(), ids, scores)
    return _stepped(descent, ids, scores, progress)


def _stepped(
    search: "_core.NeighbourSearch | _core.NeighbourDescent",
    ids: IntArray,
    scores: FloatArray,
    progress: Progress | None,
) -> tuple[IntArray, FloatArray]:
    """Let a search fill the lists that it was given, a step at a time, so that an interrupt is heard."""
    done, n = 0, len(ids)
    while done < n:
        done = search.step()
        if progress is not None:
            progress(done, n)
    return ids, scores


def similarities(vectors: FloatArray, ids: IntArray) -> FloatArray:
    """Return the inner product of row i of `vectors` with each of the rows ``ids[i]``, as (n, k) float32."""
    n, k = ids.shape
    out = np.empty((n, k), np.float32)
    step = max(1, PAIR_BYTES // (4 * k * vectors.shape[1]))
    for start in range(0, n, step):
        block = slice(start, start + step)
        np.einsum("id,ikd->ik", vectors[block], vectors[ids[block]], out=out[block])
    return out


def _search(queries: FloatArray, vectors: Vectors, k: int) -> tuple[FloatArray, IntArray]:
    # faiss.knn searches the array where it lies; an IndexFlatIP would first copy it.
    with _BLAS if len(queries) >= FEWEST_FOR_BLAS else nullcontext():
        scores, ids = faiss.knn(queries, vectors, k, metric=faiss.METRIC_INNER_PRODUCT)
    return scores, ids


def _parts(vectors: Vectors, rows: IntArray | None, step: int) -> Iterator[FloatArray]:
    """Yield `step` rows at a time in float32, of those in `rows` or of all."""
    for start in range(0, len(vectors if rows is None else rows), step):
        block = slice(start, start + step)
        yield (vectors[block] if rows is None else vectors[rows[block]]).astype(np.float32, copy=False)


def _search_parts(queries: FloatArray, parts: Iterator[FloatArray], k: int) -> tuple[FloatArray, IntArray]:
    scores = np.empty((len(queries), 0), np.float32)
    ids = np.empty((len(queries), 0), np.int32)
    start = 0
    for part in parts:
        part_scores, part_ids = _search(queries, part, min(k, len(part)))
        scores = np.concatenate([scores, part_scores], axis=1)
        ids = np.concatenate([ids, (part_ids + start).astype(np.int32)], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores = np.take_along_axis(scores, order, axis=1)
        ids = np.take_along_axis(ids, order, axis=1)
        start += len(part)
    return scores, ids
