"""A collection so small that publishing it takes moments, and the stores that it is published to."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from manifind.features import RegionExtractor
from manifind.index import Index
from manifind.remote.store import Address, Store, store_at
from tests.index.small import small_extractor, small_photo

PHOTOS = 40
SCHEMES = ("folder", "milvus-lite", "qdrant")


@pytest.fixture(scope="session")
def extractor() -> RegionExtractor:
    return small_extractor()


def save_photo(file: Path, seed: int) -> None:
    """A photo that has its left half in common with others, up to noise: no two regions are equally similar."""
    file.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(-20, 21, small_photo(seed).shape)
    Image.fromarray(np.clip(small_photo(seed) + noise, 0, 255).astype(np.uint8)).save(file)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number in range(PHOTOS):
        save_photo(tmp_path / "photos" / f"{number:03}.png", number)
    (tmp_path / "photos" / "copy.png").write_bytes((tmp_path / "photos" / "000.png").read_bytes())
    return tmp_path / "photos"


@pytest.fixture
def index(photos: Path, extractor: RegionExtractor) -> Index:
    return Index.create(photos.with_name("made.manifind"), photos, extractor=extractor, k=20, query_k=20)


@pytest.fixture(params=["folder", "milvus-lite"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a collection may be, in stores that need no server."""
    return f"{request.param}://{tmp_path}/store/demo"


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    opened = store_at(Address.parse(address))
    yield opened
    opened.close()
