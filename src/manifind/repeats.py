"""Objects that occur in several images, found without a query: dense groups of regions.

Two regions of different images that are in each other's neighbour lists may show the same object, or the same stuff:
sky resembles sky. Stuff has look-alikes within its own image. So the strength of a pair is its similarity less the
largest similarity of either region to another place of its own image; a pair weaker than `MARGIN` does not count.

The groups are the basins of a mode-seeking walk (quick shift, Vedaldi and Soatto 2008): the density of a region is the
sum of its strengths, one for each image; each region steps to the partner to which it is tied most strongly among those
of higher density; regions whose walks end at the same peak are a group. A group loses the images
that are tied to too few of its others, and joins a surer group that has most of its images. Groups are ordered by the
strength that ties an image to the others of its group, in the mean: it grows with their number and with their likeness.

The cost is linear in the edges of the graph. The constants were chosen on planted scenes and on Holidays
(``benchmarks/repeats.py``).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.boxes import areas, covered_fraction
from manifind.checks import check_int
from manifind.graph import Neighbours, mutual_affinity
from manifind.groups import Layout
from manifind.types import FloatArray, IntArray, Vectors


@dataclass(frozen=True)
class GroupConfig:
    """Which regions show the same object, and which images are near-duplicates (``benchmarks/repeats.py``)."""

    min_similarity: float = 0.3
    """The similarity that two regions must have."""
    margin: float = 0.1
    """The least strength of a pair: its similarity less that of either region to other places of its image."""
    max_overlap: float = 0.1
    """Two regions of an image are different places where they overlap by no more of the smaller one's area."""
    min_tied_share: float = 0.3
    """The share of the other images of a group that an image must be tied to."""
    min_shared: float = 0.5
    """The share of its images that a group has in a surer group which it joins."""
    duplicate_similarity: float = 0.7
    """The similarity of regions at the same place of two near-duplicates."""
    duplicate_share: float = 0.7
    """The share of the regions of two near-duplicates that are so similar."""
    duplicate_overlap: float = 0.6
    """The share of the smaller box that the other covers, for two boxes at the same place."""


GROUPS = GroupConfig()
MAX_BYTES = 2**26


@dataclass(frozen=True, eq=False)
class Group:
    """Regions of several images that show the same thing."""

    score: float
    """The strength that ties an image to the others, in the mean, times their number."""
    regions: IntArray
    """One of each image, the one that is tied most strongly; the strongest image first."""
    images: IntArray
    """The images of these regions."""
    strengths: FloatArray
    """The sum of what ties each image to the others."""

    def __len__(self) -> int:
        return len(self.images)


def find_groups(
    neighbours: Neighbours,
    vectors: Vectors,
    boxes: FloatArray | None,
    layout: Layout,
    *,
    same: IntArray | None = None,
    least: int = 3,
    config: GroupConfig = GROUPS,
) -> list[Group]:
    """Return the groups of regions that occur in several images, the surest first.

    Parameters
    ----------
    neighbours : Neighbours
        Of all regions, as a `Manifold` has them.
    vectors : (n, d) array
        The regions' descriptors.
    boxes : (n, 4) array, optional
        Where they are in their images; without them no region lies apart from another.
    layout : Layout
        The image of each region; images are numbered by their places in it.
    same : (images,) int array, optional
        Images of an equal number count once: near-duplicates, for example.
    least : int
        The least number of images, different by `same`, in a group.
    config : GroupConfig
    """
    least = check_int(least, "least", least=2)
    image_of = layout.place_of
    identity_of = image_of if same is None else same[image_of].astype(np.int32)
    ties = _ties(neighbours, identity_of, self_similarity(vectors, boxes, layout, config), config)
    strongest = _strongest(ties, identity_of)
    density = np.asarray(strongest.sum(axis=1)).ravel()
    groups = []
    for members in _basins(ties, density):
        if len(np.unique(identity_of[members])) >= least:
            group = _prune_group(strongest, members, image_of, identity_of, least, config)
            if group is not None:
                groups.append(group)
    groups.sort(key=lambda group: (-group.score, int(group.regions[0])))
    return _merge_groups(groups, config)


