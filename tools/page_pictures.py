"""Take the pictures of the web page in docs/: ``python tools/page_pictures.py``.

Scenes of the demo are made, indexed and served, and Chromium shows them. It takes a few minutes.
"""

import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Browser, Page, ViewportSize, expect

SCENES = 45
QUERY, BOX = "scene-0035.jpg", (363, 162, 561, 387)
"""A scene that shows the pagoda, and where it is in it."""
DESK, PHONE = ViewportSize(width=1280, height=860), ViewportSize(width=390, height=844)
QUALITY = 82
SECONDS = 120_000


def pictures(docs: Path) -> dict[str, Path]:
    """Return the pictures by what they show."""
    return {name: docs / f"serve-{name}.jpg" for name in ("results", "why", "compare", "phone")}


def take_pictures(browser: Browser, address: str, query: str, box: tuple[int, ...], docs: Path) -> None:
    """Search for a box, look closer at the second result, compare the ways to search; on a desk and on a telephone."""
    files = pictures(docs)
    search = f"/?q=k:{quote(query)}@{','.join(map(str, box))}"
    context = browser.new_context(base_url=address, viewport=DESK, color_scheme="light")
    desk = context.new_page()
    _show(desk, search, ".card")
    _shoot(desk, files["results"])
    second = desk.locator(".card").nth(1).get_attribute("data-key") or ""
    _show(desk, f"{search}&why={quote(second)}", ".stop")
    expect(desk.locator(".matches figure").first).to_be_visible(timeout=SECONDS)
    _shoot(desk, files["why"])
    _show(desk, f"{search}&compare=1", ".column li")
    _shoot(desk, files["compare"])
    context.close()
    context = browser.new_context(
        base_url=address, viewport=PHONE, device_scale_factor=1.5, has_touch=True, is_mobile=True, color_scheme="dark"
    )
    phone = context.new_page()
    _show(phone, search, ".card")
    _shoot(phone, files["phone"])
    context.close()


def _show(page: Page, path: str, sign: str) -> None:
    page.goto(path)
    expect(page.locator(sign).first).to_be_visible(timeout=SECONDS)
    expect(page.locator("[aria-busy]")).to_have_count(0, timeout=SECONDS)
    near = "one.getBoundingClientRect().top > innerHeight"
    page.wait_for_function(f"() => [...document.images].every((one) => one.complete || {near})", timeout=SECONDS)


def _shoot(page: Page, file: Path) -> None:
    page.screenshot(path=file, type="jpeg", quality=QUALITY)


if __name__ == "__main__":
    root = Path(__file__).parents[1]
    sys.path.insert(0, str(root))
    from playwright.sync_api import sync_playwright
    from tests.serve.browsing import CHROMIUM, FLAGS
    from tests.serve.running import running

    from manifind.demo.scenes import make_scenes
    from manifind.index import Index

    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        scenes = make_scenes(scratch, scenes=SCENES)
        made = Index.create(Path(scratch, "photos.manifind"), scenes.folder)
        with running(made) as where:
            chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            take_pictures(chromium, where, QUERY, BOX, root / "docs")
            chromium.close()
