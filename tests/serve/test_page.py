"""The page in a real browser: what a person does with it, from the photo to the reason."""

import csv
import io
import json
import re
import unicodedata
import zipfile
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

from manifind.index import Index
from manifind.reports.text import visible
from tests.extraction_options import PLAINLY
from tests.serve.asking import BOX, FIRST, SEARCH
from tests.serve.browsing import box_of, kept, leave, more, opened, shown
from tests.serve.conftest import planted
from tests.serve.running import patient, running


def settled(page: Page, *, old: str) -> None:
    """Wait until the address is another and the answer to it is there."""
    page.wait_for_function("old => location.href !== old", arg=old)
    expect(page.locator(".results")).not_to_have_attribute("aria-busy", "true")


def boxes_of(url: str) -> list[list[float]]:
    found = re.findall(r"[?&]q=[^&]*@([-\d.,]+)", url)
    return [[float(corner) for corner in one.split(",")] for one in found]


def boxes_in(page: Page) -> list[list[float]]:
    return boxes_of(page.url)


def drag(page: Page, way: tuple[float, ...], width: int = 320, height: int = 240) -> None:
    """Drag on the query's photo, from one place to another in its pixels: it draws a box, or moves what is there."""
    frame = box_of(page.locator(".layer"))
    across, down = frame["width"] / width, frame["height"] / height
    page.mouse.move(frame["x"] + way[0] * across, frame["y"] + way[1] * down)
    page.mouse.down()
    page.mouse.move(frame["x"] + (way[0] + way[2]) / 2 * across, frame["y"] + (way[1] + way[3]) / 2 * down)
    page.mouse.move(frame["x"] + way[2] * across, frame["y"] + way[3] * down, steps=3)
    page.mouse.up()


def keys_of(place: Locator, items: str) -> list[str]:
    """Return the keys of some items of a list."""
    return [str(key) for key in place.locator(items).evaluate_all("all => all.map((one) => one.dataset.key)")]


def above_the_line(page: Page) -> list[str]:
    """Return the keys of the results above the line, as they are shown."""
    shown_cells = page.locator(".gallery > li:not(.filler)")
    order = shown_cells.evaluate_all("all => all.map((one) => one.dataset.key ?? 'line')")
    return [str(key) for key in order[: order.index("line")]]


def searched_boxes(request: Request) -> list[list[float]]:
    """Return the boxes that a search asks for."""
    return [view["box"] for view in json.loads(request.post_data or "{}")["views"]]


# -- from the photo to the reason -------------------------------------------------------------------------------------


def test_upload_draw_a_box_and_find_the_thing(page: Page, tmp_path: Path, repository: Path) -> None:
    planted(5000, 1, (150, 60)).save(tmp_path / "shot.png")
    page.goto("/")
    expect(page.get_by_role("heading", name="Find every photo")).to_be_visible()
    expect(page.locator(".pick").first).to_be_visible()
    kept(page, "landing", repository)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Upload a photo").click()
    chooser.value.set_files(tmp_path / "shot.png")
    expect(page.locator(".layer")).to_be_visible()
    shown(page)
    old = page.url
    drag(page, (150, 60, 278, 188))
    settled(page, old=old)
    (box,) = boxes_in(page)
    assert box == pytest.approx([150, 60, 278, 188], abs=1)
    assert set(shown(page)[:6]) == FIRST
    expect(page.locator(".card").first.locator("polygon")).to_be_visible()
    kept(page, "results", repository)


def test_a_photo_dropped_or_pasted_is_the_query(page: Page, tmp_path: Path) -> None:
    planted(5001, 2, (90, 60)).save(tmp_path / "shot.png")
    data = list((tmp_path / "shot.png").read_bytes())
    for event, field in (("drop", "dataTransfer"), ("paste", "clipboardData")):
        page.goto("/")
        expect(page.locator(".pick").first).to_be_visible()
        page.evaluate(
            """([event, field, data]) => {
                const carried = new DataTransfer();
                carried.items.add(new File([new Uint8Array(data)], "shot.png", { type: "image/png" }));
                const kind = event === "drop" ? DragEvent : ClipboardEvent;
                document.body.dispatchEvent(new kind(event, { [field]: carried, bubbles: true, cancelable: true }));
            }""",
            [event, field, data],
        )
        expect(page.locator(".layer")).to_be_visible()
        assert len(shown(page)) > 0
        assert "q=u:" in page.url


