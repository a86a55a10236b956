"""Do the tests bite? Change the code in small ways, one at a time, and see whether a test fails.

    scripts/mutate ranking graph --sample 20          # twenty changes of each room
    scripts/mutate geometry --sample 50 --seconds 300  # what is not done in five minutes is left to the next run
    scripts/mutate --json                             # every room; the same for a program

The changes are cosmic-ray's, drawn with a seed, at most one of each place in the code. Changes of annotations and
docstrings alone are none. A change that no test notices is a survivor. It is shown as a diff, and means one of three
things: a test is missing, the code is of no use, or the change makes no difference. The last are listed with their
reasons in tools/no_difference.json. Results are kept in out/mutants: a run that was stopped goes on where it was, and
--again tries survivors once more. No file of the project is touched.
"""

import argparse
import json
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from judging import HERE, KEPT, Judges, collect
from mutants import ROOT, Mutant, drawn, files_of

EVALUATE = (
    *("collection", "confidence", "matlab", "measures", "methods"),
    *("protocol", "published", "truth", "unpickle"),
)
EVALUATE_TESTS = ("collection", "measures", "methods", "own_truth", "truth", "unpickle")
INDEX = (
    *("asking/answer", "asking/evidence", "asking/refine", "asking/verified", "asking/verify"),
    *("state/chance", "state/manifest", "state/parameters"),
    *("tending/health", "tending/info", "tending/pairs", "tending/teaching"),
)
INDEX_TESTS = (
    "answer",
    "evidence",
    "looking",
    "manifest",
    "pairs",
    "parameters",
    "query",
    "refine",
    "teaching",
    "verified",
    "verify",
    "words",
)
"""Of rooms that mostly describe photos and write files, the modules that fast tests answer for."""

ROOMS = {
    "boxes": (["boxes.py"], ["tests/test_boxes.py"]),
    "ranking": (["ranking.py"], ["tests/test_ranking.py", "tests/test_truth.py", "tests/test_manifold.py"]),
    "graph": (["graph/*.py"], ["tests/test_graph.py", "tests/test_choosing.py", "tests/test_update.py"]),
    "diffusion": (
        ["diffusion/*.py"],
        ["tests/test_truth.py", "tests/test_prepared_engines.py", "tests/test_local.py", "tests/test_manifold.py"],
    ),
    "geometry": (["geometry/*.py"], ["tests/geometry"]),
    "evaluate": (
        [*(f"evaluate/{name}.py" for name in EVALUATE), "evaluate/truths/*.py"],
        [f"tests/evaluate/test_{name}.py" for name in EVALUATE_TESTS],
    ),
    "index": ([f"index/{name}.py" for name in INDEX], [f"tests/index/test_{name}.py" for name in INDEX_TESTS]),
}
"""The files of each room, below the package, and the tests that answer for them."""

LEFT_OUT = ("tests/geometry/test_emblems.py", "tests/geometry/test_planted.py")
"""Tests that are not asked: they take minutes."""

NO_DIFFERENCE = Path(__file__).with_name("no_difference.json")
"""Why survivors make no difference, by how their names begin: a line, or one change of it."""
NOTICED, ADDED, SURVIVED, UNRUN = "noticed by", "noticed by the new", "survived", "run by no test"


