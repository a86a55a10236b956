"""`manifind check`."""

import json
import sys
from pathlib import Path

import click

from manifind.cli.terminal import CHECK_FAILED, err, out, plain_errors, progress_bars
from manifind.index.maintenance.check import check as check_index
from manifind.index.maintenance.repair import repair_command
from manifind.index.storage.layout import check_finished
from manifind.reports.text import visible


@click.command()
@click.argument("index_path", metavar="INDEX", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def check(debug: bool, index_path: Path, as_json: bool) -> None:
    """Verify every checksum and invariant of INDEX, and name the remedies."""
    with plain_errors(debug):
        check_finished(index_path)
        with progress_bars(hidden=as_json) as progress:
            problems = check_index(index_path, progress)
        if as_json:
            click.echo(json.dumps({"problems": [problem.to_dict() for problem in problems]}, indent=2))
        else:
            for problem in problems:
                out.print(visible(str(problem)))
            if not problems:
                out.print("everything is as it should be")
        if any(problem.is_damage for problem in problems):
            err.print(f"to mend it: {repair_command(index_path)}")
        if problems:
            sys.exit(CHECK_FAILED)
