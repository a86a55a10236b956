"""Photos of a collection that show the same thing, found in the collection itself: labels from nothing.

The graph says which photos have regions that resemble each other most; geometry says which of these pairs of photos
show the same thing. Where the map between two photos takes a region of the one to a region of the other, the two
regions match: they see the same thing at the same size. Such pairs teach a description what may differ between two
views of one thing (`manifind.index.tending.teaching`).
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from threadpoolctl import threadpool_limits

from manifind.boxes import overlaps
from manifind.geometry import Features, verify
from manifind.geometry import maps as plane
from manifind.kernels.threads import thread_count
from manifind.types import FloatArray, Progress

Rows = npt.NDArray[np.int64]

PHOTOS = 2_000
"""For how many photos, spread over the collection, others of the same thing are looked for."""
EACH = 5
"""How many other photos geometry looks at for each of them."""
OVERLAP = 0.5
"""The least overlap (intersection over union) of a region and the place where the map puts its match."""
POINTS = 3
"""How many matching points must lie in both regions."""


class PhotoPair(NamedTuple):
    """Two photos that geometry joins."""

    a: int
    b: int
    regions: npt.NDArray[np.intp]
    """(m, 2): the regions that match, by their places in the two photos."""


def likely_pairs(S: sp.csr_array, image_of: npt.NDArray[np.integer], *, photos: int = PHOTOS, each: int = EACH) -> Rows:
    """Return pairs of photos whose regions the graph joins most: (m, 2), the smaller number first, each once.

    Parameters
    ----------
    S : (n, n) sparse array
        The graph of regions.
    image_of : (n,) array
        The photo of each region.
    photos, each : int
        For how many photos others are looked for, and how many.
    """
    count = int(image_of.max()) + 1
    chosen = np.unique(np.linspace(0, count - 1, min(photos, count)).astype(np.int64))
    n = len(image_of)
    of_image = sp.csr_array((np.ones(n, np.float32), (np.arange(n), image_of)), shape=(n, count))
    joined = sp.csr_array(sp.csr_array(of_image.T)[chosen] @ S @ of_image)
    found = set()
    for place, image in enumerate(chosen.tolist()):
        span = slice(joined.indptr[place], joined.indptr[place + 1])
        others, weights = joined.indices[span], joined.data[span]
        kept = others != image
        others, weights = others[kept], weights[kept]
        for other in others[np.lexsort((others, -weights))[:each]].tolist():
            found.add((min(image, other), max(image, other)))
    return np.array(sorted(found), np.int64).reshape(-1, 2)


def verified_pairs(
    pairs: Rows,
    features_of: Callable[[int], Features | None],
    boxes_of: Callable[[int], FloatArray],
    progress: Progress | None = None,
) -> Iterator[PhotoPair]:
    """Yield the pairs of photos that geometry joins, with the regions that match.

    Parameters
    ----------
    pairs : (m, 2)
        Photos that may show the same thing.
    features_of : callable
        The local features of a photo; None where its file cannot be read.
    boxes_of : callable
        The boxes of a photo's regions.
    progress : callable, optional
    """

    def looked_at(pair: tuple[int, int]) -> PhotoPair | None:
        first, second = features_of(pair[0]), features_of(pair[1])
        verdict = None if first is None or second is None else verify(first, second)
        if first is None or second is None or verdict is None or not verdict.instances:
            return None
        surest = verdict.instances[0]
        at, to = first.points[surest.pairs[:, 0]], second.points[surest.pairs[:, 1]]
        return PhotoPair(*pair, matching_regions(surest.map, at, to, boxes_of(pair[0]), boxes_of(pair[1])))

    pool = ThreadPoolExecutor(max(1, thread_count()))
    try:
        # Each thread has pairs of its own; a product of two small matrices gains nothing from more.
        with threadpool_limits(1, user_api="blas"):
            for done, found in enumerate(pool.map(looked_at, map(tuple, pairs.tolist())), 1):
                if found is not None:
                    yield found
                if progress is not None:
                    progress(done, len(pairs))
    finally:
        pool.shutdown(cancel_futures=True)


def matching_regions(
    to: plane.Map, a: FloatArray, b: FloatArray, boxes_a: FloatArray, boxes_b: FloatArray
) -> npt.NDArray[np.intp]:
    """Return the regions of two photos that see the same: (m, 2), at most one for each region of the first.

    Parameters
    ----------
    to : (3, 3)
        The map from the first photo to the second.
    a, b : (k, 2)
        The points that match under it.
    boxes_a, boxes_b : (r, 4)
        The regions of the two photos.
    """
    corners = boxes_a[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 2)
    at = plane.apply(to, corners).reshape(-1, 4, 2)
    placed = np.concatenate([at.min(axis=1), at.max(axis=1)], axis=1)
    both = _inside(boxes_a, a).astype(np.int64) @ _inside(boxes_b, b).T.astype(np.int64)
    with np.errstate(invalid="ignore"):  # a corner that the map takes behind the photo has no place
        share = np.where(both >= POINTS, np.nan_to_num(overlaps(placed[:, None], boxes_b)), 0)
    best = share.argmax(axis=1)
    rows = np.flatnonzero(share[np.arange(len(best)), best] >= OVERLAP)
    return np.stack([rows, best[rows]], axis=1)


def things(pairs: Sequence[PhotoPair], photos: int) -> npt.NDArray[np.int32]:
    """Return for each photo which thing it shows: photos that pairs join, directly or not, show the same."""
    a, b = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    joined = sp.csr_array((np.ones(len(a), np.int8), (a, b)), shape=(photos, photos))
    return np.asarray(connected_components(joined, directed=False)[1], np.int32)


def _inside(boxes: FloatArray, points: FloatArray) -> npt.NDArray[np.bool_]:
    """Return which points lie in each box: (r, k)."""
    return np.asarray(((points >= boxes[:, None, :2]) & (points < boxes[:, None, 2:])).all(axis=2))
