"""Photos and a network so small that an index of them takes milliseconds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from manifind.features import BackboneSpec, RegionExtractor
from manifind.features.whitening import learn_pca
from manifind.index import Index

CELL, CHANNELS = 8, 12


class SmallBackbone:
    """Random patterns of 8 × 8 pixels, each answered to by how much a cell resembles it."""

    spec = BackboneSpec("small", CHANNELS, CELL, long_side=64, smallest_side=32, sha256="of a few random patterns")

    def __init__(self, channels: int = CHANNELS) -> None:
        self.spec = replace(self.spec, channels=channels)
        self._patterns = np.random.default_rng(0).standard_normal((CELL * CELL * 3, channels)).astype(np.float32)

    def features(self, photo: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        down, across = photo.shape[0] // CELL, photo.shape[1] // CELL
        cells = photo[: down * CELL, : across * CELL].reshape(down, CELL, across, CELL, 3).transpose(0, 2, 1, 3, 4)
        flat = cells.reshape(down * across, -1).astype(np.float32) / 128 - 1
        answers = np.maximum(flat @ self._patterns, 0) + np.float32(0.01)
        return np.asarray(answers.T.reshape(-1, down, across), np.float32)


def small_extractor(*, whitened: bool = True) -> RegionExtractor:
    """Describe by 20 regions or so of 8 dimensions."""
    bare = RegionExtractor(SmallBackbone())
    if not whitened:
        return bare
    rng = np.random.default_rng(1)
    photos = (rng.integers(0, 256, (48, 64, 3), dtype=np.uint8) for _ in range(20))
    return bare.with_whitening(learn_pca((bare.extract_unwhitened(photo) for photo in photos), dimension=8))


def small_photo(seed: int) -> npt.NDArray[np.uint8]:
    """Patches of colour; photos of seeds that are equal modulo 5 have their left half in common."""
    rng, common = np.random.default_rng(seed), np.random.default_rng(10_000 + seed % 5)
    left, right = (one.integers(0, 256, (6, 4, 3), dtype=np.uint8) for one in (common, rng))
    patches = np.concatenate([left, right], axis=1)
    return np.asarray(Image.fromarray(patches).resize((64, 48), Image.Resampling.BILINEAR))


def save_photo(file: Path, seed: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(small_photo(seed)).save(file)


def save_photos(folder: Path, count: int, *, first: int = 0, digits: int = 1) -> Path:
    """Save photos of `count` seeds from `first` on, named by their numbers; returns the folder."""
    for number in range(count):
        save_photo(folder / f"{number:0{digits}}.png", first + number)
    return folder


def small_index(base: Path, count: int, *, first: int = 0, digits: int = 1, **options: Any) -> Index:
    """Save photos and make their index, both below a folder."""
    folder = save_photos(base / "photos", count, first=first, digits=digits)
    return Index.create(
        base / "i.manifind", folder, **{"extractor": small_extractor(), "k": 15, "query_k": 12, **options}
    )
