"""All that one evaluation measured: methods on data, curves, published figures, warnings and versions.

A published figure (``published.json``) says what was computed as a method with its parameters. It stands beside a run
of exactly that, and can be compared with it where descriptors and definition of average precision are the same too.
Otherwise the reason is given.
"""

import json
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

import numpy as np

from manifind.errors import InvalidInputError
from manifind.evaluation.curves import CURVES, FIGURES, BySize, Curve, FigureRequest, Gain, by_size, curve, gains
from manifind.evaluation.dataset import EvaluationSet
from manifind.evaluation.measures import DEFINITIONS, sign_flip_test
from manifind.evaluation.methods import MethodSpec, parse
from manifind.evaluation.protocol import Task
from manifind.evaluation.runner import Run, Runner
from manifind.kernels import thread_count
from manifind.version import VERSION

PAPER = "Iscen et al., CVPR 2017"
"""The source that the published figures of the paper name."""
ALL_FIGURES = "all"
SIGNIFICANCE = 0.05
"""A difference with a larger p may be chance."""
MIN_FIRST_RIGHT = 0.05
"""The ground truth is likely wrong where the first image is right for a smaller share of queries than this."""


@dataclass(frozen=True)
class Published:
    """A row of a published table."""

    method: str | None
    """What was computed, as ``--method`` takes it; None where it is not one of the methods here."""
    title: str
    descriptors: str
    definition: str | None
    measure: str
    """"mAP" in percent, "seconds" of a query, or "edges" a region."""
    values: dict[str, float]
    """By column: the protocol's name, and the task's where it has several."""
    source: str
    note: str

    @property
    def key(self) -> str | None:
        """What was computed, as `MethodSpec.key` has it."""
        return None if self.method is None else parse(self.method).key

    def why_not_comparable(self, descriptors: str | None, definition: str) -> str:
        """Return why a run of the same method cannot be compared with this row; nothing where it can."""
        if self.method is None:
            return "the method is not one of these"
        if self.measure == "seconds":
            return "another machine"
        if self.measure == "mAP":
            if self.definition is None:
                return "AP may differ"
            if self.definition != definition:
                return f"AP is {self.definition}, not {definition}"
        return "" if descriptors == self.descriptors else "other descriptors"


@cache
def _stored() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((files("manifind.evaluation") / "published.json").read_text(encoding="utf-8"))
    return stored


def known_descriptors() -> dict[str, str]:
    """Return the descriptors that published figures are of, by name, with what they are."""
    return dict(_stored()["descriptors"])


def check_descriptors(name: str | None) -> None:
    """Raise `InvalidInputError` for descriptors that no published figure names."""
    if name is not None and name not in known_descriptors():
        raise InvalidInputError(
            f"descriptors are {name!r}; published figures are of {', '.join(known_descriptors())}.",
            code="unknown-descriptors",
        )


def published(columns: Iterable[str]) -> list[Published]:
    """Return the rows that have a figure for any of these columns."""
    wanted = set(columns)
    rows = [Published(**row) for row in _stored()["figures"]]
    return [row for row in rows if wanted & set(row.values)]


def methods_of_the_paper(columns: Iterable[str]) -> list[str]:
    """Return what the paper's tables and figures computed on these columns, or on Oxford5k if it has none of them."""
    for wanted in (list(columns), ["Oxford5k"]):
        rows = [row for row in published(wanted) if row.source.startswith(PAPER)]
        if rows:
            break
    return list(dict.fromkeys(row.method for row in rows if row.method is not None))


