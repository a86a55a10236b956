"""What repeats, in the service and on its page."""

from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from tests.serve.test_page import FIRST, browser, kept, page, pytestmark, shown

__all__ = ["browser", "page", "pytestmark"]


def test_the_page_shows_what_repeats_and_searches_for_it(page: Page, repository: Path) -> None:
    page.goto("/")
    page.get_by_role("navigation").get_by_role("link", name="Repeats").click()
    rows = page.locator(".objects > li")
    expect(rows.first).to_contain_text("In ")
    page.wait_for_function("() => document.querySelector('.crops img').complete")
    kept(page, "repeats", repository)
    things = page.locator(".objects > li", has=page.locator("[title='first-2.png']"))
    things.first.get_by_role("link", name="Search for object").click()
    assert set(shown(page)[:6]) == FIRST
    page.go_back()
    expect(page.get_by_role("heading", name="What repeats")).to_be_visible()


def test_the_service_tells_the_surest_first_and_no_more_than_asked(client: httpx.Client) -> None:
    told = client.get("/api/repeats", params={"top": 2}).json()
    assert len(told["objects"]) == 2 <= told["found"]
    assert told["objects"][0]["score"] >= told["objects"][1]["score"]
    assert client.get("/api/repeats", params={"top": 0}).status_code == 422
