"""Spatial verification: whether an image shows the query's object, where, and with how many inliers.

Descriptors are matched, RANSAC estimates the transform with the most inliers, and the image is verified where these are
enough. The transform takes the four corners of the query's box to the object's outline. Keypoints inside the outline
are then set aside and the rest is verified again: each instance of the object gets an outline of its own.

A weak instance is reported and verifies nothing. Inliers that crowd in a part of the box show that this part is the
same (a print, or background), not the object. A few inliers whose descriptors are only roughly similar show two objects
of one category: two faces have eyes, nose and mouth in the same arrangement.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from manifind.boxes import clip_box, covered_fraction
from manifind.errors import InvalidInputError
from manifind.geometry import transforms
from manifind.geometry.features import Features
from manifind.geometry.matching import ImageFeatures, Matches, estimate_transforms
from manifind.geometry.object_box import PRIOR_INLIERS
from manifind.geometry.ransac import RansacConfig
from manifind.geometry.transforms import Transform
from manifind.kernels import ImageMatch
from manifind.types import Box, FloatArray


@dataclass(frozen=True)
class VerificationConfig:
    """When spatial verification believes RootSIFT features.

    Chosen on Oxford5k (``benchmarks/geometry.py``) where a field does not name another collection.
    """

    max_ratio: float = 0.94
    """Of the ratio test: distance to the nearest over distance to the second nearest."""
    query_tolerance: float = 0.015
    """The largest residual of an inlier in the query, in parts of the long side of its box."""
    image_tolerance: float = 0.01
    """The largest residual of an inlier in the image, in parts of its long side."""
    min_inliers: int = 6
    """Distinct inliers that verify an image."""
    min_inliers_box: int = 4
    """Distinct inliers that verify an image where the query is a box, unless they are weak."""
    min_weak_inliers: int = 6
    """Distinct inliers with which a weak instance is reported."""
    appearance_gate: tuple[float, float] | None = (0.88, 0.2)
    """A cosine of descriptors, and the least sum over distinct inliers of what their mean cosine exceeds it by: few
    inliers must look more alike than many. None: no gate."""
    min_query_keypoints: int = 20
    """A query with fewer keypoints cannot be verified: their absence in an image says nothing."""
    min_central_inliers: int = 4
    """Inliers that must lie in the central part of a box: its edge holds background."""
    central_part: float = 0.7
    """Width and height of the central part, in parts of the box."""
    min_spread: float = 0.065
    """Geometric mean of the inliers' standard deviations across and down, in parts of the box. Inliers all over the box
    have 0.29."""
    cells: int = 4
    """Cells across and down into which a box is divided to see how much of it inliers cover."""
    min_cell_coverage: float = 0.36
    """Cells with inliers, in parts of the cells that as many random keypoints of the query would reach. Chosen on
    planted scenes and packages, where it costs one in a hundred correct images."""
    sufficient_inliers: int = 30
    """Inliers that are never weak, of `sufficient_keypoints` of the image: a loose box has the object in a part of it.
    An image with more keypoints needs proportionally more."""
    sufficient_keypoints: int = 500
    max_instances: int = 8
    """Instances of the object that are looked for in an image."""
    max_instance_overlap: float = 0.5
    """Shared area of two instances, in parts of the smaller box: beyond it they are one."""
    prior_inliers: int = PRIOR_INLIERS
    """What the box by the transform alone weighs against the object's shape (`object_box`), in inliers. Chosen on
    planted scenes."""
    ransac: RansacConfig = field(default_factory=RansacConfig)


@dataclass(frozen=True, eq=False)
class Instance:
    """One place where an image shows the object."""

    transform: Transform
    """(3, 3): from pixels of the query image to pixels of this image."""
    outline: npt.NDArray[np.float64]
    """(4, 2): the corners of the query's box, clockwise from its upper left; they may lie outside the image."""
    box: Box
    """Round the object, within the image: round the outline, with rounded corners where the query is a box."""
    inliers: int
    """Distinct inliers."""
    matches: Matches
    """(k, 2): indices of the inlying features, the query's and the image's."""
    weak: bool = False
    """Whether the inliers verify nothing: fewer than `sufficient_inliers`, and crowded or not similar enough."""

    def coverage(self, query: Features, box: Box, image: ImageFeatures, cells: int, least: int) -> float:
        """Return the share of a box's cells with inliers, of those in which the image could show enough keypoints.

        Parameters
        ----------
        query : Features
        box : (x0, y0, x1, y1)
            The object in the query.
        image : Features or PackedFeatures
        cells : int
            Across and down the box.
        least : int
            Keypoints of the query that make a cell count.
        """
        seen = _count_in_cells(query.keypoints[_visible(self.transform, query, image)], box, cells) >= least
        reached = _count_in_cells(query.keypoints[self.matches[:, 0]], box, cells) > 0
        return float((reached & seen).sum() / max(1, seen.sum()))

    def part(self, query: Features) -> npt.NDArray[np.float64]:
        """Return the corners of the box round the query's inliers, (4, 2), in pixels of this image."""
        inlying = query.keypoints[self.matches[:, 0]]
        x0, y0, x1, y1 = (float(side) for side in (*inlying.min(axis=0), *inlying.max(axis=0)))
        return transforms.apply(self.transform, transforms.box_corners((x0, y0, x1, y1)))


