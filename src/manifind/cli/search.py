"""`manifind search`."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.live import Live
from rich.text import Text

from manifind.cli.parameters import BOX, DEADLINE, EXAMPLE, index_location
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
from manifind.cli.terminal_pictures import check_protocol, show_picture, strip
from manifind.errors import InvalidInputError, shell_quote
from manifind.index import METHODS, BatchResult, Hit, Index, SearchResult
from manifind.index.search.batch import read_queries
from manifind.index.sets import View
from manifind.io.video import is_photo_there
from manifind.reports.metadata import Condition, Metadata, metadata_words, read_metadata
from manifind.reports.results import annotations_data, coco_data, hit_data, result_data, write_results
from manifind.reports.results import as_csv as as_csv_text
from manifind.reports.search import batch_csv, batch_data, batch_page, counted, hit_pictures, rule_words, search_page
from manifind.reports.search_report import write_report
from manifind.reports.text import visible

Examples = tuple[View, ...]

MAX_KEPT = 10_000
"""Photos that one search keeps as a set."""


@click.command()
@click.argument("index_path", metavar="INDEX", type=index_location)
@click.argument("image", type=click.Path(), required=False)
@click.option(
    "--box", type=BOX, help="The part of IMAGE to look for: left, top, right, bottom in pixels of the upright photo."
)
@click.option(
    "--positive", "positives", type=EXAMPLE, multiple=True, help="Another photo of the same object; may be repeated."
)
@click.option(
    "--negative",
    "negatives",
    type=EXAMPLE,
    multiple=True,
    help="A photo of something similar that is not meant; may be repeated.",
)
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
    help="Verify so many of the first photos by local features.  [default: 50, where the index stores them]",
)
@click.option("--no-verify", is_flag=True, help="Verify none.")
@click.option(
    "--expand/--no-expand",
    default=True,
    show_default=True,
    help="Expand the query by the regions of verified photos, and search once more.",
)
@click.option("--mirrored", is_flag=True, help="Look for the mirrored object too: reversed slides, prints, selfies.")
@click.option(
    "--deadline",
    type=DEADLINE,
    metavar="SECONDS",
    help="Print what is found by then; the output says whether it is complete.",
)
@click.option("--folder", help="Search the photos below this folder of the collection only.")
@click.option("--since", metavar="DATE", help="Search photos taken from this year, month or day on: 2019-07, say.")
@click.option("--until", metavar="DATE", help="Search photos taken up to this year, month or day.")
@click.option(
    "--metadata",
    "catalogue",
    type=click.Path(path_type=Path),
    metavar="CSV",
    help="Show what a catalogue of your own says of the photos: a file with a column key and others.",
)
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="With --metadata: search the photos only whose column says so, or is in a range, year=1900..1920; may be "
    "repeated.",
)
@click.option("--progress", is_flag=True, help="On a terminal, show the ranking at once, and what is being verified.")
@click.option("--keep", metavar="NAME", help="Keep the search and its matches as a set of this name: manifind sets.")
@click.option("--show", is_flag=True, help="Show the photos in the terminal: kitty, iTerm2, WezTerm, foot and others.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page with the pictures as well.")
@click.option("--parquet", type=click.Path(path_type=Path), help="Write a table of the results as Parquet as well.")
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write a report as well that stands by itself, with checksums; manifind verify repeats it.",
)
@click.option(
    "--annotations",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the matches as Web Annotations on their canvases as well, for an index of a IIIF manifest.",
)
@click.option("--coco", type=click.Path(path_type=Path), help="Write the boxes of the matches as COCO JSON as well.")
@click.pass_obj
def search(
    debug: bool,
    index_path: Path | str,
    image: str | None,
    box: tuple[float, ...] | None,
    positives: Examples,
    negatives: Examples,
    queries: Path | None,
    top: int,
    method: str,
    verify: int | None,
    no_verify: bool,
    expand: bool,
    mirrored: bool,
    deadline: float | None,
    folder: str | None,
    since: str | None,
    until: str | None,
    catalogue: Path | None,
    conditions: tuple[str, ...],
    progress: bool,
    keep: str | None,
    show: bool,
    as_json: bool,
    as_csv: bool,
    html: Path | None,
    parquet: Path | None,
    report: Path | None,
    annotations: Path | None,
    coco: Path | None,
) -> None:
    """Rank the photos of INDEX by what they have of IMAGE, or of the box in it."""
    with plain_errors(debug):
        check_formats(as_json=as_json, as_csv=as_csv)
        if verify and no_verify:
            raise InvalidInputError("--verify and --no-verify are both given; give one of them.")
        if (image is None) == (queries is None) or (queries is not None and (box or positives or negatives)):
            raise InvalidInputError(
                "give either IMAGE, with --box, --positive and --negative, or --queries with a file of many.",
                code="image-or-queries",
            )
        if keep is not None and mirrored:
            raise InvalidInputError(
                "--keep stores a search that looks for no mirrored objects; leave --keep or --mirrored out.",
                code="keep-mirrored",
            )
        protocol = check_protocol(os.environ, is_terminal=out.is_terminal) if show else None
        index = Index.open(index_path)
        options: dict[str, Any] = {"top": top, "method": method, "verify": 0 if no_verify else verify, "expand": expand}
        if mirrored:
            options["mirrored"] = True
        filters: dict[str, Any] = {"deadline": deadline, "folder": folder, "since": since, "until": until}
        if queries is not None:
            filters |= {"progress": progress or None, "keep": keep, "show": show or None}
            filters |= {
                "metadata": catalogue,
                "parquet": parquet,
                "coco": coco,
                "report": report,
                "annotations": annotations,
            }
            if given := [name for name, value in filters.items() if value is not None]:
                raise InvalidInputError(f"--queries takes no --{given[0]}; leave it out.", code="option-of-one-query")
            search_batch(index, queries, as_json=as_json, as_csv=as_csv, html=html, **options)
            return
        assert image is not None  # noqa: S101 (one of the two is given)
        metadata = None if catalogue is None else read_metadata(catalogue)
        if conditions:
            if metadata is None:
                raise InvalidInputError("--where is about the columns of a catalogue; give --metadata too.")
            filters["keys"] = metadata.select([Condition.of(text) for text in conditions])
        if keep is not None:
            options["top"] = max(top, MAX_KEPT)
        steps = index.search_steps(image, box, positives=positives, negatives=negatives, **options, **filters)
        result = last_step(steps, top, shown=progress and err.is_terminal).nonzero()
        views = [(image, box), *positives]
        if keep is not None:
            keep_search(index, keep, views, negatives, result, method)
            result = result.head(top)
        nothing = not result or result.n_matches == 0
        if html is not None:
            write_page(html, search_page(index, views, result, metadata))
        shown = () if nothing else result
        if parquet is not None:
            columns = metadata.columns if metadata else ()
            write_results(parquet, (hit_data(hit, metadata) for hit in shown), columns, mirrored=mirrored)
        if report is not None:
            write_report(report, index, views, negatives, {**options, **filters, "top": top}, result, metadata)
        if annotations is not None:
            write_page(annotations, json.dumps(annotations_data(index, shown), indent=2))
        if coco is not None:
            write_page(coco, json.dumps(coco_data(index, shown)))
        if as_json:
            examples = {
                name: [{"image": photo, "box": part} for photo, part in given_examples]
                for name, given_examples in (("positives", positives), ("negatives", negatives))
            }
            data = result_data({"image": image, "box": box, **examples}, result, metadata)
            click.echo(json.dumps({**data, "results": []} if nothing else data, indent=2))
        elif as_csv:
            columns = metadata.columns if metadata else ()
            table = as_csv_text((hit_data(hit, metadata) for hit in shown), columns, mirrored=mirrored)
            click.echo(table, nl=False)
        else:
            show_hits(result, metadata)
            if protocol is not None and result:
                click.echo(show_picture(strip(hit_pictures(index, result)), protocol))
        for file in filter(None, (html, parquet, report, annotations, coco)):
            err.print(f"wrote {file}")
        if not result.complete:
            left = counted(len(result.unchecked_images), "photo")
            err.print(f"the deadline came first; next to be verified: {left}.")
        if nothing:
            err.print("nothing certain; please judge the nearest." if result.nearest_may_match else "nothing matches.")
            sys.exit(NOTHING_FOUND)


def keep_search(
    index: Index, name: str, views: Sequence[View], negatives: Sequence[View], result: SearchResult, method: str
) -> None:
    """Store a search and all its matches as a set."""

    def stored(views: Sequence[View]) -> list[View]:
        return [
            (record.key if (record := index.find(photo)) else str(Path(photo).resolve()), box) for photo, box in views
        ]

    index.sets.save_search(name, stored(views), negatives=stored(negatives), method=method)
    photos = index.sets.add(name, result[: result.n_matches])
    report = f"kept {counted(len(photos), 'photo')} as {visible(name)}"
    err.print(f"{report}; manifind sets {shell_quote(index.path)} shows the sets.")


def last_step(steps: Iterable[SearchResult], top: int, *, shown: bool) -> SearchResult:
    """Return the last result of a search; where `shown`, the terminal has the first of the latest one until then."""
    with Live(console=err, transient=True, auto_refresh=False) if shown else nullcontext() as live:
        for result in steps:
            if live is not None:
                checked = (
                    "" if result.progress is None else f" {result.progress.checked} of {result.progress.total} photos"
                )
                live.update(
                    Text("\n".join([*hit_lines(result.head(top).nonzero()), f"verifying{checked} …"])), refresh=True
                )
    return result


def show_hits(result: SearchResult, metadata: Metadata | None = None) -> None:
    """Print a table of results, with a rule across it at the cutoff."""
    for line in hit_lines(result, metadata):
        out.print(line)


def hit_lines(result: SearchResult, metadata: Metadata | None = None) -> Iterator[str]:
    """Yield the lines of a table of results, with a rule across it at the cutoff."""
    keys = [visible(hit.key) for hit in result]
    widest = max(map(len, keys), default=0)
    verdicts = [_verdict(hit) for hit in result]
    wide = max(map(len, ["grade", *verdicts]))
    column = f"{'grade':<{wide}}  " if any(verdicts) else ""
    if result:
        yield f"{'rank':>4}  {'score':>8}  {'photo':<{widest}}  {column}where"
    for key, hit, words in zip(keys, result, verdicts, strict=True):
        if result.n_matches == hit.rank - 1:
            yield f"── {rule_words(result)} ──".ljust(widest + 40, "─")
        checked = f"{words:<{wide}}  " if column else ""
        where = "the query's own" if hit.image in result.own else "" if hit.box is None else shown_box(hit.box)
        yield f"{hit.rank:4}  {hit.score:8.4f}  {key:<{widest}}  {checked}{where}".rstrip()
        for copy in hit.duplicates:
            yield f"{'':14}  {visible(copy)} is the same file"
        if metadata is not None and (note := metadata_words(metadata.of((hit.key, *hit.duplicates)))):
            yield f"{'':14}  {visible(note)}"


def _verdict(hit: Hit) -> str:
    """Return a hit's grade, its matching points, whether it is mirrored, and whether only query expansion found it."""
    points = "" if hit.inliers is None else f", {counted(hit.inliers, 'point')}"
    mirrored = ", mirrored" if hit.mirrored else ""
    return f"{hit.grade or ''}{points}{mirrored}" + (", by way of others" if hit.expanded else "")


