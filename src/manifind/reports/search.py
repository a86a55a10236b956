"""The pages that a search, an explanation and repeated objects can be written to."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from manifind.errors import UnreadableImageError
from manifind.index import (
    BatchResult,
    Chain,
    Hit,
    Index,
    Link,
    MatchingPoints,
    ObjectClusters,
    SearchResult,
    Source,
    whole_box,
)
from manifind.io import key_to_path
from manifind.io.video import containing_file
from manifind.reports.html import THUMBNAIL, Picture, overlay, render, side_by_side
from manifind.reports.metadata import Metadata, metadata_words
from manifind.reports.results import COLUMNS, MIRRORED, hit_data, result_data, table_rows
from manifind.reports.text import as_csv_text, cell, visible
from manifind.types import Box

BELOW = "Below this line: probably something else"
NEAREST = "These are merely the nearest"
"""What the rule at the line says; the second where nothing stands above it."""
JUDGE = "The nearest, please judge"
"""What the rule says where no other photo is a match, and yet the nearest may show the object."""
OCCURRENCES_SHOWN = 12
"""Photos of an object on a page."""


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
    n_own = sum(image in result.own for image in result.images.tolist())
    if result.nearest_may_match:
        return uncertain_words(result)
    if len(result) == n_own or result.n_other_matches == 0:
        return "Nothing in this collection matches"
    if result.n_matches is None:
        return counted(len(result) - n_own, "photo")
    sure = sum(hit.verified is True and hit.image not in result.own for hit in result[: result.n_matches])
    verified = f", {sure} of them verified" if sure else ""
    are = "is" if result.n_other_matches == 1 else "are"
    return f"{counted(result.n_other_matches or 0, 'photo')} {are} likely to show it{verified}"


def chain_page(
    index: Index,
    image: Source,
    box: Sequence[float] | None,
    hit: Hit,
    chain: Chain,
    points: MatchingPoints | None = None,
) -> str:
    """Return a page with the chain of photos from the query to a result, and the points that match in the two."""
    note = f"rank {hit.rank}, score {hit.score:.4f}"
    start: Picture | None = None
    stops: list[tuple[str, str, Picture]] = []
    if chain.links:
        same = sum(a.target.key == b.target.key for a, b in pairwise(chain.links))
        note += f", {counted(len(chain.links), 'step')}" + (f", {same} of them within a photo" if same else "")
        start, stops = chain_pictures(index, query_picture(index, image, box), chain)
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
        words = f"{counted(points.inliers, 'point')} of the query were found again in it"
        return f"{words}, in the same arrangement{mirrored}."
    if points.verified is None:
        return "The query has too little texture for geometry to say anything."
    return "Too few points of the query were found again in it, in the same arrangement: reached by likeness alone."


def counted(count: int, what: str, many: str | None = None) -> str:
    """Count as people do."""
    return f"1 {what}" if count == 1 else f"{count} {many or what + 's'}"


def batch_data(results: Sequence[BatchResult]) -> dict[str, Any]:
    """Return the results as JSON; a query without a result has an `error`."""
    return {"queries": [_data(result) for result in results]}


def _data(batch_result: BatchResult) -> dict[str, Any]:
    query = {"views": [{"image": str(photo), "box": box} for photo, box in batch_result.query.views]}
    if batch_result.result is None:
        return {"name": batch_result.query.name, "query": query, "error": str(batch_result.error)}
    return {"name": batch_result.query.name, **result_data(query, batch_result.result)}


def batch_csv(results: Sequence[BatchResult]) -> str:
    """Return one table of all results, with the name of the query before each."""
    return as_csv_text(_rows(results))


def _rows(results: Sequence[BatchResult]) -> Iterator[list[Any]]:
    mirrored = any(result.result is not None and result.result.mirrored for result in results)
    yield ["query", *COLUMNS, *([MIRRORED] if mirrored else [])]
    for result in results:
        if result.result is not None:
            _, *rows = table_rows(map(hit_data, result.result), mirrored=mirrored)
            yield from ([cell(result.query.name), *row] for row in rows)


def batch_page(index: Index, results: Sequence[BatchResult]) -> str:
    """Return one page: what was found in short, then each query with its photos and those that were found."""
    return render(
        "batch.html",
        title="What manifind found",
        subtitle=f"{len(results)} queries among {len(index)} photos of {index.root}",
        searches=[_search(index, result) for result in results],
    )


def _search(index: Index, batch_result: BatchResult) -> dict[str, Any]:
    """Return what the page shows of one query."""
    if batch_result.result is None:
        return {"name": batch_result.query.name, "words": str(batch_result.error), "views": [], "found": []}
    return {
        "name": batch_result.query.name,
        "words": found_words(batch_result.result),
        "views": [query_picture(index, photo, box) for photo, box in batch_result.query.views],
        "found": hit_pictures(index, batch_result.result),
        "rule": rule_words(batch_result.result),
    }


def query_picture(index: Index, image: Source, box: Sequence[float] | None, name: str | None = None) -> Picture:
    """Return the picture of a query, with its box if it has one."""
    pixels = index.pixels(image)
    height, width = pixels.shape[:2]
    title = name or (str(image) if isinstance(image, str) else "")
    return Picture(pixels, width, height, title, None if box is None else whole_box(box, width, height))


def hit_pictures(index: Index, hits: Iterable[Hit], metadata: Metadata | None = None) -> list[tuple[Hit, Picture]]:
    """Return hits with their pictures: the outline of the object or of a shared part, or else the one box round it."""
    pictures = []
    for hit in hits:
        outlines = [outline for outline in (hit.outline, hit.part, *hit.other_outlines) if outline is not None]
        picture = photo_picture(index, hit.key, None if outlines else hit.box)
        note = "" if metadata is None else metadata_words(metadata.of((hit.key, *hit.duplicates)))
        pictures.append((hit, replace(picture, outlines=outlines, note=note)))
    return pictures


def chain_pictures(index: Index, query: Picture, chain: Chain) -> tuple[Picture, list[tuple[str, str, Picture]]]:
    """Return the query of a chain, and for each link its look, its words and the photo at its end."""
    ends = [photo_picture(index, link.target.key or "", link.target.box) for link in chain.links]
    stops = [(strength(link), link_words(link), end) for link, end in zip(chain.links, ends, strict=True)]
    return replace(query, box=chain.links[0].source.box), stops


def link_words(link: Link) -> str:
    """Say what joins the two ends of a link."""
    if link.within:
        return "within the photo"
    alike = f"similarity {link.similarity:.2f}"
    return f"{link.inliers} matching points, {alike}" if link.verified else alike


def strength(link: Link) -> str:
    """Return how a link looks: strong where geometry confirms it, weak where it does not, plain where nobody asked."""
    return "" if link.verified is None else "strong" if link.verified else "weak"


def photo_picture(index: Index, key: str, box: Box | None) -> Picture:
    """Return the picture of a photo of the collection. A photo that is gone is grey, and says why."""
    try:
        photo = index.photo(key, long_side=THUMBNAIL)
    except UnreadableImageError as error:
        record = index.catalogue.photo_of(key)
        width, height = (120, 90) if record is None else (record.width, record.height)
        return Picture(np.full((90, 120, 3), 128, np.uint8), width, height, key, box, missing=error.reason)
    return Picture(photo.pixels, photo.width, photo.height, key, box, link=file_address(index, key))


def file_address(index: Index, key: str) -> str:
    """Return the address of a photo's file; of a frame, that of its film."""
    path = key_to_path(index.root, key)
    return containing_file(path).absolute().as_uri()


def repeats_page(index: Index, clusters: ObjectClusters) -> str:
    """Return a page with the photos of each object, and near-duplicates at its end."""
    return render(
        "repeats.html",
        title="What repeats",
        subtitle=f"among {len(index)} photos of {index.root}",
        objects=[
            (
                cluster,
                [photo_picture(index, place.key, place.box) for place in cluster.occurrences[:OCCURRENCES_SHOWN]],
            )
            for cluster in clusters.objects
        ],
        near_duplicates=clusters.near_duplicates,
    )
