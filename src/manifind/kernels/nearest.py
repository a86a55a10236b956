"""Exact search by inner product, and exact inner products of given pairs."""

import threading
from contextlib import nullcontext

import faiss
import numpy as np

from manifind.validation import FloatArray, IntArray

PAIR_BYTES = 2**24
"""Scratch for the rows gathered by `similarities`; small enough to stay in cache, where gathering is cheap."""

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
    queries: FloatArray, vectors: FloatArray, k: int, *, rows: IntArray | None = None, memory: int = 2**28
) -> tuple[IntArray, FloatArray]:
    """Find the `k` most similar of `vectors` for each query, best first.

    Parameters
    ----------
    queries, vectors : (m, d) and (n, d) float32, C-contiguous
    k : int
        At most the number of rows searched.
    rows : (r,) int32, optional
        Search among these rows of `vectors` only; the ids returned are places in `rows`. The rows are gathered a
        block at a time.
    memory : int
        Bytes of scratch, roughly: for results in faiss's own types and for gathered rows.

    Returns
    -------
    ids : (m, k) int32
    similarities : (m, k) float32
    """
    m, d = queries.shape
    ids = np.empty((m, k), np.int32)
    scores = np.empty((m, k), np.float32)
    step = max(1, memory // (k * 12))
    for start in range(0, m, step):
        block = slice(start, start + step)
        if rows is None:
            scores[block], ids[block] = _search(queries[block], vectors, k)
        else:
            scores[block], ids[block] = _search_rows(queries[block], vectors, k, rows, max(k, memory // (4 * d)))
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


def _search(queries: FloatArray, vectors: FloatArray, k: int) -> tuple[FloatArray, IntArray]:
    # faiss.knn searches the array where it lies; an IndexFlatIP would first copy it.
    with _BLAS if len(queries) >= FEWEST_FOR_BLAS else nullcontext():
        scores, ids = faiss.knn(queries, vectors, k, metric=faiss.METRIC_INNER_PRODUCT)
    return scores, ids


def _search_rows(
    queries: FloatArray, vectors: FloatArray, k: int, rows: IntArray, step: int
) -> tuple[FloatArray, IntArray]:
    scores = np.empty((len(queries), 0), np.float32)
    ids = np.empty((len(queries), 0), np.int32)
    for start in range(0, len(rows), step):
        part = vectors[rows[start : start + step]]
        part_scores, part_ids = _search(queries, part, min(k, len(part)))
        scores = np.concatenate([scores, part_scores], axis=1)
        ids = np.concatenate([ids, (part_ids + start).astype(np.int32)], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores = np.take_along_axis(scores, order, axis=1)
        ids = np.take_along_axis(ids, order, axis=1)
    return scores, ids
