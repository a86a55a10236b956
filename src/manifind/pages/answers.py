"""An answer in the shapes that people and programs read: plain data, a table, pictures.

The command line, the service and the demo all show answers; what each of them shows of a hit or of a chain is decided
here.
"""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from manifind.describe import Unreadable
from manifind.index import Answer, Chain, Hit, Index, Link, MatchingPoints, Place, RegionShare, Source, whole_box
from manifind.pages.html import THUMBNAIL, Picture, chain
from manifind.pages.tables import as_csv_text, yes_or_no
from manifind.pages.text import cell, visible
from manifind.types import Box

BEFORE = "rank", "key", "score", "x0", "y0", "x1", "y1", "share"
COLUMNS = (*BEFORE, "likely", "verified", "inliers", "refined", "outline", "also_at")
"""Of the table: the box is the one round the object, the share that of its best region, the outline four corners."""

# -- plain data -------------------------------------------------------------------------------------------------------


def answer_data(query: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON has it; `query` is what was asked, in the words of whoever asked it."""
    return {
        "query": dict(query),
        "method": answer.method,
        "likely": answer.likely,
        "results": [hit_data(hit) for hit in answer],
    }


def hit_data(hit: Hit) -> dict[str, Any]:
    """Return a hit as JSON has it."""
    return {
        "rank": hit.rank,
        "key": hit.key,
        "score": hit.score,
        "box": hit.box,
        "likely": hit.likely,
        "verified": hit.verified,
        "outline": hit.outline,
        "inliers": hit.inliers,
        "others": hit.others,
        "refined": hit.refined,
        "also_at": list(hit.also_at),
        "regions": regions_data(hit.regions),
    }


def regions_data(regions: Iterable[RegionShare]) -> list[dict[str, Any]]:
    """Return regions with their shares as JSON has them."""
    return [{"box": region.box, "share": round(region.share, 4)} for region in regions]


def links_data(found: Chain) -> list[dict[str, Any]]:
    """Return the links of a chain as JSON has them; the key of the query is null."""
    return [
        {
            "source": _place_data(link.source),
            "target": _place_data(link.target),
            "similarity": link.similarity,
            "flow": link.flow,
            "verified": link.verified,
            "inliers": link.inliers,
        }
        for link in found.links
    ]


def points_data(found: MatchingPoints) -> dict[str, Any]:
    """Return the points that match between two photos as JSON has them: x and y in the one, x and y in the other."""
    pairs = np.hstack([found.query, found.photo]).astype(np.float64).round(1)
    return {
        "verified": found.verified,
        "inliers": found.inliers,
        "map": None if found.map is None else found.map.tolist(),
        "points": pairs.tolist(),
    }


def _place_data(place: Place) -> dict[str, Any]:
    return {"key": place.key, "box": place.box, "view": place.view}


# -- a table ----------------------------------------------------------------------------------------------------------


def table_rows(results: Iterable[Mapping[str, Any]]) -> Iterator[list[Any]]:
    """Yield the rows of a table, the names of the columns first; `results` are what `hit_data` returned.

    Keys are written so that no spreadsheet runs them.
    """
    yield list(COLUMNS)
    for one in results:
        box = one["box"] or [""] * 4
        share = one["regions"][0]["share"] if one["regions"] else ""
        flags = [yes_or_no(one[name]) for name in ("likely", "verified")]
        later = yes_or_no(one["refined"] if one["verified"] else None)
        inliers = "" if one["inliers"] is None else one["inliers"]
        outline = " ".join(f"{x + 0.0:g},{y + 0.0:g}" for x, y in one["outline"] or ())  # never -0
        also = cell("; ".join(one["also_at"]))
        yield [one["rank"], cell(one["key"]), one["score"], *box, share, *flags, inliers, later, outline, also]


def as_csv(results: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of results as CSV."""
    return as_csv_text(table_rows(results))


# -- pictures ---------------------------------------------------------------------------------------------------------


def query_picture(index: Index, image: Source, box: Sequence[float] | None, name: str | None = None) -> Picture:
    """Return the picture of a query, with its box if it has one."""
    pixels = index.pixels(image)
    height, width = pixels.shape[:2]
    x0, y0, x1, y1 = map(float, whole_box(box, width, height))
    shown = name or (str(image) if isinstance(image, str) else "")
    boxes = [((x0, y0, x1, y1), 1.0)] if box is not None else []
    return Picture(pixels, width, height, boxes, f"<b>query</b> {escaped(shown)}", query=True)


def hit_picture(index: Index, hit: Hit) -> Picture:
    """Return the picture of a hit: the outline that geometry found, or else the one box round the object."""
    notes = [f"score {hit.score:.4f}"]
    if hit.verified:
        notes.insert(0, f"<span class=verified>{verified_words(hit)}</span>")
    if hit.also_at:
        notes.append(f"also at {escaped(', '.join(hit.also_at))}")
    caption = f"<b>{hit.rank}</b> {escaped(hit.key)}<br><span class=faint>{'<br>'.join(notes)}</span>"
    boxes = [] if hit.box is None or hit.outline is not None else [(hit.box, 1.0)]
    outlines = [] if hit.outline is None else [hit.outline, *hit.others]
    return replace(photo_picture(index, hit.key, boxes, caption), outlines=outlines, doubtful=hit.likely is False)


def verified_words(hit: Hit) -> str:
    """Say that geometry confirms a hit."""
    return f"verified, {hit.inliers} matching points" + (", by way of others" if hit.refined else "")


def chain_pictures(index: Index, query: Picture, found: Chain) -> str:
    """Return HTML of the photos of a chain side by side, from the query on, with the regions that look alike."""
    start = Picture(query.pixels, query.width, query.height, [(found.links[0].source.box, 1.0)], query.caption, True)
    stops = [link.target for link in found.links]
    pictures = [photo_picture(index, stop.key or "", [(stop.box, 1.0)], escaped(stop.key or "")) for stop in stops]
    return chain([start, *pictures], [link_words(link) for link in found.links], list(map(strength, found.links)))


def link_words(link: Link) -> str:
    """Say what joins the two ends of a link."""
    if link.within:
        return "within the photo"
    alike = f"similarity {link.similarity:.2f}"
    return f"{link.inliers} matching points, {alike}" if link.verified else alike


def strength(link: Link) -> str:
    """Return how a link looks: strong where geometry confirms it, weak where it does not, plain where nobody asked."""
    return "" if link.verified is None else "strong" if link.verified else "weak"


def photo_picture(index: Index, key: str, boxes: Sequence[tuple[Box, float]], caption: str) -> Picture:
    """Return the picture of a photo of the collection; `caption` is HTML. A photo that is gone is grey, and said so."""
    try:
        photo = index.photo(key, long_side=THUMBNAIL)
    except Unreadable as error:
        record = index.catalogue.photo_of(key)
        width, height = (120, 90) if record is None else (record.width, record.height)
        blank = np.full((90, 120, 3), 128, np.uint8)
        return Picture(blank, width, height, boxes, f"{caption}<br>{html.escape(error.reason)}")
    return Picture(photo.pixels, photo.width, photo.height, boxes, caption)


def escaped(name: str) -> str:
    """Return a name as it can stand in HTML, with everything invisible written out."""
    return html.escape(visible(name))
