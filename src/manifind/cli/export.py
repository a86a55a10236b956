"""`manifind export`."""

from pathlib import Path

import click

from manifind.cli.terminal import err, plain_errors
from manifind.index import Index
from manifind.reports.results import write_regions


@click.command()
@click.argument("index_path", metavar="INDEX", type=click.Path(path_type=Path))
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--vectors/--no-vectors", default=True, show_default=True, help="Write the descriptors too.")
@click.pass_obj
def export(debug: bool, index_path: Path, file: Path, vectors: bool) -> None:
    """Write the regions and vectors of INDEX to FILE, a Parquet table."""
    with plain_errors(debug):
        regions = write_regions(file, Index.open(index_path), vectors=vectors)
        err.print(f"wrote {regions:,} regions to {file}")
