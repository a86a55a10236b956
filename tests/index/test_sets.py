"""Sets of found photos: kept, judged, exported, told what is new, and whole whatever happens to their writer."""

import csv
import io
import json
import os
import shutil
import sqlite3
import threading
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from manifind.errors import DamagedError, InvalidInputError
from manifind.index import Index, PhotoSets
from manifind.reports.results import set_csv, xmp
from tests.commands import refused, run
from tests.faults import FAULTS, struck
from tests.index.small import save_photo, small_index


@pytest.fixture
def made(tmp_path: Path) -> Index:
    return small_index(tmp_path, 10, alpha=0.9)


def told(index: Index, name: str) -> dict[str, str]:
    return {photo.key: photo.verdict for photo in index.sets[name].members}


def test_photos_are_added_judged_and_taken_out(made: Index) -> None:
    made.sets.add("object 1923.4", ["1.png", ("6.png", (1, 2, 30, 40))])
    made.sets.add("object 1923.4", ["6.png"], verdict="no")
    made.sets.add("object 1923.4", ["8.png"], verdict="unsure")
    assert told(made, "object 1923.4") == {"1.png": "yes", "6.png": "no", "8.png": "unsure"}
    assert made.sets["object 1923.4"].members[1].box == (1, 2, 30, 40)  # the verdict changed, not the box
    made.sets.discard("object 1923.4", ["1.png"])
    made.sets.rename("object 1923.4", "1923.5")
    assert made.sets.names() == ["1923.5"]
    assert told(Index.open(made.path), "1923.5") == {"6.png": "no", "8.png": "unsure"}
    made.sets.delete("1923.5")
    assert list(made.sets) == []


def test_hits_of_a_result_are_added_with_their_boxes(made: Index) -> None:
    result = made.search("1.png", top=3)
    kept = made.sets.add("some", result)
    assert [(photo.key, photo.box) for photo in kept.members] == [(hit.key, hit.box) for hit in result]


def test_a_photo_stays_in_its_set_when_it_is_renamed_and_is_said_to_be_gone(made: Index) -> None:
    made.sets.add("some", ["1.png", "2.png"])
    (made.root / "1.png").rename(made.root / "z.png")
    (made.root / "2.png").unlink()
    made.sync()
    assert [(photo.key, photo.there) for photo in made.sets["some"].members] == [("z.png", True), ("2.png", False)]
    made.sets.discard("some", ["2.png"])
    assert [photo.key for photo in made.sets["some"].members] == ["z.png"]


def test_a_kept_search_tells_what_is_new_after_a_re_index(made: Index) -> None:
    def matches() -> list[str]:
        found = made.search("1.png", top=None)
        return [hit.key for hit in found[: found.n_matches]]

    before = matches()
    made.sets.save_search("left half", [("1.png", None)])
    assert made.sets.new_matches("left half") == []
    save_photo(made.root / "new.png", 51)  # has its left half in common with 1 and 6
    made.sync()
    new = [key for key in matches() if key not in before]
    assert "new.png" in new  # or else there is no news
    assert [hit.key for hit in made.sets.new_matches("left half")] == new
    assert [hit.key for hit in made.sets.new_matches("left half", remember=True)] == new
    assert made.sets.new_matches("left half") == []


def test_a_change_that_cannot_be_made_has_a_code_and_changes_nothing(made: Index) -> None:
    made.sets.add("there", ["1.png"])
    made.sets.add("other", ["1.png"])
    changes: list[tuple[Callable[[PhotoSets], object], str]] = [
        (lambda sets: sets.add("a", ["none.png"]), "unknown-key"),
        (lambda sets: sets.add(" ", ["1.png"]), "set-name"),
        (lambda sets: sets.add("a\u202eb", ["1.png"]), "set-name"),
        (lambda sets: sets["a\udcff"], "set-name"),
        (lambda sets: sets.add("a", ["1.png"], verdict="perhaps"), "invalid-input"),
        (lambda sets: sets.add("a", [("1.png", (1, 2, 3, float("nan")))]), "box-numbers"),
        (lambda sets: sets["none"], "unknown-set"),
        (lambda sets: sets.delete("none"), "unknown-set"),
        (lambda sets: sets.discard("there", ["5.png"]), "unknown-key"),
        (lambda sets: sets.new_matches("there"), "no-search"),
        (lambda sets: sets.rename("there", "other"), "set-exists"),
        (lambda sets: sets.save_search("there", [("a\udcff.png", None)], seen=[]), "unstorable-search"),
    ]
    for change, code in changes:
        with pytest.raises(InvalidInputError) as error:
            change(made.sets)
        assert error.value.code == code
    assert made.sets.names() == ["other", "there"]
    assert made.sets.get("a\udcff") is None


