"""Spatial verification of retrieved images, from stored local features first, then at full resolution.

Regions say that an image shows something similar to the query. Local features that one transform maps onto the image
say that it shows this very object, and where (`manifind.geometry`).

- `verify_images` verifies images from their stored features, `vote_for_images` chooses more of them: those that the
  query's features vote for, wherever they rank.
- `full_resolution_candidates` are the most promising unverified images, whose files are read: for low-contrast
  queries, whose kind of keypoints no index stores, and in an index that stores features at fewer pixels. Reading a
  file takes as long as verifying two hundred images by stored features, so it is done for a few.
  `manifind.index.search.pipeline` says when.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manifind.checks import check_int
from manifind.geometry import (
    Features,
    PackedFeatures,
    Verdict,
    VotedFeatures,
    VotingConfig,
    mirror_box,
    mirror_points,
    mirror_transform,
    pack,
    select_by_votes,
    verify_many,
)
from manifind.geometry.transforms import Transform
from manifind.index.config import DepthConfig, GradingConfig, SearchConfig
from manifind.index.search.image_features import (
    FeatureSource,
    ImageFile,
    extract_full_resolution,
    load_or_locate_features,
    read_features,
    unchanged_file,
)
from manifind.index.search.query import NO_DEADLINE, Deadline, QueryFeatures, rounded_box, view_numbers
from manifind.index.storage.local_features import StoredLocalFeatures
from manifind.index.storage.snapshot import AnySnapshot, Snapshot
from manifind.kernels.threads import thread_count
from manifind.types import Box, FloatArray

Outline = tuple[tuple[float, float], tuple[float, float], tuple[float, float], tuple[float, float]]
"""Four corners, x and y, in pixels of the upright photo."""


class MatchedGeometry(NamedTuple):
    """How the object of a query's box lies in a verified image."""

    box: Box
    """The object in the query's photo."""
    transform: Transform
    inliers: FloatArray
    """(k, 2): the matching keypoints of the query."""
    size: tuple[int, int]
    """Width and height of the image."""
    view: int = 0
    """Which of the query's photos it is."""


class Evidence(NamedTuple):
    """What speaks for an image that shows at least a part of the object of a query's box."""

    inliers: int
    """Of the surest instance."""
    coverage: float
    """The part of the box that they cover: `geometry.Instance.coverage`."""
    outline: Outline
    """The corners of the query's box in the image."""
    box: Box
    """Round the outline, within the image."""
    part: Outline
    """The corners of the box round the inliers."""


@dataclass(frozen=True)
class Verification:
    """The result of spatial verification for one image."""

    verified: bool | None
    """None where it cannot say: the query has too little texture, or the image's file cannot be read."""
    inliers: int = 0
    """Inliers of the surest instance, verified or not."""
    outline: Outline | None = None
    """The corners of the query's box in the image."""
    box: Box | None = None
    """Round the outline, within the image."""
    other_outlines: tuple[Outline, ...] = ()
    """The outlines of the object's further instances."""
    weak_match_box: Box | None = None
    """Where the object would be, in an image with a weak instance only (`geometry.Instance`)."""
    part: Outline | None = None
    """The corners of the part of the query that appears in an image with a weak instance only."""
    shares_part: bool = False
    """Whether the image shows a part of the object and is no match."""
    evidence: Evidence | None = field(default=None, repr=False, compare=False)
    """What the image is graded by (`manifind.index.search.grading`), where the query is a box."""
    ungraded: "Verification | None" = field(default=None, repr=False, compare=False)
    """The verification as it was before grading changed it."""
    consensus: int = field(default=0, repr=False, compare=False)
    """The most keypoints that agree on one transform, be they enough or not."""
    full_resolution: bool = field(default=False, repr=False, compare=False)
    """Whether all features of the image's file were matched."""
    geometry: MatchedGeometry | None = field(default=None, repr=False, compare=False)
    """How the object lies in a verified image, where the query is a box."""
    mirrored: bool | None = None
    """Whether the mirrored query is the surer; None where mirrored objects are not searched for."""


# -- images -----------------------------------------------------------------------------------------------------------


def _of_verdict(verdict: Verdict, query: Features) -> Verification:
    if not verdict.instances:
        return Verification(verdict.verified)
    first, *more = verdict.instances
    box = rounded_box(np.array(first.box))
    if first.weak:
        return Verification(False, first.inliers, weak_match_box=box, part=_corners(first.part(query)))
    others = tuple(_corners(instance.outline) for instance in more if not instance.weak)
    return Verification(True, first.inliers, _corners(first.outline), box, others)


def _corners(outline: npt.NDArray[np.float64]) -> Outline:
    a, b, c, d = ((round(float(x), 1), round(float(y), 1)) for x, y in outline)
    return a, b, c, d


