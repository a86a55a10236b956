"""A whitening learnt from photos: those of a collection, or pairs that show the same thing."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from manifind.describe.ahead import read_ahead
from manifind.describe.describer import Describer
from manifind.describe.folder import Found
from manifind.describe.photos import read_photo
from manifind.describe.whitening import Whitening, learn_pca, learn_supervised
from manifind.errors import Unreadable
from manifind.types import FloatArray, Progress

MOST = 1000
"""Photos that a whitening is learnt from: some 21,000 regions for at most a few thousand dimensions."""

DIMENSION = 512


def whitening_from_photos(
    photos: Sequence[Found], describer: Describer, *, progress: Progress | None = None
) -> Whitening:
    """Learn PCA whitening to `DIMENSION` from the regions of at most `MOST` photos, evenly spread over those given."""
    chosen = [photos[i] for i in np.unique(np.linspace(0, len(photos) - 1, min(MOST, len(photos))).astype(int))]

    def blocks() -> Iterator[FloatArray]:
        with closing(read_ahead(chosen, long_side=describer.long_side)) as read:
            for done, (_, photo) in enumerate(read, 1):
                if not isinstance(photo, Unreadable):
                    yield describer.unwhitened(photo.pixels)
                if progress is not None:
                    progress(done, len(chosen))

    return learn_pca(blocks(), dimension=min(DIMENSION, describer.backbone.spec.channels))


def whitening_from_pairs(
    pairs: Sequence[tuple[Path, Path]],
    describer: Describer,
    *,
    dimension: int = DIMENSION,
    shrinkage: float = 0.1,
    progress: Progress | None = None,
) -> Whitening:
    """Learn discriminative whitening from pairs of photos that show the same thing, each photo as a whole."""
    files = list(dict.fromkeys(file for pair in pairs for file in pair))
    place = {file: i for i, file in enumerate(files)}
    vectors = np.empty((len(files), describer.backbone.spec.channels), np.float32)
    for done, file in enumerate(files, 1):
        vectors[done - 1] = describer.unwhitened(read_photo(file, long_side=describer.long_side).pixels)[0]
        if progress is not None:
            progress(done, len(files))
    rows = np.array([[place[a], place[b]] for a, b in pairs])
    return learn_supervised(vectors, rows, dimension=min(dimension, vectors.shape[1]), shrinkage=shrinkage)
