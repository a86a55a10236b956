"""The commands, as they are typed."""

import csv
import io
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from manifind.cli import main
from manifind.index import Answer, Index

BOX = "20,30,148,158"


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


def test_index_makes_and_then_brings_up_to_date(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(photos, folder)
    made = run("index", folder, "-k", 20)
    assert made.exit_code == 0
    assert "12 photos" in made.stdout
    assert "broken.jpg" in made.stdout
    assert (tmp_path / "copy.manifind" / "manifest.json").exists()
    assert f"manifind search {tmp_path / 'copy.manifind'} PHOTO" in made.stderr  # what to do with it
    (folder / "first-0.png").unlink()
    again = run("index", folder, "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["changes"] == {
        "described": 0,
        "kept": 11,
        "moved": 0,
        "removed": 1,
        "skipped": 1,
        "supplemented": 0,
        "unreadable": [],
    }
    assert run("index", folder, "-k", 30).exit_code == 2
    assert run("index", photos, "-o", tmp_path / "copy.manifind").exit_code == 2


def test_search_prints_a_table(index: Index, photos: Path) -> None:
    result = run("search", index.path, photos / "first-0.png", "--box", BOX, "--top", 4)
    assert result.exit_code == 0
    assert re.findall(r"first-\d\.png", result.stdout)
    assert len(result.stdout.strip().splitlines()) == 5
    own = [line for line in result.stdout.splitlines() if line.endswith("the query's own")]
    assert [line.split()[2] for line in own] == ["first-0.png"]


def test_search_prints_json_and_csv(index: Index, photos: Path) -> None:
    printed = json.loads(run("search", index.path, photos / "first-0.png", "--box", BOX, "--top", 4, "--json").stdout)
    assert printed["method"] == "regional"
    assert printed["query"]["box"] == [20, 30, 148, 158]
    assert [result["rank"] for result in printed["results"]] == [1, 2, 3, 4]
    found = {"rank", "key", "score", "box", "likely", "also_at", "regions"}
    assert set(printed["results"][0]) == found | {"verified", "outline", "inliers", "others", "refined"}
    assert [one["likely"] for one in printed["results"]] == [place < printed["likely"] for place in range(4)]
    assert set(printed["results"][0]["regions"][0]) == {"box", "share"}
    text = run("search", index.path, photos / "first-0.png", "--box", BOX, "--top", 4, "--csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["key"] for row in rows] == [result["key"] for result in printed["results"]]
    assert [float(rows[0][name]) for name in ("x0", "y0", "x1", "y1")] == printed["results"][0]["box"]
    assert {row["likely"] for row in rows} <= {"yes", "no"}
    both = run("search", index.path, photos / "first-0.png", "--json", "--csv")
    assert both.exit_code == 2
    assert "--json and --csv" in both.stderr


def test_search_writes_a_page_that_needs_nothing_else(index: Index, photos: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = run(
        "search", index.path, photos / "first-0.png", "--box", BOX, "--also", f"first-1.png@{BOX}", "--html", page
    )
    assert result.exit_code == 0
    text = page.read_text()
    assert text.count("<figure") == 2 + 12
    assert "first-3.png" in text
    assert not re.search(r"(src|href)=\"(?!data:)", text)


def test_verified_photos_say_so_in_every_shape(index: Index, photos: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    words = ("search", index.path, photos / "first-0.png", "--box", BOX, "--verify", 12)
    shown = run(*words, "--html", page).stdout.splitlines()
    told = json.loads(run(*words, "--json").stdout)
    rows = list(csv.DictReader(io.StringIO(run(*words, "--csv").stdout)))
    sure = [one for one in told["results"] if one["verified"]]
    assert sorted(one["key"] for one in sure) == [f"first-{i}.png" for i in range(4)]
    assert "verified" in shown[0]
    assert [line.split()[4] for line in shown[1:] if "points" in line] == ["points"] * 4
    (rule,) = [at for at, line in enumerate(shown) if line.startswith("──")]
    assert rule == 1 + told["likely"]
    for one, row in zip(told["results"], rows, strict=True):
        corners = [[float(part) for part in corner.split(",")] for corner in row["outline"].split()]
        assert corners == (one["outline"] or [])
        assert row["verified"] == ("yes" if one["verified"] else "no")
        assert row["inliers"] == str(one["inliers"] or "")
    text = page.read_text()
    assert text.count("<polygon") == 4
    assert text.count("class=verified") == 4
    assert text.count('class="doubtful"') == len(told["results"]) - told["likely"]
    assert text.index('class="line"') < text.index('class="doubtful"')


def test_geometry_is_left_out_where_it_is_not_wanted(index: Index, photos: Path) -> None:
    words = ("search", index.path, photos / "first-0.png", "--box", BOX, "--no-verify")
    assert {one["verified"] for one in json.loads(run(*words, "--json").stdout)["results"]} == {None}
    assert "verified" not in run(*words).stdout
    assert run(*words, "--verify", 5).exit_code == 2


def test_explain_shows_the_chain(index: Index, photos: Path, tmp_path: Path) -> None:
    words = ("explain", index.path, photos / "first-0.png", "first-3.png", "--box", BOX)
    shown = run(*words, "--html", tmp_path / "why.html")
    assert shown.exit_code == 0
    assert "first-3.png" in shown.stdout
    assert "→" in shown.stdout
    told = json.loads(run(*words, "--json").stdout)
    links, geometry = told["links"], told["geometry"]
    assert links[0]["source"]["key"] is None
    assert links[-1]["target"]["key"] == "first-3.png"
    page = (tmp_path / "why.html").read_text()
    assert page.count("<figure") == len(links) + 1
    assert geometry["verified"]
    assert f"{geometry['inliers']} points of the query were found again" in shown.stdout
    assert page.count("<line ") == len(geometry["points"]) >= geometry["inliers"] >= 6
    # The thing is pasted at (20, 30) in the one and at (170, 90) in the other.
    for x, y, u, v in geometry["points"]:
        assert (u - x, v - y) == (pytest.approx(150, abs=4), pytest.approx(60, abs=4))
    bare = json.loads(run(*words, "--no-verify", "--json").stdout)
    assert bare["geometry"] is None
    assert {link["verified"] for link in bare["links"]} == {None}
    assert [link["similarity"] for link in bare["links"]] == [link["similarity"] for link in links]


def test_verified_photos_teach_the_query_unless_that_is_not_wanted(index: Index, photos: Path, tmp_path: Path) -> None:
    words = ("search", index.path, photos / "first-0.png", "--box", BOX, "--verify", 12, "--json")
    usual, again, once = (json.loads(run(*words, *more).stdout) for more in ((), ("--refine",), ("--no-refine",)))
    assert usual["results"] == again["results"]
    assert [one["score"] for one in again["results"]] != [one["score"] for one in once["results"]]
    assert {one["key"] for one in again["results"][:4]} == {f"first-{i}.png" for i in range(4)}
    (tmp_path / "many.csv").write_text("photo,box,name\nfirst-0.png,,a\n")
    told = ("search", index.path, "--queries", tmp_path / "many.csv", "--json")
    scores = [
        [one["score"] for one in json.loads(run(*told, *more).stdout)["queries"][0]["results"]]
        for more in ((), ("--no-refine",))
    ]
    assert scores[0] != scores[1]


def test_explain_says_where_no_map_leads(index: Index, photos: Path, tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    shown = run("explain", index.path, photos / "first-0.png", "second-1.png", "--box", BOX, "--html", page)
    assert "reached by likeness alone" in shown.stdout
    assert "reached by likeness alone" in page.read_text()
    assert "⇢" in shown.stdout


def test_info_prints_counts(index: Index) -> None:
    assert "12" in run("info", index.path).stdout
    assert json.loads(run("info", index.path, "--json").stdout)["photos"] == 12


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (("search", "{index}", "nowhere.jpg"), 2, "neither a file nor a key"),
        (("search", "{index}", "first-0.png", "--box", "1,2,3"), 2, "four numbers"),
        (("search", "{index}", "first-0.png", "--box", "9,9,2,2"), 2, "x0 < x1"),
        (("search", "nowhere.manifind", "first-0.png"), 2, "does not exist"),
        (("search", "{index}", "first-0.png", "--method", "magic"), 2, "regional"),
        (("explain", "{index}", "first-0.png", "nowhere.jpg"), 2, "is not a photo of"),
        (("index", "nowhere"), 2, "not a folder"),
        (("index", "{photos}", "-k", "0", "-o", "x.manifind"), 2, "0"),
        (("index", "{photos}", "-o", "{photos}"), 2, "is not a saved index"),
        (("search", "{index}", "first-0.png", "--html", "nowhere/page.html"), 2, "name of a file"),
        (("search", "{index}", "first-0.png", "--html", "{photos}"), 2, "name of a file"),
        (("whiten", "{photos}/first-0.png", "-o", "x.npz"), 2, "not a list of pairs"),
        (("info", "{photos}"), 2, "is a folder of photos"),
        (("serve", "nowhere"), 2, "does not exist; give the folder of the photos, or their index"),
        (("idnex", "{photos}"), 2, "Did you mean index?"),
    ],
)
def test_an_error_is_a_sentence_and_an_exit_code(
    words: tuple[str, ...], code: int, what: str, index: Index, photos: Path
) -> None:
    result = run(*(word.format(index=index.path, photos=photos) for word in words))
    assert result.exit_code == code
    assert what in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_keys_are_printed_as_they_are(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "odd #1?"
    folder.mkdir()
    names = ["a [bold]b[red].png", ":smile:.png", "x" * 120 + ".png"]
    for i, name in enumerate(names):
        shutil.copy(photos / f"first-{i}.png", folder / name)
    assert run("index", folder).exit_code == 0
    shown = run("search", tmp_path / "odd #1?.manifind", folder / names[0])
    assert shown.exit_code == 0
    assert all(name in shown.stdout for name in names)


def test_the_folder_may_be_the_one_where_we_are(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(photos, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    assert run("index", ".").exit_code == 0
    assert (tmp_path / "here.manifind" / "manifest.json").exists()


def test_a_photo_beyond_the_shortlist_cannot_be_explained(
    index: Index, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manifind.index.asking.query.SHORTLIST", 2)
    codes = [
        run("explain", index.path, photos / "first-0.png", image.key).exit_code for image in index.catalogue.images
    ]
    assert sorted(codes) == [0] * 2 + [1] * 10


def test_nothing_found_has_its_own_exit_code(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    real = index.search("first-0.png").search
    monkeypatch.setattr(Index, "search", lambda *_, **__: Answer(real, left_out=range(len(index))))
    result = run("search", index.path, "first-0.png")
    assert result.exit_code == 1
    assert "nothing matches" in result.stderr
    assert result.stdout == ""


def test_photos_that_are_merely_the_nearest_have_it_too(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "report.html"
    monkeypatch.setattr(sys.modules["manifind.index.asking.evidence"], "chance_similarity", lambda _: 2.0)
    monkeypatch.setattr(Index, "find", lambda *_: None)  # nor is the query's own photo among them
    result = run("search", index.path, "first-0.png", "--no-verify")
    assert result.exit_code == 1
    assert "nothing matches" in result.stderr
    assert "merely the nearest" in result.stdout.splitlines()[1]
    assert "first-0.png" in result.stdout
    shown = run("search", index.path, "first-0.png", "--no-verify", "--json")
    assert shown.exit_code == 1
    told = json.loads(shown.stdout)
    assert (told["likely"], told["results"]) == (0, [])
    assert run("search", index.path, "first-0.png", "--no-verify", "--csv").stdout.count("\n") == 1
    assert run("search", index.path, "first-0.png", "--no-verify", "--html", page).exit_code == 1
    assert "Nothing in this collection matches" in page.read_text()


def test_explain_takes_the_paths_that_search_takes(index: Index, photos: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copied elsewhere.png"
    shutil.copy(photos / "first-3.png", copy)
    told = [
        run("explain", index.path, photos / "first-0.png", result, "--box", BOX, "--json").stdout
        for result in ("first-3.png", photos / "first-3.png", copy)
    ]
    assert json.loads(told[0])["key"] == "first-3.png"
    assert told[0] == told[1] == told[2]


def test_identical_files_are_listed_under_their_twin_and_may_be_asked_for(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "twins"
    shutil.copytree(photos, folder)
    for name in ("z-copy.png", "=1+1.png"):
        shutil.copy(photos / "first-0.png", folder / name)
    assert run("index", folder, "-k", 20, "--long-side", 128, "--zooms", 1).exit_code == 0
    target = tmp_path / "twins.manifind"
    printed = json.loads(run("search", target, "z-copy.png", "--json").stdout)
    # The first of them by name is the photo that is described.
    (twin,) = [one for one in printed["results"] if one["also_at"]]
    assert (twin["key"], twin["also_at"], twin["rank"]) == ("=1+1.png", ["first-0.png", "z-copy.png"], 1)
    assert "first-0.png is the same file" in run("search", target, "first-1.png").stdout
    rows = list(csv.DictReader(io.StringIO(run("search", target, "z-copy.png", "--csv").stdout)))
    assert rows[0]["key"] == "'=1+1.png"
    assert rows[0]["also_at"] == "first-0.png; z-copy.png"
    chain = json.loads(run("explain", target, "first-1.png", "z-copy.png", "--json").stdout)
    assert chain["key"] == "=1+1.png"
    page = tmp_path / "page.html"
    assert run("search", target, "first-1.png", "--html", page).exit_code == 0
    assert "also at first-0.png, z-copy.png" in page.read_text()


def test_nothing_invisible_reaches_the_terminal(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "names"
    folder.mkdir()
    shutil.copy(photos / "first-0.png", folder / "a\u202egnp.png")
    shutil.copy(photos / "first-1.png", folder / "b\x1b[2Jc.png")
    (folder / "c\u202egpj.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(300))
    made = run("index", folder)
    target = tmp_path / "names.manifind"
    shown = [made, run("search", target, photos / "first-0.png"), run("info", target), run("check", target)]
    shown.append(run("explain", target, photos / "first-0.png", "a\u202egnp.png"))
    for one in shown:
        assert one.exit_code == 0, one.output
        assert not set(one.output) & {"\u202e", "\x1b"}
    assert "a\\u202egnp.png" in shown[1].stdout
    assert "c\\u202egpj.jpg" in shown[0].stdout


def test_an_interruption_says_that_nothing_is_lost(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Index, "create", interrupted)
    result = run("index", photos, "-o", tmp_path / "x.manifind")
    assert result.exit_code == 130
    assert "goes on from there" in " ".join(result.stderr.split())


def test_whiten_learns_from_pairs_and_index_uses_it(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(
        "".join(f"{photos}/first-{i}.png,{photos}/first-{j}.png\n" for i in range(4) for j in range(i))
    )
    small = ("--long-side", 128, "--zooms", 1)
    learnt = run("whiten", tmp_path / "pairs.csv", "-o", tmp_path / "w.npz", "--dimension", 3, *small)
    assert learnt.exit_code == 0
    assert "3 of 1280 dimensions, from 6 pairs" in " ".join(learnt.stdout.split())
    made = run("index", photos, "-o", tmp_path / "w.manifind", "--whiten", tmp_path / "w.npz", *small)
    assert made.exit_code == 0
    facts = json.loads(run("info", tmp_path / "w.manifind", "--json").stdout)
    assert facts["describer"]["dimension"] == 3
    assert run("search", tmp_path / "w.manifind", "first-0.png").exit_code == 0
    usual = run("whiten", tmp_path / "pairs.csv", "-o", tmp_path / "usual.npz", "--long-side", 64, "--zooms", 1)
    assert "768 of 1280 dimensions" in " ".join(usual.stdout.split())
    (tmp_path / "bad.csv").write_text("a.png\n")
    assert run("whiten", tmp_path / "bad.csv", "-o", tmp_path / "w.npz").exit_code == 2
    assert run("whiten", tmp_path / "nowhere.csv", "-o", tmp_path / "w.npz").exit_code == 2
    assert run("index", photos, "-o", tmp_path / "w.manifind", "--whiten", "none").exit_code == 2


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
        f"{file.name}: does not match its checksum; manifind index PHOTOS --repair builds it anew from the "
        "descriptions.\n"
    )
    assert told.stderr.strip() == f"to mend it: manifind index {photos} -o {copy} --repair"
    problems = json.loads(run("check", copy, "--json").stdout)["problems"]
    assert [problem["what"] for problem in problems] == [file.name]
    repaired = run("index", photos, "-o", copy, "--repair")
    assert repaired.exit_code == 0
    assert "the graph was built anew" in repaired.stdout
    assert run("check", copy).exit_code == 0
    (copy / "manifest.json").unlink()
    assert run("check", copy).exit_code == 1


def test_info_tells_the_health_of_the_graph_in_words(index: Index) -> None:
    told = run("info", index.path).stdout
    assert "mutual neighbours on average" in told
    assert "descriptions" in told
    assert "comes with the backbone" in told
    assert json.loads(run("info", index.path, "--json").stdout)["health"]["regions"] == len(index.boxes)


def test_info_tells_how_the_graph_was_built(index: Index, photos: Path, tmp_path: Path) -> None:
    assert "- Neighbours were found by comparing all pairs: none is missing.\n" in run("info", index.path).stdout
    facts = json.loads(run("info", index.path, "--json").stdout)
    assert facts["manifold"]["graph"] == "auto"
    assert (facts["graph"]["method"], facts["graph"]["recall"]) == ("exact", 1.0)
    target = tmp_path / "i.manifind"
    assert run("index", photos, "-o", target, "-k", 10, "--means", 5, "--graph", "nn-descent").exit_code == 0
    told = run("info", target).stdout
    assert re.search(
        r"- Neighbours were found by NN-Descent: [\d.]+ % of the true ones, estimated on \d+ regions", told
    )
    facts = json.loads(run("info", target, "--json").stdout)
    assert facts["manifold"]["graph"] == facts["graph"]["method"] == "nn-descent"
    assert facts["graph"]["sample"] == facts["regions"] <= 60
    assert facts["graph"]["recall"] > 0.9
    assert run("index", photos, "-o", target, "--graph", "exact").exit_code == 2  # settled when it was made
    assert "'auto', 'exact', 'nn-descent'" in run("index", photos, "--graph", "hnsw").stderr


def test_a_folder_that_moved_is_followed(photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "old")
    assert (
        run("index", tmp_path / "old", "-o", tmp_path / "i.manifind", "--means", 5, "--memory", "4GiB").exit_code == 0
    )
    (tmp_path / "old").rename(tmp_path / "new")
    told = run("index", tmp_path / "new", "-o", tmp_path / "i.manifind", "--json")
    assert json.loads(told.stdout)["changes"]["kept"] == 12
    assert json.loads(told.stdout)["photos_folder"] == str(tmp_path / "new")
    wrong = run("index", tmp_path / "new", "-o", tmp_path / "i.manifind", "--memory", "1MB")
    assert wrong.exit_code == 2
    assert "memory is" in wrong.stderr
    assert run("index", tmp_path / "new", "-o", tmp_path / "i.manifind", "--memory", "much").exit_code == 2
    assert run("index", tmp_path / "new", "-o", tmp_path / "none.manifind", "--relearn").exit_code == 2


def test_the_size_at_which_photos_are_seen_is_kept_and_used_for_queries(photos: Path, tmp_path: Path) -> None:
    command = ("index", photos, "-o", tmp_path / "small.manifind", "--long-side", 320, "--whiten", "shipped")
    made = run(*command)
    assert made.exit_code == 0, made.output
    opened = Index.open(tmp_path / "small.manifind")
    assert opened.describer.long_side == 320
    assert "first-0.png" in [hit.key for hit in opened.search(photos / "first-0.png", top=3)]
    again = run(*command, "--json")  # a command may be run again as it was written down
    assert json.loads(again.stdout)["changes"]["kept"] == 12
    other = run(
        "index", photos, "-o", tmp_path / "small.manifind", "--long-side", 640, "--whiten", "none", "--zooms", 1
    )
    assert other.exit_code == 2
    assert "made with whiten shipped, zooms 1,0.707107,0.5, long-side 320, which is settled" in other.stderr.replace(
        "\n", " "
    )