HOSTILE_VALUES: dict[str, list[str]] = {
    "sets.name": ["x'00'", "NULL", "''", "CAST(x'ff' AS TEXT)", "char(8238)", "hex(zeroblob(200))"],
    "sets.made": ["x'00'", "hex(zeroblob(100000))"],
    "sets.search": [
        "x'00'",
        "'[]'",
        "'{'",
        "'{}'",
        "replace(hex(zeroblob(20000)), '0', '[')",
        "json_remove(search, '$.method')",
        "json_set(search, '$.views', json('[]'))",
        "json_set(search, '$.views', 'ab')",
        "json_set(search, '$.views[0]', json('[1, null]'))",
        "json_set(search, '$.views[0]', json('[\"a\", [1, 2, 3]]'))",
        "json_set(search, '$.views[0]', json('[\"a\", \"1,2,3,4\"]'))",
        "replace(search, '1.png', char(92) || 'ud800')",
        "json_set(search, '$.negatives', json('[[[]]]'))",
        "json_set(search, '$.method', 'none')",
        "json_set(search, '$.method', json('{}'))",
        "json_set(search, '$.more', 1)",
    ],
    "members.name": ["x'00'"],
    "members.sha256": ["x'00'", "CAST(x'ff' AS TEXT)"],
    "members.key": ["x'00'", "CAST(x'ff' AS TEXT)", "hex(zeroblob(100000))"],
    "members.box": ["x'00'", "'1'", "'[1, 2]'", "'[1, 2, 3, 1e999]'", "'[1, 2, 3, 1' || hex(zeroblob(3000)) || ']'"],
    "members.verdict": ["x'00'", "'perhaps'"],
    "members.added": ["x'00'"],
    "seen.sha256": ["x'00'"],
}


def test_a_row_that_anybody_wrote_is_checked_before_it_is_used(made: Index) -> None:
    made.sets.add("a", [("1.png", (1, 2, 3, 4))])
    made.sets.save_search("a", [("1.png", None)], seen=["1.png"])
    file = made.path / "sets.sqlite"
    whole = file.read_bytes()
    for place, values in HOSTILE_VALUES.items():
        table, column = place.split(".")
        for value in values:
            file.write_bytes(whole)
            with closing(sqlite3.connect(file)) as database:
                database.execute(f"UPDATE {table} SET {column} = {value}")  # noqa: S608 (of this test)
                database.commit()
            for use in (made.sets.names, lambda: made.sets["a"], lambda: made.sets.add("a", ["2.png"])):
                with pytest.raises(DamagedError):
                    use()
    file.write_bytes(whole)
    assert len(made.sets["a"]) == 1


@pytest.mark.parametrize("kind", ["text", "other tables", "index", "link", "dangling link", "pipe", "folder"])
def test_a_file_of_sets_that_is_none_of_ours_is_refused_at_once(made: Index, tmp_path: Path, kind: str) -> None:
    made.sets.add("a", ["1.png"])
    file = made.path / "sets.sqlite"
    moved = file.rename(tmp_path / "elsewhere")
    if kind == "text":
        file.write_bytes(b"nothing")
    elif kind == "other tables":
        with closing(sqlite3.connect(file)) as other:
            other.execute("CREATE TABLE sets (name)")
    elif kind == "index":  # it answers otherwise than the table that it is of
        entry = b"\x03\x0f\x09"  # of a letter and the row 1
        assert entry + b"a" in moved.read_bytes()
        file.write_bytes(moved.read_bytes().replace(entry + b"a", entry + b"b"))
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to(moved if kind == "link" else tmp_path / "nothing")
    for use in (made.sets.names, lambda: made.sets.add("a", ["2.png"])):
        with pytest.raises(DamagedError):
            use()
    assert not (tmp_path / "nothing").exists()


