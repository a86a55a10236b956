"""DBA: database-side feature augmentation."""

import numpy as np

from manifind.baselines.nearest import NearestImages, unit
from manifind.baselines.scorer import Collection
from manifind.checks import whole_number

BLOCK_BYTES = 2**24


class DatabaseAugmentation(NearestImages):
    """Replace each image's descriptor by a weighted sum of itself and its nearest images, then search plainly.

    Turcot, Lowe (ICCV Workshops 2009) and Arandjelović, Zisserman (CVPR 2012), in the spelling for global descriptors
    of Gordo, Almazán, Revaud, Larlus: End-to-end Learning of Deep Visual Representations for Image Retrieval (IJCV
    2017): the r-th nearest image weighs (k − r) / k, the image itself (r = 0) thus 1. All is off line; a search costs
    what it did. The query is not expanded: Gordo et al. also report the two together, here each method stands alone.

    Parameters
    ----------
    neighbours : int, default 20
        k of the weights, as in the publication; the k-th image itself weighs nothing.
    """

    def __init__(self, *, neighbours: int = 20) -> None:
        self.neighbours = neighbours

    def _keep(self, collection: Collection) -> None:
        k = whole_number(self.neighbours, "neighbours")
        super()._keep(collection)
        plain, (ids, _) = self.global_vectors_, self._other_images(k, collection)
        weights = (1 - np.arange(1, ids.shape[1] + 1) / k).astype(np.float32)
        augmented = np.empty_like(plain)
        step = max(1, BLOCK_BYTES // (4 * plain.shape[1] * max(1, ids.shape[1])))
        for start in range(0, len(plain), step):
            block = slice(start, start + step)
            augmented[block] = unit(plain[block] + np.einsum("k,ikd->id", weights, plain[ids[block]]))
        self.global_vectors_ = augmented
