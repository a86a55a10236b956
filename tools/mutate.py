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
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from judging import KEPT, Judges, collect
from mutants import ROOT, Mutant, drawn, files_of

ROOMS = {
    "ranking": (["ranking.py"], ["tests/test_ranking.py", "tests/test_truth.py", "tests/test_manifold.py"]),
    "graph": (["graph/*.py"], ["tests/test_graph.py", "tests/test_choosing.py", "tests/test_update.py"]),
    "diffusion": (
        ["diffusion/*.py"],
        ["tests/test_truth.py", "tests/test_prepared_engines.py", "tests/test_local.py", "tests/test_manifold.py"],
    ),
    "geometry": (["geometry/*.py"], ["tests/geometry"]),
    "evaluate": (["evaluate/*.py"], ["tests/evaluate"]),
    "index": (["index/*.py"], ["tests/index"]),
}
"""The files of each room, below the package, and the tests that answer for them."""

LEFT_OUT = [
    *(f"tests/geometry/test_{name}.py" for name in ("emblems", "planted")),
    *(f"tests/index/test_{name}.py" for name in ("attack", "bad_files", "cli", "crash", "films", "kept", "upkeep")),
]
"""Tests that are not asked: they take minutes, or start other processes, which know nothing of a change."""

NO_DIFFERENCE = Path(__file__).with_name("no_difference.json")
NOTICED, SURVIVED, UNRUN = "noticed", "survived", "run by no test"


def tried(room: str, given: argparse.Namespace, until: float, items: list[pytest.Item]) -> dict[str, Any]:
    """Try changes of a room, as far as they are not known and there is time; return what came of them."""
    files = files_of(ROOMS[room][0])
    sample, places = drawn(files, given.sample, given.seed)
    kept = KEPT / f"{room}-verdicts.json"
    known: dict[str, str] = json.loads(kept.read_text()) if kept.exists() else {}
    reasons: dict[str, str] = json.loads(NO_DIFFERENCE.read_text()) if NO_DIFFERENCE.exists() else {}
    left = [one for one in sample if one.name not in known or (given.again and known[one.name] != NOTICED)]
    left = [one for one in left if one.name not in reasons]
    if left and time.monotonic() < until:
        judges = Judges(room, files, ROOMS[room][1], items)
        for test in judges.failed:
            print(f"{test} is not asked: it does not pass as things are, or takes long.", file=sys.stderr)
        for number, mutant in enumerate(left):
            if time.monotonic() > until:
                break
            chosen, seconds = judges.of(mutant, given.patience)
            if not chosen:
                known[mutant.name] = UNRUN
            else:
                known[mutant.name] = NOTICED if judges.notice(mutant, chosen, seconds) else SURVIVED
            write(kept, known)
            print(
                f"\r{room}: {number + 1} of {len(left)}, {known[mutant.name]:14}", end="", file=sys.stderr, flush=True
            )
        print(file=sys.stderr)
    done = [one for one in sample if one.name in known or one.name in reasons]
    excused = [one for one in done if one.name in reasons]
    alive = [one for one in done if one.name not in reasons and known[one.name] != NOTICED]
    return {
        "room": room,
        "places": places,
        "tried": len(done),
        "noticed": len(done) - len(excused) - len(alive),
        "no_difference": len(excused),
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
    print(f"{'room':10} {'places':>7} {'tried':>6} {'noticed':>8} {'no difference':>14} {'survived':>9} {'bite':>6}")
    for room in rooms:
        survived, noticed = len(room["survivors"]), room["noticed"]
        counts = f"{room['places']:7} {room['tried']:6} {noticed:8} {room['no_difference']:14} {survived:9}"
        print(f"{room['room']:10} {counts} {100 * noticed / max(1, noticed + survived):4.0f} %")


def main() -> int:
    """Try changes until all are done or the time is up; return 1 where one survives, 130 where Ctrl-C ended it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="*", help=f"{', '.join(ROOMS)}; all, unless given")
    parser.add_argument("--sample", type=int, default=20, help="changes of each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long; the next run goes on")
    parser.add_argument("--patience", type=float, default=4, help="seconds that tests of one change may take")
    parser.add_argument("--again", action="store_true", help="try survivors once more, with the tests as they are now")
    parser.add_argument("--json", action="store_true", help="print what came of it for a program")
    given = parser.parse_args()
    unknown = sorted(set(given.rooms) - set(ROOMS))
    if unknown:
        parser.error(f"{unknown[0]!r} is no room; choose from {', '.join(ROOMS)}.")
    KEPT.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    until = time.monotonic() + given.seconds
    wanted: list[str] = given.rooms or list(ROOMS)
    rooms: list[dict[str, Any]] = []
    collect(
        [*(test for room in wanted for test in ROOMS[room][1]), *(f"--ignore={test}" for test in LEFT_OUT)],
        lambda items: rooms.extend(tried(room, given, until, items) for room in wanted),
    )
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
