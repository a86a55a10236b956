"""The benchmarks run, in their shortest form; no time is asserted."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tools import tables

import figures
from manifind import Index
from manifind.demo.scenes import make_scenes
from tests.extraction_options import PLAINLY
from tests.index.conftest import scene


def printed(repository: Path, *command: str) -> Any:
    run = subprocess.run(  # noqa: S603
        [sys.executable, *command, "--json"], cwd=repository, check=True, capture_output=True, text=True
    )
    return json.loads(run.stdout)


def stored(name: str) -> list[list[str]]:
    """The table of the documentation."""
    return tables.stored()[name]


def test_every_table_of_a_benchmark_has_a_command_and_every_command_its_table(repository: Path) -> None:
    assert set(figures.FIGURES) >= set(tables.stored())
    for figure in figures.FIGURES.values():
        assert (repository / figure.command.split()[0]).is_file()
        assert set(figure.needs) <= set(figures.DATA)
    assert set(figures.MANIFIND) == set(tables.TABLES)


def test_every_benchmark_says_its_data_and_is_run_by_a_command_of_the_documentation(repository: Path) -> None:
    pages = "".join(page.read_text() for page in (repository / "docs").glob("*.md"))
    for file in sorted((repository / "benchmarks").glob("*.py")):
        doc = ast.get_docstring(ast.parse(file.read_text()))
        assert doc is not None, file
        if file.name not in ("harness.py", "figures.py"):
            assert "\nData: " in doc, file
            assert file.name in pages or file.name in ("gpu_photos.py",), f"no page has a figure of {file.name}"


def test_a_table_that_cannot_be_made_is_named_with_what_it_wants(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["figures", "gpu"])
    assert figures.main() == 0
    assert capsys.readouterr().out == "gpu: not made, for want of an NVIDIA GPU\n"


def test_cost(repository: Path) -> None:
    result = printed(
        repository, "benchmarks/cost.py", "--rows", "3000", "--k", "10", "--query-k", "10", "--repeats", "1"
    )
    assert result["n"] == 3000
    assert set(result["costs"]) == {"graph", "memory", "query", "batch"}
    assert all(cost["ratio"] > 0 for cost in result["costs"].values())
    cells = figures.costs(result)
    assert [[row[0], row[2]] for row in cells] == [[row[0], row[2]] for row in stored("cost")]


def test_mirrored(repository: Path) -> None:
    result = printed(repository, "benchmarks/feedback.py", "--part", "mirrored", "--photos", "12", "--every", "24")
    assert [(row["query"], row["searched"]) for row in result["rows"]] == [
        ("as it is", "one way"),
        ("as it is", "both ways"),
        ("mirrored", "one way"),
        ("mirrored", "both ways"),
    ]
    assert result["rows"][3]["right"] >= result["rows"][2]["right"]
    cells = figures.mirrored(result)
    assert [row[:2] for row in cells] == [row[:2] for row in stored("mirrored")]
    assert cells[0] == stored("mirrored")[0]


def test_repeats(repository: Path, tmp_path: Path) -> None:
    made = make_scenes(tmp_path / "scenes", scenes=24)
    Index.create(tmp_path / "scenes.manifind", made.folder, **PLAINLY, k=10, query_k=10)
    result = printed(repository, "benchmarks/repeats.py", "--scenes", str(tmp_path))
    row = result["rows"][0]
    assert row["collection"] == "scenes (chosen on)"
    assert row["of the truth"] <= row["groups"]
    assert figures.repeated(result)[0] == stored("repeats")[0]


def test_proposals(repository: Path) -> None:
    result = printed(repository, "benchmarks/proposals.py", "--scenes", "6")
    assert [row["points"] for row in result["rows"]] == ["all", "middle", "elsewhere"]
    assert [row["n"] for row in result["rows"]] == [3 * result["photos"], result["photos"], 2 * result["photos"]]
    assert all(row["of_three"] >= row["first"] > 0.2 for row in result["rows"])


def test_updates(repository: Path) -> None:
    result = printed(repository, "benchmarks/updates.py", "--photos", "120", "--k", "10", "--share", "0.05")
    assert result["photos"] == 120
    assert result["same_neighbours"] == {"add": pytest.approx(1, abs=1e-3), "remove": pytest.approx(1, abs=1e-3)}


@pytest.mark.parametrize("stage", ["graph", "affinity", "query", "neighbours", "truncation", "solvers", "paper"])
def test_speed(repository: Path, stage: str) -> None:
    small = ("--rows", "3000", "--k", "10", "--query-k", "10", "--repeats", "1", "--threads", "1")
    result = printed(repository, "benchmarks/speed.py", stage, *small)
    assert result["limits"]["sgemm_gflops"] > 0
    assert len(result["rows"]) > 1
    assert all(row["ratio"] > 0 for row in result["rows"] if "ratio" in row)
    assert all(row["recall"] > 0.95 for row in result["rows"] if "recall" in row)
    made = figures.FIGURES.get("paper-times" if stage == "paper" else stage)
    if made is not None and made.cells is not None:
        cells = made.cells(result)
        assert cells[0] == stored("paper-times" if stage == "paper" else stage)[0]
        assert len(cells) == 1 + len(result["rows"])


def test_growth(repository: Path, tmp_path: Path) -> None:
    small = ("--k", "10", "--query-k", "10", "--repeats", "1", "--threads", "1")
    curve = printed(repository, "benchmarks/growth.py", "--most", "3000", "--plot", str(tmp_path / "plot.png"), *small)
    assert [row["n"] for row in curve["rows"]] == [3000]
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    memory = printed(repository, "benchmarks/growth.py", "--memory", "--most", "20000", "--scratch", "1000000", *small)
    (row,) = memory["rows"]
    assert row["rows done"] >= 3 * 4096
    assert row["held MB"] < row["vectors, in a file MB"] + 3 * row["lists MB"]


def test_scale(repository: Path) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    small = ("--shortlist", "60", "--d", "32", "--k", "10", "--queries", "1")
    counted = printed(repository, "benchmarks/scale.py", "photos", *small)
    assert [line["photos"] for line in counted["off_line"]] == [10**6, 10**7, 10**8]
    assert all(value > 0 for line in counted["off_line"] for value in line.values())
    told = printed(repository, "benchmarks/scale.py", "workers", "--rows", "8000", "--k", "10", "--repeats", "1")
    assert told["n"] == 8000
    assert told["same"]


def test_serve(repository: Path) -> None:
    words = ["--rows", "3000", "--k", "10", "--seconds", "0.5", "--clients", "1", "8", "--overload", "300"]
    result = printed(repository, "benchmarks/serve.py", *words)
    assert set(result["clients"]) == {"1", "8"}
    assert all(set(one["statuses"]) == {"200"} for one in result["clients"].values())
    assert set(result["overload"]["statuses"]) <= {"200", "503"}
    assert result["batching_gain"] > 0
    cells = figures.clients(result)
    assert cells[0] == stored("clients")[0]
    assert [row[0] for row in cells[1:]] == ["1", "8", "8, batches of one"]


def test_descriptors(repository: Path, tmp_path: Path) -> None:
    for group in range(3):
        for view in range(2):
            Image.fromarray(scene(10 * group + view, 1 + group % 2)).save(tmp_path / f"{group:04}{view}.png")
    (line,) = printed(
        repository,
        *("benchmarks/descriptors.py", "--photos", str(tmp_path), "--sizes", "6", "--k", "20", "--alpha", "0.9"),
    )
    assert line["photos"] == 6
    assert set(line) == {"photos", "share", "plain", "R-match", "k 20, alpha 0.9"}
    assert all(0 <= line[name] <= 100 for name in ("plain", "R-match", "k 20, alpha 0.9"))


def test_geometry(repository: Path) -> None:
    result = printed(repository, "benchmarks/geometry.py", "--scenes", "8", "--kinds", "sift", "--every", "6")
    assert result["sift"]["scenes"]["verified"]["6"]["precision"] > 0.8
    assert result["sift"]["answers"]["verified"]["overlap"] > 0.3


def test_verification(repository: Path, tmp_path: Path) -> None:
    """Two of three photos show the same roof, and the first of these is the query."""
    (tmp_path / "photos").mkdir()
    for i, number in enumerate((1, 1, None)):
        Image.fromarray(scene(i, number)).save(tmp_path / "photos" / f"{i}.png")
    Index.create(tmp_path / "index.manifind", tmp_path / "photos", **PLAINLY, k=5, query_k=5)
    query = {"name": "roof", "image": "0.png", "box": [40, 60, 168, 188], "positives": ["1.png"]}
    (tmp_path / "truth.json").write_text(json.dumps({"name": "roofs", "queries": [query]}))
    words = ("--truth", str(tmp_path / "truth.json"), "--repeats", "1")
    result = printed(repository, "benchmarks/verification.py", str(tmp_path / "index.manifind"), *words)
    assert result["queries"] == 1
    assert result["manifind"]["verified"] == 2
    assert result["manifind"]["ms_of_the_processor"] > 0
    assert result["voting"]["ratio"] > 0

    result = printed(repository, "benchmarks/latency.py", str(tmp_path / "index.manifind"), "--queries", "2")
    for name in ("manifind", "faiss + SciPy + OpenCV"):
        times = [row["wall ms"] for row in result["rows"] if row["what"] == name]
        assert len(times) == 3
        assert 0 < times[0] < times[1] <= times[2]


def test_clutter(repository: Path, tmp_path: Path) -> None:
    """Striped discs before white are cut out and laid on grey: boxes are round what is coloured."""
    for name in ("things", "behind", "made"):
        (tmp_path / name).mkdir()
    across, down = np.meshgrid(np.arange(200), np.arange(200))
    disc = (across - 100) ** 2 + (down - 100) ** 2 < 80**2
    for i in range(12):
        thing = np.full((200, 200, 3), 255, np.uint8)
        thing[disc] = np.where((across // (4 + i) % 2 == 0)[disc][:, None], (230, 60, 60), (20, 20, 90))
        Image.fromarray(thing).save(tmp_path / "things" / f"{i}.png")
    Image.new("RGB", (700, 700), (128, 128, 128)).save(tmp_path / "behind" / "grey.png")
    words = ("--things", str(tmp_path / "things"), "--behind", str(tmp_path / "behind"))
    run = [sys.executable, "benchmarks/clutter.py", str(tmp_path / "made"), *words, "--objects", "2", "--photos", "8"]
    subprocess.run(run, cwd=repository, check=True)  # noqa: S603
    truth = json.loads((tmp_path / "made" / "truth.json").read_text())
    assert [len(query["positives"]) for query in truth["queries"]] == [2, 2]
    for query in truth["queries"]:
        seen = np.asarray(Image.open(tmp_path / "made" / "queries" / query["image"]), int)
        rows, columns = np.nonzero(np.ptp(seen, axis=2) > 40)
        box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        np.testing.assert_allclose(query["box"], box, atol=4)
        assert all(one["photo"] in ([640, 480], [480, 640]) for one in query["positives"])
