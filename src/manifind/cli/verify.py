"""`manifind verify`."""

import json
import sys
from pathlib import Path

import click

from manifind.cli.terminal import NOTHING_FOUND, out, plain_errors
from manifind.index import Index
from manifind.reports.search_report import verify_report
from manifind.reports.text import visible

LONGEST = 500
"""Characters of a line: a report may come from anybody."""


@click.command()
@click.argument("report", metavar="REPORT", type=click.Path(path_type=Path))
@click.argument("index_path", metavar="INDEX", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def verify(debug: bool, report: Path, index_path: Path, as_json: bool) -> None:
    """Repeat the search of REPORT, a folder that `search --report` wrote, on INDEX; say what differs."""
    with plain_errors(debug):
        comparison = verify_report(report, Index.open(index_path))
        if as_json:
            click.echo(json.dumps({"differences": comparison.differences, "notes": comparison.notes}, indent=2))
        else:
            for note in comparison.notes:
                out.print(visible(f"note: {note}")[:LONGEST])
            for difference in comparison.differences:
                out.print(visible(difference)[:LONGEST])
            if not comparison.differences:
                out.print("nothing differs: the files are those of the report, and the search finds the same.")
        if comparison.differences:
            sys.exit(NOTHING_FOUND)
