"""A real browser: the Chromium that is found on the path, or named by MANIFIND_CHROMIUM.

Screenshots are left in ``build/screenshots``, to be looked at.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

from tests.serve.asking import PATIENCE

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-prefers-reduced-motion",
]
CHROMIUM = os.environ.get("MANIFIND_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)

expect.set_options(timeout=1000 * PATIENCE)


def opened(browser: Browser, address: str, **settings: Any) -> Page:
    context = browser.new_context(base_url=address, **{"viewport": {"width": 1280, "height": 860}, **settings})
    page = context.new_page()
    page.set_default_timeout(1000 * PATIENCE)
    faults: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: asked.append(request.url))
    page.faults, page.asked = faults, asked  # type: ignore[attr-defined]
    return page


def leave(page: Page, address: str) -> None:
    """Close a page on which nothing went wrong, and which asked nobody but the service."""
    asked: list[str] = page.asked  # type: ignore[attr-defined]
    faults: list[str] = page.faults  # type: ignore[attr-defined]
    page.context.close()
    assert all(url.startswith((address, "blob:", "data:")) for url in asked)
    # A browser reports every refusal of the service; the page deals with those itself.
    assert [fault for fault in faults if not fault.startswith("Failed to load resource")] == []


def kept(page: Page, name: str, repository: Path) -> None:
    """Leave a screenshot."""
    folder = repository / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{name}.png")


def more(page: Page) -> None:
    """Open what is rarely needed of a search: methods, filters, downloads, sets."""
    button = page.get_by_role("button", name="More", exact=True)
    if button.get_attribute("aria-expanded") == "false":
        button.click()


def box_of(one: Locator) -> dict[str, float]:
    """Where something is on the screen, once two pictures of the screen in a row have it there."""
    found = one.evaluate(
        """async (one) => {
          const place = () => new Promise((done) => requestAnimationFrame(() => {
            const { x, y, width, height } = one.getBoundingClientRect();
            done({ x, y, width, height });
          }));
          let before = null, now = await place();
          while (JSON.stringify(before) !== JSON.stringify(now)) [before, now] = [now, await place()];
          return now;
        }"""
    )
    return dict(found)


def shown(page: Page) -> list[str]:
    """The keys in the gallery, in order, once they have come, and the name of the collection above them."""
    expect(page.locator("#collection")).not_to_be_empty()
    expect(page.locator(".card").first).to_be_visible()
    expect(page.locator(".results")).not_to_have_attribute("aria-busy", "true")
    return [str(key) for key in page.locator(".card").evaluate_all("cards => cards.map((one) => one.dataset.key)")]
