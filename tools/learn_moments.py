"""Make the moments that come with a network: mean and covariance of the regions of many independent photos.

    python tools/learn_moments.py NETWORK FOLDER=COUNT …

COUNT photos are taken from each folder, by chance. They are extracted as for an index by default,
and none of them stays: only src/manifind/features/networks/NETWORK_moments.npz is written, and
NETWORK_whitening.npz where there is none yet.
"""

import random
import sys
from collections.abc import Iterator
from contextlib import closing

import numpy as np

from manifind.features import SCALES, Moments, load_extractor, whitening_of
from manifind.features.backbone import NETWORKS
from manifind.io import ListedFile, extract_ahead, list_photos
from manifind.types import FloatArray

SHIPPED = 512
"""Dimensions of a whitening that comes along."""


def chosen(words: list[str]) -> list[ListedFile]:
    """Return so many photos of each folder."""
    photos: list[ListedFile] = []
    for word in words:
        folder, _, count = word.rpartition("=")
        found = [one for one in list_photos(folder) if isinstance(one, ListedFile)]
        photos += random.Random(0).sample(found, int(count))  # noqa: S311 (no secret)
    return photos


def main(name: str, words: list[str]) -> None:
    """Extract the photos and write their moments."""
    extractor, threads = load_extractor(name, whitening=None, scales=SCALES).for_threads()
    photos = chosen(words)

    def blocks() -> Iterator[FloatArray]:
        options = {"threads": threads, "long_side": extractor.long_side}
        with closing(extract_ahead(photos, extractor.extract_unwhitened, **options)) as read:
            for number, (one, photo, vectors) in enumerate(read, 1):
                if vectors is None:
                    print(f"{one.key}: {photo}")
                else:
                    yield vectors
                if number % 100 == 0:
                    print(number, len(photos), flush=True)

    moments = Moments.of(blocks(), extractor.pooled_by)
    file, whitening = NETWORKS / f"{name}_moments.npz", NETWORKS / f"{name}_whitening.npz"
    moments.save(file)
    if not whitening.exists():
        learnt = whitening_of(moments, SHIPPED)
        with whitening.open("wb") as stream:
            np.savez(stream, mean=learnt.mean, project=learnt.project.astype(np.float16), pooling=learnt.pooling)
    print(f"{file}: {moments.count} regions of {len(photos)} photos, {file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