def near_duplicates(
    neighbours: Neighbours, boxes: FloatArray | None, layout: Layout, config: GroupConfig = GROUPS
) -> IntArray:
    """Return a number for each image; images that are near-duplicates, directly or by way of others, have the same.

    Bursts, versions of a file, and a scene that hardly changed look alike everywhere and in the same places, not in one
    object. `boxes` are those of the regions; without them, every place is the same.
    """
    from scipy.sparse.csgraph import connected_components

    count = len(layout.images)
    image_of = layout.place_of
    pairs = mutual_affinity(neighbours, gamma=1.0).tocoo()
    near = (pairs.data >= config.duplicate_similarity) & (image_of[pairs.row] != image_of[pairs.col])
    row, column = pairs.row[near], pairs.col[near]
    if boxes is not None:
        # Regions reach from edge to edge of their image, whose size they tell.
        sizes = np.maximum.reduceat(boxes[:, 2:], layout.starts[:-1])[image_of]
        a, b = (boxes[regions] / np.tile(sizes[regions], 2) for regions in (row, column))
        together = covered_fraction(a, b) >= config.duplicate_overlap
        alike_in_size = np.abs(np.log(areas(a) / areas(b))) <= np.log(1 / config.duplicate_overlap)
        row, column = row[together & alike_in_size], column[together & alike_in_size]
    once = np.unique(row.astype(np.int64) * count + image_of[column])
    first, second = image_of[once // count], once % count
    parts = sp.csr_array((1 / layout.counts[first], (first, second)), shape=(count, count))
    alike = parts.minimum(parts.T)
    alike.data[alike.data < config.duplicate_share - 1e-9] = 0
    alike.eliminate_zeros()
    return np.asarray(connected_components(alike, directed=False)[1], np.int32)


def self_similarity(
    vectors: Vectors, boxes: FloatArray | None, layout: Layout, config: GroupConfig = GROUPS
) -> FloatArray:
    """Return the largest similarity of each region to another place of its own image, at least zero."""
    similarity = np.zeros(len(vectors), np.float32)
    if boxes is None:
        return similarity
    for _, table in layout.equal_counts(lambda m: 4 * m * (vectors.shape[1] + 6 * m), MAX_BYTES):
        regions = np.asarray(vectors[table], np.float32)
        alike = regions @ regions.transpose(0, 2, 1)
        alike[covered_fraction(boxes[table][:, :, None], boxes[table][:, None]) > config.max_overlap] = 0
        similarity[table] = np.maximum(alike.max(axis=2), 0)
    return similarity


def _ties(neighbours: Neighbours, identity_of: IntArray, similarity: FloatArray, config: GroupConfig) -> sp.coo_array:
    """Return the strengths of all pairs of mutual neighbours of different images that count."""
    pairs = mutual_affinity(neighbours, gamma=1.0).tocoo()
    strength = pairs.data - np.maximum(similarity[pairs.row], similarity[pairs.col])
    counts = (
        (pairs.data >= config.min_similarity)
        & (strength >= config.margin)
        & (identity_of[pairs.row] != identity_of[pairs.col])
    )
    return sp.coo_array((strength[counts], (pairs.row[counts], pairs.col[counts])), shape=pairs.shape)


def _strongest(ties: sp.coo_array, identity_of: IntArray) -> sp.csr_array:
    """Keep of each region's ties to an image the strongest alone."""
    order = np.lexsort((-ties.data, identity_of[ties.col], ties.row))
    row, to = ties.row[order], identity_of[ties.col[order]]
    first = np.ones(len(order), bool)
    first[1:] = (row[1:] != row[:-1]) | (to[1:] != to[:-1])
    chosen = order[first]
    return sp.csr_array((ties.data[chosen], (ties.row[chosen], ties.col[chosen])), shape=ties.shape)


def _basins(ties: sp.coo_array, density: FloatArray) -> list[npt.NDArray[np.intp]]:
    """Return the regions whose walks end at the same peak."""
    # Of two equally dense regions the later one steps: an object in two images has a peak as well.
    rank = np.lexsort((-np.arange(len(density)), density)).argsort()
    upward = rank[ties.col] > rank[ties.row]
    row, column, strength = ties.row[upward], ties.col[upward], ties.data[upward]
    order = np.lexsort((strength, row))
    to = np.arange(len(density))
    to[row[order]] = column[order]  # the last of a row counts, which is the strongest
    while not np.array_equal(further := to[to], to):
        to = further
    tied = np.flatnonzero(density > 0)
    order = np.argsort(to[tied], kind="stable")
    tied = tied[order]
    return np.split(tied, np.flatnonzero(np.diff(to[tied])) + 1) if len(tied) else []


def _prune_group(
    strongest: sp.csr_array,
    members: npt.NDArray[np.intp],
    image_of: IntArray,
    identity_of: IntArray,
    least: int,
    config: GroupConfig,
) -> Group | None:
    """Remove images that are tied to too few of the others, and choose a region of each other image."""
    within = strongest[members][:, members].tocoo()
    images, place = np.unique(image_of[members], return_inverse=True)
    between = np.zeros((len(images), len(images)), np.float32)
    np.maximum.at(between, (place[within.row], place[within.col]), within.data)
    between = np.maximum(between, between.T)
    kept = np.arange(len(images))
    while len(kept) >= least:
        tied = (between[np.ix_(kept, kept)] > 0).sum(axis=1)
        if tied.min() >= config.min_tied_share * (len(kept) - 1):
            break
        loosest = np.lexsort((between[np.ix_(kept, kept)].sum(axis=1), tied))[0]
        kept = np.delete(kept, loosest)
    numbers = identity_of[members][np.unique(place, return_index=True)[1]]
    if len(np.unique(numbers[kept])) < least:
        return None
    strengths = between[np.ix_(kept, kept)].sum(axis=1)
    by_region = np.asarray(strongest[members][:, members].sum(axis=1)).ravel()
    order = np.lexsort((-by_region, place))
    best = order[np.searchsorted(place[order], kept)]
    sure = np.argsort(-strengths, kind="stable")
    return Group(
        float(strengths.sum() / (len(kept) - 1)),
        members[best][sure].astype(np.int32),
        images[kept][sure].astype(np.int32),
        strengths[sure],
    )


def _merge_groups(groups: list[Group], config: GroupConfig) -> list[Group]:
    """Merge each group into a surer one that has most of its images."""
    merged: list[list[Group]] = []
    having: dict[int, list[int]] = {}
    for group in groups:
        common: dict[int, int] = {}
        for image in group.images.tolist():
            for other in having.get(image, ()):
                common[other] = common.get(other, 0) + 1
        surest = max(common, key=lambda other: (common[other], -other), default=None)
        if surest is None or common[surest] < config.min_shared * len(group):
            surest = len(merged)
            merged.append([])
        merged[surest].append(group)
        for image in group.images.tolist():
            if surest not in having.setdefault(image, []):
                having[image].append(surest)
    return [_union(group) for group in merged]


def _union(groups: list[Group]) -> Group:
    """Return the first of the groups with the images of the others after its own."""
    images, regions, strengths = (
        np.concatenate([getattr(group, name) for group in groups]) for name in ("images", "regions", "strengths")
    )
    first = np.sort(np.unique(images, return_index=True)[1])
    return Group(groups[0].score, regions[first], images[first], strengths[first])
