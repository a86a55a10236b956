"""What repeats, in the service and on its page."""

import re
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from manifind.index import Index
from tests.serve.asking import FIRST
from tests.serve.browsing import kept, leave, opened, shown


def test_the_page_shows_what_repeats_and_searches_for_it(page: Page, repository: Path) -> None:
    page.goto("/")
    page.get_by_role("navigation").get_by_role("link", name="Repeats").click()
    rows = page.locator(".objects > li")
    expect(rows.first).to_contain_text("In ")
    page.wait_for_function("() => document.querySelector('.crops img').complete")
    kept(page, "repeats", repository)
    things = page.locator(".objects > li", has=page.locator("[title='first-2.png']"))
    expect(things.first.locator(".sure")).to_have_text(re.compile(r"^✓ \d of \d confirmed$"))
    things.first.get_by_role("link", name="Search for it").click()
    assert set(shown(page)[:6]) == FIRST
    page.go_back()
    expect(page.get_by_role("heading", name="What repeats")).to_be_visible()


def test_the_service_tells_the_surest_first_and_no_more_than_asked(client: httpx.Client) -> None:
    told = client.get("/api/repeats", params={"top": 2}).json()
    assert len(told["objects"]) == 2 <= told["found"]
    every = client.get("/api/repeats", params={"top": 1000}).json()["objects"]
    assert every[:2] == told["objects"]
    confirmed = [one["confirmed"] is True for one in every]
    assert confirmed == sorted(confirmed, reverse=True)
    things = [one for one in every if one["occurrences"][0]["key"].startswith(("first-", "second-"))]
    assert any(one["confirmed"] and one["verified"] >= 2 for one in things)
    for some in (every[: sum(confirmed)], every[sum(confirmed) : 30]):
        assert [one["score"] for one in some] == sorted((one["score"] for one in some), reverse=True)
    assert client.get("/api/repeats", params={"top": 0}).status_code == 422


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_nothing_serious_is_found_by_axe_in_the_other_sections(
    width: int, scheme: str, browser: Browser, address: str, index: Index, repository: Path
) -> None:
    index.sets.add("roofs", ["first-0.png", "first-1.png"])
    page = opened(browser, address, viewport={"width": width, "height": 800}, color_scheme=scheme)
    places = {
        "repeats": ("/?tab=repeats", ".crops img"),
        "sets": ("/?tab=sets", ".set-list li"),
        "set": ("/?tab=sets&set=roofs", ".card"),
        "filters": ("/?q=k:first-0.png&sort=date", ".card .date"),
        "facts": ("/?q=k:first-0.png&why=first-1.png", ".facts dd"),
        "docs": ("/docs", ".operation"),
    }
    for name, (path, sign) in places.items():
        page.goto(path)
        expect(page.locator(sign).first).to_be_visible()
        expect(page.locator(".results[aria-busy]")).to_have_count(0)
        page.wait_for_function("() => [...document.images].every((one) => one.complete || one.loading === 'lazy')")
        kept(page, f"{name}-{width}-{scheme}", repository)
        found = Axe().run(page).response["violations"]
        serious = [
            (one["id"], one["nodes"][0]["html"][:160]) for one in found if one["impact"] in ("serious", "critical")
        ]
        assert serious == [], name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than the screen"
    leave(page, address)
    index.sets.delete("roofs")
