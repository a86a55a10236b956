"""The commands: thin, no logic of their own.

Exit codes: 0 done, 1 nothing found or a check that failed, 2 the user's words are off, 3 the machine's fault. An error
is one sentence on standard error; the traceback comes with ``--debug``.
"""

import csv
import json
import platform
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from manifind import demo as photo_demo
from manifind import kernels
from manifind.describe import POOLINGS, load_describer, whitening_from_pairs
from manifind.errors import Damaged, InvalidInput, ManifindError
from manifind.evaluate import command as evaluation
from manifind.evaluate.cache import usual_folder
from manifind.evaluate.evaluation import FIGURES, as_csv, as_json, as_table
from manifind.evaluate.methods import METHODS as EVALUATED
from manifind.evaluate.published import known_descriptors
from manifind.graph import AUTO, GRAPHS
from manifind.index import METHODS, Chain, Hit, Index
from manifind.index.check import check as check_index
from manifind.index.estimate import size
from manifind.index.pages import chain_page, search_page
from manifind.version import VERSION

NOTHING_FOUND = CHECK_FAILED = 1
WRONG_WORDS, MACHINE_FAULT, INTERRUPTED = 2, 3, 130

# Keys are printed as they are: nothing in them is markup, an emoji's name, or something to colour or to break.
out = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
err = Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)


