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
from manifind.reports.results import repeats_csv, repeats_data
from manifind.reports.search import repeats_page
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
        index = Index.open(index_path)
        with progress_bars(hidden=as_json or as_csv) as progress:
            clusters = index.repeats(top=top, least=least, verify=not no_verify, progress=progress)
        if html is not None:
            write_page(html, repeats_page(index, clusters))
        if as_json:
            click.echo(json.dumps(repeats_data(clusters), indent=2))
        elif as_csv:
            click.echo(repeats_csv(clusters), nl=False)
        else:
            show_repeats(clusters)
            if html is not None:
                err.print(f"wrote {html}")
        if not clusters.objects:
            sys.exit(NOTHING_FOUND)


def show_repeats(clusters: ObjectClusters) -> None:
    """Print a table of objects, and how to search for one of them."""
    if clusters.objects:
        out.print(f"{'':>4}  {'photos':>6}  {'verified':>8}  {'score':>7}  the clearest")
    for rank, cluster in enumerate(clusters.objects, 1):
        first = cluster.occurrences[0]
        verified = "" if cluster.verified is None else cluster.verified
        where = f"{shell_quote(visible(first.key))} --box {shown_box(first.box)}"
        out.print(f"{rank:4}  {len(cluster):6}  {verified:>8}  {cluster.score:7.2f}  {where}")
    if clusters.found > len(clusters.objects):
        err.print(f"and {clusters.found - len(clusters.objects)} more; --top shows more of them.")
    if clusters.near_duplicates:
        photos, sets = sum(map(len, clusters.near_duplicates)), len(clusters.near_duplicates)
        several = "sets" if sets > 1 else "set"
        out.print(f"near-duplicates and bursts: {photos} photos in {sets} {several}; --json lists them")
    if not clusters.objects:
        err.print("nothing occurs in several photos.")