def verify_sources(
    views: Sequence[QueryFeatures],
    sources: Sequence[FeatureSource],
    config: SearchConfig | None = None,
    deadline: Deadline = NO_DEADLINE,
) -> list[Verification]:
    """Verify images against all views of a query; of each image, the surest view counts.

    `TimeoutError` is raised where the deadline has passed.
    """
    config = config or SearchConfig()
    both_ways = any(view.mirrored for view in views)
    by_view = [
        verify_view(view, number, sources, config, deadline, both_ways=both_ways)
        for number, view in zip(view_numbers(views), views, strict=True)
    ]
    return [surest(of_image) for of_image in zip(*by_view, strict=True)]


def verify_view(
    view: QueryFeatures,
    number: int,
    sources: Sequence[FeatureSource],
    config: SearchConfig,
    deadline: Deadline = NO_DEADLINE,
    *,
    both_ways: bool,
) -> list[Verification]:
    """Verify images against one view of a query, that of the photo of this number.

    `both_ways` says whether mirrored objects are searched for. `TimeoutError` is raised where the deadline has passed.
    """
    verifications = _verify_view(view, sources, config, deadline)
    return [_with_view(one, view, number, both_ways=both_ways) for one in verifications]


def surest(verifications: Iterable[Verification]) -> Verification:
    """Return the surest verification of an image."""
    return max(verifications, key=lambda one: sureness(one.verified, one.inliers, one.consensus))


def verify_images(
    snapshot: Snapshot,
    images: Sequence[int],
    views: Sequence[QueryFeatures],
    config: SearchConfig | None = None,
    deadline: Deadline = NO_DEADLINE,
) -> dict[int, Verification]:
    """Verify images of an index, by their numbers, from stored features or else from their files."""
    sources = load_or_locate_features(snapshot, [snapshot.catalogue[image] for image in images])
    return dict(zip(images, verify_sources(views, sources, config, deadline), strict=True))


def _verify_view(
    query: QueryFeatures, sources: Sequence[FeatureSource], config: SearchConfig, deadline: Deadline
) -> list[Verification]:
    """Verify images against one view of a query."""
    deadline.check()
    features = _load_features(query.features, sources, config, deadline)
    matching = config.matching
    # Of a box, weak instances with few inliers are reported too: beside verified images they say something.
    if query.is_part:
        matching = replace(matching, min_weak_inliers=matching.min_inliers_box)
    readable = [one for one in features if one is not None]
    verdicts = iter(verify_many(query.features, readable, query.box, config=matching))
    return [
        Verification(None)
        if one is None
        else _verification(query, one, next(verdicts), config.grading, full_resolution=isinstance(source, ImageFile))
        for source, one in zip(sources, features, strict=True)
    ]


def _load_features(
    query: Features, sources: Sequence[FeatureSource], config: SearchConfig, deadline: Deadline
) -> list[Features | PackedFeatures | None]:
    """Return the features of images, stored or extracted from their files; None where a file cannot be read."""

    def load(source: FeatureSource) -> Features | PackedFeatures | None:
        if isinstance(source, PackedFeatures):
            return source
        deadline.check()
        if isinstance(source, ImageFile):
            return extract_full_resolution(source, query, config.full_resolution)
        return read_features(source, kind=query.kind)

    threads = min(thread_count(), sum(not isinstance(source, PackedFeatures) for source in sources))
    if threads < 2:
        return [load(source) for source in sources]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(load, sources))


def _verification(
    query: QueryFeatures,
    image: Features | PackedFeatures,
    verdict: Verdict,
    grading: GradingConfig,
    *,
    full_resolution: bool,
) -> Verification:
    result = replace(_of_verdict(verdict, query.features), consensus=verdict.consensus, full_resolution=full_resolution)
    if query.box is None or not query.is_part or not verdict.instances:
        return result
    surest = verdict.instances[0]
    if grading.enabled:
        evidence = Evidence(
            surest.inliers,
            surest.coverage(query.features, query.box, image, grading.cells, grading.min_cell_keypoints),
            _corners(surest.outline),
            rounded_box(np.array(surest.box)),
            _corners(surest.part(query.features)),
        )
        result = replace(result, evidence=evidence)
    if not result.verified:
        return result
    inliers = query.features.keypoints[surest.matches[:, 0]]
    return replace(result, geometry=MatchedGeometry(query.box, surest.transform, inliers, (image.width, image.height)))


def sureness(verified: bool | None, inliers: int, consensus: int = 0) -> tuple[bool, int, bool, int]:
    """Return a key by which the surest view of a query is the largest: a view without texture says nothing."""
    return verified is True, inliers, verified is not None, consensus


