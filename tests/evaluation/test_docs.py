"""The ground truths in docs/evaluate.md, each run as it stands there."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.commands import run

ANGLES = {"duck": 0, "d": 5, "a": 10, "c": 21, "b": 30}
"""Of the descriptor of each photo in degrees: duck finds d, a, c, b, in this order."""

# Trapezoids by hand. Own photo and junk ignored: d, a, b. With the query's photo counted: duck, d, a, b. Without
# junk: d, a, c, b.
PASSED_OVER = (1 / 4 + (1 / 2 + 2 / 3) / 2) / 2
COUNTED = (1 + (1 / 2 + 2 / 3) / 2 + (2 / 3 + 3 / 4) / 2) / 3
WITHOUT_JUNK = (1 / 4 + (1 / 3 + 2 / 4) / 2) / 2
EASY, HARD = 1 / 4, 1 / 4
"""Of d, a with b ignored, and of d, b with a ignored."""
OTHER_GROUP = 1 / 6
"""Holidays' second query is c, and finds b, a, then its positive d."""


def listed(**renamed: str) -> dict[str, str]:
    return {name: renamed.get(name, f"{name}.jpg") for name in ANGLES}


HOLIDAYS = listed(duck="100000.jpg", a="100001.jpg", b="100002.jpg", c="100100.jpg", d="100101.jpg")
ILIAS = listed(duck="duck_000/query/Q000_00.jpg", a="duck_000/pos/P000_00.jpg", b="duck_000/pos/P000_01.jpg")
KINDS = {
    "toys.csv": (listed(), ["duck"], [PASSED_OVER]),
    "toys.json": (listed(), ["duck"], [PASSED_OVER]),
    "oxford": (listed(), ["duck"], [COUNTED]),
    "gnd_oxford.json": (listed(), ["duck"], [COUNTED]),
    "gnd_rducks.pkl": (listed(), ["duck"], [EASY, PASSED_OVER, HARD]),
    "gnd_rducks.json": (listed(), ["duck"], [EASY, PASSED_OVER, HARD]),
    "gnd_ducks.mat": (listed(), ["duck"], [PASSED_OVER]),
    "holidays_images.dat": (HOLIDAYS, ["duck", "c"], [(WITHOUT_JUNK + OTHER_GROUP) / 2]),
    "ilias_core": (ILIAS, ["duck"], [WITHOUT_JUNK]),
}


@pytest.fixture(scope="module")
def files(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that the page shows as a file, written to a folder; what Python makes is made."""
    folder = tmp_path_factory.mktemp("docs")
    text = (repository / "docs" / "evaluate.md").read_text()
    for language, name, content in re.findall(r"^```(?!sh )(\w+) (\S+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if language == "python":
            subprocess.run([sys.executable, "-c", content], cwd=folder, check=True)  # noqa: S603 (our own page)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
    return folder


def test_the_page_shows_a_file_of_every_kind(files: Path) -> None:
    assert {file.name for file in files.iterdir()} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_ground_truth_of_the_page_gives_what_it_should(files: Path, tmp_path: Path, kind: str) -> None:
    names, asked, truth = KINDS[kind]

    def rows(of: list[str]) -> np.ndarray:
        angles = np.radians([ANGLES[name] for name in of])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    np.savez(tmp_path / "vectors.npz", vectors=rows(list(names)), names=list(names.values()))
    np.save(tmp_path / "queries.npy", rows(asked))
    words = [tmp_path / "vectors.npz", "--truth", files / kind, "--queries", tmp_path / "queries.npy"]
    options = ["--method", "nearest", "--no-cache", "--json"]
    result = run("evaluate", *words, *options)
    assert result.exit_code == 0, result.output
    found = [row["mAP_trapezoid"] for row in json.loads(result.stdout)["results"]]
    np.testing.assert_allclose(found, 100 * np.array(truth), atol=1e-6)
