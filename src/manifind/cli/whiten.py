"""`manifind whiten`."""

import csv
from pathlib import Path
from typing import Any

import click

from manifind.cli.describing import describer_of, describing, settings_of
from manifind.cli.terminal import out, plain_errors, progress_bars
from manifind.describe import whitening_from_pairs
from manifind.describe.moments import DIMENSION
from manifind.errors import InvalidInput


@click.command()
@click.argument("pairs", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The file to write, .npz.")
@describing
@click.option(
    "--dimension",
    type=click.IntRange(min=1),
    help=f"Dimensions to keep; {DIMENSION} by default, or all where the network gives fewer.",
)
@click.pass_obj
def whiten(
    debug: bool, /, pairs: Path, output: Path, backbone: str | None, dimension: int | None, **described: Any
) -> None:
    """Learn a whitening from photos that show the same thing.

    PAIRS is a CSV file with two photos a line, their paths taken from where it lies.
    """
    with plain_errors(debug):
        try:
            with pairs.open(newline="", encoding="utf-8") as stream:
                rows = [row for row in csv.reader(stream) if row]
        except UnicodeDecodeError:
            rows = []
        if not rows or any(len(row) != 2 for row in rows):
            raise InvalidInput(f"{pairs} is not a list of pairs; give two photos a line, separated by a comma.")
        files = [(pairs.parent / a, pairs.parent / b) for a, b in rows]
        with progress_bars(hidden=False) as progress:
            learnt = whitening_from_pairs(
                files,
                describer_of(backbone, "none", **settings_of(**described))[0],
                dimension=dimension,
                progress=lambda done, total: progress("photos", done, total),
            )
        learnt.save(output)
        out.print(f"{output}: {learnt.project.shape[1]} of {len(learnt.mean)} dimensions, from {len(files)} pairs")
