"""Spatial verification: whether an image shows the query's object, where, and with how many inliers.

Descriptors are matched, RANSAC estimates the transform with the most inliers, and the image is verified where these are
enough. The transform takes the four corners of the query's box to the object's outline. Keypoints inside the outline
are then set aside and the rest is verified again: each instance of the object gets an outline of its own.

A weak instance is reported and verifies nothing. Inliers that crowd in a part of the box show that this part is the
same (a print, or background), not the object. A few inliers whose descriptors are only roughly similar show two objects
of one category: two faces have eyes, nose and mouth in the same arrangement.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from manifind.boxes import clip_box, covered_fraction
from manifind.errors import InvalidInputError
from manifind.geometry import transforms
from manifind.geometry.features import Features
from manifind.geometry.matching import Matches, match_descriptors
from manifind.geometry.object_box import PRIOR_INLIERS
from manifind.geometry.ransac import Correspondences, RansacConfig, estimate_transform
from manifind.geometry.transforms import Transform
from manifind.types import Box


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
    query: Features, image: Features, box: Box | None = None, *, config: VerificationConfig | None = None
) -> Verdict:
    """Return whether an image shows the query, and where.

    Parameters
    ----------
    query, image : Features
        Of the same kind.
    box : (x0, y0, x1, y1), optional
        The object in the query image, all of it by default.
    config : VerificationConfig, optional
    """
    if image.kind != query.kind:
        raise InvalidInputError(f"the query has {query.kind} features and the photo has {image.kind}; give one kind.")
    config = config or VerificationConfig()
    whole = (0.0, 0.0, float(query.width), float(query.height))
    inside = clip_box(box or whole, query.width, query.height)
    instances, consensus = _find_instances(query, image, inside, config)
    otherwise = False if len(query) >= config.min_query_keypoints else None
    return Verdict(True if any(not instance.weak for instance in instances) else otherwise, instances, consensus)


def _find_instances(
    query: Features, image: Features, box: Box, config: VerificationConfig
) -> tuple[tuple[Instance, ...], int]:
    """Return the instances of the object, and the largest consensus."""
    instances: list[Instance] = []
    largest = 0
    left = np.arange(len(image))
    similarities = image.descriptors @ query.descriptors.T
    while len(instances) < config.max_instances and len(left):
        remaining = similarities if len(left) == len(similarities) else similarities[left]
        matches = match_descriptors(remaining, max_ratio=config.max_ratio)
        matches[:, 1] = left[matches[:, 1]]
        instance, consensus = _find_instance(query, image, matches, box, config)
        largest = max(largest, consensus)
        overlap = config.max_instance_overlap
        if instance is None or any(covered_fraction(instance.box, other.box) > overlap for other in instances):
            break
        instances.append(instance)
        if instance.weak and instance.inliers < config.min_inliers:
            break  # a further instance would be as weak
        left = left[~_covered(instance, image.keypoints[left])]
    return tuple(sorted(instances, key=lambda instance: (instance.weak, -instance.inliers))), largest


def _find_instance(
    query: Features, image: Features, matches: Matches, box: Box, config: VerificationConfig
) -> tuple[Instance | None, int]:
    """Return the instance with the most inliers, if any, and their number."""
    part = query.is_part(box)
    needed = min(config.min_inliers_box, config.min_inliers) if part else config.min_inliers
    if len(matches) < needed:
        return None, 0
    a, b = matches.T
    correspondences = Correspondences(
        query.keypoints[a],
        image.keypoints[b],
        image.scales[b] / query.scales[a],
        image.orientations[b] - query.orientations[a],
    )
    tolerances = (
        config.query_tolerance * max(box[2] - box[0], box[3] - box[1]),
        config.image_tolerance * max(image.width, image.height),
    )
    best = estimate_transform(correspondences, box, tolerances, min_inliers=needed, config=config.ransac)
    if best is None:
        return None, 0
    if best.distinct < needed:
        return None, best.distinct
    matching = correspondences.query[best.inliers]
    if part and not _on_object(matching, box, config):
        return None, best.distinct
    outline = transforms.apply(best.transform, transforms.box_corners(box))
    around = transforms.apply(best.transform, transforms.rounded_outline(box)) if part else outline
    size = np.array([image.width, image.height], np.float64)
    (x0, y0), (x1, y1) = np.clip(around.min(axis=0), 0, size), np.clip(around.max(axis=0), 0, size)
    if x0 >= x1 or y0 >= y1:
        return None, best.distinct
    tight = float(x0), float(y0), float(x1), float(y1)
    inlying = matches[best.inliers]
    sufficient = config.sufficient_inliers * max(1, len(image) / config.sufficient_keypoints)
    weak = len(matching) < sufficient and (
        not _passes_appearance_gate(query, image, inlying, best.distinct, config)
        or (part and _crowded(query.keypoints[_visible(best.transform, query, image)], matching, box, config))
    )
    if weak and best.distinct < config.min_weak_inliers:
        return None, best.distinct
    return Instance(best.transform, outline, tight, best.distinct, inlying, weak), best.distinct


def _passes_appearance_gate(
    query: Features, image: Features, inlying: Matches, distinct: int, config: VerificationConfig
) -> bool:
    """Return whether the descriptors of this many distinct inliers are similar enough."""
    if config.appearance_gate is None:
        return True
    above, total = config.appearance_gate
    similar = np.einsum("ij,ij->i", query.descriptors[inlying[:, 0]], image.descriptors[inlying[:, 1]])
    return distinct * (float(similar.mean()) - above) >= total


def _on_object(points: npt.NDArray[np.float32], box: Box, config: VerificationConfig) -> bool:
    """Return whether inliers in a box are probably on the object, rather than on the background."""
    corner, size = np.array(box[:2]), np.array([box[2] - box[0], box[3] - box[1]])
    at = (points - corner) / size
    central = int((np.abs(at - 0.5) < config.central_part / 2).all(axis=1).sum())
    spread = np.sqrt(at.std(axis=0).prod())
    return central >= config.min_central_inliers and bool(spread >= config.min_spread)


def _visible(transform: Transform, query: Features, image: Features) -> npt.NDArray[np.bool_]:
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


def _covered(instance: Instance, points: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Return which points lie within an instance's outline, which is convex."""
    sides = np.roll(instance.outline, -1, axis=0) - instance.outline
    beyond = points[:, None] - instance.outline
    return np.asarray((sides[:, 0] * beyond[..., 1] - sides[:, 1] * beyond[..., 0] >= 0).all(axis=1))
