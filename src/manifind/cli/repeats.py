"""`manifind repeats`."""

import json
import sys
from pathlib import Path

import click

from manifind.cli.terminal import (
    NOTHING_FOUND,
    check_formats,
    err,
    out,
    plain_errors,
    progress_bars,
    shown_box,
    write_page,
)
from manifind.errors import shell_quote
from manifind.index import Index, ObjectClusters
from manifind.reports.repeats import repeats_csv, repeats_data, repeats_page
from manifind.reports.text import visible


@click.command()
@click.argument("index_path", metavar="INDEX", type=click.Path(path_type=Path))
@click.option("--top", type=click.IntRange(min=1), default=30, show_default=True, help="How many objects to show.")
@click.option("--least", type=click.IntRange(min=2), default=3, show_default=True, help="In how many photos at least.")
@click.option("--no-verify", is_flag=True, help="Verify no photos.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, a row for each photo of each object.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page with the pictures as well.")
@click.pass_obj
def repeats(
    debug: bool,
    index_path: Path,
    top: int,
    least: int,
    no_verify: bool,
    as_json: bool,
    as_csv: bool,
    html: Path | None,
) -> None:
    """Find objects that occur in several photos of INDEX, without a query."""
    with plain_errors(debug, "interrupted; nothing was written."):
        check_formats(as_json=as_json, as_csv=as_csv)
        opened = Index.open(index_path)
        with progress_bars(hidden=as_json or as_csv) as progress:
            found = opened.repeats(top=top, least=least, verify=not no_verify, progress=progress)
        if html is not None:
            write_page(html, repeats_page(opened, found))
        if as_json:
            click.echo(json.dumps(repeats_data(found), indent=2))
        elif as_csv:
            click.echo(repeats_csv(found), nl=False)
        else:
            show_repeats(found)
            if html is not None:
                err.print(f"wrote {html}")
        if not found.objects:
            sys.exit(NOTHING_FOUND)


def show_repeats(found: ObjectClusters) -> None:
    """Print a table of objects, and how to search for one of them."""
    if found.objects:
        out.print(f"{'':>4}  {'photos':>6}  {'verified':>8}  {'score':>7}  the clearest")
    for place, one in enumerate(found.objects, 1):
        first = one.occurrences[0]
        verified = "" if one.verified is None else one.verified
        where = f"{shell_quote(visible(first.key))} --box {shown_box(first.box)}"
        out.print(f"{place:4}  {len(one):6}  {verified:>8}  {one.score:7.2f}  {where}")
    if found.found > len(found.objects):
        err.print(f"and {found.found - len(found.objects)} more; --top shows more of them.")
    if found.near_duplicates:
        photos, sets = sum(map(len, found.near_duplicates)), len(found.near_duplicates)
        several = "sets" if sets > 1 else "set"
        out.print(f"near-duplicates and bursts: {photos} photos in {sets} {several}; --json lists them")
    if not found.objects:
        err.print("nothing occurs in several photos.")
