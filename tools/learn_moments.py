"""Make the moments that come with a network: mean and covariance of the regions of many independent photos.

    python tools/learn_moments.py FOLDER=COUNT …

COUNT photos are taken from each folder, by chance. They are described as an index describes photos unless told
otherwise, and none of them stays: only src/manifind/describe/networks/mobilenet_v2_moments.npz is written.
"""

import random
import sys
from collections.abc import Iterator
from contextlib import closing

from manifind.describe import ZOOMS, Found, Moments, Unreadable, list_photos, load_describer, read_ahead
from manifind.describe.backbone import DEFAULT, NETWORKS
from manifind.types import FloatArray


def chosen(words: list[str]) -> list[Found]:
    """Return so many photos of each folder."""
    photos: list[Found] = []
    for word in words:
        folder, _, count = word.rpartition("=")
        found = [one for one in list_photos(folder) if isinstance(one, Found)]
        photos += random.Random(0).sample(found, int(count))  # noqa: S311 (no secret)
    return photos


def main(words: list[str]) -> None:
    """Describe the photos and write their moments."""
    describer = load_describer(whitening=None, zooms=ZOOMS)
    photos = chosen(words)

    def blocks() -> Iterator[FloatArray]:
        with closing(read_ahead(photos, long_side=describer.long_side)) as read:
            for number, (one, photo) in enumerate(read, 1):
                if isinstance(photo, Unreadable):
                    print(f"{one.key}: {photo.reason}")
                else:
                    yield describer.unwhitened(photo.pixels)
                if number % 100 == 0:
                    print(number, len(photos), flush=True)

    moments = Moments.of(blocks(), describer.pooled_by)
    file = NETWORKS / f"{DEFAULT}_moments.npz"
    moments.save(file)
    print(f"{file}: {moments.count} regions of {len(photos)} photos, {file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
