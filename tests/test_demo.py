"""The demo as its users meet it: a table, JSON, a page, and one sentence when something is off."""

import html.parser
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tools import tables

from manifind import Index
from manifind.cli import main
from manifind.demo import cutouts, figure1, report, scenes
from manifind.demo import walkthrough as demo
from manifind.demo.walkthrough import GLOBAL, MATCH, PLAIN, REGIONAL, SEARCH, DemoResult

METHODS = [PLAIN, MATCH, GLOBAL, REGIONAL, SEARCH]


@pytest.fixture(scope="module", autouse=True)
def quick() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure1, "STEP", 0.1)
        patch.setattr(demo, "run", partial(demo.run, scenes=15, queries=2))
        yield


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, scenes.Scenes, DemoResult]:
    return demo.run(tmp_path_factory.mktemp("demo") / "new" / "folder", scenes=90, queries=24)


@pytest.fixture(scope="module")
def index(walk: tuple[Index, scenes.Scenes, DemoResult]) -> Index:
    return walk[0]


@pytest.fixture(scope="module")
def made(walk: tuple[Index, scenes.Scenes, DemoResult]) -> scenes.Scenes:
    return walk[1]


@pytest.fixture(scope="module")
def result(walk: tuple[Index, scenes.Scenes, DemoResult]) -> DemoResult:
    return walk[2]


def manifind(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["demo", *map(str, words)])


# -- what comes out ---------------------------------------------------------------------------------------------------


def test_regional_diffusion_finds_what_the_others_lose_and_the_smaller_the_more(
    result: DemoResult, repository: Path
) -> None:
    plain, match, whole, regional, search = result.methods
    assert regional.mAP > plain.mAP + 5
    assert regional.mAP > whole.mAP + 5
    assert search.mAP > regional.mAP
    gain = [regional.by_size[size] - plain.by_size[size] for size in regional.by_size]
    assert gain[0] > max(15, gain[-1])
    # An object is in 6 of 90 photos: chains are short, and R-match is as good. It is in 20 of the demo's 300.
    assert regional.mAP > match.mAP - 2
    stored = json.loads((repository / "docs" / "demo.json").read_text())["methods"]
    plain_300, match_300, whole_300, regional_300, search_300 = (method["mAP"] for method in stored)
    assert plain_300 + 5 < regional_300
    assert whole_300 + 5 < regional_300
    assert match_300 < regional_300 < search_300
    gain = [stored[3]["by_size"][size] - stored[0]["by_size"][size] for size in stored[0]["by_size"]]
    assert min(gain[:2]) > max(15, *gain[2:])


def test_the_table_has_a_line_for_each_method_and_names_its_terms(result: DemoResult) -> None:
    lines = report.as_text(result).splitlines()
    assert [line[:20].strip() for line in lines if line.endswith(" ms")] == METHODS
    assert "90 photos, 1,890 regions, 12 objects, 24 queries" in lines[0]
    text = " ".join(lines)
    for term in ("trapezoid", "k = 200", "alpha = 0.8", "verification and query expansion"):
        assert term in text
    assert max(map(len, lines[:-1])) <= 110


def test_json_has_the_figures_of_the_table(result: DemoResult) -> None:
    stored = json.loads(report.as_json(result))
    table = report.as_text(result).splitlines()
    assert [method["method"] for method in stored["methods"]] == METHODS
    for method in stored["methods"]:
        figures = [method["mAP"], *method["by_size"].values()]
        (row,) = [row for row in table if row.startswith(method["method"])]
        assert row[20:].split()[: len(figures)] == [f"{figure:.1f}" for figure in figures]
        assert method["query_seconds"] > 0
    assert stored["average_precision"] == "trapezoid"
    assert stored["collection"] == {"photos": 90, "regions": 1890, "objects": 12, "queries": 24}
    assert sum(stored["photos_by_size"].values()) == 72
    assert Path(stored["figure"]).read_bytes().startswith(b"\x89PNG")


