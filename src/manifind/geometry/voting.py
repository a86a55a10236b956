"""Voting: which of many images may show an object, by their packed local features alone.

Spatial verification takes milliseconds an image, so a search verifies the head of a ranking. An image full of other
things may show a small object and stand anywhere in the ranking. Here each feature of the query votes for its nearest
features of all images together, by Hamming distance. Votes for one image count where they agree in relative scale and
rotation (weak geometric consistency, Jégou et al., ECCV 2008): an image that shows the object unites its votes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manifind.geometry.packing import GEOMETRY_BYTES, Packed, gray_codes
from manifind.kernels import knn_hamming

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


def count_votes(
    query: Packed,
    images: Packed,
    starts: npt.NDArray[np.int64],
    kind: str = "sift",
    *,
    config: VotingConfig | None = None,
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
    """
    config = config or VotingConfig()
    count = len(starts) - 1
    if not len(query) or not len(images):
        return np.zeros(count, np.int64)
    nearest, _ = knn_hamming(gray_codes(query, kind), gray_codes(images, kind), min(config.neighbours, len(images)))
    chosen = nearest.ravel()
    voter = np.repeat(np.arange(len(query)), nearest.shape[1])
    columns = GEOMETRY_BYTES - 2, GEOMETRY_BYTES - 1
    scale, rotation = (images[chosen, at].astype(np.int64) - query[voter, at] for at in columns)
    image = np.searchsorted(starts, chosen, side="right") - 1
    rotations = ROTATIONS // config.rotation_bin
    votes = np.zeros(count, np.int64)
    # Bins overlap by half: two votes that agree closely share a bin in one of the grids.
    for rotation_shift in (0, config.rotation_bin // 2):
        for scale_shift in (0, config.scale_bin // 2):
            rotation_bin = (rotation + rotation_shift) % ROTATIONS // config.rotation_bin
            scale_bin = (scale + scale_shift) // config.scale_bin + OCTAVES // 2
            bins = (image * rotations + rotation_bin) * OCTAVES + scale_bin
            counts = np.bincount(bins, minlength=count * rotations * OCTAVES)
            np.maximum(votes, counts.reshape(count, rotations * OCTAVES).max(axis=1), out=votes)
    return votes


def select_by_votes(
    queries: Sequence[Packed],
    images: Packed,
    starts: npt.NDArray[np.int64],
    limit: int,
    kind: str = "sift",
    *,
    config: VotingConfig | None = None,
) -> npt.NDArray[np.intp]:
    """Return the numbers of at most `limit` images with the most votes of any of the queries, best first.

    Other parameters as for `count_votes`.
    """
    config = config or VotingConfig()
    votes = np.zeros(len(starts) - 1, np.int64)
    for query in queries:
        np.maximum(votes, count_votes(query, images, starts, kind, config=config), out=votes)
    best = np.argsort(-votes, kind="stable")[:limit]
    return best[votes[best] >= config.min_votes]