def tried(room: str, given: argparse.Namespace, until: float, items: list[pytest.Item]) -> dict[str, Any]:
    """Try changes of a room, as far as they are not known and there is time; return what came of them."""
    files = files_of(ROOMS[room][0])
    sample, places = drawn(files, given.sample, given.seed)
    kept = KEPT / f"{room}-verdicts.json"
    known: dict[str, str] = json.loads(kept.read_text()) if kept.exists() else {}
    reasons: dict[str, str] = json.loads(NO_DIFFERENCE.read_text()) if NO_DIFFERENCE.exists() else {}

    def excused(name: str) -> bool:
        return not known.get(name, NOTICED).startswith(NOTICED) and any(name.startswith(start) for start in reasons)

    def settled(name: str) -> bool:
        return name in known and (not given.again or known[name].startswith(NOTICED) or excused(name))

    left = [one for one in sample if not settled(one.name)]
    if left and time.monotonic() < until:
        judges = Judges(room, files, ROOMS[room][1], items, given.since)
        for test in judges.failed:
            print(f"{test} is not asked: it does not pass as things are, or takes long.", file=sys.stderr)
        for number, mutant in enumerate(left):
            if time.monotonic() > until:
                break
            chosen, seconds = judges.of(mutant, given.patience)
            test = judges.notice(mutant, chosen, seconds) if chosen else None
            if test is not None:
                known[mutant.name] = f"{ADDED if test in judges.added else NOTICED} {test}"
            else:
                known[mutant.name] = SURVIVED if mutant.where != "body" or judges.runs(mutant) else UNRUN
            write(kept, known)
            print(
                f"\r{room}: {number + 1} of {len(left)}, {known[mutant.name]:70.70}",
                end="",
                file=sys.stderr,
                flush=True,
            )
        print(file=sys.stderr)
    done = [one for one in sample if one.name in known]
    idle = [one for one in done if excused(one.name)]
    alive = [one for one in done if not known[one.name].startswith(NOTICED) and not excused(one.name)]
    return {
        "room": room,
        "places": places,
        "tried": len(done),
        "noticed": len(done) - len(idle) - len(alive),
        "by_added": sum(known[one.name].startswith(ADDED) for one in done),
        "no_difference": len(idle),
        "survivors": [told(one, known[one.name]) for one in alive],
    }


def told(mutant: Mutant, verdict: str) -> dict[str, Any]:
    """Return a survivor in words."""
    file = str(mutant.file.relative_to(ROOT))
    return {"name": mutant.name, "file": file, "line": mutant.line, "verdict": verdict, "diff": mutant.diff()}


def write(kept: Path, known: dict[str, str]) -> None:
    """Replace what is kept, whole or not at all."""
    beside = kept.with_suffix(".new")
    beside.write_text(json.dumps(known, indent=1))
    beside.replace(kept)


def show(rooms: list[dict[str, Any]]) -> None:
    """Print survivors as diffs, then a table: how often the tests bite, of changes that make a difference."""
    for room in rooms:
        for one in room["survivors"]:
            print(f"{one['verdict']}: {one['name']}\n{one['diff']}\n")
    heads = ("room", "places", "tried", "noticed", "by new tests", "no difference", "survived", "bite")
    print(" ".join(f"{head:>{max(8, len(head))}}" for head in heads))
    for room in rooms:
        survived, noticed = len(room["survivors"]), room["noticed"]
        counts = room["places"], room["tried"], noticed, room["by_added"], room["no_difference"], survived
        row = (room["room"], *counts, f"{100 * noticed / max(1, noticed + survived):.0f} %")
        print(" ".join(f"{cell:>{max(8, len(head))}}" for head, cell in zip(heads, row, strict=True)))


def main() -> int:
    """Try changes until all are done or the time is up; return 1 where one survives, 130 where Ctrl-C ended it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="*", help=f"{', '.join(ROOMS)}; all, unless given")
    parser.add_argument("--sample", type=int, default=20, help="changes of each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long; the next run goes on")
    parser.add_argument("--patience", type=float, default=3, help="seconds that tests of one change may take")
    parser.add_argument("--again", action="store_true", help="try survivors once more, with the tests as they are now")
    parser.add_argument("--since", help="a revision of git: tests that it does not have are asked last, and told apart")
    parser.add_argument("--json", action="store_true", help="print what came of it for a program")
    given = parser.parse_args()
    unknown = sorted(set(given.rooms) - set(ROOMS))
    if unknown:
        parser.error(f"{unknown[0]!r} is no room; choose from {', '.join(ROOMS)}.")
    HERE.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    until = time.monotonic() + given.seconds
    wanted: list[str] = given.rooms or list(ROOMS)
    rooms: list[dict[str, Any]] = []
    try:
        collect(
            [*(test for room in wanted for test in ROOMS[room][1]), *(f"--ignore={test}" for test in LEFT_OUT)],
            lambda items: rooms.extend(tried(room, given, until, items) for room in wanted),
        )
    finally:
        shutil.rmtree(HERE, ignore_errors=True)
    if len(rooms) < len(wanted):
        print("\nstopped; what was tried is kept, and the same command goes on from there.", file=sys.stderr)
        return 130
    if given.json:
        print(json.dumps({"sample": given.sample, "seed": given.seed, "rooms": rooms}, indent=1))
    else:
        show(rooms)
    return 1 if any(room["survivors"] for room in rooms) else 0


if __name__ == "__main__":
    sys.exit(main())
