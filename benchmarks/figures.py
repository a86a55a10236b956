"""Print the tables of README and the documentation anew, from this code on the data at hand, and write them.

    scripts/figures                                   # what can be made here; says what cannot, and why
    scripts/figures --list                            # each table: where it stands, its command, what it needs
    scripts/figures mirrored shortlists               # some tables
    scripts/figures --data scenes=out oxford=oxford.manifind --threads 1 --repeats 5

A page shows a table between ``<!-- table: NAME -->`` and ``<!-- end of table -->``. Its cells are stored in
``docs/figures.json`` (``docs/demo.json`` and the like for those of `manifind`); ``tools/tables.py`` writes them into
the pages, and a test compares the two. A table of a benchmark is replaced as a whole. Times of a busy machine replace
those of a quiet one too: run one table by its name where only that was measured well.

The descriptors of Oxford5k are found by ``MANIFIND_DATA`` (``harness.py``); everything else is named by ``--data``.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools import tables

Cells = list[list[str]]

DATA = {
    "oxford5k": "the descriptors of Oxford5k (MANIFIND_DATA)",
    "scenes": "the folder that `manifind demo --out` filled",
    "oxford": "an index of the photos of Oxford5k by defaults",
    "holidays": "an index of INRIA Holidays by defaults",
    "truths": "a folder of the ground truths of photos that an index holds",
    "gpu": "an NVIDIA GPU",
    "milvus": "a server of Milvus",
    "photos": "photos for research",
}
"""What tables need."""


@dataclass(frozen=True)
class Figure:
    """A table: the command that prints it, and what that needs."""

    command: str
    """After ``python``; {NAME} stands for data."""
    needs: tuple[str, ...] = ()
    cells: Callable[[Any], Cells] | None = None
    """Makes the table of what the command prints with ``--json``; None where several runs make it up."""
    timed: bool = False
    """Whether the command takes ``--threads`` and ``--repeats``."""


def columns(result: Any, header: Iterable[str], *cells: Callable[[Any], str]) -> Cells:
    """Return a table of a benchmark's rows."""
    return [list(header), *([cell(row) for cell in cells] for row in result["rows"])]


def number(name: str, digits: int, unit: str = "") -> Callable[[Mapping[str, Any]], str]:
    """Return a function that shows a figure of a row; empty where there is none."""
    return lambda row: "" if row.get(name) is None else f"{row[name]:.{digits}f}{unit}"