def _with_view(one: Verification, view: QueryFeatures, number: int, *, both_ways: bool) -> Verification:
    """Return a verification that says which view it is by, in pixels of the query's photo as it was given."""
    geometry = None if one.geometry is None else one.geometry._replace(view=number)
    if not both_ways:
        return one if geometry is None else replace(one, geometry=geometry)
    if not view.mirrored:
        return replace(one, geometry=geometry, mirrored=False)
    if geometry is not None:
        width = view.features.width
        geometry = geometry._replace(
            box=mirror_box(geometry.box, width),
            transform=mirror_transform(geometry.transform, width),
            inliers=mirror_points(geometry.inliers, width),
        )
    # What an image is graded by stays in the mirrored photo, whose outlines run clockwise.
    return replace(
        one,
        geometry=geometry,
        mirrored=True,
        outline=_mirror_outline(one.outline),
        part=_mirror_outline(one.part),
        other_outlines=tuple(_mirror_corners(outline) for outline in one.other_outlines),
    )


def _mirror_outline(outline: Outline | None) -> Outline | None:
    return None if outline is None else _mirror_corners(outline)


def _mirror_corners(outline: Outline) -> Outline:
    """Return where the corners of a box are, of where those of the mirrored box are."""
    a, b, c, d = outline
    return b, a, d, c


# -- a ranking --------------------------------------------------------------------------------------------------------


def default_depth(
    snapshot: AnySnapshot, method: str, verify: int | None = None, config: DepthConfig | None = None
) -> int:
    """Return how many images are verified first: `verify` if it is given.

    By default `DepthConfig.first` by regional diffusion where the index stores local features, and none elsewhere.
    """
    if verify is None:
        stored = snapshot.local is not None and method == "regional"
        return (config or DepthConfig()).first if stored else 0
    return check_int(verify, "verify", least=0)


def max_candidates(first: int, config: SearchConfig) -> int:
    """Return how many images of a ranking verification may touch: local features vote for some of these."""
    return max(config.depth.max_factor * first, config.voting.max_images) if first else 0


def vote_for_images(
    snapshot: Snapshot,
    ranked: npt.NDArray[np.integer],
    views: Sequence[QueryFeatures],
    limit: int,
    config: SearchConfig | None = None,
) -> list[int]:
    """Return the images with the most votes of the query's local features (`geometry.voting`), best first.

    An image full of other things may show a small object and rank far down. Whole photos, and boxes with too little
    texture, do not vote; images without stored local features get no votes.
    """
    config = config or SearchConfig()
    local = snapshot.local
    if local is None or len(local.starts) != len(snapshot.catalogue) + 1:
        return []
    needed = config.matching.min_query_keypoints
    voters = [pack(view.features) for view in views if view.is_part and len(view.features) >= needed]
    if not voters:
        return []
    images = _voted_features(snapshot, local, np.sort(ranked[: config.voting.max_images]), config.voting)
    best = select_by_votes(
        voters, local.rows, local.starts, limit, local.keeping.kind, config=config.voting, features=images
    )
    return [int(image) for image in best]


def _voted_features(
    snapshot: Snapshot, local: StoredLocalFeatures, images: npt.NDArray[np.integer], config: VotingConfig
) -> VotedFeatures:
    """Return the features of images that queries vote for; those of a whole collection are kept with the snapshot."""
    whole = len(images) == len(snapshot.catalogue)

    def read() -> VotedFeatures:
        rows, starts = local.checked(images)
        return VotedFeatures.of(rows, starts, local.keeping.kind, images.astype(np.int64), config=config, group=whole)

    if not whole:
        return read()
    with snapshot.cache.lock:
        if snapshot.cache.voted is None or snapshot.cache.voted[0] != config:
            snapshot.cache.voted = config, read()
        return snapshot.cache.voted[1]


# -- full resolution --------------------------------------------------------------------------------------------------


def full_resolution_candidates(
    snapshot: Snapshot,
    ranked: Sequence[int],
    known: Mapping[int, Verification],
    views: Sequence[QueryFeatures],
    config: SearchConfig,
) -> Iterator[tuple[int, ImageFile]]:
    """Yield the images to verify at full resolution, the most promising first, with their files.

    `ranked` are the images in the order of their scores, without the query's own, and `known` their verifications. An
    image is verified at full resolution once, and none where the index stores no features: the files were read already.
    Where it stores features of full resolution, only low-contrast queries gain by files.
    """
    limits = config.full_resolution
    if snapshot.local is None:
        return
    stored = snapshot.local.keeping.long_side >= limits.long_side
    if stored and limits.only_low_contrast and not any(view.features.low_contrast for view in views):
        return
    # Graded images were matched well enough: more keypoints say nothing new.
    unverified = (
        image for image in ranked if image in known and known[image].verified is False and not known[image].ungraded
    )
    left = [image for image in islice(unverified, limits.pool) if not known[image].full_resolution]
    left.sort(key=lambda image: (known[image].weak_match_box is None, known[image].consensus < limits.min_consensus))
    for image in left:
        file = unchanged_file(snapshot, snapshot.catalogue[image])
        if file is not None:
            yield image, file
