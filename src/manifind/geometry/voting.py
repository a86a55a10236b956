"""Voting: which of many images may show an object, by their packed local features alone.

Spatial verification takes milliseconds an image, so a search verifies the head of a ranking. An image full of other
things may show a small object and stand anywhere in the ranking. Here each feature of the query votes for its nearest
features of all images together, by Hamming distance. Votes for one image count where they agree in relative scale and
rotation (weak geometric consistency, Jégou et al., ECCV 2008): an image that shows the object unites its votes.

Most of the time goes to Hamming distances. Many features are therefore grouped by similar codes (an inverted file), and
each feature of the query is compared with those of the nearest groups alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from manifind.geometry.packing import GEOMETRY_BYTES, Packed, gray_codes
from manifind.kernels import CodeGroups, group_codes, knn_hamming, knn_hamming_groups

ROTATIONS, OCTAVES = 256, 32
"""Steps of a full rotation in a packed feature, and octaves of relative scale that bins cover."""


@dataclass(frozen=True)
class VotingConfig:
    """How features vote; chosen on small objects in clutter."""

    neighbours: int = 10
    """Features of all images that each feature of the query votes for."""
    rotation_bin: int = 32
    """Width of a bin of relative rotation, in 256ths of a full rotation."""
    scale_bin: int = 20
    """Width of a bin of relative scale, in twentieths of an octave."""
    max_images: int = 2_000
    """Images of a ranking, from the first on, that are voted for: 0.1 ms of processor time each."""
    max_keypoints: int = 500
    """Features of an image that are voted for, the first that it has: the time of a vote grows with them."""
    min_votes: int = 4
    """Votes that an image needs to be verified."""
    min_grouped: int = 200_000
    """Features of all images from which on they are grouped; fewer are all compared."""
    groups: int = 128
    """Groups of features with similar codes."""
    visited_groups: int = 12
    """Groups with which a feature of the query is compared. Chosen on Holidays: an eighth of all features, in which lie
    99.6 in 100 of a feature's nearest ones, where at most 45 of 256 bits differ."""
    training_features: int = 4_096
    """Features from which the centres of groups are learnt, evenly spaced."""
    training_rounds: int = 2


