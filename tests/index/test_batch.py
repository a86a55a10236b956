"""Many queries at once: the same answers as one by one, in one table and on one page."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

from manifind.errors import InvalidInputError
from manifind.index import BatchQuery, Index
from manifind.index.search.batch import read_queries
from tests.commands import run

BOX = (20, 30, 148, 158)


@pytest.fixture
def listed(photos: Path, tmp_path: Path) -> Path:
    """A list in a spreadsheet's hand: a photo by key, one by path, two views of one name, and one that is no photo."""
    file = tmp_path / "boxes.csv"
    (tmp_path / "beside.png").write_bytes((photos / "second-1.png").read_bytes())
    lines = [
        "photo,box,name",
        'first-0.png,"20,30,148,158",roof',
        "beside.png,,flower",
        "second-2.png,,flower",
        "beside.txt,,=bad",
    ]
    (tmp_path / "beside.txt").write_text("no photo")
    file.write_text("\ufeff" + "\r\n".join(lines) + "\r\n", encoding="utf-8")
    return file


def test_a_batch_answers_as_single_searches_do(index: Index, photos: Path) -> None:
    queries = [
        BatchQuery("roof", [("first-0.png", BOX)]),
        BatchQuery("both", [("second-1.png", None), ("second-2.png", None)]),
        BatchQuery("lost", [("nowhere.png", None)]),
    ]
    told: list[tuple[str, int, int]] = []
    roof, both, lost = index.search_many(queries, top=5, progress=lambda *one: told.append(one))
    alone = index.search("first-0.png", BOX, top=5)
    together = index.search("second-1.png", positives=[("second-2.png", None)], top=5)
    for of_batch, single in ((roof, alone), (both, together)):
        assert of_batch.result is not None
        assert [hit.key for hit in of_batch.result] == [hit.key for hit in single.nonzero()]
        assert of_batch.result.scores == pytest.approx(single.nonzero().scores, rel=1e-3)
        assert of_batch.result.n_matches == single.nonzero().n_matches
    assert lost.result is None
    assert "neither a file nor a key" in str(lost.error)
    assert ("queries", 3, 3) in told


def test_the_command_reads_a_list_and_prints_json_csv_and_a_page(index: Index, listed: Path, tmp_path: Path) -> None:
    done = run("search", index.path, "--queries", listed, "--html", tmp_path / "page.html", "--top", 5)
    assert done.exit_code == 1  # a script must not take it for done
    assert re.search(r"^=bad: .*beside\.txt", done.stderr, re.MULTILINE)  # which, and why
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["query", "roof", "flower", "=bad"]
    assert "1 of 3 queries could not be answered" in done.stderr
    page = (tmp_path / "page.html").read_text()
    assert page.count("<h2>") == 1 + 3  # all in short, then each
    for number in (1, 2, 3):
        assert page.count(f'href="#query-{number}"') == page.count(f'id="query-{number}"') == 1
    assert page.count('class="query"') == 3  # views
    told = json.loads(run("search", index.path, "--queries", listed, "--json", "--top", 5).stdout)["queries"]
    assert [one["name"] for one in told] == ["roof", "flower", "=bad"]
    assert "not a photo" in told[2]["error"]
    rows = list(csv.DictReader(io.StringIO(run("search", index.path, "--queries", listed, "--csv", "--top", 5).stdout)))
    assert {row["query"] for row in rows} == {"roof", "flower"}
    assert [row["key"] for row in rows if row["query"] == "roof"] == [one["key"] for one in told[0]["results"]]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no column named photo"),
        ("picture,box\na.png,\n", "no column named photo"),
        ("photo,box\n,1\n", "line 2 .* names no photo"),
        ('photo,box\na.png,"1,2,3"\n', "line 2 .* four numbers"),
        ("photo,x0,y0,x1,y1\na.png,1,2,three,4\n", "line 2 .* four numbers"),
    ],
)
def test_a_list_that_cannot_be_read_is_told_by_its_line(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InvalidInputError, match=what):
        read_queries(tmp_path / "a.csv", lambda _: True)


def test_corners_may_stand_in_columns_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("photo,x0,y0,x1,y1\na.png,1,2,3,4\nb.png,,,,\n")
    first, second = read_queries(tmp_path / "a.csv", lambda photo: photo == "a.png")
    assert list(first.views) == [("a.png", (1, 2, 3, 4))]
    assert list(second.views) == [(str(tmp_path / "b.png"), None)]


def test_a_photo_or_a_list_not_both_and_not_neither(index: Index, listed: Path) -> None:
    for words in ((), ("first-0.png", "--queries", listed), ("--queries", listed, "--box", "1,2,3,4")):
        assert run("search", index.path, *words).exit_code == 2


def test_a_name_that_no_file_could_have_costs_its_own_query_alone(index: Index, tmp_path: Path) -> None:
    file = tmp_path / "odd.csv"
    file.write_text("photo,box,name\n" + "x" * 5000 + ",,long\nfirst-0.png,,short\n", encoding="utf-8")
    done = run("search", index.path, "--queries", file, "--json")
    assert done.exit_code == 1
    long, short = json.loads(done.stdout)["queries"]
    assert short["results"]
    assert not long.get("results")
