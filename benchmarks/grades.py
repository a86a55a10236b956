"""Whether *verified* means the very object: labelled results of searches by box, and the coefficients of their grades.

    python benchmarks/grades.py collect INDEX --truth TRUTH [--queries FOLDER] [--asked N] -o FIGURES.json
    python benchmarks/grades.py fit FIGURES.json [FIGURES.json ...] [--report FIGURES.json ...]

``collect`` searches for the queries of TRUTH that are boxes (any truth that ``manifind evaluate --truth`` reads), with
no result graded down, and writes the figures of each result that shows a part of the query
(`manifind.index.search.grading`), and whether it is right. A query's own photo and junk do not count.

``fit`` fits the coefficients of `GradingConfig` by two logistic regressions, collections with equal weights, and prints
them; then, for each collection of both lists and the coefficients of `SearchConfig` and those fitted:

verified     precision and recall before grading, and by grades
part, likely how many results are said to share a part and to be merely likely, and how many of them are right

Data: an index of photos by its own parameters, all threads.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cutoff import Known, spaced
from manifind.index import Index, SearchConfig
from manifind.index.config import GradingConfig
from manifind.index.search.grading import Figures, count_matches, measure, probabilities, stacked_logits

Floats = npt.NDArray[np.float64]
RIDGE = 1.0
"""Of the regressions, on figures of unit variance."""


def collect(index_path: Path, truth: Path, queries: Path | None, asked: int | None) -> dict[str, Any]:
    """Return the figures of results, query by query."""
    # Measured for all, and taken from none.
    plain = replace(SearchConfig(), grading=GradingConfig(enabled=True, min_verified=0.0))
    known = Known(Index.open(index_path, config=plain), truth, queries)
    (task, *_), collected = known.protocol.tasks, []
    for number in spaced(range(len(known.protocol.queries)), asked):
        query = known.protocol.queries[number]
        if query.box is None:
            continue
        file = known.file(query.image)
        itself = known.index.find(file)
        own = set() if itself is None else {itself.key}
        positives = known.keys(task.positives[number].tolist()) - own
        ignored = known.keys(task.junk[number].tolist()) | own
        result = known.index.search(file, query.box, top=None)
        snapshot, catalogue = result.retrieval.snapshot, result.retrieval.snapshot.catalogue
        key_of = {image: catalogue[image].key for image in result.verifications}
        evidence = {
            image: one.evidence
            for image, one in result.verifications.items()
            if one.evidence is not None and key_of[image] not in own
        }
        counts: dict[Any, int] = {}
        count_matches(snapshot, evidence, counts, known.index.config)
        figures = measure(evidence, counts, plain.grading)
        collected.append(
            {
                "query": query.name,
                "positives": len(positives),
                "own": figures.own.tolist(),
                "partners": [list(of) for of in figures.partners],
                "verified": [result.verifications[image].verified is True for image in evidence],
                "right": [key_of[image] in positives for image in evidence],
                "counts": [key_of[image] not in ignored for image in evidence],
            }
        )
    return {"name": known.protocol.name, "queries": collected}


class Labelled:
    """The figures of one collection, and the labels of its results."""

    def __init__(self, stored: dict[str, Any]) -> None:
        self.name, self.queries = stored["name"], stored["queries"]
        self.figures = [
            Figures(np.array(one["own"], np.float64).reshape(-1, 3), tuple(map(tuple, one["partners"])))
            for one in self.queries
        ]
        self.positives = sum(one["positives"] for one in self.queries)
        self.verified, self.right, counts = (
            np.array([flag for one in self.queries for flag in one[name]], bool)
            for name in ("verified", "right", "counts")
        )
        self.verified &= counts

    def gather(self, rows: Sequence[Floats]) -> Floats:
        """Return rows of all queries, those of verified results."""
        return np.asarray(np.concatenate(rows)[self.verified])

    def first(self) -> Floats:
        return self.gather([one.own for one in self.figures])

    def stacked(self, config: GradingConfig) -> Floats:
        return self.gather([stacked_logits(one, config) for one in self.figures])

    def grades(self, config: GradingConfig) -> dict[str, Any]:
        """Return precision and recall of *verified*, before and by grades."""
        right, chance = self.right[self.verified], self.gather([probabilities(one, config) for one in self.figures])
        sure, part = chance >= config.min_verified, chance < config.max_part
        return {
            "queries": len(self.queries),
            "positives": self.positives,
            "before": _rates(right, np.ones(len(right), bool), self.positives),
            "verified": _rates(right, sure, self.positives),
            "likely": f"{int((~sure & ~part).sum())}, {int(right[~sure & ~part].sum())} right",
            "part": f"{int(part.sum())}, {int(right[part].sum())} right",
        }


def _rates(right: npt.NDArray[np.bool_], chosen: npt.NDArray[np.bool_], positives: int) -> str:
    n, good = int(chosen.sum()), int(right[chosen].sum())
    return f"precision {good / max(1, n):.3f} recall {good / max(1, positives):.3f} ({good} of {n})"


def logistic(rows: Floats, right: npt.NDArray[np.bool_], weights: Floats) -> tuple[float, ...]:
    """Return a constant and slopes: ridge logistic regression by Newton's method, on rows of unit variance."""
    mean, deviation = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    design = np.column_stack([np.ones(len(rows)), (rows - mean) / deviation])
    ridge = np.diag([0.0] + [RIDGE] * rows.shape[1])
    beta = np.zeros(design.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-design @ beta))
        hessian = design.T @ (design * (weights * p * (1 - p))[:, None]) + ridge
        beta += np.linalg.solve(hessian, design.T @ (weights * (right - p)) - ridge @ beta)
    slopes = beta[1:] / deviation
    return float(beta[0] - mean @ slopes), *slopes.tolist()


