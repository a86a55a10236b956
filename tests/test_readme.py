"""What the README says holds."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def readme(repository: Path) -> str:
    return (repository / "README.md").read_text()


def test_the_python_in_the_readme_works_when_pasted(readme: str, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert len([line for line in program.splitlines() if line.strip()]) <= 12
    run = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert run.stdout.strip()


def test_every_file_that_the_readme_and_the_documents_name_exists(readme: str, repository: Path) -> None:
    texts = {repository: readme} | {file.parent: file.read_text() for file in (repository / "docs").glob("*.md")}
    for folder, text in texts.items():
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            assert (folder / target).exists(), target
    for command in re.findall(r"(?:scripts|benchmarks)/[\w.]+", readme):
        assert (repository / command).exists(), command


def test_the_figures_of_the_readme_are_those_that_were_measured(readme: str, repository: Path) -> None:
    measured = json.loads((repository / "docs" / "oxford5k.json").read_text())
    figures = {row["method"]: row["Oxford5k"] for row in measured["methods"]}
    rows = re.findall(r"^\| ([^|]+?) \| \**([\d.]+)\** \| [\d.]+ \|$", readme, re.MULTILINE)
    assert len(rows) >= 4
    for method, figure in rows:
        assert f"{figures[method]:.2f}" == figure