def test_the_table_of_the_page_of_figures_has_the_rows_and_columns_that_the_demo_prints(
    result: DemoResult, repository: Path
) -> None:
    """Its figures are those of docs/demo.json, which `tools/tables.py` writes: tests/test_readme.py."""
    table = tables.demo_table(json.loads(report.as_json(result)))
    page = (repository / "docs" / "quality.md").read_text(encoding="utf-8")
    (shown,) = [match[0] for match in tables.TABLE.finditer(page) if match[2] == "demo"]
    rows = [line.strip("| ").split(" | ") for line in shown.splitlines() if line.startswith("|")]
    printed = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert rows[0] == printed[0]
    assert [row[0] for row in rows] == [row[0] for row in printed]
    for row, method in zip(printed[2:], result.methods, strict=True):
        assert row[1:] == [f"{mAP:.1f}" for mAP in (method.mAP, *method.by_size.values())]


def test_map_by_size_is_that_of_the_photos_of_the_size_without_the_others(
    result: DemoResult, index: Index, made: scenes.Scenes
) -> None:
    for method, ranked in zip(result.methods, result.rankings, strict=True):
        for (least, most), (kind, mAP) in zip(demo.SIZES, method.by_size.items(), strict=True):
            assert kind == f"{least}-{most}"
            ends = {0 if least == 2 else least, 100 if most == 40 else most}
            each = []
            for query, ranking in zip(made.queries, ranked.rankings, strict=False):
                sizes = {scene.file: 100 * scene.size for scene in made.truth if scene.shows == query.shows}
                positives = {file for file, size in sizes.items() if min(ends) <= size < max(ends)}
                keys = [index.catalogue[image].key for image in ranking.images.tolist()]
                keys = [key for key in keys if key in positives or key not in sizes]
                if positives:
                    each.append(area_under(keys, positives))
            assert mAP == pytest.approx(100 * sum(each) / len(each), abs=0.01)


def area_under(keys: list[str], wanted: set[str]) -> float:
    """Average precision as Oxford's own program adds it up."""
    area, right, recall, precision = 0.0, 0, 0.0, 1.0
    for rank, key in enumerate(keys, start=1):
        right += key in wanted
        area += (right / len(wanted) - recall) * (precision + right / rank) / 2
        recall, precision = right / len(wanted), right / rank
    return area


def test_the_rankings_are_those_of_searching_the_index(index: Index, made: scenes.Scenes, result: DemoResult) -> None:
    query, ranked = made.queries[0], result.rankings
    for place, method, verify in ((0, "plain", 0), (1, "match", 0), (3, "regional", 0), (4, "regional", None)):
        hits = index.search(made.queries_folder / query.file, query.box, top=None, method=method, verify=verify)
        assert [hit.image for hit in hits] == ranked[place].rankings[0].images.tolist()
    assert ranked[3].rankings[0].images.tolist() != ranked[4].rankings[0].images.tolist()


def test_examples_are_lost_by_similarity_and_found_by_diffusion_through_photos_that_show_the_object(
    result: DemoResult, made: scenes.Scenes
) -> None:
    assert result.examples
    shows = {scene.file: scene.shows for scene in made.truth}
    for example in result.examples:
        assert example.regional_rank <= example.n_positives < example.plain_rank
        assert example.chain.keys[-1] == example.scene.file
        assert {shows[key] for key in example.chain.keys} == {example.query.shows}
        assert len(example.chain.keys) > 1
    assert len({example.query.shows for example in result.examples}) == len(result.examples)


