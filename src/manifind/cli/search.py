"""`manifind search`."""

import json
import sys
from pathlib import Path

import click

from manifind.cli.parameters import ALSO, BOX, INDEX
from manifind.cli.terminal import NOTHING_FOUND, err, out, plain_errors, shown_box, write_page
from manifind.errors import InvalidInput
from manifind.index import METHODS, Answer, Index
from manifind.pages.answers import answer_data, hit_data
from manifind.pages.answers import as_csv as as_csv_text
from manifind.pages.search import search_page
from manifind.pages.text import visible


@click.command()
@click.argument("index_path", metavar="INDEX", type=INDEX)
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
    index_path: Path | str,
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
        if as_json and as_csv:
            raise InvalidInput("--json and --csv are both given; give one of them.")
        opened = Index.open(index_path)
        answer = opened.search(image, box, also=also, top=top, method=method).reached()
        if html is not None:
            write_page(html, search_page(opened, [(image, box), *also], answer))
        if as_json:
            query = {"image": image, "box": box, "also": [{"image": i, "box": b} for i, b in also]}
            click.echo(json.dumps(answer_data(query, answer), indent=2))
        elif as_csv:
            click.echo(as_csv_text(map(hit_data, answer)), nl=False)
        else:
            show_hits(answer)
            if html is not None:
                err.print(f"wrote {html}")
        if not answer or answer.likely == 0:
            if not as_json and not as_csv:
                err.print("nothing found." if not answer else "nothing likely: these are merely the nearest photos.")
            sys.exit(NOTHING_FOUND)


def show_hits(answer: Answer) -> None:
    """Print a table of results, and where the line is."""
    keys = [visible(hit.key) for hit in answer]
    widest = max(map(len, keys), default=0)
    out.print(f"{'rank':>4}  {'score':>8}  {'photo':<{widest}}  where")
    for key, hit in zip(keys, answer, strict=True):
        where = f"{shown_box(hit.box)} {hit.regions[0].share:.0%}" if hit.box and hit.regions else ""
        out.print(f"{hit.rank:4}  {hit.score:8.4f}  {key:<{widest}}  {where}".rstrip())
        for copy in hit.also_at:
            out.print(f"{'':14}  {visible(copy)} is the same file")
    if answer.likely and answer.likely < len(answer):
        err.print(f"the first {answer.likely} are likely to show it, the others probably do not.")
