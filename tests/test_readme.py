"""What the README says holds; its blocks of code are run by tests/docs."""

import json
import re
from pathlib import Path

import pytest
from tools import tables


@pytest.fixture(scope="module")
def readme(repository: Path) -> str:
    return (repository / "README.md").read_text()


def test_every_file_that_the_readme_and_the_documents_name_exists(readme: str, repository: Path) -> None:
    documents = [repository / "README.md", *(repository / "docs").rglob("*.md")]
    assert len(documents) > 3
    for document in documents:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), target
    for command in re.findall(r"(?:scripts|benchmarks)/[\w.]+", readme):
        assert (repository / command).exists(), command


def test_the_figures_of_the_readme_are_those_that_were_measured(readme: str, repository: Path) -> None:
    costs = re.findall(r"\| `[^|]+ \| (\d\.\d\d) \|", (repository / "docs" / "speed.md").read_text())
    assert {"0.17", "0.40", "0.16"} < set(costs)
    assert all(f" {cost} of " in readme for cost in ("0.17", "0.40", "0.16"))


def test_the_page_of_figures_has_those_that_were_measured_and_published(repository: Path) -> None:
    page = (repository / "docs" / "quality.md").read_text()
    measured = json.loads((repository / "docs" / "oxford5k" / "results.json").read_text())
    ours = {row["title"]: row["mAP_trapezoid"] for row in measured["results"] if row["column"] == "Oxford5k"}
    shown = re.search(
        r"plain similarity has ([\d.]+), R-match ([\d.]+), regional diffusion at the paper's setting ([\d.]+), "
        r"at k = 100 and query_k = 50 ([\d.]+):",
        page,
    )
    assert shown is not None
    titles = (
        "Nearest neighbours (R-MAC)",
        "R-match",
        *(f"Regional diffusion, k = {k}" for k in ("200, query_k = 200", "100, query_k = 50")),
    )
    assert shown.groups() == tuple(f"{ours[title]:.1f}" for title in titles)


def test_published_figures_stand_beside_those_of_a_search() -> None:
    defaults = {
        "results": [
            {"method": "search", "column": c, "mAP": 50.0} for c in ("Oxford5k", "ROxford5k Medium", "ROxford5k Hard")
        ]
    }
    rows = [line.strip("| ").split(" | ") for line in tables.published_table(defaults).splitlines()]
    assert rows[2][:4] == ["**manifind**, a search by the defaults", "50.0", "50.0", "50.0"]
    assert [row[1] for row in rows if row[0].startswith("the paper, regional")] == ["93.2", "95.8"]
    assert all(len(row) == len(rows[0]) for row in rows)


def test_the_rows_of_the_paper_stand_beside_ours() -> None:
    results = [
        {"method": "r-match", "column": "Oxford5k", "mAP_trapezoid": 70.81},
        {"method": "r-match", "column": "ROxford5k Hard", "mAP_trapezoid": 1.0},
    ]
    rows = [line[1:-1].split("|") for line in tables.paper_table({"results": results}).splitlines()]
    cells = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    assert cells["R-match"] == ["70.8", "81.5", "88.1", ""]
    assert cells["HQE"] == ["", "", "", "89.4"]
    assert cells["Regional diffusion"] == ["", "93.2", "95.8", ""]


def test_every_table_is_what_its_command_wrote(repository: Path) -> None:
    """`python tools/tables.py` rewrites them; ``--take`` stores those of benchmarks as the pages have them."""
    names = []
    for page in tables.pages():
        text = page.read_text(encoding="utf-8")
        names += [match[2] for match in tables.TABLE.finditer(text)]
        assert tables.rewrite(text) == text, f"{page}: python tools/tables.py, or --take if the page is right"
    assert set(names) == {*tables.TABLES, *tables.stored()}
    assert repository == tables.ROOT


def test_a_table_of_a_benchmark_is_stored_and_written_into_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "FIGURES", tmp_path / "figures.json")
    tables.FIGURES.write_text("{}")
    tables.store("costs", [["what", "ratio"], ["`fit`", "0.17"]])
    tables.store("a", [["", "é"], ["x", ""]])
    page = "before\n<!-- table: costs -->\n\n<!-- end of table -->\n<!-- table: a -->\n\n\n<!-- end of table -->\n"
    written = tables.rewrite(page)
    assert "| what | ratio |\n| --- | --- |\n| `fit` | 0.17 |\n" in written
    assert tables.rewrite(written) == written
    tables.take(written.replace("0.17", "0.16"))
    assert tables.stored() == {"costs": [["what", "ratio"], ["`fit`", "0.16"]], "a": [["", "é"], ["x", ""]]}
    assert "| `fit` | 0.16 |" in tables.rewrite(written)


def test_a_table_is_rewritten_where_a_figure_is_another() -> None:
    text = "before\n<!-- table: demo -->\n\n| method | all |\n| --- | --- |\n\n<!-- end of table -->\nafter"
    rewritten = tables.rewrite(text)
    assert rewritten.startswith("before\n<!-- table: demo -->\n\n| method | all | 2–5 % |")
    assert rewritten.endswith("|\n\n<!-- end of table -->\nafter")
    stored = json.loads(tables.DEMO.read_text())["methods"]
    for method in stored:
        assert f"| {method['method']} | {method['mAP']:.1f} |" in rewritten


def test_what_evaluations_wrote_of_indexes_becomes_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "DEFAULTS", tmp_path / "defaults.json")
    reports = []
    for column, figures in (("Holidays", (91.04, 96.05)), ("ROxford5k Hard", (11.0, 52.96))):
        ways = {"method": "plain", "verify": None}, {"method": "regional", "verify": None, "expand": True}
        rows = [
            {"parameters": way, "column": column, "mAP_mean": 1.0, "mAP_trapezoid": mAP}
            for way, mAP in zip(ways, figures, strict=True)
        ]
        reports.append(tmp_path / f"{column}.json")
        reports[-1].write_text(json.dumps({"definition": "trapezoid", "results": rows}))
    tables.store_defaults(reports)
    table = tables.defaults_table(json.loads(tables.DEFAULTS.read_text()))
    assert table.splitlines() == [
        "| mAP | Holidays | Revisited Hard |",
        "| --- | --- | --- |",
        "| plain similarity | 91.0 | 11.0 |",
        "| a search | 96.0 | 53.0 |",
    ]
    # One of the collections again: its column is replaced where it stands, the other stays.
    again = json.loads(reports[0].read_text())
    again["results"][1]["mAP_trapezoid"] = 97.04
    reports[0].write_text(json.dumps(again))
    tables.store_defaults(reports[:1])
    table = tables.defaults_table(json.loads(tables.DEFAULTS.read_text()))
    assert table.splitlines()[2:] == ["| plain similarity | 91.0 | 11.0 |", "| a search | 97.0 | 53.0 |"]
    assert table.startswith("| mAP | Holidays | Revisited Hard |")
