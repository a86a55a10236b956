"""`manifind search` and `manifind explain`, as they are typed."""

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest

from manifind.index import Index, SearchConfig, SearchResult
from manifind.index.config import CutoffConfig, RetrievalConfig
from tests.commands import refused, run
from tests.extraction_options import QUICKLY

BOX = "20,30,148,158"


def configure(monkeypatch: pytest.MonkeyPatch, config: SearchConfig) -> None:
    """Let the commands open an index with a configuration."""
    real = Index.open

    def opened(path: Path) -> Index:
        return real(path, config=config)

    monkeypatch.setattr(Index, "open", opened)


def test_search_prints_a_table(index: Index, photos: Path) -> None:
    result = run("search", index.path, photos / "first-0.png", "--box", BOX, "--top", 4)
    assert result.exit_code == 0
    assert sorted(re.findall(r"first-\d\.png", result.stdout)) == [f"first-{i}.png" for i in range(4)]
    assert len(result.stdout.strip().splitlines()) == 5
    own = [line for line in result.stdout.splitlines() if line.endswith("the query's own")]
    assert [line.split()[2] for line in own] == ["first-0.png"]


def test_search_prints_json_and_csv(index: Index, photos: Path) -> None:
    printed = json.loads(run("search", index.path, photos / "first-0.png", "--box", BOX, "--top", 4, "--json").stdout)
    assert printed["method"] == "regional"
    assert printed["query"]["box"] == [20, 30, 148, 158]
    assert [result["rank"] for result in printed["results"]] == [1, 2, 3, 4]
    found = {"rank", "key", "score", "box", "is_match", "duplicates", "regions"}
    assert set(printed["results"][0]) == found | {
        "verified",
        "grade",
        "outline",
        "part",
        "inliers",
        "other_outlines",
        "expanded",
    }
    assert [one["is_match"] for one in printed["results"]] == [place < printed["n_matches"] for place in range(4)]
    assert set(printed["results"][0]["regions"][0]) == {"box", "share"}
    text = run("search", index.path, photos / "first-0.png", "--box", BOX, "--top", 4, "--csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["key"] for row in rows] == [result["key"] for result in printed["results"]]
    assert [float(rows[0][name]) for name in ("x0", "y0", "x1", "y1")] == printed["results"][0]["box"]
    assert {row["is_match"] for row in rows} <= {"yes", "no"}
    both = run("search", index.path, photos / "first-0.png", "--json", "--csv")
    assert both.exit_code == 2
    assert "--json and --csv" in both.stderr


def test_search_writes_a_page_that_needs_nothing_else(index: Index, photos: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = run(
        "search", index.path, photos / "first-0.png", "--box", BOX, "--positive", f"first-1.png@{BOX}", "--html", page
    )
    assert result.exit_code == 0
    text = page.read_text()
    assert text.count("<figure") == 2 + 12
    assert "first-3.png" in text
    assert not re.search(r"src=\"(?!data:)", text)
    linked = re.findall(r"href=\"([^\"]*)\"", text)  # the photos themselves, where the page is read beside them
    assert (index.root / "first-3.png").as_uri() in linked
    assert all(link.startswith(index.root.as_uri()) for link in linked)


def test_verified_photos_say_so_in_every_shape(index: Index, photos: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    words = ("search", index.path, photos / "first-0.png", "--box", BOX, "--verify", 12)
    shown = run(*words, "--html", page).stdout.splitlines()
    told = json.loads(run(*words, "--json").stdout)
    rows = list(csv.DictReader(io.StringIO(run(*words, "--csv").stdout)))
    sure = [one for one in told["results"] if one["verified"]]
    assert sorted(one["key"] for one in sure) == [f"first-{i}.png" for i in range(4)]
    assert "grade" in shown[0]
    assert [line.split()[5] for line in shown[1:] if " verified, " in line] == ["points"] * 4
    (rule,) = [at for at, line in enumerate(shown) if line.startswith("──")]
    assert rule == 1 + told["n_matches"]
    for one, row in zip(told["results"], rows, strict=True):
        corners = [[float(part) for part in corner.split(",")] for corner in row["outline"].split()]
        assert corners == (one["outline"] or [])
        assert row["verified"] == ("yes" if one["verified"] else "no")
        assert (row["grade"] == "verified") == one["verified"]
        assert row["grade"] == one["grade"]
        assert row["inliers"] == str(one["inliers"] or "")
    text = page.read_text()
    assert text.count("<polygon") == 4
    assert text.count('class="verified"') == 4
    assert text.count('class="doubtful"') == len(told["results"]) - told["n_matches"]
    assert text.index('class="line"') < text.index('class="doubtful"')


def test_geometry_is_left_out_where_it_is_not_wanted(index: Index, photos: Path) -> None:
    words = ("search", index.path, photos / "first-0.png", "--box", BOX, "--no-verify")
    assert {one["verified"] for one in json.loads(run(*words, "--json").stdout)["results"]} == {None}
    assert "verified" not in run(*words).stdout
    assert {one["grade"] for one in json.loads(run(*words, "--json").stdout)["results"]} <= {"likely", "not likely"}
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


def test_verified_photos_expand_the_query_unless_that_is_not_wanted(index: Index, photos: Path, tmp_path: Path) -> None:
    words = ("search", index.path, photos / "first-0.png", "--box", BOX, "--verify", 12, "--json")
    usual, again, once = (json.loads(run(*words, *more).stdout) for more in ((), ("--expand",), ("--no-expand",)))
    assert usual["results"] == again["results"]
    assert [one["score"] for one in again["results"]] != [one["score"] for one in once["results"]]
    assert {one["key"] for one in again["results"][:4]} == {f"first-{i}.png" for i in range(4)}
    (tmp_path / "many.csv").write_text("photo,box,name\nfirst-0.png,,a\n")
    told = ("search", index.path, "--queries", tmp_path / "many.csv", "--json")
    scores = [
        [one["score"] for one in json.loads(run(*told, *more).stdout)["queries"][0]["results"]]
        for more in ((), ("--no-expand",))
    ]
    assert scores[0] != scores[1]


def test_explain_says_where_no_map_leads(index: Index, photos: Path, tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    shown = run("explain", index.path, photos / "first-0.png", "second-1.png", "--box", BOX, "--html", page)
    assert "reached by likeness alone" in shown.stdout
    assert "reached by likeness alone" in page.read_text()
    assert "⇢" in shown.stdout


def test_keys_are_printed_as_they_are(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "odd #1?"
    folder.mkdir()
    names = ["a [bold]b[red].png", ":smile:.png", "x" * 120 + ".png"]
    for i, name in enumerate(names):
        shutil.copy(photos / f"first-{i}.png", folder / name)
    assert run("index", folder, *QUICKLY).exit_code == 0
    shown = run("search", tmp_path / "odd #1?.manifind", folder / names[0])
    assert shown.exit_code == 0
    assert all(name in shown.stdout for name in names)


def test_a_photo_beyond_the_shortlist_cannot_be_explained(
    index: Index, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, SearchConfig(retrieval=RetrievalConfig(shortlist_size=2)))
    within = [hit.key for hit in Index.open(index.path).search(photos / "first-0.png", top=None)]
    assert len(within) == 2
    beyond = next(image.key for image in index.catalogue.images if image.key not in within)
    codes = [run("explain", index.path, photos / "first-0.png", key).exit_code for key in (*within, beyond)]
    assert codes == [0, 0, 1]


def test_nothing_found_has_its_own_exit_code(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    none = index.search("first-0.png").head(0)
    monkeypatch.setattr(Index, "search_steps", lambda *_, **__: iter([none]))
    result = run("search", index.path, "first-0.png")
    assert result.exit_code == 1
    assert "nothing matches" in result.stderr
    assert result.stdout == ""


def test_photos_that_are_merely_the_nearest_have_it_too(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "report.html"
    configure(monkeypatch, SearchConfig(cutoff=CutoffConfig(min_null_similarity=4.0, max_null_similarity=4.0)))
    monkeypatch.setattr(Index, "find", lambda *_: None)  # nor is the query's own photo among them
    result = run("search", index.path, "first-0.png", "--no-verify")
    assert result.exit_code == 1
    assert "nothing matches" in result.stderr
    assert "merely the nearest" in result.stdout.splitlines()[1]
    assert "first-0.png" in result.stdout
    shown = run("search", index.path, "first-0.png", "--no-verify", "--json")
    assert shown.exit_code == 1
    told = json.loads(shown.stdout)
    assert (told["n_matches"], told["results"]) == (0, [])
    assert run("search", index.path, "first-0.png", "--no-verify", "--csv").stdout.count("\n") == 1
    assert run("search", index.path, "first-0.png", "--no-verify", "--html", page).exit_code == 1
    assert "Nothing in this collection matches" in page.read_text()


def test_the_nearest_are_to_be_judged_where_the_querys_own_photo_alone_is_there(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, SearchConfig(cutoff=CutoffConfig(min_null_similarity=4.0, max_null_similarity=4.0)))
    result = run("search", index.path, "first-0.png", "--no-verify")
    own, rule, *_ = result.stdout.splitlines()[1:]
    assert own.endswith("the query's own")
    assert rule.startswith("── Nothing certain besides the query's own photo. The nearest, please judge ──")
    # A query without texture may be there, though no photo is a match.
    monkeypatch.setattr(SearchResult, "nearest_may_match", True)
    monkeypatch.setattr(SearchResult, "n_matches", 0)
    result = run("search", index.path, "first-0.png", "--no-verify")
    assert result.exit_code == 1
    assert "nothing certain; please judge the nearest." in result.stderr


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
    assert run("index", folder, "-k", 20, *QUICKLY).exit_code == 0
    target = tmp_path / "twins.manifind"
    printed = json.loads(run("search", target, "z-copy.png", "--json").stdout)
    # The first of them by name is the photo that is extracted.
    (twin,) = [one for one in printed["results"] if one["duplicates"]]
    assert (twin["key"], twin["duplicates"], twin["rank"]) == ("=1+1.png", ["first-0.png", "z-copy.png"], 1)
    assert "first-0.png is the same file" in run("search", target, "first-1.png").stdout
    rows = list(csv.DictReader(io.StringIO(run("search", target, "z-copy.png", "--csv").stdout)))
    assert rows[0]["key"] == "'=1+1.png"
    assert rows[0]["duplicates"] == "first-0.png; z-copy.png"
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
    made = run("index", folder, *QUICKLY)
    target = tmp_path / "names.manifind"
    shown = [made, run("search", target, photos / "first-0.png"), run("info", target), run("check", target)]
    shown.append(run("explain", target, photos / "first-0.png", "a\u202egnp.png"))
    for one in shown:
        assert one.exit_code == 0, one.output
        assert not set(one.output) & {"\u202e", "\x1b"}
    assert "a\\u202egnp.png" in shown[1].stdout
    assert "c\\u202egpj.jpg" in shown[0].stdout


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("search", "{index}", "nowhere.jpg"), "neither a file nor a key"),
        (("search", "{index}", "first-0.png", "--box", "1,2,3"), "four numbers"),
        (("search", "{index}", "first-0.png", "--box", "9,9,2,2"), "x0 < x1"),
        (("search", "nowhere.manifind", "first-0.png"), "does not exist"),
        (("search", "{index}", "first-0.png", "--method", "magic"), "regional"),
        (("explain", "{index}", "first-0.png", "nowhere.jpg"), "is not a photo of"),
        (("search", "{index}", "first-0.png", "--html", "nowhere/page.html"), "name of a file"),
        (("search", "{index}", "first-0.png", "--html", "{photos}"), "name of a file"),
    ],
)
def test_what_cannot_be_asked_is_told_in_a_sentence(
    words: tuple[str, ...], what: str, index: Index, photos: Path
) -> None:
    assert what in refused(*(word.format(index=index.path, photos=photos) for word in words))
