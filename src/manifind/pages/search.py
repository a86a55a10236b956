"""The pages that a search and an explanation can be written to."""

import html
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from manifind.describe import Unreadable
from manifind.index.index import Chain, Index, Place, Source
from manifind.index.query import Hit
from manifind.pages.html import THUMBNAIL, Picture, chain, gallery, page
from manifind.types import Box

View = tuple[Source, Sequence[float] | None]


def search_page(index: Index, views: Sequence[View], hits: Sequence[Hit], method: str) -> str:
    """Return a page with the query and its results, the matching regions outlined."""
    results = [_result(index, hit) for hit in hits]
    sections = [("Query", gallery([_query(index, *view) for view in views]))]
    sections.append((f"{len(hits)} photos", gallery(results) if results else "<p>Nothing was found.</p>"))
    return page("What manifind found", f"{method}, among {len(index)} photos of {index.root}", sections)


def chain_page(index: Index, image: Source, box: Sequence[float] | None, hit: Hit, found: Chain) -> str:
    """Return a page with the chain of photos from the query to a result."""
    if not found.links:
        return page(f"Why {hit.key}?", "", [("Chain", "<p>No chain of photos leads there from the query.</p>")])
    query = _query(index, image, box)
    stops = [link.target for link in found.links]
    first = found.links[0]
    pictures = [
        Picture(query.pixels, query.width, query.height, [(first.source.box, 1.0)], query.caption, query=True),
        *(_stop(index, stop) for stop in stops),
    ]
    links = [f"similarity {link.similarity:.2f}" for link in found.links]
    same = sum(a.key == b.key for a, b in pairwise(stops))
    note = f"rank {hit.rank}, score {hit.score:.4f}, {len(found.links)} steps" + (
        f", {same} of them within a photo" if same else ""
    )
    return page(f"Why {hit.key}?", note, [("The chain that carries most", chain(pictures, links))])


def _query(index: Index, image: Source, box: Sequence[float] | None) -> Picture:
    pixels, whole = index.cut(image, box)
    height, width = pixels.shape[:2]
    x0, y0, x1, y1 = whole
    name = html.escape(str(image)) if isinstance(image, str) else "query"
    boxes = [((float(x0), float(y0), float(x1), float(y1)), 1.0)] if box is not None else []
    return Picture(pixels, width, height, boxes, f"<b>query</b> {name}", query=True)


def _result(index: Index, hit: Hit) -> Picture:
    boxes = [(region.box, region.share / hit.regions[0].share) for region in hit.regions[:3]]
    caption = f"<b>{hit.rank}</b> {html.escape(hit.key)}<br><span class=faint>score {hit.score:.4f}</span>"
    return _picture(index, hit.key, boxes, caption)


def _stop(index: Index, place: Place) -> Picture:
    assert place.key is not None  # noqa: S101 (only the first is the query)
    return _picture(index, place.key, [(place.box, 1.0)], html.escape(place.key))


def _picture(index: Index, key: str, boxes: Sequence[tuple[Box, float]], caption: str) -> Picture:
    try:
        photo = index.photo(key, long_side=THUMBNAIL)
    except Unreadable as error:
        record = index.catalogue.of_key(key)
        assert record is not None  # noqa: S101
        blank = np.full((90, 120, 3), 128, np.uint8)
        return Picture(blank, record.width, record.height, boxes, f"{caption}<br>{html.escape(error.reason)}")
    return Picture(photo.pixels, photo.width, photo.height, boxes, caption)