def fit(collections: Sequence[Labelled]) -> GradingConfig:
    """Return coefficients fitted to collections, each with the same weight."""
    right = np.concatenate([one.right[one.verified] for one in collections])
    sizes = [int(one.verified.sum()) for one in collections]
    weights = np.concatenate([np.full(n, sum(sizes) / len(sizes) / max(1, n)) for n in sizes])
    first = logistic(np.concatenate([one.first() for one in collections]), right, weights)
    config = replace(GradingConfig(), own_coefficients=_rounded(first))
    last = logistic(np.concatenate([one.stacked(config) for one in collections]), right, weights)
    return replace(config, spread_coefficients=_rounded(last))


def _rounded(values: Sequence[float]) -> Any:
    return tuple(round(value, 3) for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("index", type=Path)
    collecting.add_argument("--truth", type=Path, required=True)
    collecting.add_argument("--queries", type=Path, help="the folder of queries' photos that are not in the index")
    collecting.add_argument("--asked", type=int, help="how many queries, evenly spaced; all by default")
    collecting.add_argument("-o", "--output", type=Path, required=True)
    fitting = commands.add_parser("fit")
    fitting.add_argument("figures", type=Path, nargs="+")
    fitting.add_argument("--report", type=Path, nargs="+", default=[])
    args = parser.parse_args()
    if args.command == "collect":
        stored = collect(args.index, args.truth, args.queries, args.asked)
        args.output.write_text(json.dumps(stored) + "\n")
        print(f"{len(stored['queries'])} queries, {sum(len(one['own']) for one in stored['queries'])} results")
        return
    fitted = [Labelled(json.loads(file.read_text())) for file in args.figures]
    others = [Labelled(json.loads(file.read_text())) for file in args.report]
    chosen = fit(fitted)
    print("own_coefficients", chosen.own_coefficients)
    print("spread_coefficients", chosen.spread_coefficients)
    for label, config in (("SearchConfig", GradingConfig()), ("fitted now", chosen)):
        for one, where in [(one, "fitted on") for one in fitted] + [(one, "reported on") for one in others]:
            print(f"{label}, {where}: {one.name}")
            for name, value in one.grades(config).items():
                print(f"    {name:<10} {value}")


if __name__ == "__main__":
    main()