def test_a_box_is_moved_resized_replaced_and_removed_with_the_mouse(page: Page, repository: Path) -> None:
    page.goto(SEARCH)
    shown(page)
    old = page.url
    drag(page, (80, 80, 120, 100))
    settled(page, old=old)
    assert boxes_in(page)[0] == pytest.approx([60, 32, 188, 160], abs=1)
    old = page.url
    drag(page, (188, 160, 260, 200))  # from the lower right corner
    settled(page, old=old)
    assert boxes_in(page)[0] == pytest.approx([60, 32, 260, 200], abs=1)
    old = page.url
    asked: list[list[list[float]]] = []
    page.on(
        "request", lambda one: asked.append(searched_boxes(one)) if one.url.endswith("/api/search/stream") else None
    )
    drag(page, (5, 5, 50.37, 25.19))  # a drag beside the box replaces it
    settled(page, old=old)
    assert boxes_in(page) == [pytest.approx([5, 5, 50, 25], abs=1)]
    assert asked[-1] == boxes_in(page)  # the address leads back to the very same search
    drag(page, (300, 200, 303, 202))  # too small to be meant: the box stays
    expect(page.locator(".box")).to_have_count(1)
    assert boxes_in(page) == asked[-1]
    box, cross = box_of(page.locator(".box")), box_of(page.get_by_role("button", name="Remove box 1"))
    assert cross["x"] >= box["x"] + box["width"]  # it covers nothing of a small box
    assert cross["y"] >= box["y"] + box["height"]  # and there is no room above it
    kept(page, "small-box", repository)
    old = page.url
    page.get_by_role("button", name="Remove box 1").click()
    settled(page, old=old)
    assert boxes_in(page) == []


def test_add_a_box_adds_one_and_there_is_a_way_back(page: Page, repository: Path) -> None:
    page.goto(SEARCH)
    shown(page)
    old = page.url
    page.get_by_role("button", name="Add a box").click()
    settled(page, old=old)
    expect(page.locator(".hint")).to_contain_text("Both boxes show one object")
    old = page.url
    drag(page, (230, 10, 290, 50))  # replaces the box that was added
    settled(page, old=old)
    assert boxes_in(page) == [list(BOX), pytest.approx([230, 10, 290, 50], abs=1)]
    kept(page, "two-boxes", repository)
    page.locator(".box").first.focus()
    old = page.url
    page.get_by_role("button", name="Back to one box").click()
    settled(page, old=old)
    assert boxes_in(page) == [list(BOX)]


def test_why_shows_the_query_the_result_and_the_chain(page: Page, repository: Path) -> None:
    page.goto(SEARCH)
    shown(page)
    card = page.locator(".card[data-key='first-3.png']")
    card.locator(".look").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="first-3.png")).to_be_visible()
    expect(dialog.locator(".beside figure")).to_have_count(2)
    expect(dialog.locator(".heat")).to_be_hidden()  # until it is asked for
    stops = dialog.locator(".stop")
    expect(stops.first).to_contain_text("The query")
    expect(stops.last).to_contain_text("first-3.png")
    expect(stops.last.locator("rect")).to_be_visible()
    expect(stops.last.locator(".crop")).to_be_visible()
    assert "why=first-3.png" in page.url
    page.wait_for_function("() => [...document.querySelectorAll('dialog img')].every((one) => one.complete)")
    kept(page, "why", repository)
    dialog.get_by_label("Show what each part contributes").check()
    expect(dialog.locator(".heat")).to_be_visible()
    key = dialog.locator("h2").inner_text()
    page.keyboard.press("ArrowRight")
    expect(dialog.locator("h2")).not_to_have_text(key)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page).not_to_have_url(re.compile("why="))