@dataclass(frozen=True, eq=False)
class Verdict:
    """The result of spatial verification for one image."""

    verified: bool | None
    """None where the query has too few keypoints for an image without matches to mean anything."""
    instances: tuple[Instance, ...] = ()
    """Where the object is, the surest first, weak ones last."""
    consensus: int = 0
    """The most distinct inliers of any transform, be they enough or not."""

    @property
    def inliers(self) -> int:
        """Inliers of the surest instance."""
        return self.instances[0].inliers if self.instances else 0


def verify(
    query: Features, image: ImageFeatures, box: Box | None = None, *, config: VerificationConfig | None = None
) -> Verdict:
    """Return whether an image shows the query, and where; as `verify_many`."""
    return verify_many(query, [image], box, config=config)[0]


def verify_many(
    query: Features,
    images: Sequence[ImageFeatures],
    box: Box | None = None,
    *,
    config: VerificationConfig | None = None,
) -> list[Verdict]:
    """Return whether each image shows the query, and where. All cores match the images.

    Parameters
    ----------
    query : Features
    images : sequence of Features or PackedFeatures
        Of the same kind.
    box : (x0, y0, x1, y1), optional
        The object in the query image, all of it by default.
    config : VerificationConfig, optional
    """
    for kind in {image.kind for image in images} - {query.kind}:
        raise InvalidInputError(f"the query has {query.kind} features and the photo has {kind}; give one kind.")
    config = config or VerificationConfig()
    whole = (0.0, 0.0, float(query.width), float(query.height))
    inside = clip_box(box or whole, query.width, query.height)
    searches = [_InstanceSearch(query, image, inside, config) for image in images]
    # A further instance is looked for among what the ones before leave of an image.
    for _ in range(config.max_instances):
        unfinished = [search for search in searches if len(search.left)]
        if not unfinished:
            break
        estimates = estimate_transforms(
            query,
            [search.remaining for search in unfinished],
            inside,
            (config.query_tolerance * max(inside[2] - inside[0], inside[3] - inside[1]), config.image_tolerance),
            max_ratio=config.max_ratio,
            min_inliers=_needed_inliers(query, inside, config),
            config=config.ransac,
        )
        for search, estimate in zip(unfinished, estimates, strict=True):
            search.add(estimate)
    otherwise = False if len(query) >= config.min_query_keypoints else None
    return [search.verdict(otherwise) for search in searches]


def _needed_inliers(query: Features, box: Box, config: VerificationConfig) -> int:
    return min(config.min_inliers_box, config.min_inliers) if query.is_part(box) else config.min_inliers