@dataclass(frozen=True, eq=False)
class VotedFeatures:
    """The features of images that a query votes for, so that the nearest are found."""

    places: npt.NDArray[np.int64]
    """(c,): which images these are."""
    firsts: npt.NDArray[np.int64]
    """(c,): where the features of each one start, among those of all images."""
    offsets: npt.NDArray[np.int64]
    """(c + 1,): where they start among those that are voted for."""
    codes: Packed | None
    """The codes of all, where they are not grouped."""
    groups: CodeGroups | None

    @classmethod
    def of(
        cls,
        images: Packed,
        starts: npt.NDArray[np.int64],
        kind: str = "sift",
        places: npt.NDArray[np.int64] | None = None,
        *,
        config: VotingConfig | None = None,
        group: bool = True,
    ) -> Self:
        """Take the first features of some images, of all by default. Other parameters as for `count_votes`.

        Many are grouped unless `group` is false: grouping takes as long as one query saves by it.
        """
        config = config or VotingConfig()
        places = np.arange(len(starts) - 1) if places is None else places
        firsts = starts[places]
        lasts = np.minimum(starts[places + 1], firsts + config.max_keypoints)
        codes = gray_codes(images, kind, list(zip(firsts.tolist(), lasts.tolist(), strict=True)))
        offsets = np.concatenate([[0], np.cumsum(lasts - firsts)]).astype(np.int64)
        group &= len(codes) >= config.min_grouped
        groups = group_codes(codes, learn_centres(codes, config)) if group else None
        return cls(places, firsts, offsets, codes if groups is None else None, groups)

    def nearest(self, codes: Packed, config: VotingConfig) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Return the pairs of codes of a query and features nearest to them, as two arrays."""
        if self.codes is not None:
            found, _ = knn_hamming(codes, self.codes, min(config.neighbours, len(self.codes)))
        elif self.groups is not None:
            found = knn_hamming_groups(codes, self.groups, config.neighbours, config.visited_groups)
        voter = np.repeat(np.arange(len(codes)), found.shape[1])
        chosen = found.ravel()
        return voter[chosen >= 0], chosen[chosen >= 0]

    def __len__(self) -> int:
        return int(self.offsets[-1])


def learn_centres(codes: Packed, config: VotingConfig) -> Packed:
    """Return codes by which others are grouped: of each bit, most codes of a group have that of its centre."""
    sample = codes[np.linspace(0, len(codes) - 1, config.training_features).astype(int)]
    centres: Packed = sample[np.linspace(0, len(sample) - 1, config.groups).astype(int)]
    for _ in range(config.training_rounds):
        groups = group_codes(sample, centres)
        if groups is None:
            break
        sizes = np.diff(groups.starts)
        filled = np.flatnonzero(sizes)
        ones = np.add.reduceat(np.unpackbits(groups.codes, axis=1), groups.starts[filled], axis=0, dtype=np.uint16)
        centres[filled] = np.packbits(2 * ones > sizes[filled, None], axis=1)
    return centres


def count_votes(
    query: Packed,
    images: Packed,
    starts: npt.NDArray[np.int64],
    kind: str = "sift",
    *,
    config: VotingConfig | None = None,
    features: VotedFeatures | None = None,
) -> npt.NDArray[np.int64]:
    """Return how many votes of a query's features agree, for each image.

    Parameters
    ----------
    query : (m, 38)
        The packed features of the query.
    images : (n, 38)
        Those of all images, one image after the other.
    starts : (images + 1,)
        Where the features of each image start, and where the last ones end.
    kind : str
        Of feature.
    config : VotingConfig, optional
    features : VotedFeatures, optional
        Made of `images`; others get no votes.
    """
    config = config or VotingConfig()
    votes = np.zeros(len(starts) - 1, np.int64)
    if features is None:
        features = VotedFeatures.of(images, starts, kind, config=config)
    if not len(query) or not len(features):
        return votes
    voter, chosen = features.nearest(gray_codes(query, kind), config)
    image = np.searchsorted(features.offsets, chosen, side="right") - 1
    rows = features.firsts[image] + chosen - features.offsets[image]
    columns = GEOMETRY_BYTES - 2, GEOMETRY_BYTES - 1
    scale, rotation = (images[rows, at].astype(np.int64) - query[voter, at] for at in columns)
    count, rotations = len(features.places), ROTATIONS // config.rotation_bin
    largest = np.zeros(count, np.int64)
    # Bins overlap by half: two votes that agree closely share a bin in one of the grids.
    for rotation_shift in (0, config.rotation_bin // 2):
        for scale_shift in (0, config.scale_bin // 2):
            rotation_bin = (rotation + rotation_shift) % ROTATIONS // config.rotation_bin
            scale_bin = (scale + scale_shift) // config.scale_bin + OCTAVES // 2
            bins = (image * rotations + rotation_bin) * OCTAVES + scale_bin
            counts = np.bincount(bins, minlength=count * rotations * OCTAVES)
            np.maximum(largest, counts.reshape(count, rotations * OCTAVES).max(axis=1), out=largest)
    votes[features.places] = largest
    return votes


def select_by_votes(
    queries: Sequence[Packed],
    images: Packed,
    starts: npt.NDArray[np.int64],
    limit: int,
    kind: str = "sift",
    *,
    config: VotingConfig | None = None,
    features: VotedFeatures | None = None,
) -> npt.NDArray[np.intp]:
    """Return the numbers of at most `limit` images with the most votes of any of the queries, best first.

    Other parameters as for `count_votes`.
    """
    config = config or VotingConfig()
    if features is None:
        features = VotedFeatures.of(images, starts, kind, config=config)
    votes = np.zeros(len(starts) - 1, np.int64)
    for query in queries:
        np.maximum(votes, count_votes(query, images, starts, kind, config=config, features=features), out=votes)
    best = np.argsort(-votes, kind="stable")[:limit]
    return best[votes[best] >= config.min_votes]