def test_a_search_is_refined_by_also_this_and_negatives(page: Page, repository: Path) -> None:
    page.goto(SEARCH)
    keys = shown(page)
    old = page.url
    page.get_by_role("button", name=f"Also this: {keys[1]}").click()
    settled(page, old=old)
    assert len(boxes_in(page)) == 2
    expect(page.locator(".strip button")).to_have_count(2)
    old = page.url
    wrong = next(key for key in shown(page) if key not in FIRST)
    page.get_by_role("button", name=f"Not this: {wrong}").click()
    settled(page, old=old)
    assert wrong not in shown(page)
    assert set(shown(page)[:6]) == FIRST
    expect(page.locator(".rejected")).to_contain_text(wrong)
    kept(page, "expanded", repository)
    old = page.url
    page.get_by_role("button", name=f"Take back: not {wrong}").click()
    settled(page, old=old)
    assert wrong in shown(page)


def test_the_address_holds_the_search(page: Page, browser: Browser, address: str) -> None:
    page.goto(SEARCH)
    keys = shown(page)
    old = page.url
    page.get_by_role("button", name=f"Also this: {keys[2]}").click()
    settled(page, old=old)
    refined = shown(page)
    page.reload()
    assert shown(page) == refined
    elsewhere = opened(browser, address)
    elsewhere.goto(page.url)
    assert shown(elsewhere) == refined
    leave(elsewhere, address)
    page.go_back()
    page.wait_for_function("old => location.href === old", arg=old)
    expect(page.locator(".strip")).to_have_count(0)
    assert shown(page) == keys
    page.go_forward()
    expect(page.locator(".strip button")).to_have_count(2)


def test_three_ways_are_seen_side_by_side(page: Page, repository: Path) -> None:
    page.goto(SEARCH)
    shown(page)
    more(page)
    page.get_by_text("Side by side").click()
    expect(page.locator(".column")).to_have_count(3)
    assert "compare=1" in page.url
    columns = page.locator(".column").all()
    assert [column.locator("h3").inner_text() for column in columns] == [
        "The object",
        "The whole scene",
        "Look-alikes",
    ]
    keys = columns[0].locator("li").evaluate_all("all => all.map((one) => one.dataset.key)")
    assert set(keys[:5]) == FIRST - {"first-0.png"}  # the query's own photo is in no column
    kept(page, "compare", repository)
    # A photo is judged the same in whichever column it stands.
    stamps = {column.locator("li:has(.stamp.sure)").count() for column in columns}
    assert max(stamps) == 5
    assert all(set(keys_of(column, "li:has(.stamp.sure)")) <= FIRST for column in columns)
    assert all(set(keys_of(column, "li.doubtful")).isdisjoint(FIRST) for column in columns)
    page.locator(".methods label", has_text="Look-alikes").click()
    expect(page.locator(".gallery")).to_be_visible()
    assert "method=plain" in page.url


def test_the_line_says_where_the_evidence_ends(page: Page) -> None:
    page.goto(SEARCH)
    keys = shown(page)
    above = above_the_line(page)
    assert set(above) >= FIRST
    assert len(above) < len(keys)
    page.get_by_text("Why the line is here").click()
    expect(page.locator(".line details")).to_contain_text("points of the query were found again")


def test_the_photo_of_the_query_is_shown_apart_and_counted_nowhere(page: Page, repository: Path) -> None:
    page.goto(SEARCH)
    assert shown(page)[0] == "first-0.png"
    own = page.locator(".card.own")
    expect(own).to_have_count(1)
    expect(own).to_contain_text("In the query")
    expect(own.locator(".rank, .sure")).to_have_count(0)
    expect(own.get_by_role("link")).to_have_accessible_name("Look closer at first-0.png, your own photo")
    ranks = page.locator(".card .rank").all_inner_texts()
    assert ranks == [str(place) for place in range(1, len(shown(page)))]
    more(page)
    matches = len(above_the_line(page)) - 1
    page.get_by_role("button", name=f"Tick all {matches} above the line").click()
    expect(page.locator(".ticked")).to_contain_text(f"{matches} photos ticked")
    expect(own.get_by_role("checkbox")).not_to_be_checked()
    page.goto(f"{SEARCH}&why=first-0.png")
    expect(page.locator(".detail-head p")).to_have_text("In the query")


