"""Results come first, on a telephone, at 200 % zoom and on a desk; and what is wrong is said once."""

import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from manifind.index import Index
from tests.index.small import small_index
from tests.serve.asking import BOX, SEARCH, get
from tests.serve.browsing import box_of, kept, leave, opened, shown
from tests.serve.running import patient, running

SCREENS = {
    "phone": (390, 844, 300),
    "zoomed": (640, 450, 300),
    "768": (768, 1024, 320),
    "1280": (1280, 860, 170),
    "1920": (1920, 1080, 170),
}
"""Width and height of a window, and the pixel above which the first photo begins."""


def test_the_first_photo_is_seen_without_scrolling(page: Page, repository: Path) -> None:
    for name, (width, height, highest) in SCREENS.items():
        page.set_viewport_size({"width": width, "height": height})
        page.goto(SEARCH)
        shown(page)
        kept(page, f"first-photo-{name}", repository)
        first = box_of(page.locator(".card .photo").first)
        assert first["y"] <= highest, (name, first)
        gallery = box_of(page.locator(".gallery"))
        assert gallery["width"] > (0.85 if width < 832 else 0.55) * width  # the photos have the width
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_on_a_telephone_a_query_folds_and_opens_again(browser: Browser, address: str, repository: Path) -> None:
    page = opened(browser, address, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.goto(SEARCH)
    shown(page)
    small = box_of(page.locator(".editor"))
    change = page.get_by_role("button", name="Change the box")
    expect(change).to_have_attribute("aria-expanded", "false")
    change.click()
    expect(page.get_by_role("button", name="Add a box")).to_be_visible()
    assert box_of(page.locator(".editor"))["width"] > 2 * small["width"]
    kept(page, "phone-open", repository)
    page.get_by_role("button", name="Show the results").click()
    assert box_of(page.locator(".editor")) == small
    page.goto("/?q=k:first-0.png")  # a box is still to be drawn: the query is open, and the results below in sight
    shown(page)
    expect(page.get_by_role("button", name="Show the results")).to_be_visible()
    assert box_of(page.locator(".card .photo").first)["y"] < 844
    kept(page, "phone-whole", repository)
    leave(page, address)


def test_a_tiny_box_is_not_told_to_be_smaller(page: Page) -> None:
    page.goto("/?q=k:first-0.png@200,30,206,35")
    expect(page.locator(".results")).not_to_have_attribute("aria-busy", "true")
    expect(page.locator(".results .note")).to_contain_text("The box has only 6 × 5 pixels")
    expect(page.locator(".results")).not_to_contain_text("smaller")


def test_an_odd_address_is_told_in_words(page: Page, address: str) -> None:
    page.goto("/?q=u:xyz")
    expect(page.locator(".gone-note")).to_contain_text("upload it again")
    expect(page.get_by_role("alert")).to_contain_text("'xyz' is no upload; upload the photo again")
    expect(page.locator("body")).not_to_contain_text("pattern")
    since = get(f"{address}/api/search", params={"q": "k:first-0.png", "since": "yesterday"}).json()["error"]
    assert since == "since: 'yesterday' is no date; write 2019, 2019-07 or 2019-07-04."


@pytest.fixture
def moved(tmp_path: Path) -> Index:
    """An index of a folder that was moved."""
    made = small_index(tmp_path, 8)
    shutil.move(made.root, tmp_path / "elsewhere")
    return made


def test_a_folder_that_was_moved_is_told_once_and_names_no_photo(
    browser: Browser, moved: Index, repository: Path
) -> None:
    box = ",".join(map(str, BOX))
    with running(moved, patient(tell_paths=True)) as address:
        page = opened(browser, address)
        page.goto(f"/?q=k:1.png@{box}")
        expect(page.get_by_role("alert")).to_contain_text(f"The folder of the photos, {moved.root}, is not there")
        expect(page.locator(".results[aria-busy]")).to_have_count(0)
        text = page.locator("body").inner_text()
        assert text.count("folder of the photos") == 1
        assert re.search(r"1\.png.*cannot be read", text) is None
        kept(page, "moved", repository)
        leave(page, address)
    with running(moved) as address:
        error = get(f"{address}/api/picture", params={"key": "1.png"}).json()
        assert error["code"] == "no-folder"
        assert str(moved.root) not in error["error"]
