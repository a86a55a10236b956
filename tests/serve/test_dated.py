"""Searches confined to folders and dates, in order of dates, as a sheet of parts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import ExifTags, Image
from playwright.sync_api import Browser, Page, expect

from manifind.index import Index
from manifind.index.search.filters import is_within
from tests.index.small import small_extractor, small_photo
from tests.serve.asking import get
from tests.serve.browsing import kept, leave, more, opened, shown
from tests.serve.running import running


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Twelve photos in two folders, taken in twelve months, the last first."""
    root = tmp_path_factory.mktemp("dated") / "photos"
    for seed in range(12):
        folder = root / ("old" if seed % 2 else "new")
        folder.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = f"2019:{12 - seed:02d}:15 12:00:00"
        Image.fromarray(small_photo(seed)).resize((256, 192)).save(folder / f"{seed:02d}.jpg", quality=95, exif=exif)
    return Index.create(f"{root}.manifind", root, extractor=small_extractor(), k=15, query_k=12, alpha=0.9)


@pytest.fixture(scope="module")
def address(made: Index) -> Iterator[str]:
    with running(made) as address:
        yield address


def month(key: str) -> int:
    return 12 - int(key[-6:-4])


def test_a_search_is_confined_to_a_folder_and_to_dates(address: str) -> None:
    def found(**within: str) -> list[str]:
        # Not refined: photos that are left out do not teach the query, so that others come first.
        answer = get(f"{address}/api/search", params={"q": "k:new/02.jpg", "expand": "false", **within}).json()
        return [one["key"] for one in answer["results"]]

    every = found()
    assert len(every) == 12
    assert found(folder="old") == [key for key in every if key.startswith("old/")]
    assert found(since="2019-04", until="2019-06-30") == [key for key in every if 4 <= month(key) <= 6]
    assert found(folder="old/", since="2019-06-15") == [
        key for key in every if key.startswith("old") and month(key) >= 6
    ]
    assert found(folder="nowhere") == []
    assert found(sort="date") == sorted(every, key=month)
    assert get(f"{address}/api/search", params={"q": "k:new/02.jpg", "since": "yesterday"}).status_code == 422


@pytest.mark.parametrize(
    ("since", "until", "inside"),
    [
        (None, None, True),
        ("2019", "2019", True),
        ("2019-07", None, True),
        ("2019-07-05", None, False),
        (None, "2019-07-04", True),
        (None, "2019-06", False),
        ("2020", None, False),
    ],
)
def test_both_ends_are_included_however_short_they_are_written(
    since: str | None, until: str | None, inside: bool
) -> None:
    assert is_within("2019-07-04T12:33:05", since, until) is inside


def test_the_page_filters_sorts_and_shows_parts_and_its_address_keeps_all_of_it(
    page: Page, browser: Browser, address: str, repository: Path
) -> None:
    page.goto("/?q=k:new/02.jpg")
    assert len(shown(page)) == 12
    more(page)
    page.get_by_label("Folder").select_option("old")
    expect(page.locator(".card")).to_have_count(6)
    page.get_by_label("From", exact=True).fill("2019-05-01")
    expect(page.locator(".card")).to_have_count(4)
    page.get_by_label("Order").select_option("date")
    expect(page.locator(".card").first).to_contain_text("2019-05-15")
    page.get_by_role("button", name="Only the parts that match").click()
    expect(page.locator(".card .look .outlines")).to_have_count(0)
    keys = shown(page)
    assert keys == ["old/07.jpg", "old/05.jpg", "old/03.jpg", "old/01.jpg"]
    kept(page, "filtered", repository)
    again = opened(browser, address)
    again.goto(page.url)
    assert shown(again) == keys
    expect(again.get_by_role("button", name="Only the parts that match")).to_have_attribute("aria-pressed", "true")
    expect(again.locator(".chip")).to_have_text(["in old", "from 2019-05-01", "by date"])
    leave(again, address)
    page.get_by_role("button", name="Show all").click()
    expect(page.locator(".card")).to_have_count(12)