class BoxType(click.ParamType[tuple[float, ...]]):
    """``X0,Y0,X1,Y1`` in pixels."""

    name = "X0,Y0,X1,Y1"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Return the four numbers."""
        if isinstance(value, tuple):
            return value
        try:
            corners = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            corners = ()
        if len(corners) != 4:
            self.fail(f"{value!r} is not a box; give four numbers X0,Y0,X1,Y1 in pixels.", param, ctx)
        return corners


class AlsoType(click.ParamType[tuple[str, tuple[float, ...] | None]]):
    """``IMAGE`` or ``IMAGE@X0,Y0,X1,Y1``."""

    name = "IMAGE[@X0,Y0,X1,Y1]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[float, ...] | None]:
        """Return the photo and the box."""
        if isinstance(value, tuple):
            return value
        image, at, box = str(value).rpartition("@")
        if not at or Path(str(value)).exists():
            return str(value), None
        return image, BOX.convert(box, param, ctx)


class BytesType(click.ParamType[int]):
    """``4GiB``, ``500MB`` or a plain number."""

    name = "BYTES"
    units: ClassVar = {"": 1, "b": 1} | {
        f"{letter}{ending}": base ** (power + 1)
        for power, letter in enumerate("kmgt")
        for ending, base in (("", 1024), ("ib", 1024), ("b", 1000))
    }

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        match = re.fullmatch(r"([0-9.]+)\s*([a-z]*)", str(value).strip().lower())
        try:
            return int(float(match[1]) * self.units[match[2]]) if match else self.fail_on(value, param, ctx)
        except (KeyError, ValueError):
            return self.fail_on(value, param, ctx)

    def fail_on(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NoReturn:
        """Say what would do."""
        self.fail(f"{value!r} is no amount of memory; give 4GiB, say.", param, ctx)


BOX, ALSO, BYTES = BoxType(), AlsoType(), BytesType()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="manifind")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads to use; all cores by default.")
@click.pass_context
def main(context: click.Context, debug: bool, threads: int | None) -> None:
    """Find every photo that contains this object, however small."""
    context.obj = debug
    if threads is not None:
        kernels.set_threads(threads)


@main.command()
@click.argument("photos", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The index; PHOTOS.manifind by default.")
@click.option("--backbone", help="A network that comes with manifind, or an ONNX file with a spatial output.")
@click.option("--whiten", default="shipped", show_default=True, help="shipped, learn, none, or a file of `whiten`.")
@click.option("-k", type=click.IntRange(min=1), help="Neighbours of each region in the graph.")
@click.option("--graph", type=click.Choice([AUTO, *GRAPHS]), help="How to find neighbours; auto by default.")
@click.option("--means", type=click.IntRange(min=1), help="Keep only so many means of a photo's regions; 5, say.")
@click.option("--memory", type=BYTES, help="Memory that the build may take.")
@click.option("--relearn", is_flag=True, help="Learn the whitening again, and describe all photos with it.")
@click.option("--repair", is_flag=True, help="Rebuild what is damaged from what is whole.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def index(
    debug: bool,
    photos: Path,
    output: Path | None,
    backbone: str | None,
    whiten: str,
    k: int | None,
    graph: str | None,
    means: int | None,
    memory: int | None,
    relearn: bool,
    repair: bool,
    as_json: bool,
) -> None:
    """Make an index of the folder PHOTOS, or bring it up to date."""
    with plain_errors(debug):
        folder = photos.resolve()
        target = output or folder.with_name(f"{folder.name}.manifind")
        given = {"backbone": backbone, "k": k, "graph": graph, "means": means}
        given["whiten"] = None if whiten == "shipped" else whiten
        settled: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        changes: dict[str, int] | None = None
        done: str | None = None
        with progress_bars(hidden=as_json) as progress:
            announce = None if as_json else lambda expected: err.print(str(expected))
            options: dict[str, Any] = {"memory": memory, "progress": progress, "announce": announce}
            if repair:
                done = Index.repair(target, folder, memory=memory, progress=progress)
            if not (target / "manifest.json").exists():
                if relearn:
                    raise InvalidInput(f"{target} is no index yet; --whiten learn makes one that learns its whitening.")
                made = Index.create(target, photos, **settled, **options)
            else:
                if settled:
                    raise InvalidInput(
                        f"{target} exists, and {', '.join(settled)} are settled when an index is made; choose another "
                        "-o."
                    )
                made = Index.open(target)
                moved = folder != made.root
                if moved and made.root.is_dir():
                    raise InvalidInput(f"{target} is the index of {made.root}, not of {photos}; choose another -o.")
                if relearn:
                    changes = vars(made.relearn(folder if moved else None, **options))
                elif not repair:
                    changes = vars(made.sync(folder if moved else None, **options))
        facts = made.info()
        if as_json:
            click.echo(json.dumps({**facts, "changes": changes, "repair": done}, indent=2))
            return
        out.print(f"{facts['photos']} photos, {facts['regions']} regions, {facts['edges_a_region']:.1f} edges a region")
        if done:
            out.print(done)
        if changes:
            out.print(", ".join(f"{count} {what}" for what, count in changes.items()))
        show_skipped(facts["skipped"])
        out.print(target)


@main.command()
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


@main.command()
@click.argument("index_path", metavar="INDEX", type=click.Path(path_type=Path))
@click.argument("image", type=click.Path())
@click.argument("result")
@click.option("--box", type=BOX, help="The part of IMAGE that was looked for.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page with the pictures as well.")
@click.pass_obj
def explain(
    debug: bool,
    index_path: Path,
    image: str,
    result: str,
    box: tuple[float, ...] | None,
    as_json: bool,
    html: Path | None,
) -> None:
    """Show the chain of photos that leads from IMAGE to RESULT, a photo of INDEX."""
    with plain_errors(debug):
        opened = Index.open(index_path)
        if opened.catalogue.of_key(result) is None:
            raise InvalidInput(f"{result!r} is not a photo of {index_path}; give a key that `search` prints.")
        hit = next((hit for hit in opened.search(image, box, top=None) if hit.key == result), None)
        if hit is None:
            err.print(f"{result} is not among the photos that a search of so large a collection looks at closely.")
            sys.exit(NOTHING_FOUND)
        chain = opened.explain(hit)
        if html is not None:
            write_page(html, chain_page(opened, image, box, hit, chain))
        if as_json:
            click.echo(
                json.dumps({"key": hit.key, "rank": hit.rank, "score": hit.score, "links": links(chain)}, indent=2)
            )
        else:
            show_chain(hit, chain)
        if not chain.links:
            sys.exit(NOTHING_FOUND)


@main.command()
@click.argument("pairs", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The file to write, .npz.")
@click.option("--backbone", default="mobilenet_v2", show_default=True, help="The network to learn it for.")
@click.option("--dimension", type=click.IntRange(min=1), default=512, show_default=True)
@click.pass_obj
def whiten(debug: bool, pairs: Path, output: Path, backbone: str, dimension: int) -> None:
    """Learn a whitening from photos that show the same thing.

    PAIRS is a CSV file with two photos a line, their paths taken from where it lies.
    """
    with plain_errors(debug):
        try:
            with pairs.open(newline="", encoding="utf-8") as stream:
                rows = [row for row in csv.reader(stream) if row]
        except UnicodeDecodeError:
            rows = []
        if not rows or any(len(row) != 2 for row in rows):
            raise InvalidInput(f"{pairs} is not a list of pairs; give two photos a line, separated by a comma.")
        files = [(pairs.parent / a, pairs.parent / b) for a, b in rows]
        with progress_bars(hidden=False) as progress:
            learnt = whitening_from_pairs(
                files,
                load_describer(backbone, whitening=None),
                dimension=dimension,
                progress=lambda done, total: progress("photos", done, total),
            )
        learnt.save(output)
        out.print(f"{output}: {learnt.project.shape[1]} of {len(learnt.mean)} dimensions, from {len(files)} pairs")


@main.command()
@click.argument("index_path", metavar="INDEX", type=click.Path(path_type=Path), required=False)
@click.option("--system", "of_system", is_flag=True, help="Show what manifind itself runs on instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def info(debug: bool, index_path: Path | None, of_system: bool, as_json: bool) -> None:
    """Show what is in INDEX and how healthy its graph is."""
    with plain_errors(debug):
        if of_system:
            show_system(as_json)
            return
        if index_path is None:
            raise InvalidInput("INDEX is missing; give the index to show, or --system for what manifind runs on.")
        facts = Index.open(index_path).info()
        if as_json:
            click.echo(json.dumps(facts, indent=2))
        else:
            show_info(facts)


@main.command()
@click.argument("index_path", metavar="INDEX", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def check(debug: bool, index_path: Path, as_json: bool) -> None:
    """Verify every checksum of INDEX and everything that must hold of it; say what would repair what is wrong."""
    with plain_errors(debug):
        with progress_bars(hidden=as_json) as progress:
            problems = check_index(index_path, progress)
        if as_json:
            click.echo(json.dumps({"problems": [vars(problem) for problem in problems]}, indent=2))
        else:
            for problem in problems:
                out.print(str(problem))
            if not problems:
                out.print("everything is as it should be")
        if problems:
            sys.exit(CHECK_FAILED)


@main.command(
    epilog=f"Methods: {', '.join(EVALUATED)}. Descriptors with published figures: {', '.join(known_descriptors())}."
)
@click.argument("collection", type=click.Path(path_type=Path))
@click.option(
    "--truth",
    "truths",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    help="A ground truth: Oxford's or Paris's folder, gnd_*.pkl, gnd_*.mat, JSON or CSV; may be repeated.",
)
@click.option(
    "--queries",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Descriptors of the queries of each --truth, in its order.",
)
@click.option("--names", type=click.Path(path_type=Path), help="Names of the images, where the descriptors have none.")
@click.option(
    "--distractors",
    type=click.Path(path_type=Path),
    help="More images that no query looks for: descriptors, or a .txt of names in COLLECTION.",
)
@click.option(
    "--method", "methods", multiple=True, help="NAME, NAME:k=50,query_k=10, or all, as by default; may be repeated."
)
@click.option(
    "--ap",
    "definition",
    type=click.Choice(["trapezoid", "mean"]),
    default="trapezoid",
    show_default=True,
    help="The definition of average precision.",
)
@click.option(
    "--figure",
    "figures",
    type=click.Choice(["all", *FIGURES]),
    multiple=True,
    help="A figure of the paper, on the first --truth; may be repeated.",
)
@click.option("--descriptors", help="What the descriptors are, to stand beside published figures of the same.")
@click.option("--query-counts", is_flag=True, help="A query's own photo may be among its positives.")
@click.option("--backbone", default="mobilenet_v2", show_default=True, help="The network that describes photos.")
@click.option("--pooling", type=click.Choice(list(POOLINGS)), help="How photos' regions are pooled.")
@click.option(
    "--cache", type=click.Path(path_type=Path), help="Where rankings are kept; ~/.cache/manifind/evaluate by default."
)
@click.option("--no-cache", is_flag=True, help="Keep nothing, use nothing kept.")
@click.option("--fresh", is_flag=True, help="Compute everything again.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="A folder for results.json, results.csv, report.md, report.html and the figures.",
)
@click.option("--json", "as_json_", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv_", is_flag=True, help="Print CSV.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page as well.")
@click.pass_obj
def evaluate(
    debug: bool,
    /,
    backbone: str,
    pooling: str | None,
    cache: Path | None,
    no_cache: bool,
    output: Path | None,
    as_json_: bool,
    as_csv_: bool,
    html: Path | None,
    **asked: Any,
) -> None:
    """Measure methods on COLLECTION: a folder of photos, or descriptors."""
    with plain_errors(debug, "interrupted; what was measured is kept, and the same command goes on from there."):
        settings: dict[str, Any] = {} if pooling is None else {"pooling": pooling}
        wanted = evaluation.Asked(**asked, cache=None if no_cache else cache or usual_folder())
        with progress_bars(hidden=as_json_ or as_csv_) as progress:
            answer = evaluation.run(wanted, lambda: load_describer(backbone, **settings), progress, err.print)
        if html is not None:
            write_page(html, answer.page())
        for file in [] if output is None else answer.write(output):
            err.print(f"wrote {file}")
        if as_json_ or as_csv_:
            click.echo((as_json if as_json_ else as_csv)(answer.evaluation), nl=False)
        else:
            click.echo(as_table(answer.evaluation))


@main.command()
@click.argument("index_path", metavar="INDEX", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; elsewhere a token is demanded.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes a free one.")
@click.option("--token", envvar="MANIFIND_TOKEN", help="What clients must show; also MANIFIND_TOKEN.")
@click.option("--open-to-all", is_flag=True, help="Listen where others can reach it, without a token.")
@click.option("--open", "in_browser", is_flag=True, help="Open the page in the browser.")
@click.option("--follow-links", is_flag=True, help="Serve photos that are links out of the collection's folder.")
@click.option("--cors", "origins", multiple=True, metavar="ORIGIN", help="Another site whose pages may use the API.")
@click.option("--time-limit", type=click.FloatRange(min=0.1), default=30.0, show_default=True, help="Seconds a search.")
@click.option(
    "--waiting", type=click.IntRange(min=1), default=256, show_default=True, help="Searches at once, at most."
)
@click.pass_obj
def serve(
    debug: bool,
    index_path: Path,
    host: str,
    port: int,
    token: str | None,
    open_to_all: bool,
    in_browser: bool,
    follow_links: bool,
    origins: tuple[str, ...],
    time_limit: float,
    waiting: int,
) -> None:
    """Serve INDEX as a web page and an HTTP API, to this machine only unless told otherwise."""
    with plain_errors(debug):
        from manifind import serve as service

        def started(address: str) -> None:
            out.print(f"{address}  (Ctrl-C ends it)")
            if in_browser:
                click.launch(address)

        settings = service.Settings(
            token=token or None, follow_links=follow_links, origins=origins, time_limit=time_limit, waiting=waiting
        )
        opened = Index.open(index_path)
        service.serve(opened, host=host, port=port, open_to_all=open_to_all, settings=settings, started=started)


@main.command()
@click.option(
    "--out", "folder", type=click.Path(path_type=Path), default="out", show_default=True, help="Where everything goes."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def demo(debug: bool, folder: Path, as_json: bool) -> None:
    """Plant objects in photos, find them in four ways, and write a page that shows how."""
    with plain_errors(debug):
        with progress_bars(hidden=as_json) as progress:
            shown = photo_demo.run(folder, progress=progress)
        click.echo(photo_demo.as_json(shown) if as_json else photo_demo.as_table(shown))
        if shown.picture is None:
            err.print("without Figure 1, which needs matplotlib; pip install 'manifind[plots]'")


# -- how things are shown ---------------------------------------------------------------------------------------------


def show_hits(hits: list[Hit]) -> None:
    """Print a table of results."""
    widest = max((len(hit.key) for hit in hits), default=0)
    out.print(f"{'rank':>4}  {'score':>8}  {'photo':<{widest}}  where")
    for hit in hits:
        where = f"{shown_box(hit.regions[0].box)} {hit.regions[0].share:.0%}" if hit.regions else ""
        out.print(f"{hit.rank:4}  {hit.score:8.4f}  {hit.key:<{widest}}  {where}".rstrip())


def show_system(as_json: bool) -> None:
    """Print what manifind runs on."""
    facts = {"manifind": VERSION, "python": platform.python_version(), **kernels.system()}
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        out.print(f"{name.replace('_', ' '):<18}", "none" if shown in (None, "") else shown)


def show_chain(hit: Hit, chain: Chain) -> None:
    """Print the links of a chain, one a line."""
    if not chain.links:
        out.print(f"{hit.key}: no chain of photos leads there from the query.")
        return
    out.print(f"{hit.key}, rank {hit.rank}, score {hit.score:.4f}, in {len(chain.links)} steps")
    out.print(f"  query {shown_box(chain.links[0].source.box)}")
    for link in chain.links:
        out.print(
            f"  → {link.target.key} {shown_box(link.target.box)}, similarity {link.similarity:.2f}", highlight=False
        )


def show_info(facts: dict[str, Any]) -> None:
    """Print what is in an index and how it does."""
    parts = ", ".join(f"{name} {size(count)}" for name, count in facts["bytes_by_part"].items())
    rows = {
        "index": facts["path"],
        "photos in": facts["photos_folder"],
        "generation": f"{facts['generation']}, made by {facts['made_by']}",
        "photos": f"{facts['photos']:,}",
        "regions": f"{facts['regions']:,}" + (f", {facts['means']} means a photo" if facts["means"] else ""),
        "edges": f"{facts['edges']:,}",
        "on disk": f"{size(facts['bytes'])}: {parts}",
        "backbone": f"{facts['describer']['name']} ({facts['describer']['sha256'][:12]})",
        "parameters": ", ".join(f"{name} {value}" for name, value in facts["manifold"].items()),
    }
    for name, value in rows.items():
        out.print(f"{name:<11} {value}")
    for sentence in (facts["graph"]["words"], *facts["health"]["words"], facts["whitening"]["words"]):
        out.print(f"- {sentence}")
    show_skipped(facts["skipped"])


def show_skipped(skipped: list[dict[str, str]]) -> None:
    """Print what was passed over, the first few."""
    if skipped:
        out.print(f"passed over {len(skipped)}:")
        for one in skipped[:10]:
            out.print(f"  {one['key']}: {one['reason']}")
        if len(skipped) > 10:
            out.print(f"  and {len(skipped) - 10} more; manifind info --json lists them")


def as_dict(hit: Hit) -> dict[str, Any]:
    """Return a result as JSON has it."""
    regions = [{"box": region.box, "share": region.share} for region in hit.regions]
    return {"rank": hit.rank, "key": hit.key, "score": hit.score, "regions": regions}


def links(chain: Chain) -> list[dict[str, Any]]:
    """Return a chain as JSON has it; the key of the query is null."""
    return [
        {
            "from": {"key": link.source.key, "box": link.source.box},
            "to": {"key": link.target.key, "box": link.target.box},
            "similarity": link.similarity,
            "flow": link.flow,
        }
        for link in chain.links
    ]


def write_csv(hits: list[Hit]) -> None:
    """Print results as CSV, the best region of each."""
    writer = csv.writer(sys.stdout)
    writer.writerow(["rank", "key", "score", "x0", "y0", "x1", "y1", "share"])
    for hit in hits:
        best = [*hit.regions[0].box, hit.regions[0].share] if hit.regions else [""] * 5
        writer.writerow([hit.rank, hit.key, hit.score, *best])


def shown_box(box: tuple[float, ...]) -> str:
    """Return a box as the command line takes it."""
    return ",".join(f"{corner:.0f}" for corner in box)


def write_page(file: Path, text: str) -> None:
    """Write a page where the user wants it."""
    if file.is_dir() or not file.resolve().parent.is_dir():
        raise InvalidInput(f"{file} is a folder or lies in none; give the name of a file to write, report.html say.")
    file.write_text(text, encoding="utf-8")


@contextmanager
def progress_bars(*, hidden: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for each stage, with the rate and the time left."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, disable=hidden or not err.is_terminal, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def progress(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total, rate="")
            speed = bars.tasks[tasks[stage]].speed
            bars.update(tasks[stage], completed=done, total=total, rate=f"{speed:.1f}/s" if speed else "")

        yield progress


@contextmanager
def plain_errors(
    debug: bool, interrupted: str = "interrupted; what was described is kept, and the same command goes on from there."
) -> Iterator[None]:
    """Turn an error into one sentence and an exit code."""
    try:
        yield
    except KeyboardInterrupt:
        err.print(interrupted)
        sys.exit(INTERRUPTED)
    except (ManifindError, FileNotFoundError, NotADirectoryError) as error:
        if debug:
            raise
        err.print(error)
        sys.exit(MACHINE_FAULT if isinstance(error, Damaged) else WRONG_WORDS)
    except (OSError, sqlite3.Error, MemoryError) as error:
        if debug:
            raise
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        err.print(f"{where}{getattr(error, 'strerror', None) or error or 'out of memory'}.")
        sys.exit(MACHINE_FAULT)


if __name__ == "__main__":
    main()
