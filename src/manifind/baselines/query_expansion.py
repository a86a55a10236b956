"""Query expansion: search, add the best images to the query, search again; and its database side.

`AverageQueryExpansion` (AQE), `AlphaQueryExpansion` (αQE) and `DatabaseAugmentation` (DBA) work on global descriptors,
`RegionMatchExpansion` on regions.
"""

import numpy as np

from manifind.baselines.scorer import CollectionDescriptors, QueryDescriptors
from manifind.baselines.similarity import NearestImages, RegionMatch, unit
from manifind.checks import check_float, check_int
from manifind.graph import kernel
from manifind.kernels.topk import argsort_topk
from manifind.types import FloatArray

BLOCK_BYTES = 2**24


class AverageQueryExpansion(NearestImages):
    """Average the query with its best images and search again (AQE).

    Chum, Philbin, Sivic, Isard, Zisserman: Total Recall: Automatic Query Expansion with a Generative Feature Model for
    Object Retrieval (ICCV 2007). As usual with global descriptors (Tolias et al., ICLR 2016; Gordo et al., 2017), the
    images are not verified before they are averaged. The query weighs as much as each image.

    Parameters
    ----------
    neighbours : int, default 5
        Images to average with. The paper does not say how many; Tolias et al. take 5, Gordo et al. 10. More help only
        where the first images are right (``docs/oxford5k.md``).
    """

    def __init__(self, *, neighbours: int = 5) -> None:
        self.neighbours = neighbours

    def _fit(self, collection: CollectionDescriptors) -> None:
        check_int(self.neighbours, "neighbours")
        super()._fit(collection)

    def _score_global(self, query: FloatArray) -> FloatArray:
        best = argsort_topk(super()._score_global(query), self.neighbours)
        return super()._score_global(unit(query + self.global_vectors_[best].sum(axis=0)))


class AlphaQueryExpansion(NearestImages):
    """Average the query with its best images, each weighted by its similarity to the power α, and search again (αQE).

    Radenović, Tolias, Chum: Fine-tuning CNN Image Retrieval with No Human Annotation (TPAMI 2019), Sec. 4.3. The query
    weighs 1, its similarity to itself. An image with a negative similarity weighs nothing.

    Parameters
    ----------
    neighbours : int, default 50
        Images to average with, as in the publication. Where similarities fall off slowly, 50 images outweigh the query
        and fewer are better (``docs/oxford5k.md``).
    alpha : float, default 3.0
        The exponent α, positive, as in the publication. A larger α trusts the first images more.
    """

    def __init__(self, *, neighbours: int = 50, alpha: float = 3.0) -> None:
        self.neighbours = neighbours
        self.alpha = alpha

    def _fit(self, collection: CollectionDescriptors) -> None:
        check_int(self.neighbours, "neighbours")
        check_float(self.alpha, "alpha", above=0)
        super()._fit(collection)

    def _score_global(self, query: FloatArray) -> FloatArray:
        similarities = super()._score_global(query)
        best = argsort_topk(similarities, self.neighbours)
        weights = kernel(similarities[best], self.alpha)
        return super()._score_global(unit(query + weights @ self.global_vectors_[best]))


class DatabaseAugmentation(NearestImages):
    """Replace each image's descriptor by a weighted sum of itself and its nearest images, off line (DBA).

    Turcot, Lowe (ICCV Workshops 2009) and Arandjelović, Zisserman (CVPR 2012), for global descriptors as in Gordo,
    Almazán, Revaud, Larlus: End-to-end Learning of Deep Visual Representations for Image Retrieval (IJCV 2017): the
    r-th nearest image weighs (k − r) / k, the image itself (r = 0) thus 1. The query is not expanded.

    Parameters
    ----------
    neighbours : int, default 20
        k of the weights, as in the publication; the k-th image itself weighs nothing.
    """

    def __init__(self, *, neighbours: int = 20) -> None:
        self.neighbours = neighbours

    def _fit(self, collection: CollectionDescriptors) -> None:
        k = check_int(self.neighbours, "neighbours")
        super()._fit(collection)
        vectors, (ids, _) = self.global_vectors_, self._image_neighbours(k, collection)
        weights = (1 - np.arange(1, ids.shape[1] + 1) / k).astype(np.float32)
        augmented = np.empty_like(vectors)
        step = max(1, BLOCK_BYTES // (4 * vectors.shape[1] * max(1, ids.shape[1])))
        for start in range(0, len(vectors), step):
            block = slice(start, start + step)
            augmented[block] = unit(vectors[block] + np.einsum("k,ikd->id", weights, vectors[ids[block]]))
        self.global_vectors_ = augmented


class RegionMatchExpansion(RegionMatch):
    """Average each region of the query with its best match in each of the best images, then match again.

    The paper extends average query expansion "to regional representation combined with the similarity used in R-match"
    (Sec. 5.3) and says no more. Chosen here: the best images are those of `RegionMatch`; each region of the query
    becomes the unit-norm sum of itself and its best match in each of these images.

    Parameters
    ----------
    neighbours : int, default 5
        Images to expand with, as for `AverageQueryExpansion`.
    """

    def __init__(self, *, neighbours: int = 5) -> None:
        self.neighbours = neighbours

    def _fit(self, collection: CollectionDescriptors) -> None:
        check_int(self.neighbours, "neighbours")
        super()._fit(collection)

    def _score(self, query: QueryDescriptors) -> FloatArray:
        starts = self.layout_.starts
        expanded = query.regions.copy()
        for image in argsort_topk(self._match(query.regions), self.neighbours):
            regions = self.vectors_[starts[image] : starts[image + 1]]
            expanded += regions[np.argmax(regions @ query.regions.T, axis=0)]
        return self._match(unit(expanded))
