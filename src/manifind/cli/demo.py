"""`manifind demo`."""

import shlex
import shutil
import sys
from pathlib import Path

import click

from manifind.cli.terminal import err, plain_errors, progress_bars
from manifind.demo import report, walkthrough


@click.command()
@click.option(
    "-o",
    "--output",
    "--out",
    "folder",
    type=click.Path(path_type=Path),
    default="out",
    show_default=True,
    help="Where everything goes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def demo(debug: bool, folder: Path, as_json: bool) -> None:
    """Plant objects in photos, find them by five methods, and write a report."""
    with plain_errors(debug):
        with progress_bars(hidden=as_json) as progress:
            index, scenes, result = walkthrough.run(folder, progress=progress)
        page = folder / "report.html"
        page.write_text(report.as_page(index, scenes, result), encoding="utf-8")
        click.echo(report.as_json(result) if as_json else report.as_text(result))
        err.print(f"wrote {page}")
        manifind = "manifind" if shutil.which("manifind") else sys.argv[0]
        err.print(f"draw a box on its page: {shlex.join([manifind, 'serve', str(folder / walkthrough.INDEX)])}")
        if result.figure is None:
            err.print("without Figure 1, which needs matplotlib; pip install 'manifind[plots]'")