def text(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: str(row[name])


def costs(result: Any) -> Cells:
    ratios = {name: f"{cost['ratio']:.2f}" for name, cost in result["costs"].items()}
    return [
        ["what", "ratio", "to what"],
        ["`fit`, time", ratios["graph"], "faiss `IndexFlatIP`, filled and searched"],
        ["`fit`, peak memory", ratios["memory"], "the descriptors in float32"],
        [
            "`search`, one query",
            ratios["query"],
            "SciPy's float64 `cg`, 20 iterations, and faiss for the query's neighbours",
        ],
        ["`search_many`, 64 queries, each", ratios["batch"], "`search`, one at a time"],
    ]


def shortlists(result: Any) -> Cells:
    sizes = [str(size) for size in result["sizes"]]
    rows = []
    for line, later in zip(result["Oxford5k"], result["Revisited"], strict=True):
        if line["way"] != "no shortlist":
            found = [f"{line['map'][size]['Oxford5k']:.1f}" for size in sizes]
            both = later["map"]["500" if "500" in sizes else sizes[-1]]
            revisited = f"{both['Medium']:.1f} / {both['Hard']:.1f}"
            rows.append([line["way"].replace(" asked with", ""), f"{line['rows_a_photo']:.0f}", *found, revisited])
    return [["a photo is found by; asked with", "rows", *sizes, "Revisited, 500"], *rows]


def negatives(result: Any) -> Cells:
    refined = result["Oxford5k"]["refine"]
    weights = [name for name in refined["not_this_1"] if name != "without"]
    rows = [
        [title, *(f"{refined[name][column]:.2f}" for column in ("without", *weights))]
        for title, name in (("the first wrong photo marked", "not_this_1"), ("the first three", "not_this_3"))
    ]
    return [["", "before", *(f"weight {weight}" if i == 0 else weight for i, weight in enumerate(weights))], *rows]


def clients(result: Any) -> Cells:
    lines = {**result["clients"], f"{max(map(int, result['clients']))}, batches of one": result["one_at_a_time"]}
    rows = [
        [name, f"{one['queries_a_second']:.1f}", f"{one['p50_ms']:.0f} ms", f"{one['p99_ms']:.0f} ms"]
        for name, one in lines.items()
    ]
    return [["clients", "queries a second", "p50", "p99"], *rows]


def mirrored(result: Any) -> Cells:
    header = [
        "query",
        "searched",
        "mAP",
        "verified, right",
        "verified, wrong",
        "told as mirrored",
        "mean score of the first",
    ]
    first = (text("query"), text("searched"), number("map", 1))
    shown = columns(result, header, *first, text("right"), text("wrong"), text("mirrored"), number("score", 3))
    for row in shown[1:]:
        if row[1] == "one way":
            row[5] = ""
    return shown


def expansion(result: Any) -> Cells:
    header = [
        "images",
        "right among them",
        "similarity of the last",
        "AQE",
        "AQE by the right ones only",
        "αQE, α = 3",
        "R-match + AQE",
    ]
    of = ("right_among_them", "similarity_of_the_last", "AQE", "AQE_by_the_right_ones_only", "alphaQE", "R-match+AQE")
    return columns({"rows": result["expansion"]}, header, text("images"), *(number(name, 2) for name in of))


def helped(result: Any) -> Cells:
    """Return before → after of two methods on two columns, for queries that begin well and for the others."""
    asked = [(method, column) for method in ("aqe", "r-match-aqe") for column in ("Oxford5k", "ROxford5k Medium")]
    names = {"aqe": "AQE", "r-match-aqe": "R-match + AQE"}
    header = ["queries", *(f"{names[method]}, {column.removeprefix('ROxford5k ')}" for method, column in asked)]
    rows = []
    for title, ending in (("four of the first five right", "with four of the first five right"), ("others", "others")):
        cells = [title]
        for method, column in asked:
            row = next(
                row
                for row in result["helped"]
                if (row["method"], row["column"]) == (method, column) and row["queries"].endswith(ending)
            )
            cells.append(f"{row['before']:.1f} → {row['after']:.1f} ({row['queries'].split()[0]})")
        rows.append(cells)
    return [header, *rows]


def repeated(result: Any) -> Cells:
    header = [
        "collection",
        "groups",
        "among the first 30: groups of the ground truth",
        "different objects",
        "their purity",
        "groups without a labelled photo",
    ]
    names = ("collection", "groups", "of the truth", "things")
    return columns(result, header, *map(text, names), number("purity", 3), text("without a label"))


def solves(result: Any) -> Cells:
    header = ["solver", "ms a query", "against SciPy's float64 `cg`", "images in common among the first 100"]
    return columns(result, header, text("method"), number("ms", 1), number("ratio", 1), number("images at 100", 0))


FIGURES = {
    "cost": Figure("benchmarks/cost.py", ("oxford5k",), costs),
    "graph": Figure(
        "benchmarks/speed.py graph",
        ("oxford5k",),
        lambda result: columns(
            result,
            ["method", "seconds", "against faiss", "recall"],
            text("method"),
            number("s", 1),
            number("ratio", 1),
            number("recall", 4),
        ),
        timed=True,
    ),
    "query": Figure("benchmarks/speed.py query", ("oxford5k",), solves, timed=True),
    "paper-times": Figure(
        "benchmarks/speed.py paper",
        ("oxford5k",),
        lambda result: columns(result, ["", "ms a query"], text("method"), number("ms", 0)),
        timed=True,
    ),
    "solvers": Figure(
        "benchmarks/speed.py solvers --k 50 --query-k 50 --size 300",
        ("oxford5k",),
        lambda result: columns(
            result,
            ["solver", "ms, one", "ms, of 55 together", "mAP", "off line", "kept"],
            text("method"),
            number("ms, one", 0),
            number("ms, of many", 0),
            number("mAP", 2),
            number("off line s", 0, " s"),
            number("kept MB", 0, " MB"),
        ),
        timed=True,
    ),
    "shortlists": Figure("benchmarks/stores.py shortlists", ("oxford5k",), shortlists),
    "expansion": Figure("benchmarks/methods.py --part expansion", ("oxford5k",), expansion),
    "helped": Figure("benchmarks/methods.py --part helped", (), helped),
    "negatives": Figure("benchmarks/feedback.py --part refine", ("oxford5k",), negatives),
    "clients": Figure("benchmarks/serve.py --k 50", ("oxford5k",), clients),
    "mirrored": Figure("benchmarks/feedback.py --part mirrored", (), mirrored),
    "descent": Figure("benchmarks/speed.py descent --k 50", ("oxford5k",)),
    "growth": Figure("benchmarks/growth.py --plot docs/growth.png", ("oxford5k",)),
    "latency": Figure("benchmarks/latency.py {oxford} --queries 16", ("oxford", "holidays", "scenes")),
    "off-line-solvers": Figure("benchmarks/methods.py --part solvers", ("oxford5k",)),
    "hamming": Figure("benchmarks/methods.py --part hamming", ("oxford", "holidays", "truths")),
    "stores": Figure("benchmarks/stores.py", ("oxford5k", "milvus")),
    "repeats": Figure(
        "benchmarks/repeats.py --scenes {scenes} --holidays {holidays}", ("oxford5k", "scenes", "holidays"), repeated
    ),
    "grades": Figure("benchmarks/grades.py", ("photos", "truths")),
    "cutoff": Figure("benchmarks/cutoff.py", ("scenes", "oxford", "holidays", "photos", "truths")),
    "cutoff-alone": Figure("benchmarks/cutoff.py --verify 0", ("scenes", "oxford", "holidays", "photos", "truths")),
    "boxes": Figure("benchmarks/cutoff.py", ("scenes", "photos", "truths")),
    "gpu": Figure("benchmarks/gpu.py", ("gpu",)),
    "gpu-network": Figure("benchmarks/gpu_network.py", ("gpu",)),
}
"""The tables of benchmarks by name. Where `cells` is None, a table holds several runs: it is written by hand into
``docs/figures.json``."""

MANIFIND = {
    "demo": "python tools/tables.py --run",
    "defaults": "manifind evaluate INDEX …, then python tools/tables.py --defaults RESULTS …",
    "matches": "as defaults",
    "published": "as defaults",
    "oxford5k": "manifind evaluate oxford5k … -o docs/oxford5k",
    "paper": "as oxford5k",
}
"""The tables that commands of manifind print (``tools/tables.py``)."""


def missing(figure: Figure, given: Mapping[str, str]) -> list[str]:
    """Return what a table needs and is not at hand."""
    there = {*given, *(["oxford5k"] if harness.at_hand() else [])}
    return [DATA[name] for name in figure.needs if name not in there]


def make(figure: Figure, given: Mapping[str, str], threads: int | None, repeats: int | None) -> Cells:
    """Run the command of a table, and return its cells."""
    assert figure.cells is not None  # noqa: S101
    words = figure.command.format(**given).split()
    if figure.timed:
        words += [] if threads is None else ["--threads", str(threads)]
        words += [] if repeats is None else ["--repeats", str(repeats)]
    run = subprocess.run(
        [sys.executable, *words, "--json"], cwd=tables.ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return figure.cells(json.loads(run.stdout))


def main() -> int:
    """Make tables, store them, and rewrite the pages; return 1 where a command failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="tables; all by default")
    parser.add_argument("--list", action="store_true", help="say where tables stand and what they need; make none")
    parser.add_argument("--data", nargs="+", default=[], metavar="NAME=PATH", help=", ".join(DATA))
    parser.add_argument("--threads", type=int, help="of all libraries, where a command takes it")
    parser.add_argument("--repeats", type=int, help="runs of each work, where a command takes it")
    options = parser.parse_args()
    if unknown := set(options.names) - set(FIGURES):
        parser.error(f"no table is called {', '.join(sorted(unknown))}; see --list")
    given = dict(pair.partition("=")[::2] for pair in options.data)
    if options.list:
        where = tables.places()
        for name, command in {**{name: f"python {one.command}" for name, one in FIGURES.items()}, **MANIFIND}.items():
            needs = "; needs " + ", ".join(DATA[need] for need in FIGURES[name].needs) if name in FIGURES else ""
            print(f"{name}: {', '.join(where.get(name, ['on no page']))}: {command}{needs}")
        return 0
    failed = 0
    for name in options.names or FIGURES:
        figure = FIGURES[name]
        lacking = missing(figure, given)
        if lacking:
            print(f"{name}: not made, for want of {'; '.join(lacking)}")
        elif figure.cells is None:
            print(f"{name}: not made: several runs make it up; run `python {figure.command}` on each collection")
        else:
            try:
                cells = make(figure, given, options.threads, options.repeats)
            except subprocess.CalledProcessError as error:
                print(f"{name}: not made: its command ended with {error.returncode}")
                failed = 1
                continue
            tables.store(name, cells)
            print(f"{name}: made\n{tables.markdown(cells[0], cells[1:])}")
    for page in tables.rewrite_pages():
        print(f"{page.relative_to(tables.ROOT)}: rewritten")
    if not options.names:
        for name, command in MANIFIND.items():
            print(f"{name}: by {command}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
