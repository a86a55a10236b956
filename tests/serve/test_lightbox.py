"""A result looked at closely: its file, its copies, zoomed and moved, in a real browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import ExifTags, Image
from playwright.sync_api import Browser, Page, expect

from manifind.index import Index
from tests.index.small import save_photos, small_extractor, small_photo
from tests.serve.asking import get
from tests.serve.browsing import box_of, kept, leave, opened, shown
from tests.serve.running import patient, running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight photos, one of them three times over and with a camera's EXIF."""
    root = tmp_path_factory.mktemp("with copies") / "photos"
    save_photos(root, 8)
    exif = Image.Exif()
    exif[ExifTags.Base.Model] = "Box Brownie"
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = "1923:04:05 06:07:08"
    Image.fromarray(small_photo(3)).resize((640, 480)).save(root / "3.jpg", exif=exif)
    (root / "3.png").unlink()
    (root / "also").mkdir()
    for name in ("also/copy.jpg", "z.jpg", "zz.jpg"):
        shutil.copy(root / "3.jpg", root / name)
    return root


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    index = Index.create(f"{folder}.manifind", folder, extractor=small_extractor(), k=15, query_k=12)
    with running(index, patient(tell_paths=True)) as address:
        yield address


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    page = opened(browser, address, permissions=["clipboard-read", "clipboard-write"])
    yield page
    leave(page, address)


def test_identical_files_are_listed_under_their_twin(page: Page, repository: Path) -> None:
    page.goto("/?q=k:z.jpg")
    shown(page)
    card = page.locator(".card[data-key='3.jpg']")
    card.get_by_text("also at 3 other places").click()
    expect(card.locator(".copies li")).to_have_text(["also/copy.jpg", "z.jpg", "zz.jpg"])
    expect(page.locator(".copies")).to_have_count(1)
    kept(page, "copies", repository)


def test_the_file_is_told_opened_and_its_path_copied(page: Page, folder: Path, repository: Path) -> None:
    page.goto("/?q=k:1.png&why=3.jpg")
    dialog = page.get_by_role("dialog")
    facts = dialog.locator(".facts")
    expect(facts).to_contain_text(str(folder / "3.jpg"))
    expect(facts).to_contain_text("1923-04-05 06:07:08")
    expect(facts).to_contain_text("Box Brownie")
    expect(dialog.locator(".others li")).to_have_text(["also/copy.jpg", "z.jpg", "zz.jpg"])
    kept(page, "facts", repository)
    page.evaluate("() => { window.setTimeout = () => 0; }")  # what the button says for a while it goes on saying
    dialog.get_by_role("button", name="Copy path").click()
    expect(dialog.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == str(folder / "3.jpg")
    link = dialog.get_by_role("link", name="Open the original").get_attribute("href")
    assert page.request.get(str(link)).body() == (folder / "3.jpg").read_bytes()


def test_a_photo_is_zoomed_moved_and_closed(page: Page, repository: Path) -> None:
    page.goto("/?q=k:1.png&why=3.jpg")
    shown(page)
    page.get_by_role("dialog").get_by_role("button", name="Zoom in").click()
    lightbox = page.locator("dialog.lightbox")
    sheet, stage = lightbox.locator(".lightbox-sheet"), lightbox.locator(".lightbox-stage")
    expect(stage).to_be_focused()
    whole, percent = box_of(sheet), lightbox.locator("output").inner_text()
    page.mouse.move(300, 300)
    before = (300 - whole["x"]) / whole["width"], (300 - whole["y"]) / whole["height"]
    page.mouse.wheel(0, -400)
    expect(lightbox.locator("output")).not_to_have_text(percent)
    larger = box_of(sheet)
    assert larger["width"] == pytest.approx(whole["width"] * 2.718, rel=0.02)
    after = (300 - larger["x"]) / larger["width"], (300 - larger["y"]) / larger["height"]
    assert after == pytest.approx(before, abs=0.01)  # what is under the pointer stays there
    page.wait_for_function("() => document.querySelector('.lightbox-sheet img').src.includes('/api/original')")
    page.mouse.down()
    page.mouse.move(360, 340, steps=3)
    page.mouse.up()
    moved = box_of(sheet)
    assert (moved["x"] - larger["x"], moved["y"] - larger["y"]) == pytest.approx((60, 40), abs=1)
    kept(page, "lightbox", repository)
    page.keyboard.press("0")
    expect(lightbox.locator("output")).to_have_text(percent)
    assert box_of(sheet) == pytest.approx(whole, abs=1)
    page.keyboard.press("Escape")
    expect(lightbox).to_have_count(0)
    expect(page.get_by_role("dialog")).to_be_visible()  # the result is still looked at


def test_where_a_file_lies_is_told_only_where_it_may_be(folder: Path, index: Index) -> None:
    with running(index) as address:
        facts = get(f"{address}/api/photo/facts", params={"key": "first-0.png"}).json()
        assert facts["path"] is None
        assert str(index.root) not in str(facts)
        assert get(f"{address}/api/original", params={"key": "../secret"}).status_code == 404
        original = get(f"{address}/api/original", params={"key": "first-0.png"})
        assert original.headers["content-type"] == "image/png"
        assert original.headers["content-disposition"].startswith("inline")
