"""k-reciprocal re-ranking: images are similar if their reciprocal neighbourhoods are."""

import numpy as np
import scipy.sparse as sp

from manifind.baselines.nearest import NearestImages
from manifind.baselines.scorer import CollectionDescriptors
from manifind.checks import check_float, check_int
from manifind.graph import Neighbours
from manifind.kernels.topk import argsort_topk
from manifind.types import FloatArray, IntArray

BLOCK_BYTES = 2**24


class KReciprocal(NearestImages):
    """Re-rank by the Jaccard distance of neighbourhoods, mixed with the distance itself.

    Zhong, Zheng, Cao, Li: Re-ranking Person Re-identification with k-reciprocal Encoding (CVPR 2017). The neighbourhood
    R(p, k₁) of p holds the images that have p among their k₁ nearest and are among p's. Each member g adds its own
    R(g, k₁/2) if at least two thirds of it are in R(p, k₁) already. The code of p is exp(−d(p, g)) for each g of its
    neighbourhood, averaged over its k₂ nearest. Images are ranked by d* = (1 − λ) J + λ d, with J the Jaccard distance
    of codes, 1 − Σ min / Σ max. Scores are −d*.

    Where this departs from the authors' program: (1) d is the squared distance of unit vectors, 2 − 2 p·g; the program
    divides each column of distances by its largest. (2) Codes are not normalised, as in the text; the program divides
    each by its sum. (3) Images are encoded off line without the query, which counts as listed by an image if it is more
    similar than the last entry, and its code has no entry for itself; the program encodes queries and images as one
    collection. As in the program, every image is among its own neighbours, beside the k₁ others and as one of the k₂.

    Parameters
    ----------
    k1, k2 : int, default 20 and 6
    lam : float, default 0.3
        λ in (0, 1). All as in the publication.
    """

    codes_: sp.csr_array
    """(images, images): the code of each."""

    def __init__(self, *, k1: int = 20, k2: int = 6, lam: float = 0.3) -> None:
        self.k1 = k1
        self.k2 = k2
        self.lam = lam

    def _fit(self, collection: CollectionDescriptors) -> None:
        k1 = check_int(self.k1, "k1", least=2)
        k2 = check_int(self.k2, "k2")
        check_float(self.lam, "lam", above=0, below=1)
        super()._fit(collection)
        lists = self._image_neighbours(max(k1, k2 - 1), collection)
        count, width = lists.ids.shape
        self._reach = lists.similarities[:, k1 - 1] if width >= k1 else np.full(count, -np.inf, np.float32)
        self._half = _reciprocal(lists, k1 // 2)
        codes = _expanded(_reciprocal(lists, k1), self._half)
        rows = np.repeat(np.arange(count), np.diff(codes.indptr))
        codes.data = np.exp(-_distances(self.global_vectors_, rows, codes.indices))
        averages = _indicator(lists.ids[:, : k2 - 1], count)
        averages.data /= np.repeat(np.diff(averages.indptr), np.diff(averages.indptr))
        self._local_codes = codes
        self.codes_ = sp.csr_array(averages @ codes)
        self._by_image = self.codes_.tocsc()
        self._sums = np.asarray(self.codes_.sum(axis=1))

    def _score_global(self, query: FloatArray) -> FloatArray:
        similarities = super()._score_global(query)
        code = self._encode(similarities)
        columns = self._by_image[:, code.indices]
        shares = np.minimum(columns.data, np.repeat(code.data, np.diff(columns.indptr)))
        common = np.bincount(columns.indices, shares, minlength=len(similarities))
        either = self._sums + code.data.sum() - common
        jaccard = 1 - common / np.where(either > 0, either, 1)
        return ((self.lam - 1) * jaccard - self.lam * (2 - 2 * similarities)).astype(np.float32)

    def _encode(self, similarities: FloatArray) -> sp.csr_array:
        """Return the code (1, images) of a query by its similarity to each image."""
        nearest = argsort_topk(similarities, self.k1)
        mutual = nearest[similarities[nearest] > self._reach[nearest]]
        around = _expanded(_row(mutual, len(similarities)), self._half)
        around.data = np.exp(-(2 - 2 * similarities[around.indices]))
        nearest_codes = self._local_codes[argsort_topk(similarities, self.k2)[: self.k2 - 1]]
        return sp.csr_array((around + sp.csr_array(nearest_codes.sum(axis=0)[None, :])) / (1 + nearest_codes.shape[0]))


def _reciprocal(lists: Neighbours, k: int) -> sp.csr_array:
    """Return the matrix that is 1 where row and column are among each other's `k` nearest, and on the diagonal."""
    listed = _indicator(lists.ids[:, :k], len(lists.ids))
    return sp.csr_array(listed.multiply(listed.T))


def _indicator(ids: IntArray, columns: int) -> sp.csr_array:
    """Return the matrix that is 1 at the given columns of each row, and on the diagonal."""
    count, width = ids.shape
    both = np.concatenate([np.arange(count, dtype=ids.dtype)[:, None], ids], axis=1)
    starts = np.arange(0, count * (width + 1) + 1, width + 1)
    return sp.csr_array((np.ones(both.size, np.float32), both.ravel(), starts), shape=(count, columns))


def _row(places: np.ndarray, columns: int) -> sp.csr_array:
    return sp.csr_array((np.ones(len(places), np.float32), places, [0, len(places)]), shape=(1, columns))


def _expanded(around: sp.csr_array, half: sp.csr_array) -> sp.csr_array:
    """Add to each neighbourhood those of its members of which at least two thirds are in it."""
    common = sp.csr_array((around @ half).multiply(around))  # half is symmetric
    sizes = np.diff(half.indptr)
    common.data = (3 * common.data >= 2 * sizes[common.indices]).astype(np.float32)
    common.eliminate_zeros()
    return sp.csr_array(around + common @ half)


def _distances(vectors: FloatArray, rows: np.ndarray, columns: np.ndarray) -> FloatArray:
    """Return the squared distance of each pair of rows of `vectors`."""
    distances = np.empty(len(rows), np.float32)
    step = max(1, BLOCK_BYTES // (8 * vectors.shape[1]))
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        distances[block] = 2 - 2 * np.einsum("id,id->i", vectors[rows[block]], vectors[columns[block]])
    return distances
