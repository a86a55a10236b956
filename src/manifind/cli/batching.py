"""`manifind search --queries`: many queries, one table, one page."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from manifind.cli.terminal import NOTHING_FOUND, err, out, progress_bars, write_page
from manifind.describe.films import is_photo_there
from manifind.index import Index, Outcome
from manifind.index.asking.batch import read_queries
from manifind.pages.batch import batch_csv, batch_data, batch_page
from manifind.pages.text import visible


def search_batch(opened: Index, queries: Path, *, as_json: bool, as_csv: bool, html: Path | None, **asked: Any) -> None:
    """Answer the queries of a file, print what was found, and write a page where one is wanted."""
    given = read_queries(queries, lambda photo: opened.find(photo) is not None or is_photo_there(photo))
    with progress_bars(hidden=as_json or as_csv) as progress:
        outcomes = opened.search_many(given, progress=progress, **asked)
    if html is not None:
        write_page(html, batch_page(opened, outcomes))
    if as_json:
        click.echo(json.dumps(batch_data(outcomes), indent=2))
    elif as_csv:
        click.echo(batch_csv(outcomes), nl=False)
    else:
        show_outcomes(outcomes)
    if html is not None:
        err.print(f"wrote {html}")
    failed = [one for one in outcomes if one.problem is not None]
    if failed:
        err.print(f"{len(failed)} of {len(outcomes)} queries could not be answered.")
    if not any(one.answer for one in outcomes):
        sys.exit(NOTHING_FOUND)


def show_outcomes(outcomes: list[Outcome]) -> None:
    """Print a line for each query: how many photos are likely to show it, and the first of them."""
    names = [visible(one.asked.name) for one in outcomes]
    widest = max(map(len, names), default=0)
    out.print(f"{'query':<{widest}}  {'likely':>6}  {'verified':>8}  the first")
    for name, one in zip(names, outcomes, strict=True):
        if one.answer is None:
            out.print(f"{name:<{widest}}  {'':>6}  {'':>8}  {visible(one.problem or '')}")
            continue
        likely = "" if one.answer.likely is None else one.answer.likely
        verified = sum(hit.verified is True for hit in one.answer) or ""
        first = ", ".join(visible(hit.key) for hit in one.answer[:3])
        out.print(f"{name:<{widest}}  {likely:>6}  {verified:>8}  {first}")