def search_batch(
    index: Index, queries: Path, *, as_json: bool, as_csv: bool, html: Path | None, **options: Any
) -> None:
    """Search for the queries of a file, print the results, and write a page if asked."""
    requests = read_queries(queries, lambda photo: index.find(photo) is not None or is_photo_there(photo))
    with progress_bars(hidden=as_json or as_csv) as progress:
        results = index.search_many(requests, progress=progress, **options)
    if html is not None:
        write_page(html, batch_page(index, results))
    if as_json:
        click.echo(json.dumps(batch_data(results), indent=2))
    elif as_csv:
        click.echo(batch_csv(results), nl=False)
    else:
        show_batch(results)
    if html is not None:
        err.print(f"wrote {html}")
    failed = [result for result in results if result.error is not None]
    for result in failed:
        err.print(f"{visible(result.query.name)}: {visible(str(result.error))}")
    if failed:
        err.print(f"{len(failed)} of {counted(len(results), 'query', 'queries')} could not be answered.")
    if failed or not any(result.result for result in results):
        sys.exit(NOTHING_FOUND)


def show_batch(results: list[BatchResult]) -> None:
    """Print a line for each query: how many photos match, and the first of them."""
    names = [visible(answer.query.name) for answer in results]
    widest = max(map(len, names), default=0)
    out.print(f"{'query':<{widest}}  {'matches':>7}  {'verified':>8}  the first")
    for name, answer in zip(names, results, strict=True):
        if answer.result is None:
            out.print(f"{name:<{widest}}  {'':>7}  {'':>8}  {visible(str(answer.error))}")
            continue
        matches = "" if answer.result.n_matches is None else answer.result.n_matches
        verified = sum(hit.verified is True for hit in answer.result) or ""
        first = ", ".join(visible(hit.key) for hit in answer.result[:3])
        out.print(f"{name:<{widest}}  {matches:>7}  {verified:>8}  {first}")
