"""Results and regions as Parquet and COCO, joined with a catalogue."""

import csv
import io
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from manifind.errors import InvalidInputError
from manifind.index import Index
from manifind.reports import metadata
from manifind.reports.metadata import Condition, metadata_words, read_metadata
from tests.commands import refused, run
from tests.index.conftest import BOX, where

pytest.importorskip("pyarrow")
import pyarrow.parquet as pq

TABLE = """key;artist;year;note
first-1.png;Klee;1920;=1+1
first-2.png;Münter;1908-05;<b>bold</b>
second-0.png;Klee;ca. 1911;
nowhere.png;Klee;1921;lost
"""


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    file = tmp_path / "catalogue.csv"
    file.write_text(TABLE, encoding="utf-8-sig")
    return file


def test_results_are_read_back_from_parquet(index: Index, photos: Path, catalogue: Path, tmp_path: Path) -> None:
    words = ("search", index.path, photos / "first-0.png", "--box", "20,30,148,158", "--metadata", catalogue)
    printed = json.loads(run(*words, "--json", "--parquet", tmp_path / "found.parquet").stdout)["results"]
    rows = pq.read_table(tmp_path / "found.parquet").to_pylist()
    for row, one in zip(rows, printed, strict=True):
        same = (
            "rank",
            "key",
            "score",
            "is_match",
            "verified",
            "grade",
            "inliers",
            "expanded",
            "outline",
            "part",
            "duplicates",
        )
        assert {name: row[name] for name in same} == {name: one[name] for name in same}
        assert [row[name] for name in ("x0", "y0", "x1", "y1")] == (one["box"] or [None] * 4)
    by_key = {row["key"]: row["metadata"] for row in rows}
    assert by_key["first-1.png"] == {"artist": "Klee", "year": "1920", "note": "=1+1"}
    assert {one["key"]: one["metadata"] for one in printed}["first-2.png"]["artist"] == "Münter"


