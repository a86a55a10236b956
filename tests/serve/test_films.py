"""Frames of films on the page: shown, searched, opened and handed out."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, expect

from manifind.errors import UnreadableImageError
from manifind.index import Index
from manifind.serve.errors import ServiceError
from manifind.serve.photos import PhotoStore, _whole_jpeg
from manifind.serve.resources import Settings
from manifind.serve.schemas import ViewRequest
from tests.extraction_options import PLAINLY
from tests.films import film
from tests.index.conftest import scene
from tests.serve.asking import get
from tests.serve.browsing import kept, leave, opened, shown
from tests.serve.running import running

LATE = "trips/walk.webm#00:01.0"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    root = tmp_path_factory.mktemp("films") / "photos"
    film(root / "trips" / "walk.webm", [scene(1, None)] * 10 + [scene(2, 1)] * 10, codec="libvpx")
    for i in range(4):
        Image.fromarray(scene(10 + i, 1 + i % 2)).save(root / f"{i}.png")
    return Index.create(
        root.parent / "photos.manifind",
        root,
        frames=1,
        **PLAINLY,
        k=20,
        query_k=10,
        alpha=0.9,
    )


@pytest.fixture(scope="module")
def address(index: Index) -> Iterator[str]:
    with running(index) as where:
        yield where


def test_a_frame_is_shown_searched_with_and_found(browser: Browser, address: str, repository: Path) -> None:
    page = opened(browser, address)
    page.goto("/?q=k:trips/walk.webm%2300:01.0@40,60,168,188")
    keys = shown(page)
    assert keys[0] == LATE
    assert set(keys[1:3]) == {"0.png", "2.png"}
    page.wait_for_function("() => [...document.querySelectorAll('.card img')].every((one) => one.naturalWidth)")
    kept(page, "film", repository)
    page.goto("/?q=k:0.png@40,60,168,188&why=" + LATE.replace("#", "%23"))
    expect(page.get_by_role("link", name="Open the film")).to_have_attribute(
        "href", "/api/original?key=trips%2Fwalk.webm%2300%3A01.0#t=1"
    )
    kept(page, "film-detail", repository)
    leave(page, address)


def test_the_film_plays_in_the_browser(browser: Browser, address: str) -> None:
    page = opened(browser, address)
    page.goto("/api/original?key=trips%2Fwalk.webm%2300%3A01.0#t=1")
    page.wait_for_function("() => document.querySelector('video')?.readyState >= 2")
    assert page.evaluate("document.querySelector('video').videoWidth") == 320
    page.wait_for_function("() => document.querySelector('video').currentTime >= 1")


def test_a_link_put_in_place_of_a_film_is_not_followed_out_of_the_collection(index: Index, tmp_path: Path) -> None:
    film, secret = index.root / "trips" / "walk.webm", tmp_path / "secret.webm"
    store, view = PhotoStore(Settings()), ViewRequest(key=LATE)
    opened_frame = store.read(index.state, view)
    film.rename(secret)
    film.symlink_to(secret)
    try:
        with pytest.raises(ServiceError) as refused:
            store.decode(view, opened_frame)
        assert refused.value.code == "outside-root"
        with pytest.raises(UnreadableImageError) as unreadable:
            _whole_jpeg(opened_frame)  # type: ignore[arg-type]
        assert unreadable.value.code == "outside-root"
    finally:
        film.unlink()
        secret.rename(film)
    assert store.decode(view, opened_frame).width == 320


def test_frames_are_handed_out_as_photos(address: str) -> None:
    words = {"q": f"k:{LATE}@40,60,168,188", "top": "3"}
    archive = zipfile.ZipFile(io.BytesIO(get(f"{address}/api/search.zip", params=words).content))
    (name,) = (one for one in archive.namelist() if "walk" in one)
    assert name == "photos/trips/001-walk.webm_00_01.0.jpg"
    assert Image.open(io.BytesIO(archive.read(name))).size == (320, 240)
    facts = get(f"{address}/api/photo/facts", params={"key": LATE}).json()
    assert facts["shown"]
    film = get(f"{address}/api/original", params={"key": LATE})
    assert film.headers["content-type"] == "video/webm"
    assert film.content.startswith(b"\x1a\x45\xdf\xa3")
    assert get(f"{address}/api/picture", params={"key": "trips/walk.webm"}).status_code == 404
    assert get(f"{address}/api/picture", params={"key": "trips/walk.webm#00:00.5"}).status_code == 404
