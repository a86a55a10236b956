"""Choose the whitening of a collection by photos that spatial verification joins.

No whitening is best for every collection. Where few objects recur in many photos, the strongest directions of the
collection's covariance are the objects, and whitening by it removes them; where each object is in two or three photos,
whitening by it helps. While an index is built, vectors before whitening and local features of all photos are there:

1. Pairs of photos are proposed by two very different whitenings, and verified by local features.
2. They give differences of regions that show the same thing: a candidate may learn from them.
3. They judge. The query is the part of a photo that holds the inliers, as the few regions that fit the part best; the
   other photo should be found: by plain similarity, by R-match and by diffusion. Small parts count more, as people ask
   for small things. What a candidate learnt from does not judge it: of two halves of the photos, with all photos of a
   thing in one as far as that goes, each judges what the other teaches.
4. The candidate with the highest score is taken if its lead over the default is large enough.

All of it works on a sample of bounded size, and depends on the photos and their numbers alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manifind.boxes import areas, covered_fraction, iou
from manifind.features import Moments, Whitening
from manifind.features.whitening import unit_rows
from manifind.geometry import PackedFeatures, verify_many
from manifind.index.build.journal import Journal
from manifind.index.config import RANKINGS, IndexConfig, WhiteningCandidate, WhiteningConfig
from manifind.index.storage.build_config import WhiteningTraining
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.local_features import LocalFeatureConfig
from manifind.index.storage.manifest import WhiteningChoice
from manifind.manifold import Manifold
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
    default = config.default.name
    if len({pair.photo for pair in pairs}) < config.min_photos:
        return training.whitening(own), WhiteningChoice(default, len(pairs), {})
    enough = len(pairs) >= config.min_pairs_of_differences
    candidates = [one for one in config.candidates if enough or not one.differences]
    made: dict[WhiteningCandidate, Whitening] = {}

    def learn(candidate: WhiteningCandidate, learnt_from: Sequence[VerifiedPart]) -> Whitening:
        differences = region_differences(sample, learnt_from) if candidate.differences and learnt_from else None
        made[candidate] = training.candidate(own, candidate, differences)
        return made[candidate]

    rankings = judge(sample, pairs, candidates, learn, config, lambda done: progress(len(anchors) + done, steps))
    scores = {name: config.score(precisions) for name, precisions in rankings.items()}
    best = max(scores, key=lambda name: scores[name])
    if scores[best] < scores[default] + config.min_gain:
        best = default
    chosen = next(one for one in candidates if one.name == best)
    # All pairs together teach more than the halves that were judged.
    whitening = learn(chosen, pairs) if chosen.differences or chosen not in made else made[chosen]
    return whitening, WhiteningChoice(best, len(pairs), scores, rankings)


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


def halve_photos(pairs: Sequence[VerifiedPart], photos: int) -> npt.NDArray[np.bool_]:
    """Return which photos are in the second of two halves (photos,), with joined photos in the same half.

    Where more than half of the photos hang together, these are divided by their numbers.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components  # a search never chooses, and need not wait for the import

    first, second = (np.array([getattr(pair, side) for pair in pairs], np.intp) for side in ("photo", "other"))
    joins = coo_array((np.ones(len(pairs)), (first, second)), (photos, photos))
    _, component = connected_components(joins, directed=False)
    _, start = np.unique(component, return_index=True)
    joined = np.unique(np.concatenate([first, second]))
    order = joined[np.lexsort([joined, start[component[joined]]])]
    halves = np.zeros(photos, np.bool_)
    halves[order[len(order) // 2 :]] = True
    return halves


@dataclass(frozen=True)
class PartQueries:
    """Parts of photos as queries."""

    photos: npt.NDArray[np.intp]
    """The photo of each part."""
    regions: Sequence[FloatArray]
    """The vectors of each part, before whitening."""
    weights: npt.NDArray[np.float64]
    """What each counts: the inverse of its side in parts of the photo."""
    wanted: Sequence[npt.NDArray[np.intp]]
    """The photos that verification joins with each part."""
    ignored: Sequence[npt.NDArray[np.intp]]
    """The photos that it joins with other parts of the photo, and the photo."""

    @classmethod
    def of(cls, sample: PhotoSample, pairs: Sequence[VerifiedPart], config: WhiteningConfig) -> "PartQueries":
        """Return up to two parts of each photo: the smallest, and the median of all."""
        by_photo: dict[int, list[VerifiedPart]] = {}
        for pair in pairs:
            by_photo.setdefault(pair.photo, []).append(pair)
        photos, regions, weights, all_wanted, all_ignored = [], [], [], [], []
        for photo, joined in by_photo.items():
            parts = np.stack([pair.part for pair in joined])
            others = np.array([pair.other for pair in joined])
            image = sample.images[photo]
            size = areas(parts) / (image.width * image.height)
            order = np.argsort(size, kind="stable")
            order = order[(size[order] >= config.min_part) & (size[order] <= config.max_part)]
            for place in dict.fromkeys(order[[0, len(order) // 2]].tolist() if len(order) else []):
                wanted = np.unique(others[iou(parts, parts[place]) > config.same_part])
                photos.append(photo)
                regions.append(sample.regions_of_part(photo, parts[place], config.query_regions))
                weights.append(size[place] ** -0.5)
                all_wanted.append(wanted)
                all_ignored.append(np.setdiff1d(np.append(others, photo), wanted))
        return cls(np.array(photos, np.intp), regions, np.array(weights, np.float64), all_wanted, all_ignored)

    def __len__(self) -> int:
        return len(self.photos)

    def select(self, which: npt.NDArray[np.bool_]) -> "PartQueries":
        """Return some of the queries."""
        chosen: list[int] = np.flatnonzero(which).tolist()
        return PartQueries(
            self.photos[which],
            [self.regions[i] for i in chosen],
            self.weights[which],
            [self.wanted[i] for i in chosen],
            [self.ignored[i] for i in chosen],
        )


def judge(
    sample: PhotoSample,
    pairs: Sequence[VerifiedPart],
    candidates: Sequence[WhiteningCandidate],
    learn: Callable[[WhiteningCandidate, Sequence[VerifiedPart]], Whitening],
    config: WhiteningConfig,
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, dict[str, float]]:
    """Return the mean average precision of each candidate by each ranking of `RANKINGS`, in percent.

    `learn` makes the whitening of a candidate from verified pairs; a candidate that learns from differences is judged
    on each half of the photos by what the pairs of the other teach.
    """
    queries = PartQueries.of(sample, pairs, config)
    if not len(queries):
        return {one.name: dict.fromkeys(RANKINGS, 0.0) for one in candidates}
    second = halve_photos(pairs, len(sample))
    halves = [[pair for pair in pairs if second[pair.photo] == second[pair.other] == half] for half in (False, True)]
    means_by_candidate = {}
    for done, candidate in enumerate(candidates):
        progress(done)
        precisions = np.zeros((len(RANKINGS), len(queries)))
        if candidate.differences:
            for half, others in ((False, halves[True]), (True, halves[False])):
                mine = second[queries.photos] == half
                if mine.any():
                    precisions[:, mine] = average_precisions(sample, learn(candidate, others), queries.select(mine))
        else:
            precisions = average_precisions(sample, learn(candidate, ()), queries)
        means = np.average(precisions, axis=1, weights=queries.weights)
        means_by_candidate[candidate.name] = {
            ranking: round(100 * mean, 2) for ranking, mean in zip(RANKINGS, means.tolist(), strict=True)
        }
    return means_by_candidate


def average_precisions(sample: PhotoSample, whitening: Whitening, queries: PartQueries) -> npt.NDArray[np.float64]:
    """Return the average precision of each query by each ranking, (rankings, queries)."""
    vectors, rows = whitening.apply(sample.vectors), whitening.apply(np.concatenate(queries.regions))
    ends = np.cumsum([len(query) for query in queries.regions])
    first = np.append(0, ends[:-1])
    wholes = unit_rows(np.add.reduceat(vectors, sample.starts[:-1]))
    plain = unit_rows(np.add.reduceat(rows, first)) @ wholes.T
    best = np.stack([(rows @ vectors[sample.regions(photo)].T).max(axis=1) for photo in range(len(sample))], axis=1)
    match = np.add.reduceat(best, first)
    parameters = IndexConfig().resolve_parameters(len(sample))
    k = min(parameters["k"], len(vectors) - 1)
    image_of = np.repeat(np.arange(len(sample)), np.diff(sample.starts))
    manifold = Manifold(k=k, query_k=parameters["query_k"], alpha=parameters["alpha"], knn="exact")
    diffused = manifold.fit(vectors, image_of).search_many(np.split(rows, ends[:-1]), None)
    rankings: list[list[npt.NDArray[np.integer[Any]]]] = [
        list(np.argsort(-plain, axis=1, kind="stable")),
        list(np.argsort(-match, axis=1, kind="stable")),
        [ranking.images for ranking in diffused],
    ]
    return np.array(
        [
            [
                _average_precision(images, wanted, ignored)
                for images, wanted, ignored in zip(ranked, queries.wanted, queries.ignored, strict=True)
            ]
            for ranked in rankings
        ]
    )


def _average_precision(
    images: npt.NDArray[np.integer[Any]], wanted: npt.NDArray[np.intp], ignored: npt.NDArray[np.intp]
) -> float:
    """Return the mean of precision at each wanted image; one that is not ranked counts as 0."""
    ranks = np.flatnonzero(np.isin(images[~np.isin(images, ignored)], wanted))
    return float((np.arange(1, len(ranks) + 1) / (ranks + 1)).sum()) / len(wanted)
