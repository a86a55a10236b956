"""Whom query expansion helps: queries whose first images are right, and the others.

    python benchmarks/query_expansion.py [docs/oxford5k/results.json]

Reads what ``manifind evaluate`` wrote, and prints mAP before and after expansion, apart for queries with at least four
of the first five images right before it, and for all others.
"""

import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

PAIRS = (("nearest", "aqe"), ("nearest", "alpha-qe"), ("r-match", "r-match-aqe"))
RIGHT = 4


def apart(before: dict[str, Any], after: dict[str, Any]) -> dict[bool, tuple[int, float, float]]:
    """For queries that begin well, and for those that do not: how many, and mAP before and after."""
    groups: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    scores = zip(before["average_precisions"], after["average_precisions"], before["right_of_first_5"], strict=True)
    for first, second, right in scores:
        if first is not None:
            groups[right >= RIGHT].append((first, second))
    return {
        well: (len(pairs), mean(a for a, _ in pairs), mean(b for _, b in pairs))
        for well, pairs in groups.items()
        if pairs
    }


def main(file: Path) -> None:
    results = json.loads(file.read_text())["results"]
    for column in dict.fromkeys(row["column"] for row in results):
        rows = {row["method"]: row for row in results if row["column"] == column}
        for plain, expanded in PAIRS:
            for well, (count, first, second) in apart(rows[plain], rows[expanded]).items():
                kind = "four of the first five right" if well else "others"
                print(f"{column:18} {expanded:12} {kind:29} {count:3} queries  {first:5.1f} -> {second:5.1f}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/oxford5k/results.json"))
