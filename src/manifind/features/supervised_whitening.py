"""A whitening learnt from pairs of photos that show the same thing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from manifind.features.extractor import RegionExtractor
from manifind.features.whitening import Whitening, learn_supervised
from manifind.io.image import read_photo
from manifind.types import Progress


def whitening_from_pairs(
    pairs: Sequence[tuple[Path, Path]],
    extractor: RegionExtractor,
    *,
    dimension: int | None = None,
    shrinkage: float = 0.1,
    progress: Progress | None = None,
) -> Whitening:
    """Learn discriminative whitening from pairs of photos that show the same thing, each photo as a whole."""
    files = list(dict.fromkeys(file for pair in pairs for file in pair))
    place = {file: i for i, file in enumerate(files)}
    vectors = np.empty((len(files), extractor.backbone.spec.channels), np.float32)
    for done, file in enumerate(files, 1):
        vectors[done - 1] = extractor.extract_unwhitened(read_photo(file, long_side=extractor.long_side).pixels)[0]
        if progress is not None:
            progress(done, len(files))
    rows = np.array([[place[a], place[b]] for a, b in pairs])
    learnt = learn_supervised(vectors, rows, dimension=dimension, shrinkage=shrinkage)
    return replace(learnt, pooling=extractor.pooled_by)
