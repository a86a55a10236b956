"""The graph of packages is current, and the page names every package."""

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tools import figures, package_graph


def test_the_drawing_is_current(repository: Path) -> None:
    assert (repository / "docs" / "packages.svg").read_text() == package_graph.drawing(), "run scripts/package-graph"


def test_every_package_is_drawn_and_described(repository: Path) -> None:
    drawn = ET.parse(repository / "docs" / "packages.svg")  # noqa: S314 (our own)
    names = {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    page = (repository / "docs" / "packages.md").read_text()
    for package in package_graph.imports():
        assert package in names
        assert f"`{package}`" in page


def test_an_import_that_a_longer_path_repeats_is_transitive() -> None:
    assert package_graph.transitive_imports({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {("a", "c")}
    assert package_graph.transitive_imports({"a": {"b", "c"}, "b": set(), "c": set()}) == set()


def test_the_figures_of_the_mechanism_are_drawn_by_it(tmp_path: Path, repository: Path) -> None:
    pytest.importorskip("matplotlib")
    by_iteration, by_gradient = figures.errors()
    assert by_gradient[19] < by_iteration[-1] / 5
    figures.draw_graph(tmp_path)
    figures.draw_kernel(tmp_path)
    drawn = {file.name for file in (repository / "docs" / "figures").iterdir()}
    assert {file.name for file in tmp_path.iterdir()} <= drawn
    assert "matplotlib" in sys.modules
