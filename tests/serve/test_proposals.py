"""A click on a photo proposes a box round what lies there; a second one, a key or a button another size."""

import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from manifind.boxes import iou
from tests.serve.asking import BOX, refused
from tests.serve.browsing import box_of, kept, leave, opened, shown

MIDDLE = {"x": (BOX[0] + BOX[2]) / 2, "y": (BOX[1] + BOX[3]) / 2}
WHOLE = "/?q=k:first-0.png"


def click(page: Page, x: float, y: float) -> None:
    """Click at a place of the photo of the query, which has 320 × 240 pixels."""
    frame = box_of(page.locator(".layer"))
    page.mouse.click(frame["x"] + x * frame["width"] / 320, frame["y"] + y * frame["height"] / 240)


def boxes_in(page: Page) -> list[list[float]]:
    """Return the boxes of the query, as the page's address has them."""
    return [[float(side) for side in text.split(",")] for text in re.findall(r"@([\d.,]+)", page.url)]


def area(box: list[float]) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def test_the_likeliest_box_comes_first_then_others_that_nest(client: httpx.Client) -> None:
    answer = client.get("/api/boxes", params={"key": "first-0.png", **MIDDLE})
    assert answer.status_code == 200, answer.text
    boxes = answer.json()["boxes"]
    assert 2 <= len(boxes) <= 3
    assert max(float(iou(box, BOX)) for box in boxes) > 0.6
    for x0, y0, x1, y1 in boxes:
        assert 0 <= x0 <= MIDDLE["x"] <= x1 <= 320
        assert 0 <= y0 <= MIDDLE["y"] <= y1 <= 240
    assert len({area(box) for box in boxes}) == len(boxes)


def test_an_upload_has_the_same_boxes(client: httpx.Client, photos: Path) -> None:
    name = client.post("/api/uploads", content=(photos / "first-0.png").read_bytes()).json()["upload"]
    uploaded = client.get("/api/boxes", params={"upload": name, **MIDDLE}).json()
    assert uploaded == client.get("/api/boxes", params={"key": "first-0.png", **MIDDLE}).json()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ({"key": "nowhere.png", **MIDDLE}, 404),
        ({**MIDDLE}, 422),
        ({"key": "first-0.png", "x": "nan", "y": 3}, 422),
        ({"key": "first-0.png", "x": -1, "y": 3}, 422),
        ({"key": "first-0.png", "x": 3}, 422),
    ],
)
def test_what_is_asked_wrongly_is_refused(client: httpx.Client, words: dict[str, str], status: int) -> None:
    refused(client.get("/api/boxes", params=words), status)


def test_a_place_beyond_the_photo_is_its_edge(client: httpx.Client) -> None:
    far = client.get("/api/boxes", params={"key": "first-0.png", "x": 1e6, "y": 1e6})
    assert far.json() == client.get("/api/boxes", params={"key": "first-0.png", "x": 320, "y": 240}).json()


def test_a_click_proposes_a_box_and_is_searched(page: Page, repository: Path) -> None:
    page.goto(WHOLE)
    shown(page)
    click(page, **MIDDLE)
    expect(page.locator(".hint")).to_contain_text("Not the right box? Click again, or draw one.")
    shown(page)
    (first,) = boxes_in(page)
    assert float(iou(first, BOX)) > 0.4
    expect(page.get_by_role("group", name="Proposed boxes")).to_be_visible()
    expect(page.locator(".box")).to_be_focused()
    kept(page, "proposed", repository)
    before = page.url
    click(page, **MIDDLE)  # the same place: the next size
    page.wait_for_function("before => location.href !== before", arg=before)
    assert area(boxes_in(page)[0]) != area(first)


def test_keys_and_buttons_take_another_size(page: Page) -> None:
    page.goto(f"{WHOLE}@20,12,148,140")
    shown(page)
    page.locator(".box").focus()
    page.keyboard.press("+")
    expect(page.locator("#said")).to_have_text("Press Enter for a proposed box.")
    assert boxes_in(page) == [[20, 12, 148, 140]]
    page.keyboard.press("Enter")
    sizes = page.get_by_role("group", name="Proposed boxes")
    expect(sizes).to_be_visible()
    (first,) = boxes_in(page)
    larger, smaller = (sizes.get_by_role("button", name=f"{kind} box") for kind in ("Larger", "Smaller"))
    button, key, grows = (larger, "-", True) if larger.is_enabled() else (smaller, "+", False)
    before = page.url
    button.click()
    page.wait_for_function("before => location.href !== before", arg=before)
    assert (area(boxes_in(page)[0]) > area(first)) == grows
    expect(page.locator(".box")).to_be_focused()
    before = page.url
    page.keyboard.press(key)
    page.wait_for_function("before => location.href !== before", arg=before)
    assert boxes_in(page) == [first]
    page.keyboard.press("ArrowRight")  # changed by hand: the user's own
    expect(sizes).to_have_count(0)


def test_a_drag_draws_and_a_click_in_a_drawn_box_changes_nothing(page: Page) -> None:
    page.goto(WHOLE)
    shown(page)
    frame = box_of(page.locator(".layer"))
    across, down = frame["width"] / 320, frame["height"] / 240
    page.mouse.move(frame["x"] + 20 * across, frame["y"] + 12 * down)
    page.mouse.down()
    page.mouse.move(frame["x"] + 148 * across, frame["y"] + 140 * down, steps=4)
    page.mouse.up()
    expect(page.locator(".hint")).to_have_text("Draw again, or move or resize the box.")
    (drawn,) = boxes_in(page)
    assert drawn == pytest.approx(BOX, abs=1.5)
    click(page, **MIDDLE)
    expect(page.locator(".box")).to_be_focused()
    shown(page)
    assert boxes_in(page) == [drawn]
    assert not [url for url in page.asked if "/api/boxes" in url]  # type: ignore[attr-defined]


def test_a_telephone_suggests_a_box_and_searches_for_it_when_told(
    browser: Browser, address: str, repository: Path
) -> None:
    page = opened(browser, address, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.goto(WHOLE)
    shown(page)
    expect(page.locator(".suggested")).to_be_visible()
    expect(page.locator(".box")).to_have_count(0)
    assert boxes_in(page) == []
    kept(page, "phone-suggested", repository)
    use = page.get_by_role("button", name="Use the dashed box")
    use.tap()
    expect(page.locator(".box")).to_have_count(1)
    expect(page.locator(".suggested")).to_have_count(0)
    expect(page.get_by_role("group", name="Proposed boxes")).to_be_visible()
    assert len(boxes_in(page)) == 1
    kept(page, "phone-proposed", repository)
    leave(page, address)