def test_where_nothing_is_certain_the_nearest_are_there_to_be_judged(page: Page, repository: Path) -> None:
    def uncertain(route: Route) -> None:
        *_, last = map(json.loads, route.fetch().text().splitlines())
        for one in last["result"]["results"]:
            own = one["key"] == "first-0.png"
            one |= {"is_match": own, "grade": "verified" if own else "not likely", "verified": own, "outline": None}
        last["result"] |= {"n_matches": 1, "n_verified": 1}
        route.fulfill(body=f"{json.dumps(last)}\n")

    page.route("**/api/search/stream", uncertain)
    page.goto(SEARCH)
    shown(page)
    expect(page.locator(".bar .count")).to_have_text(
        "Nothing certain besides your own photo. The nearest, please judge:"
    )
    expect(page.locator(".line")).to_have_count(0)
    # The first row is not pale, and the rows below are.
    rows = page.locator(".card:not(.own)").evaluate_all(
        "all => all.map((one) => [one.offsetTop, one.classList.contains('doubtful')])"
    )
    assert {pale for top, pale in rows if top == rows[0][0]} == {False}
    assert {pale for top, pale in rows if top > rows[0][0]} == {True}
    kept(page, "judge", repository)


def test_one_photo_is_a_photo(page: Page) -> None:
    script = """async (results) => {
      const { summary } = await import("/page/grades.js");
      return summary({ n_matches: results.length, n_verified: 0, results, confidence: null }, [{ key: "own.jpg" }]);
    }"""
    page.goto("/")

    def words(*grades: str) -> str:
        found = [{"key": f"{i}.jpg", "grade": grade, "is_match": True} for i, grade in enumerate(grades)]
        return str(page.evaluate(script, [{"key": "own.jpg", "grade": "verified", "is_match": True}, *found]))

    sure, likely = "verified", "likely"
    assert words(sure) == "1 photo, sure"
    assert words(likely) == "1 photo, not sure"
    assert words(sure, sure) == "2 photos, both of them sure"
    assert words(sure, sure, likely) == "3 photos, 2 of them sure"
    assert words(likely, likely) == "2 photos, none of them sure"


def test_only_the_parts_that_match_are_shown_without_another_search(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if one.url.endswith("/api/search/stream") else None)
    page.goto(SEARCH)
    keys = shown(page)
    parts = page.get_by_role("button", name="Only the parts that match")
    parts.click()
    expect(parts).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".card[data-key='first-1.png'] img")).to_have_attribute("src", re.compile("box="))
    assert shown(page) == keys
    parts.click()
    expect(page.locator(".card[data-key='first-1.png'] img")).not_to_have_attribute("src", re.compile("box="))
    assert len(asked) == 1


def test_what_shares_a_part_is_outlined_and_not_called_sure(page: Page, repository: Path) -> None:
    def partly(route: Route) -> None:
        *_, last = map(json.loads, route.fetch().text().splitlines())
        for one in last["result"]["results"]:
            if one["key"] == "first-3.png":
                one |= {"is_match": False, "grade": "shares a part", "verified": False}
                one |= {"part": one["outline"], "outline": None, "box": None}
        last["result"]["results"].sort(key=lambda one: not one["is_match"])
        last["result"]["n_matches"] -= 1
        route.fulfill(body=f"{json.dumps(last)}\n")

    page.route("**/api/search/stream", partly)
    page.goto(SEARCH)
    shown(page)
    card = page.locator(".card[data-key='first-3.png']")
    expect(card.locator(".part")).to_have_text("◐ shares a part")
    expect(card.locator(".shared polygon")).to_have_count(1)
    expect(page.locator(".bar .count")).to_contain_text("4 photos")
    card.locator(".look").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".matches")).to_contain_text("It shares a part.")
    expect(dialog.locator(".matches")).not_to_contain_text("Sure.")
    kept(page, "shares-a-part", repository)


