"""`manifind evaluate`."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from manifind.cli.extraction_options import WHITEN, extraction_options, extractor_of, settings_of
from manifind.cli.terminal import err, plain_errors, progress_bars, write_page
from manifind.evaluation import command as evaluation
from manifind.evaluation.cache import default_cache_folder
from manifind.evaluation.comparison import known_descriptors
from manifind.evaluation.curves import FIGURES
from manifind.evaluation.measures import DEFINITIONS
from manifind.evaluation.methods import METHODS as EVALUATED
from manifind.evaluation.tables import as_csv, as_json, as_table


@click.command(
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
    "--method",
    "methods",
    multiple=True,
    help="NAME, NAME:k=50,query_k=10, or all, as by default: those that take seconds; may be repeated.",
)
@click.option(
    "--ap",
    "definition",
    type=click.Choice(list(DEFINITIONS)),
    default="trapezoid",
    show_default=True,
    help="The definition of average precision.",
)
@click.option(
    "--figure",
    "figures",
    multiple=True,
    help=f"A figure of the paper: {', '.join(FIGURES)}, or all; NAME:parameter=value; may be repeated.",
)
@click.option(
    "--preset",
    type=click.Choice(evaluation.PRESETS),
    help="paper: every row of the paper's tables and every figure that the data allow, beside the paper's values.",
)
@click.option("--descriptors", help="What the descriptors are, to stand beside published figures of the same.")
@click.option("--query-counts", is_flag=True, help="A query's own photo counts as any other; else it is ignored.")
@extraction_options
@WHITEN
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
    backbone: str | None,
    whiten: str | None,
    pooling: str | None,
    scales: tuple[float, ...] | None,
    long_side: int | None,
    cache: Path | None,
    no_cache: bool,
    output: Path | None,
    as_json_: bool,
    as_csv_: bool,
    html: Path | None,
    **options: Any,
) -> None:
    """Evaluate methods on COLLECTION: an index, a folder of photos, or descriptors."""
    with plain_errors(debug, "interrupted; what was measured is kept, and the same command goes on from there."):
        request = evaluation.Request(**options, cache=None if no_cache else cache or default_cache_folder())
        settings = settings_of(pooling, scales, long_side)
        with progress_bars(hidden=as_json_ or as_csv_) as progress:
            extractor = partial(extractor_of, backbone, whiten, request.preset, **settings)
            result = evaluation.run(request, extractor, progress, err.print)
        if html is not None:
            write_page(html, result.page())
        for file in [] if output is None else result.write(output):
            err.print(f"wrote {file}")
        if as_json_ or as_csv_:
            click.echo((as_json if as_json_ else as_csv)(result.comparison), nl=False)
        else:
            click.echo(as_table(result.comparison, paper=request.preset == evaluation.PAPER))
