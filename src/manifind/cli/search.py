"""`manifind search`."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import click

from manifind.cli.parameters import ALSO, BOX
from manifind.cli.terminal import NOTHING_FOUND, err, out, plain_errors, shown_box, write_page
from manifind.index import METHODS, Hit, Index
from manifind.pages.search import search_page


@click.command()
@click.argument("index_path", metavar="INDEX", type=click.Path(path_type=Path))
@click.argument("image", type=click.Path())
@click.option("--box", type=BOX, help="The part of IMAGE to look for, in pixels of the upright photo.")
@click.option("--also", type=ALSO, multiple=True, help="Another photo of the same object; may be repeated.")
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, help="How many photos to show.")
@click.option("--method", type=click.Choice(METHODS), default="regional", show_default=True, help="How to rank.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page with the pictures as well.")
@click.pass_obj
def search(
    debug: bool,
    index_path: Path,
    image: str,
    box: tuple[float, ...] | None,
    also: tuple[tuple[str, tuple[float, ...] | None], ...],
    top: int,
    method: str,
    as_json: bool,
    as_csv: bool,
    html: Path | None,
) -> None:
    """Rank the photos of INDEX by what they have of IMAGE, or of the box in it."""
    with plain_errors(debug):
        opened = Index.open(index_path)
        hits = opened.search(image, box, also=also, top=top, method=method)
        hits = [hit for hit in hits if hit.score > 0]
        if html is not None:
            write_page(html, search_page(opened, [(image, box), *also], hits, method))
        if as_json:
            query = {"image": image, "box": box, "also": [{"image": i, "box": b} for i, b in also]}
            click.echo(
                json.dumps({"query": query, "method": method, "results": [as_dict(hit) for hit in hits]}, indent=2)
            )
        elif as_csv:
            write_csv(hits)
        else:
            show_hits(hits)
            if html is not None:
                err.print(f"wrote {html}")
        if not hits:
            if not as_json and not as_csv:
                err.print("nothing found.")
            sys.exit(NOTHING_FOUND)


def show_hits(hits: list[Hit]) -> None:
    """Print a table of results."""
    widest = max((len(hit.key) for hit in hits), default=0)
    out.print(f"{'rank':>4}  {'score':>8}  {'photo':<{widest}}  where")
    for hit in hits:
        where = f"{shown_box(hit.regions[0].box)} {hit.regions[0].share:.0%}" if hit.regions else ""
        out.print(f"{hit.rank:4}  {hit.score:8.4f}  {hit.key:<{widest}}  {where}".rstrip())


def as_dict(hit: Hit) -> dict[str, Any]:
    """Return a result as JSON has it."""
    regions = [{"box": region.box, "share": region.share} for region in hit.regions]
    return {"rank": hit.rank, "key": hit.key, "score": hit.score, "regions": regions}


def write_csv(hits: list[Hit]) -> None:
    """Print results as CSV, the best region of each."""
    writer = csv.writer(sys.stdout)
    writer.writerow(["rank", "key", "score", "x0", "y0", "x1", "y1", "share"])
    for hit in hits:
        best = [*hit.regions[0].box, hit.regions[0].share] if hit.regions else [""] * 5
        writer.writerow([hit.rank, hit.key, hit.score, *best])
