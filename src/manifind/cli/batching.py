"""`manifind search --queries`: many queries, one table, one page."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from manifind.cli.terminal import NOTHING_FOUND, err, out, progress_bars, write_page
from manifind.index import BatchResult, Index
from manifind.index.search.batch import read_queries
from manifind.io.video import is_photo_there
from manifind.reports.batch import batch_csv, batch_data, batch_page
from manifind.reports.text import visible


def search_batch(opened: Index, queries: Path, *, as_json: bool, as_csv: bool, html: Path | None, **asked: Any) -> None:
    """Search for the queries of a file, print what was found, and write a page if one is wanted."""
    given = read_queries(queries, lambda photo: opened.find(photo) is not None or is_photo_there(photo))
    with progress_bars(hidden=as_json or as_csv) as progress:
        results = opened.search_many(given, progress=progress, **asked)
    if html is not None:
        write_page(html, batch_page(opened, results))
    if as_json:
        click.echo(json.dumps(batch_data(results), indent=2))
    elif as_csv:
        click.echo(batch_csv(results), nl=False)
    else:
        show_results(results)
    if html is not None:
        err.print(f"wrote {html}")
    failed = [one for one in results if one.error is not None]
    if failed:
        err.print(f"{len(failed)} of {len(results)} queries could not be answered.")
    if not any(one.result for one in results):
        sys.exit(NOTHING_FOUND)


def show_results(results: list[BatchResult]) -> None:
    """Print a line for each query: how many photos match, and the first of them."""
    names = [visible(one.query.name) for one in results]
    widest = max(map(len, names), default=0)
    out.print(f"{'query':<{widest}}  {'matches':>7}  {'verified':>8}  the first")
    for name, one in zip(names, results, strict=True):
        if one.result is None:
            out.print(f"{name:<{widest}}  {'':>7}  {'':>8}  {visible(str(one.error))}")
            continue
        matches = "" if one.result.n_matches is None else one.result.n_matches
        verified = sum(hit.verified is True for hit in one.result) or ""
        first = ", ".join(visible(hit.key) for hit in one.result[:3])
        out.print(f"{name:<{widest}}  {matches:>7}  {verified:>8}  {first}")
