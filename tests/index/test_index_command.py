"""`manifind index`, `whiten`, `info` and `check`, as they are typed."""

import json
import re
import shutil
from pathlib import Path

import pytest

from manifind.index import Index
from tests.commands import refused, run
from tests.extraction_options import QUICKLY


def test_index_makes_and_then_brings_up_to_date(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(photos, folder)
    made = run("index", folder, "-k", 20, *QUICKLY)
    assert made.exit_code == 0
    assert "12 photos" in made.stdout
    assert "broken.jpg" in made.stdout
    assert (tmp_path / "copy.manifind" / "manifest.json").exists()
    assert f"manifind search {tmp_path / 'copy.manifind'} PHOTO" in made.stderr  # what to do with it
    (folder / "first-0.png").unlink()
    again = run("index", folder, "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["changes"] == {
        "extracted": 0,
        "kept": 11,
        "moved": 0,
        "removed": 1,
        "skipped": 1,
        "supplemented": 0,
        "unreadable": [],
    }
    assert run("index", folder, "-k", 30).exit_code == 2
    assert run("index", photos, "-o", tmp_path / "copy.manifind").exit_code == 2


def test_the_folder_may_be_the_one_where_we_are(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(photos, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    assert run("index", ".", *QUICKLY).exit_code == 0
    assert (tmp_path / "here.manifind" / "manifest.json").exists()


def test_a_folder_that_moved_is_followed(photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "old")
    words = ("-o", tmp_path / "i.manifind", "--regions-per-image", 5, "--memory", "4GiB", *QUICKLY)
    assert run("index", tmp_path / "old", *words).exit_code == 0
    (tmp_path / "old").rename(tmp_path / "new")
    told = run("index", tmp_path / "new", "-o", tmp_path / "i.manifind", "--json")
    assert json.loads(told.stdout)["changes"]["kept"] == 12
    assert json.loads(told.stdout)["photos_folder"] == str(tmp_path / "new")
    wrong = run("index", tmp_path / "new", "-o", tmp_path / "i.manifind", "--memory", "1MB")
    assert wrong.exit_code == 2
    assert "memory is" in wrong.stderr
    assert run("index", tmp_path / "new", "-o", tmp_path / "i.manifind", "--memory", "much").exit_code == 2
    assert run("index", tmp_path / "new", "-o", tmp_path / "none.manifind", "--retrain-whitening").exit_code == 2


def test_the_size_at_which_photos_are_seen_is_kept_and_used_for_queries(photos: Path, tmp_path: Path) -> None:
    command = ("index", photos, "-o", tmp_path / "small.manifind", "--long-side", 320, "--whiten", "shipped")
    made = run(*command)
    assert made.exit_code == 0, made.output
    opened = Index.open(tmp_path / "small.manifind")
    assert opened.extractor.long_side == 320
    assert "first-0.png" in [hit.key for hit in opened.search(photos / "first-0.png", top=3)]
    again = run(*command, "--json")  # a command may be run again as it was written down
    assert json.loads(again.stdout)["changes"]["kept"] == 12
    other = run(
        "index", photos, "-o", tmp_path / "small.manifind", "--long-side", 640, "--whiten", "none", "--scales", 1
    )
    assert other.exit_code == 2
    assert "built with whiten shipped, scales 1,0.707107,0.5, long-side 320, which cannot" in other.stderr.replace(
        "\n", " "
    )


def test_whiten_learns_from_pairs_and_index_uses_it(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(
        "".join(f"{photos}/first-{i}.png,{photos}/first-{j}.png\n" for i in range(4) for j in range(i))
    )
    small = ("--long-side", 128, "--scales", 1)
    learnt = run("whiten", tmp_path / "pairs.csv", "-o", tmp_path / "w.npz", "--dimension", 3, *small)
    assert learnt.exit_code == 0
    assert "3 of 1280 dimensions, from 6 pairs" in " ".join(learnt.stdout.split())
    made = run("index", photos, "-o", tmp_path / "w.manifind", "--whiten", tmp_path / "w.npz", *small)
    assert made.exit_code == 0
    facts = json.loads(run("info", tmp_path / "w.manifind", "--json").stdout)
    assert facts["extractor"]["dimension"] == 3
    assert run("search", tmp_path / "w.manifind", "first-0.png").exit_code == 0
    (tmp_path / "bad.csv").write_text("a.png\n")
    assert run("whiten", tmp_path / "bad.csv", "-o", tmp_path / "w.npz").exit_code == 2
    assert run("whiten", tmp_path / "nowhere.csv", "-o", tmp_path / "w.npz").exit_code == 2
    assert run("index", photos, "-o", tmp_path / "w.manifind", "--whiten", "none").exit_code == 2


def test_an_interruption_says_that_nothing_is_lost(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Index, "create", interrupted)
    result = run("index", photos, "-o", tmp_path / "x.manifind")
    assert result.exit_code == 130
    assert "goes on from there" in " ".join(result.stderr.split())


def test_check_says_what_is_damaged_and_index_repairs_it(photos: Path, index: Index, tmp_path: Path) -> None:
    copy = tmp_path / "copy.manifind"
    shutil.copytree(index.path, copy)
    assert run("check", copy).stdout == "everything is as it should be\n"
    file = next(copy.glob("S_data-*.npy"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    told = run("check", copy)
    assert told.exit_code == 1
    assert told.stdout == (
        f"{file.name}: does not match its checksum; manifind index PHOTOS --repair builds it again from the "
        "descriptors.\n"
    )
    assert told.stderr.strip() == f"to mend it: manifind index {photos} -o {copy} --repair"
    problems = json.loads(run("check", copy, "--json").stdout)["problems"]
    assert [(problem["what"], problem["remedy"]) for problem in problems] == [(file.name, "rebuild-graph")]
    repaired = run("index", photos, "-o", copy, "--repair")
    assert repaired.exit_code == 0
    assert "the graph was built anew" in repaired.stdout
    assert run("check", copy).exit_code == 0
    (copy / "manifest.json").unlink()
    assert run("check", copy).exit_code == 1


def test_info_tells_what_is_there_and_the_health_of_the_graph_in_words(index: Index) -> None:
    told = run("info", index.path).stdout
    assert re.search(r"^photos +12$", told, re.MULTILINE)
    assert "mutual neighbours on average" in told
    assert "descriptors" in told
    assert "comes with the backbone" in told
    facts = json.loads(run("info", index.path, "--json").stdout)
    assert (facts["photos"], facts["health"]["regions"]) == (12, len(index.boxes))


def test_info_tells_how_the_graph_was_built(index: Index, photos: Path, tmp_path: Path) -> None:
    assert "- Neighbours were found by comparing all pairs: none is missing.\n" in run("info", index.path).stdout
    facts = json.loads(run("info", index.path, "--json").stdout)
    assert facts["manifold"]["knn"] == "auto"
    assert (facts["graph"]["method"], facts["graph"]["recall"]) == ("exact", 1.0)
    target = tmp_path / "i.manifind"
    words = ("-k", 10, "--regions-per-image", 5, "--knn", "nn-descent", *QUICKLY)
    assert run("index", photos, "-o", target, *words).exit_code == 0
    told = run("info", target).stdout
    assert re.search(
        r"- Neighbours were found by NN-Descent: [\d.]+ % of the true ones, estimated on \d+ regions", told
    )
    facts = json.loads(run("info", target, "--json").stdout)
    assert facts["manifold"]["knn"] == facts["graph"]["method"] == "nn-descent"
    assert facts["graph"]["sample"] == facts["regions"] <= 60
    assert facts["graph"]["recall"] > 0.9
    assert run("index", photos, "-o", target, "--knn", "exact").exit_code == 2  # settled when it was made
    assert "'auto', 'exact', 'nn-descent'" in run("index", photos, "--knn", "hnsw").stderr


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("index", "nowhere"), "not a folder"),
        (("index", "{photos}", "-k", "0", "-o", "x.manifind"), "'-k': 0 is not in the range"),
        (("index", "{photos}", "-o", "{photos}"), "is not a saved index"),
        (("whiten", "{photos}/first-0.png", "-o", "x.npz"), "not a list of pairs"),
        (("info", "{photos}"), "is a folder of photos"),
        (("serve", "nowhere"), "does not exist; give the folder of the photos, or their index"),
        (("idnex", "{photos}"), "Did you mean index?"),
    ],
)
def test_what_cannot_be_made_or_opened_is_told_in_a_sentence(words: tuple[str, ...], what: str, photos: Path) -> None:
    assert what in refused(*(word.format(photos=photos) for word in words))


def test_words_that_lead_nowhere_are_refused_in_a_sentence(photos: Path, tmp_path: Path) -> None:
    for frames in ("1e300", "nan", "inf", "0", "0.01"):
        refused("index", photos, "-o", tmp_path / "i.manifind", "--frames", frames)
    assert not (tmp_path / "i.manifind").exists()
    for address in (
        "milvus://[::1/x",
        "milvus://secret@[::1/x",
        "qdrant://secret@host:port/x",
        "MILVUS://secret@h:p/x",
    ):
        assert "secret" not in refused("info", address)
        assert "secret" not in refused("publish", tmp_path, address)
