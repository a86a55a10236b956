"""The site that scripts/docs builds: without a warning, whole, and nothing in it is loaded from elsewhere."""

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

LOADED = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "image": ("href", "xlink:href"),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
"""What a browser fetches by itself."""


class Reader(HTMLParser):
    """What a page loads, where it leads, and the places in it that others may lead to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name in LOADED.get(tag, ()):
                self.loads.append(value)
            elif tag == "a" and name == "href":
                self.leads.append(value)
            if name == "id":
                self.places.add(value)
            if name == "style":
                self.loads += re.findall(r"url\(([^)]*)\)", value)


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as scripts/docs builds it."""
    folder = tmp_path_factory.mktemp("site")
    words = (repository / "scripts" / "docs").read_text()
    options = re.search(r"-m sphinx (.*) \"\$@\" docs out/docs", words)
    assert options is not None
    program = [sys.executable, "-m", "sphinx", *options[1].split(), str(repository / "docs"), str(folder / "html")]
    built = subprocess.run(program, capture_output=True, text=True, check=False, cwd=repository)  # noqa: S603
    assert built.returncode == 0, built.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Reader]:
    return {page: Reader(page) for page in site.rglob("*.html")}


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Reader]) -> None:
    assert len(pages) > 30
    for page, reader in pages.items():
        assert reader.loads
        for target in reader.loads:
            assert not re.match(r"(?:\w+:)?//", target), f"{page.name} loads {target}"
            if not target.startswith("data:"):
                assert (page.parent / unquote(urlsplit(target).path)).exists(), f"{page.name} loads {target}"
    for style in site.rglob("*.css"):
        for target in re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", style.read_text(encoding="utf-8")):
            assert not re.match(r"(?:\w+:)?//", target), f"{style.name} loads {target}"


def test_no_script_asks_another_machine(site: Path) -> None:
    for script in site.rglob("*.js"):
        if script.name == "searchindex.js":
            continue
        text = script.read_text(encoding="utf-8")
        for call in re.findall(r"(?:fetch|import|importScripts|open)\(\s*[\"'](?:\w+:)?//[^\"']*", text):
            raise AssertionError(f"{script.name}: {call}")


def test_every_link_leads_to_a_page_and_a_place_that_are_there(pages: dict[Path, Reader]) -> None:
    for page, target, place in links(pages):
        assert target in pages or target.exists(), f"{page.name} leads to {target}"
        if place and target in pages:
            assert place in pages[target].places, f"{page.name} leads to {target.name}#{place}"


def test_formulas_are_drawn_by_the_browser_itself(site: Path) -> None:
    page = (site / "mechanism.html").read_text()
    assert page.count("<math") >= 7
    assert "MathJax" not in page


def test_every_public_name_is_in_the_reference(pages: dict[Path, Reader], site: Path) -> None:
    import manifind

    places = {
        place.rpartition(".")[2]
        for page, reader in pages.items()
        if page.parent.name == "api"
        for place in reader.places
    }
    assert set(manifind.__all__) - {"__version__"} <= places


def test_every_page_is_in_the_list_of_pages(site: Path, repository: Path) -> None:
    front = Reader(site / "index.html")
    listed = {unquote(urlsplit(target).path) for target in front.leads}
    for page in (repository / "docs").rglob("*.md"):
        name = page.relative_to(repository / "docs").with_suffix(".html").as_posix()
        assert name in listed or name == "index.html" or name.startswith("api/"), name


def links(pages: dict[Path, Reader]) -> Iterator[tuple[Path, Path, str]]:
    for page, reader in pages.items():
        for lead in reader.leads:
            parts = urlsplit(lead)
            if not parts.scheme and not parts.netloc:
                target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
                yield page, target, unquote(parts.fragment)
