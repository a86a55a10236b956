"""`manifind explain`."""

import json
import sys
from pathlib import Path

import click

from manifind.cli.parameters import BOX, index_location
from manifind.cli.terminal import NOTHING_FOUND, err, out, plain_errors, shown_box, write_page
from manifind.errors import InvalidInputError, MissingExtraError, UnreadableImageError
from manifind.index import Chain, Hit, Index, MatchingPoints
from manifind.reports.results import links_data, points_data
from manifind.reports.search import chain_page, counted, geometry_words, link_words, strength
from manifind.reports.text import visible


@click.command()
@click.argument("index_path", metavar="INDEX", type=index_location)
@click.argument("image", type=click.Path())
@click.argument("result")
@click.option("--box", type=BOX, help="The query's part of IMAGE.")
@click.option(
    "--verify/--no-verify",
    default=True,
    help="Ask geometry which photos of the chain it joins, and which points of IMAGE and RESULT match.",
)
@click.option("--mirrored", is_flag=True, help="As of the search: RESULT may show the object mirrored.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page with the pictures as well.")
@click.pass_obj
def explain(
    debug: bool,
    index_path: Path | str,
    image: str,
    result: str,
    box: tuple[float, ...] | None,
    verify: bool,
    mirrored: bool,
    as_json: bool,
    html: Path | None,
) -> None:
    """Show the chain of photos that leads from IMAGE to RESULT, a photo of INDEX."""
    with plain_errors(debug):
        index = Index.open(index_path)
        record = index.find(result)
        if record is None:
            raise InvalidInputError(f"{result!r} is not a photo of {index.where}; give a key that `search` prints.")
        hit = index.search(image, box, top=None, mirrored=mirrored).hit_of(record.number)
        if hit is None:
            err.print(
                f"{visible(record.key)} is not among the photos that a search of so large a collection looks at "
                "closely."
            )
            sys.exit(NOTHING_FOUND)
        chain, points = index.explain(hit), None
        if verify:
            chain = index.confirm(chain, image, box, mirrored=mirrored)
            points = _matching_points(index, image, box, hit.key, mirrored=mirrored)
        if html is not None:
            write_page(html, chain_page(index, image, box, hit, chain, points))
        if as_json:
            summary = {"key": hit.key, "rank": hit.rank, "score": hit.score, "links": links_data(chain)}
            geometry = None if points is None else points_data(points)
            click.echo(json.dumps({**summary, "geometry": geometry}, indent=2))
        else:
            show_chain(hit, chain)
            if points is not None:
                out.print(geometry_words(points))
        if not chain.links:
            sys.exit(NOTHING_FOUND)


def show_chain(hit: Hit, chain: Chain) -> None:
    """Print the links of a chain, one a line."""
    key = visible(hit.key)
    if not chain.links:
        out.print(f"{key}: no chain of photos leads there from the query.")
        return
    out.print(f"{key}, rank {hit.rank}, score {hit.score:.4f}, in {counted(len(chain.links), 'step')}")
    out.print(f"  query {shown_box(chain.links[0].source.box)}")
    for link in chain.links:
        target = visible(link.target.key or "")
        arrow = {"strong": "⇒", "weak": "⇢", "": "→"}[strength(link)]
        out.print(f"  {arrow} {target} {shown_box(link.target.box)}, {link_words(link)}", highlight=False)


def _matching_points(
    index: Index, image: str, box: tuple[float, ...] | None, key: str, *, mirrored: bool
) -> MatchingPoints | None:
    """Return the points that match in the query and the result; None, after a sentence, where that fails."""
    try:
        return index.matching_points(image, key, box, mirrored=mirrored)
    except (UnreadableImageError, MissingExtraError) as error:
        err.print(f"without geometry: {error}")
        return None
