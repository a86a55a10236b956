"""Re-ranking by the neighbours of images: SCSM's k-NN re-ranking, Hello Neighbor, k-reciprocal encoding."""

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.baselines.scorer import CollectionDescriptors
from manifind.baselines.similarity import NearestImages
from manifind.checks import check_float, check_int
from manifind.graph import Neighbours
from manifind.kernels.topk import argsort_topk
from manifind.types import FloatArray, IntArray


class SpatiallyConstrainedMatching(NearestImages):
    """Search with the best images too, and add up the inverse ranks that each search gives.

    Shen, Lin, Brandt, Avidan, Wu: Object Retrieval and Localization with Spatially-Constrained Similarity Measure and
    k-NN Re-ranking (CVPR 2012; TPAMI 2014). The similarity measure itself votes with local features. On global
    descriptors its k-NN re-ranking remains, and must be what the paper lists: with N₁ … N_k the best images for the
    query Q, and R(X, D) the rank of image D, from 1, in a search with X,

        score(D) = 1 / R(Q, D) + Σᵢ 1 / ((i + 1) R(Nᵢ, D)).

    An image is first in its own list. One round, not repeated.

    Parameters
    ----------
    neighbours : int, default 10
        The k images to search with. The paper does not say; the weights 1 / (i + 1) make later ones matter little.
    """

    def __init__(self, *, neighbours: int = 10) -> None:
        self.neighbours = neighbours

    def _fit(self, collection: CollectionDescriptors) -> None:
        check_int(self.neighbours, "neighbours")
        super()._fit(collection)

    def _score_global(self, query: FloatArray) -> FloatArray:
        similarities = super()._score_global(query)
        scores = 1 / _ranks(similarities)
        for i, image in enumerate(argsort_topk(similarities, self.neighbours).tolist(), start=1):
            scores += 1 / ((i + 1) * _ranks(super()._score_global(self.global_vectors_[image])))
        return scores.astype(np.float32)


def _ranks(similarities: FloatArray) -> np.ndarray:
    """Return the rank of each image, 1 for the most similar; equals by place."""
    ranks = np.empty(len(similarities))
    ranks[argsort_topk(similarities, None)] = np.arange(1, len(similarities) + 1)
    return ranks


CLOSE_SET_BONUS = 2.0
"""Added to the score of the close set, so that it comes first: similarities lie between −1 and 1."""


class HelloNeighbor(NearestImages):
    """Rank the reciprocal neighbours of the query first, and the other images by their similarity to these.

    Qin, Gammeter, Bossard, Quack, Van Gool: Hello Neighbor: Accurate Object Retrieval with k-Reciprocal Nearest
    Neighbors (CVPR 2011). Two images are k-reciprocal neighbours if each is among the k nearest of the other. They
    divide the list into a close set and a far set, each ranked by its own measure.

    The publication's formulas could not be had; these are our own, so figures are not those of its authors' program:

    1. The close set holds the query's k-reciprocal neighbours, and those of each such neighbour of which half or more
       (the neighbour itself counted) are the query's too. Members brought in this way bring no more: with chaining
       the set ran through half the collection (1,929 of Oxford5k's 5,063 photos, for k = 10).
    2. The close set is ranked by the mean similarity to the query and to the close set.
    3. The far set comes after it, ranked by the largest similarity to the query or to an image of the close set.
    4. Similarities are those of unit vectors; the publication has bags of words.
    5. The query enters the list of an image if it is more similar than the last entry.

    Parameters
    ----------
    neighbours : int, default 10
        k.
    """

    reciprocal_: list[IntArray]
    """The k-reciprocal neighbours of each image."""
    reach_: FloatArray
    """The similarity of each image to its k-th neighbour, which a query must exceed to enter the list."""

    def __init__(self, *, neighbours: int = 10) -> None:
        self.neighbours = neighbours

    def _fit(self, collection: CollectionDescriptors) -> None:
        k = check_int(self.neighbours, "neighbours")
        super()._fit(collection)
        ids, similarities = self._image_neighbours(k, collection)
        self.reciprocal_ = [row[(ids[row] == i).any(axis=1)] for i, row in enumerate(ids)]
        self.reach_ = similarities[:, -1] if ids.shape[1] == k else np.full(len(ids), -np.inf, np.float32)

    def _score_global(self, query: FloatArray) -> FloatArray:
        similarities = super()._score_global(query)
        close = self._close_set(similarities)
        query_and_close = np.concatenate([query[None], self.global_vectors_[close]])
        products: FloatArray = self.global_vectors_ @ query_and_close.T
        scores: FloatArray = products.max(axis=1)
        scores[close] = CLOSE_SET_BONUS + products[close].mean(axis=1)
        return scores

    def _close_set(self, similarities: FloatArray) -> npt.NDArray[np.intp]:
        nearest = argsort_topk(similarities, self.neighbours)
        reciprocal = nearest[similarities[nearest] > self.reach_[nearest]]
        close = set(reciprocal.tolist())
        for member in reciprocal:
            neighbours = self.reciprocal_[member]
            shared = 1 + np.isin(neighbours, reciprocal).sum()
            if 2 * shared >= 1 + len(neighbours):
                close.update(neighbours.tolist())
        return np.array(sorted(close), np.intp)


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
        codes = _expand_neighbourhoods(_reciprocal(lists, k1), self._half)
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
        around = _expand_neighbourhoods(_row(mutual, len(similarities)), self._half)
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


def _expand_neighbourhoods(around: sp.csr_array, half: sp.csr_array) -> sp.csr_array:
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
