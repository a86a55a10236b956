"""The drawing of the rooms is that of the imports as they are."""

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tools import figures, rooms


def test_the_drawing_is_current(repository: Path) -> None:
    assert (repository / "docs" / "rooms.svg").read_text() == rooms.drawing(), "run scripts/rooms"


def test_the_imports_are_those_that_python_makes() -> None:
    """Against another reader of imports, import-linter's."""
    import grimp

    graph = grimp.build_graph("manifind", exclude_type_checking_imports=False)
    found: dict[str, set[str]] = {}
    for module in graph.modules:
        parts = module.split(".")
        for target in graph.find_modules_directly_imported_by(module):
            others = target.split(".")
            if len(parts) > 1 and len(others) > 1 and parts[1] != others[1]:
                found.setdefault(parts[1], set()).add(others[1])
    ours = {room: others for room, others in rooms.imports().items() if others}
    for room in set(found) | set(ours):
        # What `manifind` itself hands on, grimp counts as an import of the package.
        assert found.get(room, set()) <= ours.get(room, set()), room


def test_every_room_is_drawn_and_told_of(repository: Path) -> None:
    drawn = ET.parse(repository / "docs" / "rooms.svg")  # noqa: S314 (our own)
    names = {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    page = (repository / "docs" / "rooms.md").read_text()
    for room in rooms.imports():
        assert room in names
        assert f"`{room}`" in page


def test_an_arrow_that_a_longer_way_repeats_is_a_short_cut() -> None:
    assert rooms.short_cuts({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {("a", "c")}
    assert rooms.short_cuts({"a": {"b", "c"}, "b": set(), "c": set()}) == set()


def test_the_figures_of_the_mechanism_are_drawn_by_it(tmp_path: Path, repository: Path) -> None:
    pytest.importorskip("matplotlib")
    by_iteration, by_gradient = figures.errors()
    assert by_gradient[19] < by_iteration[-1] / 5
    figures.draw_graph(tmp_path)
    figures.draw_kernel(tmp_path)
    drawn = {file.name for file in (repository / "docs" / "figures").iterdir()}
    assert {file.name for file in tmp_path.iterdir()} <= drawn
    assert "matplotlib" in sys.modules
