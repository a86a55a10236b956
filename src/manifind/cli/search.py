"""`manifind search`."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from manifind.cli.batching import search_batch
from manifind.cli.parameters import ALSO, BOX, INDEX
from manifind.cli.terminal import NOTHING_FOUND, check_formats, err, out, plain_errors, shown_box, write_page
from manifind.errors import InvalidInput, typed
from manifind.index import METHODS, Answer, Hit, Index
from manifind.index.asking.refine import NONE, VERIFIED
from manifind.pages.answers import answer_data, hit_data
from manifind.pages.answers import as_csv as as_csv_text
from manifind.pages.search import BELOW, NEAREST, search_page
from manifind.pages.text import visible


@click.command()
@click.argument("index_path", metavar="INDEX", type=INDEX)
@click.argument("image", type=click.Path(), required=False)
@click.option(
    "--box", type=BOX, help="The part of IMAGE to look for: left, top, right, bottom in pixels of the upright photo."
)
@click.option("--also", type=ALSO, multiple=True, help="Another photo of the same object; may be repeated.")
@click.option(
    "--queries",
    type=click.Path(path_type=Path),
    metavar="CSV",
    help="In place of IMAGE, many queries at once: a file with the columns photo, box, name.",
)
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, help="How many photos to show.")
@click.option("--method", type=click.Choice(METHODS), default="regional", show_default=True, help="How to rank.")
@click.option(
    "--verify",
    type=click.IntRange(min=0),
    metavar="N",
    help="Check so many of the first photos by geometry, in place of what the index does by itself.",
)
@click.option("--no-verify", is_flag=True, help="Check none by geometry.")
@click.option(
    "--refine/--no-refine",
    default=None,
    help="Let what verified photos show of the object join the query, and answer it once more.",
)
@click.option("--keep", metavar="NAME", help="Keep the search and what is likely as a set of this name: manifind sets.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page with the pictures as well.")
@click.pass_obj
def search(
    debug: bool,
    index_path: Path | str,
    image: str | None,
    box: tuple[float, ...] | None,
    also: tuple[tuple[str, tuple[float, ...] | None], ...],
    queries: Path | None,
    top: int,
    method: str,
    verify: int | None,
    no_verify: bool,
    refine: bool | None,
    keep: str | None,
    as_json: bool,
    as_csv: bool,
    html: Path | None,
) -> None:
    """Rank the photos of INDEX by what they have of IMAGE, or of the box in it."""
    with plain_errors(debug):
        check_formats(as_json=as_json, as_csv=as_csv)
        if verify and no_verify:
            raise InvalidInput("--verify and --no-verify are both given; give one of them.")
        if (image is None) == (queries is None) or (queries is not None and (box or also)):
            raise InvalidInput("give either IMAGE, with --box and --also, or --queries with a file of many.")
        opened = Index.open(index_path)
        asked: dict[str, Any] = {"verify": 0} if no_verify else {} if verify is None else {"verify": verify}
        if refine is not None:
            asked["refine"] = VERIFIED if refine else NONE
        if queries is not None:
            search_batch(opened, queries, as_json=as_json, as_csv=as_csv, html=html, top=top, method=method, **asked)
            return
        if image is None:
            raise TypeError("there is neither a photo nor a list of them.")
        answer = opened.search(image, box, also=also, top=top, method=method, **asked).reached()
        if keep is not None:
            keep_found(opened, keep, [(image, box), *also], answer, method)
        nothing = not answer or answer.likely == 0
        if html is not None:
            write_page(html, search_page(opened, [(image, box), *also], answer))
        if as_json:
            query = {"image": image, "box": box, "also": [{"image": i, "box": b} for i, b in also]}
            told = answer_data(query, answer)
            click.echo(json.dumps({**told, "results": []} if nothing else told, indent=2))
        elif as_csv:
            click.echo(as_csv_text(() if nothing else map(hit_data, answer)), nl=False)
        else:
            show_hits(answer)
        if html is not None:
            err.print(f"wrote {html}")
        if nothing:
            err.print("nothing matches.")
            sys.exit(NOTHING_FOUND)


def keep_found(
    opened: Index, name: str, views: list[tuple[str, tuple[float, ...] | None]], answer: Answer, method: str
) -> None:
    """Keep a search, and what is likely of its answer, as a set."""
    kept = [(record.key if (record := opened.find(photo)) else str(Path(photo).resolve()), box) for photo, box in views]
    opened.sets.add(name, answer[: answer.likely])
    made = opened.sets.keep_search(name, kept, method=method)
    err.print(f"kept {len(made)} photos as {visible(name)}; manifind sets {typed(opened.path)} shows the sets.")


def show_hits(answer: Answer) -> None:
    """Print a table of results, with a rule across it at the line."""
    keys = [visible(hit.key) for hit in answer]
    widest = max(map(len, keys), default=0)
    sure = any(hit.verified for hit in answer)
    said = [_checked(hit) for hit in answer]
    wide = max(map(len, ["verified", *said]))
    column = f"{'verified':<{wide}}  " if sure else ""
    if answer:
        out.print(f"{'rank':>4}  {'score':>8}  {'photo':<{widest}}  {column}where")
    for key, hit, words in zip(keys, answer, said, strict=True):
        if answer.likely == hit.rank - 1:
            out.print(f"── {BELOW if answer.likely else NEAREST} ".ljust(widest + 40, "─"))
        checked = f"{words:<{wide}}  " if sure else ""
        where = "the query's own" if hit.image in answer.own else "" if hit.box is None else shown_box(hit.box)
        out.print(f"{hit.rank:4}  {hit.score:8.4f}  {key:<{widest}}  {checked}{where}".rstrip())
        for copy in hit.also_at:
            out.print(f"{'':14}  {visible(copy)} is the same file")


def _checked(hit: Hit) -> str:
    """Say how many points confirm a photo, and whether only the second pass reached it."""
    if not hit.verified:
        return ""
    return f"{hit.inliers} points" + (", by way of others" if hit.refined else "")