def test_the_name_of_a_file_is_seen_whole_before_its_folder(page: Page) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto("/?q=k:more/none-000.jpg")
    shown(page)
    card = page.locator(".card:not(.own)[data-key^='more/']").first
    key = card.locator(".key")
    expect(key).to_have_text(str(card.get_attribute("data-key")))
    key.evaluate("one => { one.style.maxWidth = '6.5rem'; }")
    whole = "one => one.scrollWidth <= one.clientWidth"
    folder, name = key.locator("span").all()
    assert (folder.evaluate(whole), name.evaluate(whole)) == (False, True)


def test_an_honest_empty_result(page: Page, tmp_path: Path, repository: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    page.goto("/")
    page.locator("#file").set_input_files(tmp_path / "noise.png")
    expect(page.get_by_role("heading", name="Nothing in this collection matches")).to_be_visible()
    expect(page.locator(".card")).to_have_count(0)
    expect(page.get_by_text("Download")).to_have_count(0)  # what does not match is not offered
    kept(page, "nothing", repository)
    page.get_by_role("button", name="Show what comes nearest anyway").click()
    expect(page.locator(".card").first).to_be_visible()
    more(page)
    expect(page.get_by_role("link", name="CSV")).to_be_visible()


def test_a_broken_upload_is_told_in_one_sentence(page: Page, photos: Path, repository: Path) -> None:
    page.goto("/")
    page.locator("#file").set_input_files(photos / "broken.jpg")
    expect(page.get_by_role("alert")).to_contain_text("The uploaded file cannot be read")
    kept(page, "broken-upload", repository)
    page.get_by_role("button", name="Dismiss").click()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_an_upload_that_is_gone_says_so(page: Page) -> None:
    page.goto(f"/?q=u:{'0' * 32}")
    expect(page.locator(".gone-note")).to_contain_text("upload it again")


def test_those_above_the_line_can_be_downloaded_and_all(page: Page, tmp_path: Path) -> None:
    page.goto(SEARCH)
    keys = shown(page)
    likely = len(above_the_line(page))
    assert 6 <= likely < len(keys)
    more(page)
    for count, label in (
        (likely, f"Download the {likely - 1} above the line, and your own photo"),
        (len(keys), f"Download all {len(keys) - 1}, and your own photo"),
    ):
        for kind, name in (("JSON", "found.json"), ("CSV", "found.csv"), ("Photos (zip)", "found.zip")):
            with page.expect_download() as download:
                page.get_by_role("group", name=label).get_by_role("link", name=kind, exact=True).click()
            assert download.value.suggested_filename == name.replace("found", "found with first-0")
            download.value.save_as(tmp_path / name)
        found = json.loads((tmp_path / "found.json").read_text())
        assert [one["key"] for one in found["results"]] == keys[:count]
        rows = list(csv.DictReader(io.StringIO((tmp_path / "found.csv").read_text())))
        assert [row["is_match"] for row in rows] == (["yes"] * likely + ["no"] * len(keys))[:count]
        with zipfile.ZipFile(tmp_path / "found.zip") as archive:
            assert len(archive.namelist()) == 1 + count


def test_the_hint_speaks_of_what_is_drawn(page: Page) -> None:
    page.goto("/?q=k:first-0.png")
    shown(page)
    expect(page.locator(".hint")).to_have_text(
        "The whole photo is searched for. Click the object, or draw a box round it."
    )
    old = page.url
    drag(page, BOX)
    settled(page, old=old)
    expect(page.locator(".hint")).to_have_text("Draw again, or move or resize the box.")
    old = page.url
    page.locator(".box").first.hover()
    page.get_by_role("button", name="Remove box 1").click()
    settled(page, old=old)
    expect(page.locator(".hint")).to_have_text(
        "The whole photo is searched for. Click the object, or draw a box round it."
    )


def test_the_main_screen_speaks_to_people(page: Page, repository: Path) -> None:
    page.goto(SEARCH)
    shown(page)
    words = page.locator("body").inner_text().lower()
    assert "diffusion" not in words
    expect(page.locator(".bar .count")).to_have_text(
        re.compile(r"^\d+ photos, 5 of them sure$|^5 photos, all of them sure$")
    )
    expect(page.locator(".line strong")).to_have_text("Below this line: probably something else")
    assert re.search(r"0\.\d\d", page.locator(".ranking").inner_text()) is None  # no raw scores
    more(page)
    ways = page.locator(".methods label")
    expect(ways.nth(0)).to_have_attribute("title", "Regional diffusion")
    expect(ways).to_have_text(["The object", "The whole scene", "Look-alikes", "Side by side"])
    kept(page, "words", repository)
    page.goto("/?tab=health")
    expect(page.get_by_text("For engineers")).to_be_visible()
    expect(page.get_by_text("gamma", exact=True)).to_be_hidden()
    page.get_by_text("For engineers").click()
    expect(page.get_by_text("gamma", exact=True)).to_be_visible()


def test_a_picture_that_does_not_come_says_why(browser: Browser, tmp_path: Path, repository: Path) -> None:
    """A collection of links is a wall of reasons, not of broken pictures."""
    folder, elsewhere = tmp_path / "photos", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    for number in range(5):
        planted(6100 + number, 1, (30 * number, 10)).save(elsewhere / f"{number}.png")
        (folder / f"{number}.png").symlink_to(elsewhere / f"{number}.png")
    index = Index.create(tmp_path / "x.manifind", folder, **PLAINLY, k=5, query_k=5)
    with running(index) as address:
        page = opened(browser, address)
        for path, tile in (("/?q=k:0.png&q=k:1.png", ".card"), ("/?tab=browse", ".cell"), ("/", ".pick")):
            page.goto(path)
            expect(page.locator(f"{tile} .gone-why").first).to_contain_text("serve with --follow-links")
            if tile == ".card":
                expect(page.locator(".editor .gone-why")).to_be_visible()
            kept(page, f"links{path[2:5].replace('=', '-').replace('?', '')}", repository)
        leave(page, address)


def test_a_picture_is_asked_for_again_while_the_service_is_busy(browser: Browser, address: str) -> None:
    page = opened(browser, address)
    refused: list[str] = []

    def answer(route: Route) -> None:
        if refused.count(route.request.url) < 2:
            refused.append(route.request.url)
            route.fulfill(status=503, headers={"Retry-After": "0"}, json={"error": "busy."})
        else:
            route.continue_()

    page.route("**/api/picture*first-1.png*", answer)
    page.goto(SEARCH)
    shown(page)
    card = page.locator(".card[data-key='first-1.png'] img")
    card.scroll_into_view_if_needed()
    page.wait_for_function("one => one.complete && one.naturalWidth > 0", arg=card.element_handle())
    assert refused
    leave(page, address)


# -- names that others chose ------------------------------------------------------------------------------------------


def test_nothing_in_a_name_stays_unseen(browser: Browser, tmp_path: Path, repository: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    turned, unseen = "holiday\u202egnp.exe.png", "a\u200bb.png"
    names = (turned, unseen, "شب‌ها.png", "plain.png")
    for number, name in enumerate(names):
        planted(6000 + number, 1, (30 * number, 10)).save(folder / name)
    index = Index.create(tmp_path / "x.manifind", folder, **PLAINLY, k=30, query_k=20)
    with running(index) as address:
        page = opened(browser, address)
        page.goto(f"/?{urlencode([('q', f'k:{name}') for name in names])}")
        assert set(shown(page)) >= set(names[:3])
        text = page.locator("body").inner_text()
        assert "holiday\\u202egnp.exe.png" in text
        assert "a\\u200bb.png" in text
        assert "شب‌ها.png" in text
        kept(page, "names", repository)
        card = page.locator(".card", has_text="u202e")
        expect(card.locator(".look")).to_have_attribute("aria-label", re.compile(r"holiday\\u202egnp"))
        card.locator(".look").click()
        expect(page.get_by_role("dialog").get_by_role("heading", level=2)).to_have_text("holiday\\u202egnp.exe.png")
        page.goto("/?tab=browse")
        expect(page.locator(".cell").first).to_be_visible()
        said = page.evaluate("document.body.innerText + [...document.querySelectorAll('*')].flatMap("
                             "(one) => [one.title, one.ariaLabel, one.alt]).join()")  # fmt: skip
        assert "\u202e" not in said
        assert "\u200b" not in said
        leave(page, address)


def test_the_page_and_the_terminal_write_the_same_characters_out(page: Page) -> None:
    page.goto("/")
    samples = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) != "Cn"]
    joined = [
        before + here for before in ("a", "ه", "क", "❤", "👨", "🏽", "\ufe0f", "") for here in "\u200c\u200d\ufe0f"
    ]
    script = "async (all) => { const { visible } = await import('/page/text.js'); return all.map(visible).join(' '); }"
    whole = [one for one in samples if not "\ud800" <= one <= "\udfff"]
    assert page.evaluate(script, whole + joined) == " ".join(map(visible, whole + joined))


