"""The pages that a search and an explanation can be written to."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from manifind.index import BatchResult, Chain, Hit, Index, MatchingPoints, SearchResult, Source, whole_box
from manifind.reports.html import Picture, render
from manifind.reports.metadata import Metadata
from manifind.reports.registration import overlay, side_by_side
from manifind.reports.results import (
    COLUMNS,
    MIRRORED,
    chain_pictures,
    hit_data,
    hit_pictures,
    query_picture,
    result_data,
    table_rows,
)
from manifind.reports.text import as_csv_text, cell, visible

BELOW = "Below this line: probably something else"
NEAREST = "These are merely the nearest"
"""What the rule at the line says; the second where nothing stands above it."""
JUDGE = "The nearest, please judge"
"""What the rule says where no other photo is a match, and yet the nearest may show the object."""


def search_page(
    index: Index,
    views: Sequence[tuple[Source, Sequence[float] | None]],
    result: SearchResult,
    metadata: Metadata | None = None,
) -> str:
    """Return a page with the query and the photos that were found, those below the line apart."""
    return render(
        "search.html",
        title="What manifind found",
        subtitle=f"{result.method}, among {len(index)} photos of {index.root}",
        views=[query_picture(index, *view) for view in views],
        heading=found_words(result),
        found=hit_pictures(index, result, metadata),
        rule=rule_words(result),
    )


def rule_words(result: SearchResult) -> str:
    """Say what the rule at the line says."""
    if result.nearest_may_match:
        return f"{uncertain_words(result)}. {JUDGE}"
    return BELOW if result.n_matches else NEAREST


def uncertain_words(result: SearchResult) -> str:
    """Say that no photo is a match for certain, besides the query's own where the collection has it."""
    has_own = any(image in result.own for image in result.images.tolist())
    return "Nothing certain besides the query's own photo" if has_own else "Nothing certain"


def found_words(result: SearchResult) -> str:
    """Say how many photos besides the query's own were found, and how many are likely to show the object."""
    own = sum(image in result.own for image in result.images.tolist())
    if result.nearest_may_match:
        return uncertain_words(result)
    if len(result) == own or result.n_other_matches == 0:
        return "Nothing in this collection matches"
    if result.n_matches is None:
        return counted(len(result) - own, "photo")
    sure = sum(hit.verified is True and hit.image not in result.own for hit in result[: result.n_matches])
    verified = f", {sure} of them verified" if sure else ""
    are = "is" if result.n_other_matches == 1 else "are"
    return f"{counted(result.n_other_matches or 0, 'photo')} {are} likely to show it{verified}"


def chain_page(
    index: Index,
    image: Source,
    box: Sequence[float] | None,
    hit: Hit,
    found: Chain,
    points: MatchingPoints | None = None,
) -> str:
    """Return a page with the chain of photos from the query to a result, and the points that match in the two."""
    note = f"rank {hit.rank}, score {hit.score:.4f}"
    start: Picture | None = None
    stops: list[tuple[str, str, Picture]] = []
    if found.links:
        same = sum(a.target.key == b.target.key for a, b in pairwise(found.links))
        note += f", {counted(len(found.links), 'step')}" + (f", {same} of them within a photo" if same else "")
        start, stops = chain_pictures(index, query_picture(index, image, box), found)
    drawn = None
    if points is not None and points.transform is not None:
        pixels, photo = index.pixels(image), index.photo(hit.key).pixels
        part = None if box is None else whole_box(box, *pixels.shape[1::-1])
        drawn = {"lines": side_by_side(pixels, photo, points), "overlay": overlay(pixels, part, photo, points)}
    return render(
        "chain.html",
        title=f"Why {visible(hit.key)}?",
        subtitle=note,
        start=start,
        stops=stops,
        drawn=drawn,
        matching=None if points is None else counted(points.inliers, "point"),
        geometry=None if points is None else geometry_words(points),
    )


def geometry_words(points: MatchingPoints) -> str:
    """Say what geometry says of two photos."""
    if points.verified:
        mirrored = ", mirrored" if points.mirrored else ""
        found = f"{counted(points.inliers, 'point')} of the query were found again in it"
        return f"{found}, in the same arrangement{mirrored}."
    if points.verified is None:
        return "The query has too little texture for geometry to say anything."
    return "Too few points of the query were found again in it, in the same arrangement: reached by likeness alone."


def counted(count: int, what: str, many: str | None = None) -> str:
    """Count as people do."""
    return f"1 {what}" if count == 1 else f"{count} {many or what + 's'}"


def batch_data(results: Sequence[BatchResult]) -> dict[str, Any]:
    """Return the results as JSON; a query without a result has an `error`."""
    return {"queries": [_data(one) for one in results]}


def _data(one: BatchResult) -> dict[str, Any]:
    query = {"views": [{"image": str(photo), "box": box} for photo, box in one.query.views]}
    if one.result is None:
        return {"name": one.query.name, "query": query, "error": str(one.error)}
    return {"name": one.query.name, **result_data(query, one.result)}


def batch_csv(results: Sequence[BatchResult]) -> str:
    """Return one table of all results, with the name of the query before each."""
    return as_csv_text(_rows(results))


def _rows(results: Sequence[BatchResult]) -> Iterator[list[Any]]:
    mirrored = any(one.result is not None and one.result.mirrored for one in results)
    yield ["query", *COLUMNS, *([MIRRORED] if mirrored else [])]
    for one in results:
        if one.result is not None:
            _, *found = table_rows(map(hit_data, one.result), mirrored=mirrored)
            yield from ([cell(one.query.name), *row] for row in found)


def batch_page(index: Index, results: Sequence[BatchResult]) -> str:
    """Return one page: what was found in short, then each query with its photos and those that were found."""
    return render(
        "batch.html",
        title="What manifind found",
        subtitle=f"{len(results)} queries among {len(index)} photos of {index.root}",
        searches=[_search(index, one) for one in results],
    )


def _search(index: Index, one: BatchResult) -> dict[str, Any]:
    """Return what the page shows of one query."""
    if one.result is None:
        return {"name": one.query.name, "words": str(one.error), "views": [], "found": []}
    return {
        "name": one.query.name,
        "words": found_words(one.result),
        "views": [query_picture(index, photo, box) for photo, box in one.query.views],
        "found": hit_pictures(index, one.result),
        "rule": rule_words(one.result),
    }
