"""The page shows the results of a search as they come."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Request, Route, expect

from manifind.geometry import verify_many
from manifind.index.search import verification
from tests.serve.asking import FIRST, PATIENCE, SEARCH, counted, wait_for
from tests.serve.browsing import kept, shown


@contextmanager
def held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold all verification up until the event is set, at the latest at the end of the block."""
    go_on = threading.Event()

    def late(*given: Any, **more: Any) -> Any:
        go_on.wait(PATIENCE)
        return verify_many(*given, **more)

    monkeypatch.setattr(verification, "verify_many", late)
    try:
        yield go_on
    finally:
        go_on.set()


def keys_shown(page: Page) -> list[str]:
    return [str(key) for key in page.locator(".card").evaluate_all("cards => cards.map((one) => one.dataset.key)")]


def test_the_ranking_comes_first_and_a_new_box_cancels_the_search(
    page: Page, client: httpx.Client, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    said: list[str] = []
    page.expose_function("heard", lambda words: said.append(words))
    with held_up(monkeypatch) as go_on:
        page.goto("/")
        page.evaluate("""new MutationObserver(() => heard(document.querySelector("#said").textContent))
            .observe(document.querySelector("#said"), { childList: true, subtree: true })""")
        page.evaluate(
            "to => { history.pushState(null, '', to); dispatchEvent(new PopStateEvent('popstate')); }", SEARCH
        )
        expect(page.locator(".card").first).to_be_visible()
        expect(page.locator(".count")).to_contain_text("Checking 0 of")
        assert page.locator(".results[aria-busy=true]").count() == 1
        assert page.locator(".card .sure").count() == 0
        assert said == []
        kept(page, "ranking", repository)
        with page.expect_event("requestfailed", lambda one: one.url.endswith("/api/search/stream")):
            page.get_by_role("button", name="Add a box").click()
        expect(page.locator(".results.stale .card").first).to_be_visible()
        expect(page.locator(".results.stale")).to_have_count(0)  # the ranking of the new query
        assert page.locator(".results[aria-busy=true]").count() == 1
        wait_for(lambda: counted(client, "manifind_searches_under_way") == 1)
        go_on.set()
        keys = shown(page)
    expect(page.locator(".card .sure").first).to_be_visible()
    assert page.url.count("q=") == 2
    assert len([words for words in said if "sure" in words]) == 1
    page.reload()
    assert shown(page) == keys


def test_no_photo_moves_while_one_is_ticked(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    with held_up(monkeypatch) as go_on:
        page.goto("/?q=k:first-0.png@20,12,148,140&sort=score")
        expect(page.locator(".count")).to_contain_text("Checking 0 of")
        before = keys_shown(page)
        page.locator(".tick").nth(2).check()
        places = page.locator(".card").evaluate_all("all => all.map((one) => one.getBoundingClientRect().y)")
        go_on.set()
        expect(page.get_by_role("button", name="Show the new order")).to_be_visible()
        assert keys_shown(page) == before
        assert page.locator(".card").evaluate_all("all => all.map((one) => one.getBoundingClientRect().y)") == places
    page.get_by_role("button", name="Show the new order").click()
    expect(page.locator(".card .sure").first).to_be_visible()
    assert set(keys_shown(page)[:6]) == FIRST
    expect(page.locator(f".card[data-key='{before[2]}'] .tick")).to_be_checked()


def test_the_page_says_how_many_photos_were_not_checked(page: Page, repository: Path) -> None:
    asked: list[dict[str, Any]] = []

    def cut_short(route: Route, request: Request) -> None:
        asked.append(json.loads(request.post_data or "{}"))
        *steps, last = map(json.loads, route.fetch().text().splitlines())
        if len(asked) == 1:
            last["result"] |= {"complete": False, "n_unchecked": 12}
        route.fulfill(body="".join(f"{json.dumps(step)}\n" for step in (*steps, last)))

    page.route("**/api/search/stream", cut_short)
    page.goto(SEARCH)
    keys = shown(page)
    expect(page.locator(".unchecked")).to_contain_text("12 photos were not checked")
    expect(page.locator("#said")).to_contain_text("12 photos were not checked")
    kept(page, "unchecked", repository)
    page.get_by_role("button", name="Check them").click()
    expect(page.locator(".unchecked")).to_have_count(0)
    assert shown(page) == keys
    assert ["deadline" in one for one in asked] == [False, True]


def test_an_error_amid_the_steps_is_said(page: Page) -> None:
    def broken(route: Route) -> None:
        first = route.fetch().text().splitlines()[0]
        error = {"error": "The index is being replaced; try again.", "code": "index-changed"}
        route.fulfill(body=f"{first}\n{json.dumps(error)}\n")

    page.route("**/api/search/stream", broken)
    page.goto(SEARCH)
    expect(page.get_by_role("alert")).to_contain_text("The index is being replaced")
    expect(page.locator(".results[aria-busy]")).to_have_count(0)
