"""Choose the whitening of a collection by photos that spatial verification joins.

No whitening is best for every collection. Where few objects recur in many photos, the strongest directions of the
collection's covariance are the objects, and whitening by it removes them; where each object is in two or three photos,
whitening by it helps. While an index is built, vectors before whitening and local features of all photos are there:

1. Pairs of photos are proposed by two very different whitenings, and verified by local features.
2. The pairs of half of the photos give differences of regions that show the same thing: a candidate may learn from
   them.
3. The pairs of the other half judge. The query is the part of a photo that holds the inliers, as the few regions that
   fit the part best; the other photo should be found. Small parts count more, as people ask for small things.
4. The candidate with the highest score is taken if its lead over the default is large enough.

All of it works on a sample of bounded size, and depends on the photos and their numbers alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manifind.boxes import areas, covered_fraction, iou
from manifind.features import Moments, Whitening
from manifind.features.whitening import unit_rows
from manifind.geometry import PackedFeatures, verify_many
from manifind.index.build.journal import Journal
from manifind.index.config import WhiteningConfig
from manifind.index.storage.build_config import WhiteningTraining
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.local_features import LocalFeatureConfig
from manifind.index.storage.manifest import WhiteningChoice
from manifind.types import FloatArray, Progress


class VerifiedPart(NamedTuple):
    """A part of a photo that another photo shows, by spatial verification."""

    photo: int
    part: npt.NDArray[np.float64]
    """(4,): the box round the inliers."""
    other: int
    other_part: npt.NDArray[np.float64]


@dataclass(frozen=True)
class PhotoSample:
    """Photos on which whitenings are judged."""

    images: Sequence[ImageRecord]
    vectors: FloatArray
    """(n, D), before whitening."""
    boxes: FloatArray
    starts: npt.NDArray[np.intp]
    """Where the regions of each photo start, and where the last ones end."""
    local: Sequence[PackedFeatures]
    min_covered: float
    """`WhiteningConfig.min_covered`."""

    @classmethod
    def of(
        cls, raw: Journal, images: Sequence[ImageRecord], kept: LocalFeatureConfig, config: WhiteningConfig
    ) -> "PhotoSample":
        """Read a sample of the extracted photos.

        Of many photos these are runs of consecutive ones: photos of the same thing are often taken one after the other.
        """
        if len(images) > config.max_photos:
            runs = config.max_photos // config.run
            first = np.linspace(0, len(images) - config.run, runs).round().astype(int)
            chosen = np.unique(first[:, None] + np.arange(config.run))
            images = [images[i] for i in chosen]
        (vectors, boxes), local = raw.arrays(), raw.local()
        entries = [entry for image in images if (entry := raw.get(image.sha256)) is not None]
        spans = [slice(entry.first, entry.first + entry.regions) for entry in entries]
        return cls(
            images,
            np.concatenate([vectors[span] for span in spans]).astype(np.float32),
            np.concatenate([boxes[span] for span in spans]),
            np.cumsum([0, *(entry.regions for entry in entries)]),
            [
                PackedFeatures(local[at.local : at.local + at.features], image.width, image.height, kept.kind)
                for image, at in zip(images, entries, strict=True)
            ],
            config.min_covered,
        )

    def __len__(self) -> int:
        return len(self.images)

    def regions(self, photo: int) -> slice:
        """Return the rows of a photo."""
        return slice(self.starts[photo], self.starts[photo + 1])

    def regions_of_part(self, photo: int, part: npt.NDArray[np.float64], count: int) -> FloatArray:
        """Return the vectors of the regions that fit a part of a photo best, the best first."""
        rows = self.regions(photo)
        covered = covered_fraction(self.boxes[rows], part)
        fit = np.where(covered >= self.min_covered, iou(self.boxes[rows], part), covered - 1)
        return self.vectors[rows][np.argsort(-fit, kind="stable")[:count]]


def choose_whitening(
    training: WhiteningTraining,
    own: Moments,
    raw: Journal,
    images: Sequence[ImageRecord],
    kept: LocalFeatureConfig,
    progress: Progress = lambda *_: None,
) -> tuple[Whitening, WhiteningChoice]:
    """Return the whitening that ranks verified photos best, and how it was chosen.

    Parameters
    ----------
    training
        The prior and the candidates.
    own
        The moments of all photos.
    raw
        The journal with the photos' vectors before whitening and their local features.
    images
        The photos in the order of their keys.
    kept
        What is stored of the photos' local features.
    progress
        Called with how many photos were compared with others, or candidates judged, and how many there are of both.
    """
    config = training.config
    sample = PhotoSample.of(raw, images, kept, config)
    anchors = np.unique(np.linspace(0, len(sample) - 1, min(config.max_anchors, len(sample))).round().astype(int))
    steps = len(anchors) + len(config.candidates)
    pairs = find_verified_parts(
        sample, anchors.tolist(), propose_pairs(training, own, sample, anchors), lambda done: progress(done, steps)
    )
    judges = set(anchors[1::2].tolist())
    differences = region_differences(sample, [pair for pair in pairs if pair.photo not in judges])
    queries = [pair for pair in pairs if pair.photo in judges]
    if len({pair.photo for pair in queries}) < config.min_photos or not len(differences):
        return training.whitening(own), WhiteningChoice(config.default.name, len(pairs), {})
    candidates = {one.name: training.candidate(own, one, differences) for one in config.candidates}
    scores = judge(sample, candidates, queries, config, lambda done: progress(len(anchors) + done, steps))
    best = max(scores, key=lambda name: scores[name])
    if scores[best] < scores[config.default.name] + config.min_gain:
        best = config.default.name
    return candidates[best], WhiteningChoice(best, len(pairs), scores)


def propose_pairs(
    training: WhiteningTraining, own: Moments, sample: PhotoSample, anchors: npt.NDArray[np.intp]
) -> list[list[int]]:
    """Return, for each anchor, the photos most like it by the proposing whitenings: as wholes, and by one region."""
    config = training.config
    proposed: list[set[int]] = [set() for _ in anchors]
    for candidate in config.proposing:
        vectors = training.candidate(own, candidate, None, config.proposing_dimension).apply(sample.vectors)
        wholes = unit_rows(np.add.reduceat(vectors, sample.starts[:-1]))
        by_region = np.stack(
            [
                np.maximum.reduceat((vectors @ vectors[sample.regions(anchor)].T).max(axis=1), sample.starts[:-1])
                for anchor in anchors
            ]
        )
        for likeness in (wholes[anchors] @ wholes.T, by_region):
            likeness[np.arange(len(anchors)), anchors] = -np.inf
            nearest = np.argsort(-likeness, axis=1, kind="stable")[:, : config.proposals]
            for photos, some in zip(proposed, nearest.tolist(), strict=True):
                photos.update(some)
    return [sorted(photos - {anchor}) for photos, anchor in zip(proposed, anchors.tolist(), strict=True)]


def find_verified_parts(
    sample: PhotoSample,
    anchors: Sequence[int],
    proposed: Sequence[Sequence[int]],
    progress: Callable[[int], None] = lambda _: None,
) -> list[VerifiedPart]:
    """Return the parts of the anchors that spatial verification finds in the photos proposed for each.

    `progress` is called with how many anchors are done.
    """
    found = []
    for done, (anchor, photos) in enumerate(zip(anchors, proposed, strict=True)):
        progress(done)
        query = sample.local[anchor].features()
        for other, verdict in zip(photos, verify_many(query, [sample.local[photo] for photo in photos]), strict=True):
            for instance in verdict.instances:
                if not instance.weak:
                    here, there = instance.matches.T
                    sides = query.keypoints[here], sample.local[other].keypoints[there]
                    part, other_part = (np.concatenate([at.min(axis=0), at.max(axis=0)]) for at in sides)
                    found.append(VerifiedPart(anchor, part, other, other_part))
    return found


def region_differences(sample: PhotoSample, pairs: Sequence[VerifiedPart]) -> FloatArray:
    """Return the differences (m, D) between the best regions of the two parts of each pair."""
    sides = [
        sample.regions_of_part(pair.photo, pair.part, 1) - sample.regions_of_part(pair.other, pair.other_part, 1)
        for pair in pairs
    ]
    return np.concatenate(sides) if sides else np.empty((0, sample.vectors.shape[1]), np.float32)


def judge(
    sample: PhotoSample,
    candidates: Mapping[str, Whitening],
    pairs: Sequence[VerifiedPart],
    config: WhiteningConfig,
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, float]:
    """Return the score of each candidate: mean average precision of verified photos, in percent.

    It is the mean of two rankings, by the sum of the query's regions and by R-match. A query counts by the inverse of
    its side in parts of the photo.
    """
    by_photo: dict[int, list[VerifiedPart]] = {}
    for pair in pairs:
        by_photo.setdefault(pair.photo, []).append(pair)
    queries: list[FloatArray] = []
    weights: list[float] = []
    wanted: list[npt.NDArray[np.intp]] = []
    ignored: list[npt.NDArray[np.intp]] = []
    for photo, joined in by_photo.items():
        parts = np.stack([pair.part for pair in joined])
        others = np.array([pair.other for pair in joined])
        image = sample.images[photo]
        size = areas(parts) / (image.width * image.height)
        # A different part each time: the smallest, and the median of the others.
        order = np.argsort(size, kind="stable")
        order = order[(size[order] >= config.min_part) & (size[order] <= config.max_part)]
        for place in dict.fromkeys(order[[0, len(order) // 2]].tolist() if len(order) else []):
            same = iou(parts, parts[place]) > config.same_part
            queries.append(sample.regions_of_part(photo, parts[place], config.query_regions))
            weights.append(float(size[place] ** -0.5))
            wanted.append(np.unique(others[same]))
            ignored.append(np.setdiff1d(np.append(others, photo), wanted[-1]))
    if not queries:
        return dict.fromkeys(candidates, 0.0)
    scores = {}
    for done, (name, one) in enumerate(candidates.items()):
        progress(done)
        precisions = _precisions(sample, one, queries, wanted, ignored)
        scores[name] = round(100 * float(np.average(precisions, weights=weights)), 2)
    return scores


def _precisions(
    sample: PhotoSample,
    whitening: Whitening,
    queries: Sequence[FloatArray],
    wanted: Sequence[npt.NDArray[np.intp]],
    ignored: Sequence[npt.NDArray[np.intp]],
) -> FloatArray:
    """Return the average precision of each query, the mean of its two rankings."""
    vectors, rows = whitening.apply(sample.vectors), whitening.apply(np.concatenate(queries))
    first = np.cumsum([0, *(len(query) for query in queries[:-1])])
    wholes = unit_rows(np.add.reduceat(vectors, sample.starts[:-1]))
    plain = wholes @ unit_rows(np.add.reduceat(rows, first)).T
    best = np.stack([(vectors[sample.regions(photo)] @ rows.T).max(axis=0) for photo in range(len(sample))])
    means = np.zeros(len(queries), np.float32)
    for likeness in (plain, np.add.reduceat(best, first, axis=1)):
        for at, (photos, others) in enumerate(zip(wanted, ignored, strict=True)):
            likeness[others, at] = -np.inf
            order = np.argsort(-likeness[:, at], kind="stable")
            ranks = np.flatnonzero(np.isin(order, photos))
            means[at] += (np.arange(1, len(ranks) + 1) / (ranks + 1)).mean() / 2
    return means