# -- the collection ---------------------------------------------------------------------------------------------------


def test_the_collection_is_browsed_filtered_and_picked_from(page: Page, repository: Path) -> None:
    page.goto("/?tab=browse")
    expect(page.locator(".cell").first).to_be_visible()
    expect(page.locator(".browse .count")).to_have_text("116 photos")
    kept(page, "browse", repository)
    page.get_by_label("Folder").select_option("more")
    expect(page.locator(".browse .count")).to_have_text("104 of 116 photos")
    page.get_by_label("Folder").select_option("")
    page.get_by_label("Name").fill("nobody's")
    expect(page.locator(".nothing")).to_contain_text("No photo has “nobody's” in its name")
    page.get_by_role("button", name="Show all photos").click()
    expect(page.locator(".browse .count")).to_have_text("116 photos")
    page.get_by_label("Name").fill("second")
    expect(page.locator(".cell")).to_have_count(6)
    page.get_by_role("button", name="Search with second-2.png").click()
    assert shown(page)[0] == "second-2.png"
    assert "q=k:second-2.png" in page.url
    page.get_by_role("link", name="Add from the collection").click()
    page.get_by_label("Name").fill("first-1")
    expect(page.locator(".cell")).to_have_count(1)  # a click on what makes room for others would be lost
    page.get_by_role("button", name="Search with first-1.png").click()
    expect(page.locator(".strip button")).to_have_count(2)


