"""Rewrite the tables of README and the documentation from what commands wrote.

    python tools/tables.py            # from the files that are stored in docs/
    python tools/tables.py --run      # run `manifind demo` first, and store what it prints
    python tools/tables.py --check    # change nothing; exit with 1 where a table is not what its command wrote
    python tools/tables.py --defaults holidays/results.json …   # store what `manifind evaluate -o` wrote of indexes
    python tools/tables.py --take    # store the tables of benchmarks as they stand in the pages, edited by hand

    scripts/figures                  # print the tables of benchmarks anew (benchmarks/figures.py)

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``.

defaults   mAP of `manifind index` by defaults, from ``docs/defaults.json``: what ``manifind evaluate`` wrote of indexes
matches    a search by defaults with its interval, and precision and recall of its matches, from the same file
published  the same beside published figures, from ``docs/published.json`` and `manifind.evaluation`
demo       mAP of `manifind demo`, from ``docs/demo.json``: what ``manifind demo --json`` printed
paper      the rows of the paper's Table 2 beside ours, from the same file and `manifind.evaluation`
others     of benchmarks, from ``docs/figures.json``
oxford5k   mAP of all methods on Oxford5k, from ``docs/oxford5k/results.json``: what ``manifind evaluate`` wrote
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DEFAULTS = ROOT / "docs" / "defaults.json"
DEMO = ROOT / "docs" / "demo.json"
OXFORD5K = ROOT / "docs" / "oxford5k" / "results.json"
FIGURES = ROOT / "docs" / "figures.json"
PUBLISHED = ROOT / "docs" / "published.json"
OF_THE_PAPER = ROOT / "src" / "manifind" / "evaluation" / "published.json"
TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


METHODS = {
    "plain": "plain similarity",
    "match": "R-match",
    "global": "global diffusion",
    "alone": "regional diffusion alone",
    "search": "a search",
}


def defaults_table(result: Any) -> str:
    """Return mAP of each method of an index in each column, in Markdown."""
    figures = {(row["method"], row["column"]): row["mAP"] for row in result["results"]}
    columns = list(dict.fromkeys(column for _, column in figures))
    rows = [
        [title, *(f"{figures[name, column]:.1f}" for column in columns)]
        for name, title in METHODS.items()
        if (name, columns[0]) in figures
    ]
    return markdown(["mAP", *(column.replace("ROxford5k", "Revisited") for column in columns)], rows)


def matches_table(result: Any) -> str:
    """Return a search in each column: its mAP and interval, precision and recall of its matches, in Markdown."""
    rows = [
        [
            row["column"].replace("ROxford5k", "Revisited"),
            f"{row['mAP']:.1f}",
            f"{row['low']:.1f}–{row['high']:.1f}",
            f"{row['precision_of_matches']:.1f}",
            f"{row['recall_of_matches']:.1f}",
        ]
        for row in result["results"]
        if row["method"] == "search"
    ]
    return markdown(["a search", "mAP", "95 % interval", "precision of matches", "recall"], rows)


def published_table(result: Any) -> str:
    """Return mAP of a search by the defaults beside published figures, and what each needs, in Markdown."""
    search = {row["column"]: row["mAP"] for row in result["results"] if row["method"] == "search"}
    ours = {"oxford5k": "Oxford5k", "medium": "ROxford5k Medium", "hard": "ROxford5k Hard"}
    needs = "a MobileNetV2 of 8 bits trained on ImageNet alone; a processor; stored local features"
    listed = [{"title": "**manifind**, a search by the defaults", "needs": needs}]
    listed[0] |= {level: search[column] for level, column in ours.items()}
    of_the_paper = json.loads(OF_THE_PAPER.read_text(encoding="utf-8"))["figures"]
    for row in json.loads(PUBLISHED.read_text(encoding="utf-8")):
        if "published" in row:
            row["oxford5k"] = next(
                one["values"]["Oxford5k"]
                for one in of_the_paper
                if [one["method"], one["descriptors"]] == row["published"] and "Oxford5k" in one["values"]
            )
        listed.append(row)
    rows = [
        [row["title"], *(f"{row[level]:.1f}" if level in row else "" for level in ours), row["needs"]] for row in listed
    ]
    return markdown(["mAP", "Oxford5k", "Revisited Medium", "Revisited Hard", "what it needs"], rows)


def demo_table(result: Any) -> str:
    """Return mAP of each method of the demo, in all and by size, in Markdown."""
    sizes = list(result["photos_by_size"])
    rows = [
        [method["method"], *(f"{mAP:.1f}" for mAP in (method["mAP"], *(method["by_size"][size] for size in sizes)))]
        for method in result["methods"]
    ]
    return markdown(["method", "all", *(f"{size.replace('-', '–')} %" for size in sizes)], rows)


def oxford5k_table(result: Any) -> str:
    """Return mAP of each method in each column of an evaluation, in Markdown."""
    figures = {(row["title"], row["column"]): row[f"mAP_{result['definition']}"] for row in result["results"]}
    titles, columns = (list(dict.fromkeys(names)) for names in zip(*figures, strict=True))
    rows = [[title, *(f"{figures[title, column]:.2f}" for column in columns)] for title in titles]
    return markdown(["method", *(column.removeprefix("ROxford5k ") for column in columns)], rows)


def paper_table(result: Any) -> str:
    """Return mAP on Oxford5k of the rows of the paper's Table 2 beside the paper's values, in Markdown."""
    ours = {row["method"]: row["mAP_trapezoid"] for row in result["results"] if row["column"] == "Oxford5k"}
    networks = ("vgg16-siamac-rmac-512", "resnet101-gordo-rmac-2048")
    theirs: dict[str, dict[str, float]] = {}
    titles: dict[str, str] = {}
    for one in json.loads(OF_THE_PAPER.read_text(encoding="utf-8"))["figures"]:
        if one["source"].endswith("CVPR 2017, table 2") and "Oxford5k" in one["values"] and one["method"]:
            titles.setdefault(one["method"], one["title"])
            theirs.setdefault(one["method"], {})[one["descriptors"]] = one["values"]["Oxford5k"]
    rows = [
        [
            title,
            f"{ours[method]:.1f}" if method in ours else "",
            *(f"{theirs[method][network]:.1f}" if network in theirs[method] else "" for network in networks),
            f"{theirs[method]['sift-128']:.1f}" if "sift-128" in theirs[method] else "",
        ]
        for method, title in titles.items()
    ]
    header = ["Oxford5k", "ours, MobileNetV2, 512-d", "the paper, VGG16, 512-d", "ResNet101, 2048-d", "local features"]
    return markdown(header, rows)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)) + "\n"


TABLES: dict[str, tuple[Path, Callable[[Any], str]]] = {
    "defaults": (DEFAULTS, defaults_table),
    "matches": (DEFAULTS, matches_table),
    "published": (DEFAULTS, published_table),
    "demo": (DEMO, demo_table),
    "oxford5k": (OXFORD5K, oxford5k_table),
    "paper": (OXFORD5K, paper_table),
}


def stored() -> dict[str, list[list[str]]]:
    """Return the tables of benchmarks by name: the header, and a list of cells for each row."""
    tables: dict[str, list[list[str]]] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return tables


def store(name: str, cells: list[list[str]]) -> None:
    """Store the table of a benchmark, a row a line."""
    tables = {**stored(), name: cells}
    parts = []
    for title in sorted(tables):
        rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in tables[title])
        parts.append(f' "{title}": [\n  {rows}\n ]')
    FIGURES.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def take(text: str) -> None:
    """Store the tables of benchmarks that a page shows."""
    for match in TABLE.finditer(text):
        if match[2] not in TABLES:
            lines = [line for line in match[0].splitlines() if line.startswith("|")]
            rows = [[cell.strip() for cell in line[1:].rstrip()[:-1].split("|")] for line in lines]
            store(match[2], [rows[0], *rows[2:]])


def rewrite(text: str) -> str:
    """Return a page with each of its tables as the stored file has it."""

    def replace(match: re.Match[str]) -> str:
        if match[2] in TABLES:
            file, make = TABLES[match[2]]
            table = make(json.loads(file.read_text(encoding="utf-8")))
        else:
            header, *rows = stored()[match[2]]
            table = markdown(header, rows)
        return f"{match[1]}\n{table}\n{match[3]}"

    return TABLE.sub(replace, text)


def rewrite_pages() -> list[Path]:
    """Write the stored tables into the pages, and return the pages that changed."""
    changed = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if rewrite(text) != text:
            page.write_text(rewrite(text), encoding="utf-8")
            changed.append(page)
    return changed


def places() -> dict[str, list[str]]:
    """Return on which pages each table stands."""
    found: dict[str, list[str]] = {}
    for page in pages():
        for match in TABLE.finditer(page.read_text(encoding="utf-8")):
            found.setdefault(match[2], []).append(str(page.relative_to(ROOT)))
    return found


def pages() -> list[Path]:
    """Return the pages that may have tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def store_defaults(reports: list[Path]) -> None:
    """Store mAP, its interval, and precision and recall of matches by what `manifind evaluate` wrote of indexes.

    Columns that no report has stay as they are.
    """
    stored = json.loads(DEFAULTS.read_text(encoding="utf-8"))["results"] if DEFAULTS.is_file() else []
    order = list(dict.fromkeys(row["column"] for row in stored))
    for report in reports:
        result = json.loads(report.read_text(encoding="utf-8"))
        definition = result["definition"]
        measured = {row["column"] for row in result["results"]}
        stored = [row for row in stored if row["column"] not in measured]
        for row in result["results"]:
            chosen = row["parameters"]
            name = chosen["method"]
            if name == "regional":
                name = "alone" if chosen["verify"] == 0 else "search"
            of_method = {
                "mAP": f"mAP_{definition}",
                "low": f"mAP_{definition}_low",
                "high": f"mAP_{definition}_high",
                "precision_of_matches": "cutoff_precision",
                "recall_of_matches": "cutoff_recall",
            }
            figures = {to: round(row[measure], 2) for to, measure in of_method.items() if measure in row}
            stored.append({"method": name, "column": row["column"], **figures})
    stored.sort(key=lambda row: order.index(row["column"]) if row["column"] in order else len(order))
    DEFAULTS.write_text(
        json.dumps({"average_precision": definition, "results": stored}, indent=1) + "\n", encoding="utf-8"
    )


def run_demo() -> None:
    """Run the demo and store what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "manifind.cli", "demo", "--out", folder, "--json"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
    result = json.loads(printed)
    del result["figure"], result["seconds"]  # the path of a file that is gone, and what differs from run to run
    for method in result["methods"]:
        del method["query_seconds"]
    DEMO.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Rewrite the tables, or say which differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--take", action="store_true")
    parser.add_argument("--defaults", type=Path, nargs="+", metavar="RESULTS", help="results.json of evaluations")
    options = parser.parse_args()
    if options.take:
        for page in pages():
            take(page.read_text(encoding="utf-8"))
    if options.defaults:
        store_defaults(options.defaults)
    if options.run:
        run_demo()
    if options.check:
        stale = [page for page in pages() if rewrite(text := page.read_text(encoding="utf-8")) != text]
    else:
        stale = rewrite_pages()
    for page in stale:
        print(page.relative_to(ROOT))
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
