"""What the README says holds; its blocks of code are run by tests/docs."""

import json
import re
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def readme(repository: Path) -> str:
    return (repository / "README.md").read_text()


def test_every_file_that_the_readme_and_the_documents_name_exists(readme: str, repository: Path) -> None:
    documents = [repository / "README.md", *(repository / "docs").rglob("*.md")]
    assert len(documents) > 3
    for document in documents:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), target
    for command in re.findall(r"(?:scripts|benchmarks)/[\w.]+", readme):
        assert (repository / command).exists(), command


def test_the_figures_of_the_readme_are_those_that_were_measured(readme: str, repository: Path) -> None:
    measured = json.loads((repository / "docs" / "oxford5k" / "results.json").read_text())
    figures = {row["title"]: row["mAP_trapezoid"] for row in measured["results"] if row["column"] == "Oxford5k"}
    rows = re.findall(r"^\| ([^|]+?) \| \**([\d.]+)\** \| [\d.]+ \|$", readme, re.MULTILINE)
    assert len(rows) >= 4
    for method, figure in rows:
        assert f"{figures[method]:.2f}" == figure


def test_the_table_of_methods_is_the_one_that_was_measured(repository: Path) -> None:
    measured = json.loads((repository / "docs" / "oxford5k" / "results.json").read_text())
    columns = list(dict.fromkeys(row["column"] for row in measured["results"]))
    figures = {(row["title"], row["column"]): f"{row['mAP_trapezoid']:.2f}" for row in measured["results"]}
    rows = re.findall(
        r"^\| ([A-Zkα][^|]+?) ((?:\| [\d.]+ ){4})\|$", (repository / "docs" / "oxford5k.md").read_text(), re.M
    )
    assert len(rows) > 10
    for title, cells in rows:
        assert cells.strip("| ").split(" | ") == [figures[title, column] for column in columns]
