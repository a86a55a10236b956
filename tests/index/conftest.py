from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from sklearn.datasets import load_sample_image

from manifind.index import Index
from tests.extraction_options import PLAINLY
from tests.shared import open_copy, shared_folder

Pixels = npt.NDArray[np.uint8]
BOX = (40.0, 60.0, 168.0, 188.0)
"""Of the thing in `scene` where it is laid by default."""
ALL = (0.0, 0.0, 320.0, 240.0)
"""Round all of a `scene`."""
AT = 520, 310
"""Where the thing lies in a `crowded` photo."""


def texture(seed: int, height: int, width: int, grain: int = 16) -> Pixels:
    """A pattern of coloured patches that no other seed has."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (height // grain + 1, width // grain + 1, 3), dtype=np.uint8)
    large = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(large)


@cache
def thing(number: int) -> Pixels:
    """A part of a real photograph, 128 × 128: a roof, or a flower."""
    name, (x, y) = {1: ("china.jpg", (180, 140)), 2: ("flower.jpg", (250, 130))}[number]
    photo = Image.fromarray(load_sample_image(name)).crop((x, y, x + 256, y + 256))
    return np.asarray(photo.resize((128, 128)))


def scene(background: int, number: int | None, at: tuple[int, int] = (40, 60)) -> Pixels:
    """A photo of 320 × 240 with a thing pasted into it."""
    photo = texture(1000 + background, 240, 320).copy()
    if number is not None:
        photo[at[1] : at[1] + 128, at[0] : at[0] + 128] = thing(number)
    return photo


def crowded(seed: int, number: int | None) -> Pixels:
    """A photo full of fine grain with a small thing in it: of its many features few are of the thing."""
    photo = texture(seed, 576, 768, grain=10).copy()
    if number is not None:
        small = np.asarray(Image.fromarray(thing(number)).resize((80, 80), Image.Resampling.LANCZOS))
        photo[AT[1] : AT[1] + 80, AT[0] : AT[0] + 80] = small
    return photo


def where(i: int) -> tuple[float, float, float, float]:
    """The box of the first thing in photo ``first-{i}.png``."""
    x, y = 20 + 50 * i, 30 + 20 * i
    return x, y, x + 128, y + 128


@pytest.fixture(scope="session")
def query() -> Pixels:
    """The first thing before what no photo of the index shows."""
    return scene(99, 1)


def _make(folder: Path) -> None:
    root = folder / "photos"
    (root / "more").mkdir(parents=True)
    for i in range(4):
        Image.fromarray(scene(i, 1, (20 + 50 * i, 30 + 20 * i))).save(root / f"first-{i}.png")
        Image.fromarray(scene(10 + i, 2, (180 - 50 * i, 20 + 25 * i))).save(root / f"second-{i}.png")
        Image.fromarray(scene(20 + i, None)).save(root / "more" / f"none-{i}.png")
    (root / "notes.txt").write_text("not a photo")
    (root / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(300))
    (folder / "made").mkdir()
    Index.create(folder / "made" / "photos.manifind", root, **PLAINLY, k=20, query_k=20, alpha=0.99).close()


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two things in four photos each, and four photos without any; some in a folder below."""
    return shared_folder(tmp_path_factory, "index", _make) / "photos"


@pytest.fixture(scope="session")
def index(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """An index as they were made before whitenings were learnt: twelve photos have little to teach."""
    return open_copy(photos.parent / "made" / "photos.manifind", tmp_path_factory)
