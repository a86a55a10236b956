"""`manifind whiten`."""

import csv
from pathlib import Path
from typing import Any

import click

from manifind.cli.extraction_options import extraction_options, extractor_of, settings_of
from manifind.cli.terminal import out, plain_errors, progress_bars
from manifind.errors import InvalidInputError
from manifind.features import whitening_from_pairs
from manifind.features.moments import DIMENSION


@click.command()
@click.argument("pairs", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The file to write, .npz.")
@extraction_options
@click.option(
    "--dimension",
    type=click.IntRange(min=1),
    help=f"Dimensions to keep; {DIMENSION} by default, or all where the network gives fewer.",
)
@click.pass_obj
def whiten(
    debug: bool, /, pairs: Path, output: Path, backbone: str | None, dimension: int | None, **options: Any
) -> None:
    """Learn a whitening from pairs of photos of the same object.

    PAIRS is a CSV file with two photos a line, their paths taken from where it lies.
    """
    with plain_errors(debug):
        try:
            with pairs.open(newline="", encoding="utf-8") as stream:
                rows = [row for row in csv.reader(stream) if row]
        except UnicodeDecodeError:
            rows = []
        if not rows or any(len(row) != 2 for row in rows):
            raise InvalidInputError(f"{pairs} is not a list of pairs; give two photos a line, separated by a comma.")
        files = [(pairs.parent / a, pairs.parent / b) for a, b in rows]
        with progress_bars(hidden=False) as progress:
            learnt = whitening_from_pairs(
                files,
                extractor_of(backbone, "none", **settings_of(**options))[0],
                dimension=dimension,
                progress=lambda done, total: progress("photos", done, total),
            )
        learnt.save(output)
        out.print(f"{output}: {learnt.project.shape[1]} of {len(learnt.mean)} dimensions, from {len(files)} pairs")
