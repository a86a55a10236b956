from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from manifind.index import Index
from tests.extraction_options import PLAINLY
from tests.index.conftest import thing
from tests.serve.asking import PATIENCE, client_of
from tests.serve.browsing import CHROMIUM, FLAGS, leave, opened
from tests.serve.running import running
from tests.shared import open_copy, shared_folder

OTHERS = 104
"""Photos without either thing: enough to tell what chance gives."""

BACKGROUNDS = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg", "retina.jpg")
SIZE = (320, 240)
"""Of each photo."""
PLACES = [(20 + 36 * i, 12 + 18 * i) for i in range(6)]
"""Where the thing of 128 × 128 lies in each photo that has it."""


@cache
def _photograph(name: str) -> Image.Image:
    return Image.open(str(files("skimage") / "data" / name)).convert("RGB")


def background(number: int) -> Image.Image:
    """A part of a photograph, of a size, place and handedness of its own."""
    rng = np.random.default_rng(number)
    whole = _photograph(BACKGROUNDS[number % len(BACKGROUNDS)])
    width = int(rng.uniform(0.35, 0.9) * min(whole.width, whole.height * 4 / 3))
    height = width * 3 // 4
    x, y = int(rng.integers(0, whole.width - width + 1)), int(rng.integers(0, whole.height - height + 1))
    part = whole.resize(SIZE, Image.Resampling.LANCZOS, box=(x, y, x + width, y + height))
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else part


def planted(number: int, which: int, place: tuple[int, int]) -> Image.Image:
    """A background with a thing in it."""
    photo = background(number)
    photo.paste(Image.fromarray(thing(which)), place)
    return photo


def _make(folder: Path) -> None:
    root = folder / "collection"
    (root / "more").mkdir(parents=True)
    for i, (x, y) in enumerate(PLACES):
        planted(1000 + i, 1, (x, y)).save(root / f"first-{i}.png")
        planted(2000 + i, 2, (192 - x, y)).save(root / f"second-{i}.png")
    for i in range(OTHERS):
        background(i).save(root / "more" / f"none-{i:03d}.jpg", quality=90)
    (root / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(300))
    (folder / "made").mkdir()
    Index.create(folder / "made" / "photos.manifind", root, **PLAINLY, k=30, query_k=20, alpha=0.9).close()


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two things in six photos each, and a hundred photos without them in a folder below."""
    return shared_folder(tmp_path_factory, "serve", _make) / "collection"


@pytest.fixture(scope="session")
def index(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """An index as they were made before whitenings were learnt: its photos are parts of six."""
    return open_copy(photos.parent / "made" / "photos.manifind", tmp_path_factory)


@pytest.fixture(scope="session")
def address(index: Index) -> Iterator[str]:
    """A service of the collection."""
    with running(index) as where:
        yield where


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with client_of(address) as client:
        yield client


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for each file of tests: its event loop, which others would meet, ends with them."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is found: install it (apt install chromium) or set MANIFIND_CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=1000 * PATIENCE)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The service of a test module's `address` in a browser; nothing goes wrong there, and nobody else is asked."""
    page = opened(browser, address)
    yield page
    leave(page, address)