class Page(html.parser.HTMLParser):
    """What a browser would fetch, and what stands there."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.links: list[str] = []
        self.cells: list[str] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        addresses = [value for name, value in attrs if name in ("src", "href") and value]
        (self.links if tag == "a" else self.sources).extend(addresses)
        self._in_cell = tag == "td"

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.cells.append(data)
            self._in_cell = False


def test_the_report_stands_alone_and_shows_a_chain_and_the_table(
    index: Index, made: scenes.Scenes, result: DemoResult
) -> None:
    text = report.as_page(index, made, result)
    page = Page(text)
    assert page.sources
    assert all(source.startswith("data:image/") for source in page.sources)
    assert page.links
    assert all(link.startswith(made.folder.as_uri()) for link in page.links)
    assert "<script" not in text
    for method in result.methods:
        start = page.cells.index(method.method)
        figures = [method.mAP, *method.by_size.values()]
        assert page.cells[start + 1 : start + 1 + len(figures)] == [f"{figure:.1f}" for figure in figures]
    for example in result.examples:
        assert all(key in text for key in example.chain.keys)


def test_a_region_overlaps_an_object_that_it_covers_half_of_or_that_covers_half_of_it() -> None:
    region = (100.0, 100.0, 200.0, 200.0)
    assert demo._overlaps(region, (120, 120, 140, 140))
    assert demo._overlaps(region, (0, 0, 400, 400))
    assert demo._overlaps(region, (80, 120, 120, 140))
    assert not demo._overlaps(region, (70, 120, 110, 140))
    assert not demo._overlaps(region, (210, 210, 300, 300))
    assert not demo._overlaps(region, None)


@pytest.mark.parametrize(
    ("number", "spoken"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (113, "113th"), (121, "121st")],
)
def test_ranks_are_ordinal_numbers(number: int, spoken: str) -> None:
    assert report.ordinal(number) == spoken


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_prints_the_table_and_a_second_run_extracts_nothing_again(tmp_path: Path) -> None:
    first = manifind("--out", tmp_path)
    assert first.exit_code == 0
    assert [line[:20].strip() for line in first.stdout.splitlines() if line.endswith(" ms")] == METHODS
    assert (tmp_path / "report.html").exists()
    assert first.stderr.splitlines()[-1].endswith(f" serve {tmp_path / 'scenes.manifind'}")
    extracted: list[int] = []

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "photos":
            extracted.append(total)

    again = report.as_text(demo.run(tmp_path, progress=progress)[2])
    assert set(extracted) == {0}
    for before, after in zip(first.stdout.splitlines(), again.splitlines(), strict=True):
        if before.endswith(" ms"):
            assert before[:58] == after[:58]


def test_without_matplotlib_there_is_no_picture_and_the_json_is_still_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ["matplotlib", "matplotlib.figure"]:
        monkeypatch.setitem(sys.modules, name, None)
    result = manifind("--out", tmp_path, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["figure"] is None
    assert "pip install 'manifind[plots]'" in result.stderr


@pytest.mark.parametrize("below", ["", "further/down"])
def test_a_file_in_place_of_the_folder_is_the_users_to_mend(below: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("here already")
    out = tmp_path / "taken" / below
    result = manifind("--out", out)
    assert result.exit_code == 2
    assert result.stderr == f"--out {out} is a file or lies below one; name a folder.\n"
    assert result.stdout == ""
    assert (tmp_path / "taken").read_text() == "here already"


@pytest.mark.parametrize("name", ["figure1.png", "report.html"])
def test_a_folder_in_place_of_a_file_is_the_users_to_mend(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    result = manifind("--out", tmp_path)
    assert result.exit_code == 2
    assert result.stderr == f"{tmp_path / name} is a folder; move it away or name another --out.\n"


def test_another_index_in_its_place_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = tmp_path / "scenes" / "photos"
    scenes.make_scenes(tmp_path / "scenes", scenes=2)
    Index.create(tmp_path / "scenes.manifind", photos, k=5)
    monkeypatch.setattr(demo, "run", partial(demo.run.func, scenes=2))  # type: ignore[attr-defined]
    result = manifind("--out", tmp_path)
    assert result.exit_code == 2
    assert "is another index than this demo makes; move it away" in result.stderr
    assert Index.open(tmp_path / "scenes.manifind").generation == 1


def test_a_disk_that_cannot_be_written_is_the_machines_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *args: Any, **kwargs: Any) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    result = manifind("--out", tmp_path / "locked")
    assert result.exit_code == 3
    assert (
        result.stderr
        == f"{tmp_path / 'locked'}: Permission denied; ask for the right to it, or choose another place.\n"
    )


def test_without_the_photographs_the_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutouts, "find_spec", lambda name: None)
    cutouts.photograph.cache_clear()
    result = manifind("--out", tmp_path)
    assert result.exit_code == 2
    assert "pip install 'manifind[demo]'" in result.stderr


def test_interrupting_ends_with_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "make_scenes", interrupt)
    result = manifind("--out", tmp_path)
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert "Traceback" not in result.output
