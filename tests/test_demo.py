"""The demo as its users meet it: a table, JSON, a picture, and one sentence when something is off."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from manifind import Manifold, demo, plots
from manifind.synthetic import Planted, planted_objects

METHODS = ["plain search", "global diffusion", "regional diffusion"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    def few() -> Planted:
        return planted_objects(200, objects=3, views=60, queries=2)

    monkeypatch.setattr(demo, "planted_objects", few)
    monkeypatch.setattr(plots, "STEP", 0.1)


def test_the_table_has_a_line_for_each_method_and_names_its_terms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.main(["--out", str(tmp_path / "new" / "folder")]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert [line[:20].strip() for line in lines if line.endswith(" ms")] == METHODS
    assert "trapezoid" in printed.out
    assert "200 images, 4,200 regions, 128 dimensions, 6 queries" in printed.out
    picture = tmp_path / "new" / "folder" / "figure1.png"
    assert lines[-1].endswith(str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert printed.err == ""


def test_json_says_the_same_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--out", str(tmp_path)]) == 0
    table = capsys.readouterr().out
    assert demo.main(["--out", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [line["method"] for line in said["methods"]] == METHODS
    assert said["average_precision"] == "trapezoid"
    assert said["picture"] == str(tmp_path / "figure1.png")
    assert said["collection"] == {"images": 200, "regions": 4200, "dimensions": 128, "queries": 6}
    for line in said["methods"]:
        figures = [line["mAP"], *line["by_size"].values()]
        (row,) = [row for row in table.splitlines() if row.startswith(line["method"])]
        assert row[20:].split()[: len(figures)] == [f"{figure:.1f}" for figure in figures]
        assert line["fit_seconds"] >= 0
        assert line["query_seconds"] > 0


def test_precision_is_counted_where_each_image_was_found() -> None:
    collection = planted_objects(100, objects=2, views=40, queries=2)
    by_size = demo.compare(collection)[2].by_size
    rankings = Manifold().fit(collection.vectors, collection.image_of).search_many(collection.queries)
    for (least, most), (kind, precision) in zip(demo.SIZES, by_size.items(), strict=True):
        assert kind == f"{least}-{most}"
        counted = []
        for ranking, positives, sizes in zip(rankings, collection.positives, collection.sizes, strict=True):
            size_of = dict(zip(positives.tolist(), sizes.tolist(), strict=True))
            found = 0
            for rank, image in enumerate(ranking.images.tolist(), start=1):
                if image in size_of:
                    found += 1
                    if least <= size_of[image] <= most:
                        counted.append(found / rank)
        assert precision == pytest.approx(100 * sum(counted) / len(counted), abs=0.01)


def test_without_matplotlib_the_table_comes_without_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ["matplotlib", "matplotlib.figure"]:
        monkeypatch.setitem(sys.modules, name, None)
    assert demo.main(["--out", str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["picture"] is None
    assert printed.err == "no picture: drawing a figure needs matplotlib; pip install 'manifind[plots]'\n"


@pytest.mark.parametrize("below", ["", "further/down"])
def test_a_file_in_place_of_the_folder_is_the_users_to_mend(
    below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("here already")
    out = tmp_path / "taken" / below
    assert demo.main(["--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"--out {out} is a file or lies below one; name a folder.\n"
    assert (tmp_path / "taken").read_text() == "here already"


def test_a_folder_in_place_of_the_picture_is_the_users_to_mend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "figure1.png").mkdir()
    assert demo.main(["--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"{tmp_path / 'figure1.png'} is a folder; move it away or name another --out.\n"


def test_a_disk_that_cannot_be_written_is_the_machines_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert demo.main(["--out", str(tmp_path / "locked")]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"{tmp_path / 'locked' / 'figure1.png'} cannot be written: Permission denied.\n"


def test_unknown_words_end_with_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        demo.main(["--colour"])
    assert stopped.value.code == 2
    assert "--colour" in capsys.readouterr().err


def test_progress_is_shown_on_a_terminal_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert demo.main(["--out", str(tmp_path)]) == 0
    assert terminal.getvalue().endswith("graph: 4,200 of 4,200 regions\n")