def test_only_what_is_in_sight_is_in_the_page(browser: Browser, address: str) -> None:
    page = opened(browser, address, viewport={"width": 420, "height": 500})
    page.goto("/?tab=browse")
    expect(page.locator(".cell").first).to_be_visible()
    assert page.locator(".cell").count() < 60
    page.keyboard.press("End")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(page.get_by_role("button", name="116 of 116")).to_be_visible()
    assert page.locator(".cell").count() < 60
    leave(page, address)


def test_health_shows_what_was_passed_over(page: Page, repository: Path) -> None:
    page.goto("/?tab=health")
    expect(page.get_by_role("cell", name="broken.jpg")).to_be_visible()
    expect(page.locator(".health dd").first).to_have_text("116")
    expect(page.locator(".health p.lead")).to_have_text(
        "116 photos can be searched; 1 file was skipped (listed below)."
    )
    kept(page, "health", repository)


# -- for everybody ----------------------------------------------------------------------------------------------------


def test_everything_can_be_done_with_the_keyboard_alone(page: Page) -> None:
    page.goto("/?tab=browse&contains=first")
    expect(page.locator(".cell").first).to_be_visible()

    def reach(target: Locator, key: str = "Tab", most: int = 60) -> None:
        for _ in range(most):
            if target.evaluate("element => element === document.activeElement"):
                return
            page.keyboard.press(key)
        raise AssertionError(f"{target} cannot be reached by {key}")

    reach(page.locator(".cell button").first)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    shown(page)
    assert "q=k:first-0.png" in page.url
    reach(page.get_by_role("button", name="Add a box"))
    old = page.url
    page.keyboard.press("Enter")
    settled(page, old=old)
    box = page.locator(".box")
    expect(box).to_be_focused()
    old = page.url
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("Shift+ArrowDown")
    page.wait_for_url(lambda url: boxes_of(url) == [pytest.approx([32, 72, 160, 174.4], abs=1)])
    settled(page, old=old)
    reach(page.locator(".card").nth(1).locator(".look"))
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".stop").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page).not_to_have_url(re.compile("why="))
    expect(page.locator(".card").nth(1).locator(".look")).to_be_focused()
    reach(page.get_by_role("button", name="Not this:").first)
    old = page.url
    page.keyboard.press("Enter")
    settled(page, old=old)
    assert "negatives=" in page.url
    reach(page.locator(".box"), "Shift+Tab", 200)
    old = page.url
    page.keyboard.press("Delete")
    settled(page, old=old)
    assert boxes_in(page) == []