def test_every_region_of_an_index_is_exported(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifind.reports.results.ROWS", 50)
    assert run("export", index.path, tmp_path / "regions.parquet").exit_code == 0
    table = pq.read_table(tmp_path / "regions.parquet")
    assert np.array_equal(np.stack(table["vector"].to_pylist()).astype(np.float32), index.manifold.vectors_[:])
    assert np.array_equal(np.stack([table[name] for name in ("x0", "y0", "x1", "y1")], axis=1), index.boxes)
    keys = [index.catalogue.images[image].key for image in index.manifold.layout_.image_of]
    assert table["key"].to_pylist() == keys
    assert run("export", index.path, tmp_path / "boxes.parquet", "--no-vectors").exit_code == 0
    assert "vector" not in pq.read_schema(tmp_path / "boxes.parquet").names


def test_the_boxes_of_coco_are_those_of_the_matches(index: Index, photos: Path, tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    assert run("search", index.path, photos / "first-0.png", "--box", "20,30,148,158", "--coco", file).exit_code == 0
    found = json.loads(file.read_text())
    images = {one["id"]: one for one in found["images"]}
    assert {one["file_name"] for one in found["images"]} == {f"first-{i}.png" for i in range(4)}
    for one in found["annotations"]:
        image = images[one["image_id"]]
        true = where(int(image["file_name"][6]))
        x, y, width, height = one["bbox"]
        assert np.allclose((x, y, x + width, y + height), true, atol=4), image["file_name"]
        assert (image["width"], image["height"]) == (320, 240)
        assert abs(one["area"] - 128 * 128) < 800
        assert all(0 <= value <= 320 for polygon in one["segmentation"] for value in polygon)


def test_a_search_is_among_the_photos_whose_columns_say_so(index: Index, photos: Path, catalogue: Path) -> None:
    words = ("search", index.path, photos / "first-0.png", "--box", "20,30,148,158", "--metadata", catalogue, "--csv")

    def keys(*conditions: str) -> list[str]:
        told = run(*words, *(word for one in conditions for word in ("--where", one)))
        rows = list(csv.DictReader(io.StringIO(told.stdout)))
        assert all(row["artist"] for row in rows)
        return [row["key"] for row in rows]

    assert keys("artist=klee")[0] == "first-1.png"
    assert set(keys("year=1900..1910")) == {"first-2.png"}
    assert set(keys("Year=1915..", "artist=Klee")) == {"first-1.png"}
    assert keys("artist=Nobody") == []
    table = run(*words[:-1], "--where", "artist=Klee").stdout
    assert "artist: Klee; year: 1920; note: =1+1" in table
    assert "'=1+1" in run(*words, "--where", "artist=Klee").stdout
    assert "no column 'painter'" in refused(*words, "--where", "painter=Klee")
    catalogue.write_text("key,ti\x1b]0;owned\x07tle,\u202eeltit\n")
    told = refused(*words, "--where", "painter=Klee")
    assert "it has ti\\u001b]0;owned\\u0007tle, \\u202eeltit" in told, "a catalogue steers no terminal by an error"
    assert "give --metadata too" in refused("search", index.path, photos / "first-0.png", "--where", "a=b")
    assert "takes no --metadata" in refused("search", index.path, "--queries", catalogue, "--metadata", catalogue)


def test_keys_limit_a_search_in_python(index: Index, query: np.ndarray) -> None:
    found = index.search(query, BOX, keys=["first-3.png", "second-1.png", "nowhere.png"])
    assert found[0].key == "first-3.png"
    assert {hit.key for hit in found} <= {"first-3.png", "second-1.png"}
    with pytest.raises(InvalidInputError, match="give a list"):
        index.search(query, BOX, keys="first-3.png")


def test_a_page_shows_what_the_catalogue_says_as_text(
    index: Index, photos: Path, catalogue: Path, tmp_path: Path
) -> None:
    page = tmp_path / "found.html"
    run("search", index.path, photos / "first-0.png", "--metadata", catalogue, "--html", page)
    assert "artist: Münter; year: 1908-05; note: &lt;b&gt;bold&lt;/b&gt;" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("a=1.0", "1", True),
        ("a=x", "X", True),
        ("a=", "", True),
        ("a=1..2", "2.0", True),
        ("a=1..2", "2.1", False),
        ("a=..10", "9", True),
        ("a=-5..5", "-3", True),
        ("a=1900..", "ca. 1910", False),
        ("a=1900..1905", "1905-12-31", True),
        ("a=1905-02..1905-03", "1905-03-30", True),
        ("a=1905-02..1905-03", "1905-04-01", False),
        ("a=b..d", "cat", True),
        ("a=1..", "", False),
        ("a=1..", "nan", False),
    ],
)
def test_conditions(condition: str, value: str, holds: bool) -> None:
    assert Condition.of(condition).holds(value) is holds


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"name,artist\na,b\n",
        b"key,a,A\nx,1,2\n",
        b"key,a\nx,1\nx,2\n",
        b"\xff\xfek\0e\0y\0",
        b"key," + b"a" * 200_000 + b"\n",
        b"key," + b",".join(b"%d" % i for i in range(200)) + b"\n",
        b'key,a\nx,"' + b"b" * 200_000,
    ],
)
def test_a_catalogue_that_is_none_is_one_sentence(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "catalogue.csv"
    file.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"catalogue\.csv"):
        read_metadata(file)


@pytest.mark.parametrize(
    "content",
    [
        b"key,a\n" + b"," * 8_000_000,
        b"," * 8_000_000,
        b"key,a\n" + b'"\n",' * 2_000_000,
        b"key\n" + b"".join(b"%d\n" % i for i in range(100_000)),
    ],
    ids=["cells", "columns", "cells of two lines", "rows"],
)
def test_a_catalogue_takes_no_more_memory_than_its_file(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty cell is a byte in the file and eight in a list."""
    file = tmp_path / "catalogue.csv"
    file.write_bytes(content)
    monkeypatch.setattr(metadata, "MAX_ROWS", 1000)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError, match=r"catalogue\.csv"):
            read_metadata(file)
        assert tracemalloc.get_traced_memory()[1] < len(content)
    finally:
        tracemalloc.stop()


def test_cells_of_a_catalogue_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "catalogue.csv"
    file.write_text("key,a,b\n1\n2\n3\n")
    assert len(read_metadata(file).rows) == 3
    monkeypatch.setattr(metadata, "MAX_CELLS", 5)
    with pytest.raises(InvalidInputError, match="more than 2 photos with 2 columns"):
        read_metadata(file)


def test_values_of_a_catalogue_are_one_short_line() -> None:
    assert metadata_words({"a": "b\nc\x1b[2J", "long": "x" * 100}).count("\n") == 0
    assert len(metadata_words({"long": "x" * 100})) < 60


def test_a_notebook_shows_the_first_photos(index: Index, query: np.ndarray) -> None:
    result = index.search(query, BOX)
    shown = result._repr_html_()
    assert shown.count("data:image/jpeg;base64,") == min(12, len(result))
    assert "first-0.png" in shown
    assert "<polygon" in shown
    assert "<script" not in shown