class _InstanceSearch:
    """The instances of the object that were found in one image."""

    def __init__(self, query: Features, image: ImageFeatures, box: Box, config: VerificationConfig) -> None:
        self._query, self._image, self._box, self._config = query, image, box, config
        self._instances: list[Instance] = []
        self._consensus = 0
        self.left = np.arange(len(image))
        """The features of the image in which no instance was found."""

    @property
    def remaining(self) -> ImageFeatures:
        return self._image if len(self.left) == len(self._image) else self._image[self.left]

    def add(self, estimate: ImageMatch | None) -> None:
        """Add the instance that a transform shows; without any, nothing is left."""
        instance = None if estimate is None else self._instance_of(estimate)
        overlap = self._config.max_instance_overlap
        if instance is None or any(covered_fraction(instance.box, other.box) > overlap for other in self._instances):
            self.left = self.left[:0]
            return
        self._instances.append(instance)
        if instance.weak and instance.inliers < self._config.min_inliers:
            self.left = self.left[:0]  # a further instance would be as weak
            return
        self.left = self.left[~transforms.inside_outline(instance.outline, self._image.keypoints[self.left])]

    def verdict(self, otherwise: bool | None) -> Verdict:
        instances = tuple(sorted(self._instances, key=lambda instance: (instance.weak, -instance.inliers)))
        verified = any(not instance.weak for instance in instances)
        return Verdict(True if verified else otherwise, instances, self._consensus)

    def _instance_of(self, estimate: ImageMatch) -> Instance | None:
        """Return the instance that a transform shows, if its inliers are enough."""
        query, image, box, config = self._query, self._image, self._box, self._config
        transform, inlying, cosines, distinct = estimate
        self._consensus = max(self._consensus, distinct)
        if distinct < _needed_inliers(query, box, config):
            return None
        matching, part = query.keypoints[inlying[:, 0]], query.is_part(box)
        if part and not _on_object(matching, box, config):
            return None
        outline = transforms.apply(transform, transforms.box_corners(box))
        around = transforms.apply(transform, transforms.rounded_outline(box)) if part else outline
        size = np.array([image.width, image.height], np.float64)
        (x0, y0), (x1, y1) = np.clip(around.min(axis=0), 0, size), np.clip(around.max(axis=0), 0, size)
        if x0 >= x1 or y0 >= y1:
            return None
        tight = float(x0), float(y0), float(x1), float(y1)
        sufficient = config.sufficient_inliers * max(1, len(image) / config.sufficient_keypoints)
        weak = len(matching) < sufficient and (
            not _passes_appearance_gate(cosines, distinct, config)
            or (part and _crowded(query.keypoints[_visible(transform, query, image)], matching, box, config))
        )
        if weak and distinct < config.min_weak_inliers:
            return None
        matches = np.stack([inlying[:, 0], self.left[inlying[:, 1]]], axis=1)
        return Instance(transform, outline, tight, distinct, matches, weak)


def _passes_appearance_gate(cosines: FloatArray, distinct: int, config: VerificationConfig) -> bool:
    """Return whether the descriptors of this many distinct inliers are similar enough."""
    if config.appearance_gate is None:
        return True
    above, total = config.appearance_gate
    return distinct * (float(cosines.mean()) - above) >= total


def _on_object(points: npt.NDArray[np.float32], box: Box, config: VerificationConfig) -> bool:
    """Return whether inliers in a box are probably on the object, rather than on the background."""
    corner, size = np.array(box[:2]), np.array([box[2] - box[0], box[3] - box[1]])
    at = (points - corner) / size
    central = int((np.abs(at - 0.5) < config.central_part / 2).all(axis=1).sum())
    spread = np.sqrt(at.std(axis=0).prod())
    return central >= config.min_central_inliers and bool(spread >= config.min_spread)


def _visible(transform: Transform, query: Features, image: ImageFeatures) -> npt.NDArray[np.bool_]:
    """Return which keypoints of a query a transform takes into an image."""
    at = transforms.apply(transform, query.keypoints)
    with np.errstate(invalid="ignore"):
        return np.asarray((at >= 0).all(axis=1) & (at < (image.width, image.height)).all(axis=1))


def _crowded(
    visible: npt.NDArray[np.float32], matching: npt.NDArray[np.float32], box: Box, config: VerificationConfig
) -> bool:
    """Return whether inliers reach far fewer cells of a box than as many random visible keypoints would."""
    seen, reached = (_count_in_cells(points, box, config.cells) for points in (visible, matching))
    shares = np.maximum(seen, reached > 0)
    expected = float((1 - (1 - shares / shares.sum()) ** reached.sum()).sum())
    return int((reached > 0).sum()) < config.min_cell_coverage * expected


def _count_in_cells(points: npt.NDArray[np.float32], box: Box, cells: int) -> npt.NDArray[np.intp]:
    """Return how many points lie in each cell of a box."""
    corner, size = np.array(box[:2]), np.array([box[2] - box[0], box[3] - box[1]])
    cell = np.clip(((points - corner) / size * cells).astype(int), 0, cells - 1)
    return np.bincount(cell @ (1, cells), minlength=cells**2)
