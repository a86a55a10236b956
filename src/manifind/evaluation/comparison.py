"""Everything that one evaluation measured: methods on data, figures, and what to know about them."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from manifind.errors import InvalidInputError
from manifind.evaluation.curves import CURVES, FIGURES, BySize, Curve, FigureRequest, Gain, by_size, curve, gains
from manifind.evaluation.dataset import EvaluationSet
from manifind.evaluation.measures import DEFINITIONS, sign_flip_test
from manifind.evaluation.methods import MethodSpec
from manifind.evaluation.protocol import Task
from manifind.evaluation.published import Published, published
from manifind.evaluation.runner import Run, Runner
from manifind.kernels import thread_count
from manifind.version import VERSION

ALL_FIGURES = "all"
SURE = 0.05
"""A difference with a p above this cannot be told from chance."""
HARDLY_ANY = 0.05
"""Where the first image is right for a smaller share of queries than this, the ground truth is likely wrong."""


@dataclass(frozen=True)
class Comparison:
    """What was measured."""

    definition: str
    data: tuple[EvaluationSet, ...]
    choices: tuple[MethodSpec, ...]
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
        for choice in self.choices:
            runs = [self.runs[place].get(choice.key) for _, place, _ in self.columns()]
            if any(run is not None for run in runs):
                yield choice, runs

    def compared(self) -> Iterator[tuple[str, MethodSpec, list[tuple[MethodSpec, float, float]]]]:
        """Yield each column with its best method, and how far below it the others are, each with p."""
        rows = list(self.rows())
        for place, (name, _, task) in enumerate(self.columns()):
            values = [
                (choice, run.average_precisions(task, self.definition))
                for choice, runs in rows
                if (run := runs[place]) is not None
            ]
            if not values:
                continue
            best, top = max(values, key=lambda one: float(np.nanmean(one[1])))
            others = [(choice, each) for choice, each in values if choice is not best]
            chances = sign_flip_test(top, [each for _, each in others])
            yield (
                name,
                best,
                [
                    (choice, float(100 * np.nanmean(each - top)), float(p))
                    for (choice, each), p in zip(others, chances, strict=True)
                ],
            )

    def warnings(self) -> list[str]:
        """Return a sentence for each column in which every method gets the first image of nearly all queries wrong."""
        found = []
        for name, place, task in self.columns():
            first = [run.figures(task)["mP@1"] for choice in self.choices if (run := self.runs[place].get(choice.key))]
            if first and max(first) <= 100 * HARDLY_ANY:
                found.append(
                    f"{name}: the first image is wrong for nearly all queries by every method. Is the query's own "
                    "photo, or a copy of it, in the collection and neither positive nor junk?"
                )
        return found

    def published(self) -> Iterator[tuple[Published, str, float, float | None, str]]:
        """Yield published figures for the columns measured.

        Each with its column, its value, what a run of the same came to here, and why the two cannot be compared.
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

    def gained(self) -> EvaluationSet:
        """Return the data that `gains` is about."""
        return next(data for data in self.data if data.regional)

    def facts(self) -> list[tuple[str, str]]:
        """Return data, checksums and versions, by name."""
        found = [("average precision", DEFINITIONS[self.definition])]
        for data in self.data:
            protocol, images = data.protocol, data.images
            kinds = [
                f"{len(kind.vectors)} {name} descriptors of {kind.vectors.shape[1]} dimensions"
                for name, kind in (("regional", images.regional), ("global", images.whole))
                if kind is not None
            ]
            found += [
                (
                    protocol.name,
                    f"{images.count} images, {len(protocol.queries)} queries, {', '.join(kinds)}; "
                    f"{protocol.own_photos_note()}; ground truth {', '.join(protocol.files)}; descriptors "
                    f"{images.what}, {data.queries.what}; SHA-256 {data.checksum}",
                )
            ]
            if data.extraction_seconds is not None:
                found.append((f"{protocol.name}, extracting a query", f"{1e3 * data.extraction_seconds:.0f} ms"))
            found += [(f"{protocol.name}, skipped", file) for file in data.skipped]
        found += [("to look at", sentence) for sentence in self.warnings()]
        found.append(("versions", ", ".join(f"{name} {number}" for name, number in versions().items())))
        found.append(("threads", str(thread_count())))
        return found


def select_figures(texts: Sequence[str], data: Sequence[EvaluationSet]) -> tuple[list[FigureRequest], list[str]]:
    """Return the figures asked for; one that was named and cannot be drawn is an error that says what is missing.

    Of all figures those that the data do not allow are left out, and a sentence for each is returned.
    """
    found, left_out = [], []
    for text in texts:
        for name in FIGURES if text == ALL_FIGURES else [text]:
            one = FigureRequest.of(name)
            missing = one.missing(data)
            if not missing:
                found.append(one)
            elif text == ALL_FIGURES:
                left_out.append(f"without the figure {one.name}, which needs {missing}.")
            else:
                raise InvalidInputError(
                    f"figure {one.name} needs {missing}, which the data do not have; leave it out.", code="figure-data"
                )
    return found, left_out


def compare_methods(
    data: Sequence[EvaluationSet],
    choices: Sequence[MethodSpec],
    runner: Runner,
    *,
    definition: str = "trapezoid",
    figures: Sequence[FigureRequest] = (),
    descriptors: str | None = None,
) -> Comparison:
    """Run methods on data, and what the paper's figures need.

    Parameters
    ----------
    data
        Protocols with their descriptors.
    choices
        Methods; one that the descriptors are not for is left out of the table.
    runner
        What runs them.
    definition : str
        Of average precision, one of `DEFINITIONS`.
    figures
        What `select_figures` returned.
    descriptors
        What the descriptors are, by the name that published figures know them by.
    """
    runs = [runner.run(one, [*choices, *(c for figure in figures for c in figure.choices(one))]) for one in data]
    measured = list(zip(data, runs, strict=True))
    by_name = {figure.name: figure for figure in figures}
    regional = [one for one in measured if one[0].regional]
    return Comparison(
        definition,
        tuple(data),
        tuple(choices),
        tuple(runs),
        tuple(curve(figure, measured, definition) for figure in figures if figure.name in CURVES),
        by_size(by_name["sizes"], measured) if "sizes" in by_name else None,
        tuple(gains(by_name["gains"], *regional[0], definition)) if "gains" in by_name else (),
        descriptors,
    )


def versions() -> dict[str, str]:
    """Return the versions of what figures may depend on."""
    found = {"manifind": VERSION, "python": platform.python_version()}
    for name in ("numpy", "scipy", "faiss-cpu"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
