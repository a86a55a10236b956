"""Sets of found photos in the service, and on its page in a real browser."""

import csv
import io
import os
import re
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from manifind.index import Index
from tests.index.small import save_photo, small_index
from tests.serve.asking import PATIENCE, client_of, get, post, refused, wait_for
from tests.serve.browsing import kept, more, shown
from tests.serve.running import patient, running
from tests.serve.test_service import slowly


@pytest.fixture
def made(tmp_path: Path) -> Index:
    return small_index(tmp_path, 12, digits=2, alpha=0.9)


@pytest.fixture
def address(made: Index) -> Iterator[str]:
    with running(made, patient(reload_seconds=0.2)) as address:
        yield address


def ticked(page: Page) -> list[str]:
    cards = page.locator(".card", has=page.locator(".tick:checked"))
    return [str(key) for key in cards.evaluate_all("cards => cards.map((one) => one.dataset.key)")]


def test_results_are_ticked_named_kept_judged_and_exported(
    page: Page, made: Index, tmp_path: Path, repository: Path
) -> None:
    page.goto("/?q=k:01.png")
    keys = shown(page)
    boxes = page.locator(".tick")
    boxes.nth(1).check()
    boxes.nth(4).click(modifiers=["Shift"])
    assert ticked(page) == keys[1:5]
    page.get_by_role("button", name="Tick none").click()
    more(page)
    page.get_by_role("button", name="above the line").click()
    likely = ticked(page)
    assert likely == keys[1 : 1 + len(likely)]  # not the photo that was searched with
    page.get_by_label("Name of the set").fill("object 1923.4")
    kept(page, "ticked", repository)
    page.get_by_role("button", name="Keep as a set").click()
    page.locator(".kept a").click()
    expect(page.get_by_role("heading", name="object 1923.4")).to_be_visible()
    cards = page.locator(".sets > .gallery .card")
    expect(cards).to_have_count(len(likely))
    expect(page.locator(".news")).to_contain_text("Nothing new")
    cards.nth(0).get_by_role("button", name="No", exact=True).click()
    expect(page.locator(".verdict-no")).to_have_count(1)
    expect(page.locator(".news")).to_contain_text("Nothing new")  # and the cards stay where they are
    cards.nth(1).get_by_role("button", name="Take").click()
    expect(cards).to_have_count(len(likely) - 1)
    kept(page, "set", repository)
    assert {photo.key: photo.verdict for photo in made.sets["object 1923.4"].members} == {
        key: "no" if key == likely[0] else "yes" for key in likely if key != likely[1]
    }
    for kind, name in (
        ("CSV", "object 1923.4.csv"),
        ("Sidecars (XMP)", "object 1923.4 sidecars.zip"),
        ("Photos (zip)", "object 1923.4.zip"),
    ):
        with page.expect_download() as download:
            page.get_by_role("link", name=kind, exact=True).click()
        assert download.value.suggested_filename == name
        download.value.save_as(tmp_path / name)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "object 1923.4.csv").read_text())))
    assert [row["verdict"] for row in rows].count("no") == 1
    with zipfile.ZipFile(tmp_path / "object 1923.4 sidecars.zip") as sidecars:
        assert sorted(sidecars.namelist()) == sorted(f"{key}.xmp" for key in likely[2:])
    with zipfile.ZipFile(tmp_path / "object 1923.4.zip") as photos:
        assert len(photos.namelist()) == 1 + len(likely) - 2
    page.get_by_role("button", name="Delete the set").click()
    page.get_by_role("button", name="Really delete it").click()
    expect(page.get_by_text("No set yet")).to_be_visible()
    assert made.sets.names() == []


def test_a_kept_search_shows_what_is_new_after_a_re_index(page: Page, made: Index, address: str) -> None:
    made.sets.save_search("left half", [("01.png", None)])
    save_photo(made.root / "new.png", 51)
    made.sync()
    wait_for(lambda: get(f"{address}/api/info").json()["generation"] == made.generation)
    page.goto("/?tab=sets&set=left half")
    expect(page.get_by_role("heading", name=re.compile("new photos? since it was kept"))).to_be_visible()
    others = page.get_by_role("button", name=re.compile("Yes: ")).count() - 1
    page.get_by_role("button", name="Yes: new.png").click()
    left = "Nothing new" if not others else f"{others} new photo{'s' * (others > 1)} since it was kept"
    expect(page.get_by_role("heading", name=left)).to_be_visible()
    expect(page.locator(".sets > .gallery .card")).to_have_count(1)


def test_new_matches_have_the_limits_of_searches_and_hold_no_set_up(
    made: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.sets.save_search("left half", [("01.png", None)], seen=["01.png"])
    go_on = threading.Event()
    solved = slowly(monkeypatch, lambda: go_on.wait(PATIENCE))
    news = "/api/set/news?name=left half"
    with running(made, patient(waiting=1)) as address, ThreadPoolExecutor(1) as other:
        asked = other.submit(get, address + news)
        wait_for(lambda: bool(solved))
        refused(get(address + news), 503)
        assert get(f"{address}/api/sets").json()["sets"][0]["search"]
        assert get(f"{address}/api/set?name=left half").status_code == 200
        go_on.set()
        found = {one["key"] for one in asked.result().json()["news"]}
        expected = {hit.key for hit in made.sets.new_matches("left half")}
        assert found == expected


def test_a_stored_search_may_name_a_file_but_nothing_that_blocks(made: Index, tmp_path: Path) -> None:
    save_photo(tmp_path / "query.png", 6)
    os.mkfifo(tmp_path / "pipe.png")
    for name, query in (("file", "query.png"), ("pipe", "pipe.png")):
        made.sets.save_search(name, [(str(tmp_path / query), None)], seen=[])
    made.sets.add("no search", ["01.png"])
    with running(made) as address:
        news = {name: get(f"{address}/api/set/news", params={"name": name}) for name in ("file", "pipe", "no search")}
    expected = [hit.key for hit in made.sets.new_matches("file")]
    assert [one["key"] for one in news["file"].json()["news"]] == expected
    assert (news["pipe"].status_code, news["pipe"].json()["code"]) == (422, "not-a-file")
    assert (news["no search"].status_code, news["no search"].json()["code"]) == (422, "no-search")


def test_the_service_refuses_what_no_set_can_hold(address: str, made: Index) -> None:
    with client_of(address) as client:
        assert client.get("/api/set", params={"name": "none"}).status_code == 404
        assert client.post("/api/set", json={"name": "a", "add": [{"key": "none.png"}]}).status_code == 422
        assert client.post("/api/set", json={"name": "", "add": [{"key": "01.png"}]}).status_code == 422
        assert (
            client.post("/api/set", json={"name": "a", "search": {"views": [{"upload": "0" * 32}]}}).status_code == 422
        )
        path = {"views": [{"key": str(made.root / "01.png")}]}  # a path is no key, even of a photo of the collection
        assert client.post("/api/set", json={"name": "a", "search": path}).status_code == 404
        assert client.post("/api/set", json={"name": "a", "delete": True}).status_code == 404
        elsewhere = {"Origin": "http://elsewhere.example"}
        assert client.post("/api/set", json={"name": "a", "add": []}, headers=elsewhere).status_code == 403
    assert made.sets.names() == []
    with running(made, patient(keep_sets=False)) as closed:
        refused(post(f"{closed}/api/set", json={"name": "a", "add": [{"key": "01.png"}]}), 403)
        assert get(f"{closed}/api/sets").json() == {"sets": [], "writable": False}