def test_a_box_is_drawn_with_a_finger(browser: Browser, address: str) -> None:
    page = opened(browser, address, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.goto("/?q=k:first-0.png")
    shown(page)
    page.locator(".layer").scroll_into_view_if_needed()
    frame = box_of(page.locator(".layer"))
    scale = frame["width"] / 320
    at = [(frame["x"] + x * scale, frame["y"] + y * scale) for x, y in ((20, 12), (90, 80), (148, 140))]
    old = page.url
    touch = page.context.new_cdp_session(page)
    for kind, place in (("touchStart", at[0]), ("touchMove", at[1]), ("touchMove", at[2]), ("touchEnd", None)):
        points = [] if place is None else [{"x": place[0], "y": place[1]}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    settled(page, old=old)
    assert boxes_in(page)[0] == pytest.approx(BOX, abs=1.5)
    leave(page, address)


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light"), (360, "light"), (1280, "dark")])
def test_nothing_is_found_by_axe(width: int, scheme: str, browser: Browser, address: str, repository: Path) -> None:
    size = {"width": width, "height": 800}
    page = opened(browser, address, viewport=size, color_scheme=scheme, has_touch=width < 500)
    places = {
        "landing": ("/", ".pick"),
        "search": (SEARCH, ".card"),
        "compare": (f"{SEARCH}&compare=1", ".column li"),
        "why": (f"{SEARCH}&why=first-3.png", ".stop"),
        "browse": ("/?tab=browse", ".cell"),
        "health": ("/?tab=health", "td"),
        "repeats": ("/?tab=repeats", ".objects li, .repeats .count"),
        "sets": ("/?tab=sets", "h1"),
        "docs": ("/docs", ".operation"),
    }
    if (width, scheme) in ((360, "light"), (1280, "dark")):  # colours and widths were seen apart: the main ones do
        places = {name: places[name] for name in ("search", "why")}
    for name, (path, sign) in places.items():
        page.goto(path)
        expect(page.locator(sign).first).to_be_visible()
        expect(page.locator(".results[aria-busy]")).to_have_count(0)
        page.wait_for_function("() => [...document.images].every((one) => one.complete || one.loading === 'lazy')")
        kept(page, f"{name}-{width}-{scheme}", repository)
        found = Axe().run(page, options={"rules": {"label-content-name-mismatch": {"enabled": True}}})
        violations = [
            (one["id"], [node["html"][:160] for node in one["nodes"]]) for one in found.response["violations"]
        ]
        assert violations == [], name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than the screen"
    leave(page, address)


def test_the_token_in_the_address_opens_the_page_once(browser: Browser, index: Index) -> None:
    with running(index, patient(token="open sesame")) as address:  # noqa: S106
        page = opened(browser, address)
        page.goto("/")
        expect(page.get_by_role("heading", name="needs its token")).to_be_visible()
        page.goto(f"{SEARCH}&token=open%20sesame")
        assert "token" not in page.url
        assert set(shown(page)[:6]) == FIRST
        leave(page, address)