def test_two_who_add_at_once_lose_nothing(made: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifind.index.sets.LOCK_TIMEOUT", 120.0)

    def add(key: str) -> None:
        Index.open(made.path).sets.add("all", [key])

    threads = [threading.Thread(target=add, args=[f"{i}.png"]) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(told(made, "all")) == {f"{i}.png" for i in range(8)}


@pytest.mark.parametrize("fault", FAULTS)
def test_sets_survive_whatever_happens_to_their_writer(made: Index, tmp_path: Path, fault: str) -> None:
    made.sets.add("some", ["1.png"])
    before, after = {"1.png": "yes"}, {"1.png": "yes", "2.png": "no"}
    whole = tmp_path / "whole"
    shutil.copytree(made.path, whole)
    seen = []
    for at in range(100):
        shutil.rmtree(made.path)
        shutil.copytree(whole, made.path)
        if struck(lambda: made.sets.add("some", ["2.png"], verdict="no"), at, fault):
            break
        found = told(made, "some")
        assert found in (before, after)
        seen.append(found)
        made.sets.add("some", ["2.png"], verdict="no")
        assert told(made, "some") == after
        assert made.check() == []
        assert not (made.path / "sets.sqlite.draft").exists()
    assert len(seen) > 4
    assert before in seen


def test_the_command_keeps_shows_judges_and_exports(index: Index, photos: Path, tmp_path: Path) -> None:
    path = tmp_path / "i.manifind"
    shutil.copytree(index.path, path)
    assert "no set yet" in run("sets", path).stderr
    kept = run("search", path, "first-0.png", "--box", "20,30,148,158", "--no-verify", "--keep", "=roof", "--top", 2)
    assert kept.exit_code == 0
    assert len(kept.stdout.splitlines()) == 1 + 2  # two are shown; kept is what matches
    assert "as =roof" in kept.stderr
    (one,) = json.loads(run("sets", path, "--json").stdout)["sets"]
    assert one["name"] == "=roof"
    assert {"first-0.png", "first-1.png", "first-2.png", "first-3.png"} <= {photo["key"] for photo in one["photos"]}
    assert (
        run("sets", path, "=roof", "--no", "first-1.png", "--unsure", "second-0.png", "--take", "first-2.png").exit_code
        == 0
    )
    rows = {row["key"]: row for row in csv.DictReader(io.StringIO(run("sets", path, "=roof", "--csv").stdout))}
    assert (rows["first-1.png"]["verdict"], rows["second-0.png"]["verdict"]) == ("no", "unsure")
    assert rows["first-0.png"]["set"] == "'=roof"  # no formula
    assert "first-2.png" not in rows
    assert "nothing new" in run("sets", path, "=roof", "--news").stderr
    run("sets", path, "=roof", "--zip", tmp_path / "found.zip", "--xmp", tmp_path / "sidecars")
    with zipfile.ZipFile(tmp_path / "found.zip") as archive:
        assert archive.read("first-0.png") == (photos / "first-0.png").read_bytes()
        assert "first-1.png" not in archive.namelist()
        assert archive.read("set.csv").decode().replace("\r\n", "\n") == set_csv(
            Index.open(path).sets["=roof"]
        ).replace("\r\n", "\n")
    assert (tmp_path / "sidecars" / "first-0.png.xmp").read_bytes() == xmp(["=roof"])
    assert "exists already" in run("sets", path, "=roof", "--xmp", tmp_path / "sidecars").stderr
    assert run("sets", path, "=roof", "--delete").exit_code == 0
    assert run("sets", path, "=roof").exit_code == 2
    assert run("sets", path, "--csv").exit_code == 2


def test_an_export_packs_photos_of_the_collection_and_nothing_else(made: Index, tmp_path: Path) -> None:
    """An index that somebody sent names the folder of its photos, and their keys, as they please."""
    made.sets.add("a", [f"{i}.png" for i in range(5)])
    secret = tmp_path / "secret.png"
    secret.write_bytes((made.root / "1.png").read_bytes())
    for i in range(1, 5):
        (made.root / f"{i}.png").unlink()
    (made.root / "1.png").write_bytes(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    (made.root / "2.png").symlink_to(secret)
    os.mkfifo(made.root / "3.png")
    (made.root / "4.png").mkdir()
    told = run("sets", made.path, "a", "--zip", tmp_path / "found.zip")
    assert told.exit_code == 0
    assert [line.split(" ")[0] for line in told.stderr.splitlines()[1:]] == ["1.png", "2.png", "3.png", "4.png"]
    with zipfile.ZipFile(tmp_path / "found.zip") as archive:
        assert sorted(archive.namelist()) == ["0.png", "set.csv"]
        assert archive.read("0.png") == (made.root / "0.png").read_bytes()


def test_sidecars_are_new_files_below_their_folder(made: Index, tmp_path: Path) -> None:
    names = ["a/0.png", "b/1.png", "c/2.png", "3.png", f"{'x' * 251}.png", "5.png"]
    for i, name in enumerate(names):
        (made.root / name).parent.mkdir(exist_ok=True)
        (made.root / f"{i}.png").rename(made.root / name)
    made.sync()
    made.sets.add("a", names)
    outside, folder = tmp_path / "outside", tmp_path / "sidecars"
    for path in (outside, folder / "c"):
        path.mkdir(parents=True)
    (folder / "a").symlink_to(outside)  # a link to a folder, a file where a folder is to be, two dangling links
    (folder / "b").write_bytes(b"mine")
    (folder / "c" / "2.png.xmp").symlink_to(outside / "2")
    (folder / "3.png.xmp").symlink_to(outside / "3")
    told = run("sets", made.path, "a", "--xmp", folder)
    assert told.exit_code == 0
    assert len(told.stderr.splitlines()) == 6
    assert (folder / "5.png.xmp").read_bytes() == xmp(["a"])  # after the one whose name is too long
    assert list(outside.iterdir()) == []
    assert (folder / "b").read_bytes() == b"mine"


def test_words_that_are_no_text_are_refused_in_a_sentence(made: Index) -> None:
    for words in (["a\udcff"], ["a", "--yes", "1\udcff.png"], ["a\udcff", "--delete"], ["a\udcff", "--csv"]):
        refused("sets", made.path, *words)
    assert made.sets.names() == []


def test_a_key_that_no_file_could_have_is_no_photo(made: Index, tmp_path: Path) -> None:
    """Nor is a file outside the collection one, which a key must not lead to."""
    outside = tmp_path / "outside.png"
    outside.write_bytes((made.root / "1.png").read_bytes())
    for key in ("x" * 5000, "a\0b", str(outside)):
        with pytest.raises(InvalidInputError) as error:
            made.sets.add("a", [key])
        assert error.value.code == "unknown-key"
    assert made.find("x" * 5000) is None
    assert made.find("a\0b") is None