@dataclass(frozen=True)
class Comparison:
    """The runs of all methods on all data, and the figures drawn from them."""

    definition: str
    data: tuple[EvaluationSet, ...]
    specs: tuple[MethodSpec, ...]
    runs: tuple[Mapping[str, Run], ...]
    """For each data the runs, by `MethodSpec.key`."""
    curves: tuple[Curve, ...] = ()
    sizes: BySize | None = None
    gains: tuple[Gain, ...] = ()
    """The queries that gained most, on the first data that has regions."""
    descriptors: str | None = None
    """What the descriptors are, by the name that published figures know them by."""

    def columns(self) -> list[tuple[str, int, Task]]:
        """Return the name of each column, the place of its data, and its task."""
        return [
            (data.protocol.column(task), place, task)
            for place, data in enumerate(self.data)
            for task in data.protocol.tasks
        ]

    def rows(self) -> Iterator[tuple[MethodSpec, list[Run | None]]]:
        """Yield each method that was run, with its run in every column."""
        for spec in self.specs:
            runs = [self.runs[place].get(spec.key) for _, place, _ in self.columns()]
            if any(run is not None for run in runs):
                yield spec, runs

    def compare_methods(self) -> Iterator[tuple[str, MethodSpec, list[tuple[MethodSpec, float, float]]]]:
        """Yield each column with its best method, and how far below it the others are, each with p."""
        rows = list(self.rows())
        for place, (name, _, task) in enumerate(self.columns()):
            values = [
                (spec, run.average_precisions(task, self.definition))
                for spec, runs in rows
                if (run := runs[place]) is not None
            ]
            if not values:
                continue
            best, best_values = max(values, key=lambda pair: float(np.nanmean(pair[1])))
            others = [(spec, precisions) for spec, precisions in values if spec is not best]
            p_values = sign_flip_test(best_values, [precisions for _, precisions in others])
            yield (
                name,
                best,
                [
                    (spec, float(100 * np.nanmean(precisions - best_values)), float(p))
                    for (spec, precisions), p in zip(others, p_values, strict=True)
                ],
            )

    def warnings(self) -> list[str]:
        """Return a sentence for each column in which every method gets the first image of nearly all queries wrong."""
        warnings = []
        for name, place, task in self.columns():
            first = [run.figures(task)["mP@1"] for spec in self.specs if (run := self.runs[place].get(spec.key))]
            if first and max(first) <= 100 * MIN_FIRST_RIGHT:
                warnings.append(
                    f"{name}: the first image is wrong for nearly all queries by every method. Is the query's own "
                    "photo, or a copy of it, in the collection and neither positive nor junk?"
                )
        return warnings

    def published(self) -> Iterator[tuple[Published, str, float, float | None, str]]:
        """Yield published figures for the columns measured.

        Each with its column, its value, the value of the same run here, and why the two cannot be compared.
        """
        columns = {name: (place, task) for name, place, task in self.columns()}
        for row in published(columns):
            for name, (place, task) in columns.items():
                if name in row.values:
                    run = None if row.key is None else self.runs[place].get(row.key)
                    why = row.why_not_comparable(self.descriptors, self.definition)
                    yield row, name, row.values[name], None if run is None else self._measured(row, run, task), why

    def _measured(self, row: Published, run: Run, task: Task) -> float | None:
        if row.measure == "mAP":
            return run.mean_average_precision(task, self.definition)
        return run.costs.get("single_seconds" if row.measure == "seconds" else "edges_a_region")

    def gain_data(self) -> EvaluationSet:
        """Return the data that `gains` is about."""
        return next(data for data in self.data if data.regional)

    def facts(self) -> list[tuple[str, str]]:
        """Return data, checksums and versions, by name."""
        facts = [("average precision", DEFINITIONS[self.definition])]
        for data in self.data:
            protocol, images = data.protocol, data.images
            kinds = [
                f"{len(kind.vectors)} {name} descriptors of {kind.vectors.shape[1]} dimensions"
                for name, kind in (("regional", images.regional), ("global", images.whole))
                if kind is not None
            ]
            facts += [
                (
                    protocol.name,
                    f"{images.count} images, {len(protocol.queries)} queries, {', '.join(kinds)}; "
                    f"{protocol.own_photos_note()}; ground truth {', '.join(protocol.files)}; descriptors "
                    f"{images.what}, {data.queries.what}; SHA-256 {data.checksum}",
                )
            ]
            if data.extraction_seconds is not None:
                facts.append((f"{protocol.name}, extracting a query", f"{1e3 * data.extraction_seconds:.0f} ms"))
            facts += [(f"{protocol.name}, skipped", file) for file in data.skipped]
        facts += [("to look at", sentence) for sentence in self.warnings()]
        facts.append(("versions", ", ".join(f"{name} {number}" for name, number in versions().items())))
        facts.append(("threads", str(thread_count())))
        return facts


def select_figures(texts: Sequence[str], data: Sequence[EvaluationSet]) -> tuple[list[FigureRequest], list[str]]:
    """Return the figures asked for; one that was named and cannot be drawn is an error that says what is missing.

    Of all figures those that the data do not allow are left out, and a sentence for each is returned.
    """
    requests, left_out = [], []
    for text in texts:
        for name in FIGURES if text == ALL_FIGURES else [text]:
            request = FigureRequest.of(name)
            missing = request.missing(data)
            if not missing:
                requests.append(request)
            elif text == ALL_FIGURES:
                left_out.append(f"without the figure {request.name}, which needs {missing}.")
            else:
                raise InvalidInputError(
                    f"figure {request.name} needs {missing}, which the data do not have; leave it out.",
                    code="figure-data",
                )
    return requests, left_out


def compare_methods(
    data: Sequence[EvaluationSet],
    specs: Sequence[MethodSpec],
    runner: Runner,
    *,
    definition: str = "trapezoid",
    figures: Sequence[FigureRequest] = (),
    descriptors: str | None = None,
) -> Comparison:
    """Run methods on data, and what the paper's figures need.

    `figures` are what `select_figures` returned; `descriptors` is the name that published figures know the descriptors
    by.
    """
    runs = [
        runner.run(dataset, [*specs, *(spec for figure in figures for spec in figure.specs(dataset))])
        for dataset in data
    ]
    measured = list(zip(data, runs, strict=True))
    by_name = {figure.name: figure for figure in figures}
    regional = [(dataset, run) for dataset, run in measured if dataset.regional]
    return Comparison(
        definition,
        tuple(data),
        tuple(specs),
        tuple(runs),
        tuple(curve(figure, measured, definition) for figure in figures if figure.name in CURVES),
        by_size(by_name["sizes"], measured) if "sizes" in by_name else None,
        tuple(gains(by_name["gains"], *regional[0], definition)) if "gains" in by_name else (),
        descriptors,
    )


def versions() -> dict[str, str]:
    """Return the versions of the packages that figures depend on."""
    numbers = {"manifind": VERSION, "python": platform.python_version()}
    for name in ("numpy", "scipy", "faiss-cpu"):
        try:
            numbers[name] = version(name)
        except PackageNotFoundError:
            continue
    return numbers
