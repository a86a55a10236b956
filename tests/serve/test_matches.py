"""Geometry on the page, in a real browser: outlines, lines between matching points, one photo on the other."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Response, Route, expect

from tests.serve.asking import SEARCH
from tests.serve.browsing import kept, leave, more, opened, shown
from tests.serve.conftest import PLACES, SIZE


def ask_geometry(route: Route) -> None:
    """Let a search of the page be verified, whatever the index does by itself."""
    body = json.loads(route.request.post_data or "{}")
    route.continue_(post_data=json.dumps({**body, "verify": 12}))


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    page = opened(browser, address)
    page.route("**/api/search/stream", ask_geometry)
    yield page
    leave(page, address)


def test_verified_tiles_have_an_outline_and_say_so(page: Page, repository: Path) -> None:
    page.goto(SEARCH)
    keys = shown(page)
    sure = page.locator(".card:has(.about .sure)")
    expect(sure).to_have_count(5)  # the query's own photo is no finding
    assert {f"first-{i}.png" for i in range(6)} == set(keys[:6])
    corners = page.locator(".card .outlines polygon").evaluate_all(
        "all => all.map((one) => one.getAttribute('points'))"
    )
    for key, text in zip(keys, corners, strict=False):
        x, y = PLACES[int(key[6])]
        found = [[float(part) for part in corner.split(",")] for corner in text.split()]
        whole = np.array([[x, y], [x + 128, y], [x + 128, y + 128], [x, y + 128]])
        np.testing.assert_allclose(found, np.clip(whole, 0, SIZE), atol=4)  # along the border where it goes beyond
    expect(page.locator(".count")).to_have_text("5 photos, all of them sure")
    for card in sure.all():
        expect(card.locator(".points")).to_have_text(re.compile(r"^\s*\d+ points$"))  # 5 is not 47
    expect(page.locator(".line")).to_be_visible()
    expect(page.locator(".card.doubtful .sure")).to_have_count(0)
    kept(page, "verified", repository)


def test_why_draws_lines_between_points_that_match(page: Page, repository: Path) -> None:
    page.goto(f"{SEARCH}&why=first-3.png")
    expect(page.locator(".matches")).to_contain_text("were found again in this photo")
    lines = page.locator(".lines line").evaluate_all(
        "all => all.map((one) => ['x1', 'y1', 'x2', 'y2'].map((name) => Number(one.getAttribute(name))))"
    )
    assert len(lines) >= 6
    # Both photos are of one size: the second begins a photo's width and a small gap to the right.
    shift = np.add(np.subtract(PLACES[3], PLACES[0]), [320 + 0.03 * 240, 0])
    for x1, y1, x2, y2 in lines:
        np.testing.assert_allclose([x2 - x1, y2 - y1], shift, atol=4)
    page.wait_for_function("[...document.querySelectorAll('.seen img')].every((one) => one.complete)")
    page.locator(".matches").scroll_into_view_if_needed()
    kept(page, "why-points", repository)
    found = Axe().run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []


def test_the_result_beside_the_query_is_outlined_where_geometry_finds_it(page: Page) -> None:
    page.goto(f"{SEARCH}&why=first-3.png")
    drawn = page.locator(".beside .outlines.found polygon")
    expect(drawn).to_have_count(1)
    found = [[float(part) for part in corner.split(",")] for corner in str(drawn.get_attribute("points")).split()]
    x, y = PLACES[3]
    np.testing.assert_allclose(found, [[x, y], [x + 128, y], [x + 128, y + 128], [x, y + 128]], atol=4)


def test_the_query_is_laid_on_the_result_and_faded(page: Page, repository: Path) -> None:
    page.goto(f"{SEARCH}&why=first-3.png")
    over = page.locator(".seen .over")
    expect(over).to_be_visible()
    # The middle of the query's box, wherever the map takes it on the screen, is the middle of the thing in the result.
    place = page.evaluate(
        """async () => {
          // The overlay is placed by the frame, which has its size once its pictures are there and were laid out.
          await Promise.all([...document.querySelectorAll(".seen img")].map((one) => one.decode().catch(() => null)));
          await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
          const over = document.querySelector(".seen .over"), frame = over.parentElement.getBoundingClientRect();
          const to = new DOMMatrix(getComputedStyle(over).transform);
          const at = to.transformPoint(new DOMPoint(20 + 64, 12 + 64));
          return [at.x / at.w / frame.width * 320, at.y / at.w / frame.height * 240];
        }"""
    )
    np.testing.assert_allclose(place, np.add(PLACES[3], 64), atol=3)
    slider = page.get_by_label("How much of the query is seen")
    slider.fill("100")
    expect(over).to_have_css("opacity", "1")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(over).to_have_css("opacity", "0.99")
    assert "why=first-3.png" in page.url  # the key moved the slider and not to the next result


def test_results_that_come_late_disturb_nobody_who_looks_at_one(page: Page) -> None:
    held: list[Route] = []
    page.route("**/api/search/stream", lambda route: held.append(route))
    page.goto(f"{SEARCH}&why=first-3.png")
    slider = page.get_by_label("How much of the query is seen")
    slider.focus()
    expect(page.get_by_role("button", name="The next result")).to_be_disabled()
    held[0].continue_()
    expect(page.get_by_role("button", name="The next result")).to_be_enabled()
    expect(slider).to_be_focused()
    page.get_by_role("button", name="The next result").click()
    expect(page.get_by_role("dialog").locator("h2")).not_to_have_text("first-3.png")
    expect(page.get_by_role("button", name="The next result")).to_be_focused()


def test_hops_that_geometry_joins_look_strong_and_others_weak(page: Page, repository: Path) -> None:
    answers: list[Response] = []
    page.on("response", lambda one: answers.append(one) if one.url.endswith("/api/geometry") else None)
    page.goto(f"{SEARCH}&why=second-3.png")
    expect(page.locator(".matches")).to_contain_text("by likeness alone")
    expect(page.locator(".arrow.strong").first).to_be_visible()
    expect(page.locator(".arrow.weak").first).to_be_visible()
    page.locator(".why").scroll_into_view_if_needed()
    kept(page, "why-hops", repository)
    expect(page.locator(".arrow.weak").first).to_have_attribute("title", "they merely look alike")
    titles = {arrow.get_attribute("title") for arrow in page.locator(".arrow.strong").all()}
    found = [answer.json() for answer in answers]
    inliers = {f"{one['inliers']} points match" for one in found if one["verified"]}
    assert titles <= inliers


def test_the_search_goes_on_with_the_sure_photos_until_it_is_switched_off(page: Page) -> None:
    asked: list[bool] = []
    page.on(
        "request",
        lambda one: (
            asked.append(json.loads(one.post_data or "{}").get("expand", True))
            if one.url.endswith("/api/search/stream")
            else None
        ),
    )
    page.goto(SEARCH)
    assert set(shown(page)[:6]) == {f"first-{i}.png" for i in range(6)}
    more(page)
    switch = page.get_by_role("switch", name="Search again with the sure ones")
    expect(switch).to_be_checked()
    assert "expand" not in page.url
    switch.click()
    expect(switch).not_to_be_checked()
    assert "expand=0" in page.url
    shown(page)
    switch.click()
    expect(switch).to_be_checked()
    assert asked == [True, False, True]


def test_mirrored_objects_are_looked_for_once_the_switch_is_on(page: Page) -> None:
    asked: list[bool] = []
    page.on(
        "request",
        lambda one: (
            asked.append(json.loads(one.post_data or "{}").get("mirrored", False))
            if one.url.endswith("/api/search/stream")
            else None
        ),
    )
    page.goto(SEARCH)
    shown(page)
    more(page)
    switch = page.get_by_role("switch", name="Look for mirrored ones too")
    expect(switch).not_to_be_checked()
    switch.click()
    expect(switch).to_be_checked()
    assert "mirrored=1" in page.url
    expect(page.locator(".chips")).to_contain_text("mirrored too")
    shown(page)
    page.get_by_role("button", name="Back to The object").click()
    expect(switch).not_to_be_checked()
    assert asked == [False, True, False]


def test_a_query_without_texture_says_that_geometry_cannot_tell(page: Page) -> None:
    page.goto("/?q=k:first-0.png@200,0,214,20&why=first-1.png")
    expect(page.locator(".matches")).to_contain_text("too little texture")
