"""The result of a search in the shapes that people and programs read: plain data, a table, pictures.

The command line, the service and the demo all show results; what each of them shows of a hit or of a chain is decided
here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from manifind.errors import UnreadableImageError
from manifind.index import Chain, Hit, Index, Link, MatchingPoints, Place, RegionShare, SearchResult, Source, whole_box
from manifind.io import key_to_path
from manifind.io.video import containing_file
from manifind.reports.html import THUMBNAIL, Picture, seen_part
from manifind.reports.metadata import Metadata, metadata_words
from manifind.reports.text import as_csv_text, cell, yes_or_no
from manifind.types import Box
from manifind.version import VERSION

BEFORE = "rank", "key", "score", "x0", "y0", "x1", "y1", "share"
COLUMNS = (*BEFORE, "is_match", "verified", "grade", "inliers", "expanded", "outline", "part", "duplicates")
"""Of the table: the box is the one round the object, the share that of its best region, the outline four corners."""
MIRRORED = "mirrored"
"""A further column, where mirrored objects were searched for."""

# -- plain data -------------------------------------------------------------------------------------------------------


def result_data(query: Mapping[str, Any], result: SearchResult, metadata: Metadata | None = None) -> dict[str, Any]:
    """Return a result as JSON; `query` is the query in the caller's words."""
    return {
        "query": dict(query),
        "method": result.method,
        "complete": result.complete,
        "n_matches": result.n_matches,
        "results": [hit_data(hit, metadata) for hit in result],
        "n_unchecked": result.n_unchecked,
        "config": result.config.config_hash,
    }


def hit_data(hit: Hit, metadata: Metadata | None = None) -> dict[str, Any]:
    """Return a hit as JSON has it, with what a catalogue says of its photo."""
    joined: dict[str, Any] = {} if metadata is None else {"metadata": metadata.of((hit.key, *hit.duplicates))}
    if hit.query.n_mirrored:
        joined[MIRRORED] = hit.mirrored
    return {
        "rank": hit.rank,
        "key": hit.key,
        "score": hit.score,
        "box": hit.box,
        "is_match": hit.is_match,
        "verified": hit.verified,
        "outline": hit.outline,
        "inliers": hit.inliers,
        "duplicates": list(hit.duplicates),
        "regions": regions_data(hit.regions),
        "grade": hit.grade,
        "part": hit.part,
        "other_outlines": hit.other_outlines,
        "expanded": hit.expanded,
        **joined,
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
        "transform": None if found.transform is None else found.transform.tolist(),
        "points": pairs.tolist(),
        **({} if found.mirrored is None else {MIRRORED: found.mirrored}),
    }


def _place_data(place: Place) -> dict[str, Any]:
    return {"key": place.key, "box": place.box, "view": place.view}


# -- a table ----------------------------------------------------------------------------------------------------------


def table_rows(results: Iterable[Mapping[str, Any]], *, mirrored: bool = False) -> Iterator[list[Any]]:
    """Yield the rows of a table, the names of the columns first; `results` are what `hit_data` returned.

    Keys are written so that no spreadsheet runs them. `mirrored` says whether mirrored objects were searched for.
    """
    yield [*COLUMNS, *([MIRRORED] if mirrored else [])]
    for one in results:
        box = one["box"] or [""] * 4
        share = one["regions"][0]["share"] if one["regions"] else ""
        flags = [yes_or_no(one[name]) for name in ("is_match", "verified")]
        later = yes_or_no(one["expanded"] if one["verified"] else None)
        inliers = "" if one["inliers"] is None else one["inliers"]
        outline, part = (_corners_text(one[name]) for name in ("outline", "part"))
        also = cell("; ".join(one["duplicates"]))
        words = [one["grade"] or "", inliers, later, outline, part, also]
        turned = [yes_or_no(one[MIRRORED])] if mirrored else []
        yield [one["rank"], cell(one["key"]), one["score"], *box, share, *flags, *words, *turned]


def _corners_text(outline: Sequence[Sequence[float]] | None) -> str:
    return " ".join(f"{x + 0.0:g},{y + 0.0:g}" for x, y in outline or ())  # never -0


def as_csv(results: Iterable[Mapping[str, Any]], columns: Sequence[str] = (), *, mirrored: bool = False) -> str:
    """Return a table of results as CSV, with columns of a catalogue after its own."""
    found = list(results)
    header, *rows = table_rows(found, mirrored=mirrored)
    names = [cell(name if name not in header else f"metadata {name}") for name in columns]
    joined = (
        [*row, *(cell(one["metadata"].get(name, "")) for name in columns)] for row, one in zip(rows, found, strict=True)
    )
    return as_csv_text([[*header, *names], *(joined if columns else rows)])


# -- pictures ---------------------------------------------------------------------------------------------------------


def query_picture(index: Index, image: Source, box: Sequence[float] | None, name: str | None = None) -> Picture:
    """Return the picture of a query, with its box if it has one."""
    pixels = index.pixels(image)
    height, width = pixels.shape[:2]
    shown = name or (str(image) if isinstance(image, str) else "")
    return Picture(pixels, width, height, shown, None if box is None else whole_box(box, width, height))


def hit_pictures(index: Index, hits: Iterable[Hit], metadata: Metadata | None = None) -> list[tuple[Hit, Picture]]:
    """Return hits with their pictures: the outline of the object or of a shared part, or else the one box round it."""
    shown = []
    for hit in hits:
        outlines = [one for one in (hit.outline, hit.part, *hit.other_outlines) if one is not None]
        picture = photo_picture(index, hit.key, None if outlines else hit.box)
        note = "" if metadata is None else metadata_words(metadata.of((hit.key, *hit.duplicates)))
        shown.append((hit, replace(picture, outlines=outlines, note=note)))
    return shown


def chain_pictures(index: Index, query: Picture, found: Chain) -> tuple[Picture, list[tuple[str, str, Picture]]]:
    """Return the query of a chain, and for each link its look, its words and the photo at its end."""
    ends = [photo_picture(index, link.target.key or "", link.target.box) for link in found.links]
    stops = [(strength(link), link_words(link), end) for link, end in zip(found.links, ends, strict=True)]
    return replace(query, box=found.links[0].source.box), stops


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


CATEGORY = {"id": 1, "name": "object", "supercategory": ""}


def coco_data(index: Index, hits: Iterable[Hit]) -> dict[str, Any]:
    """Return the matches among `hits` as COCO has them: an annotation for each instance, polygons where known."""
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for hit in hits:
        record = index.catalogue.photo_of(hit.key)
        if record is None or hit.is_match is False or (hit.box is None and hit.outline is None):
            continue
        image = {"id": len(images) + 1, "file_name": record.key, "width": record.width, "height": record.height}
        images.append(image)
        outlines = [] if hit.outline is None else [hit.outline, *hit.other_outlines]
        seen = [corners for one in outlines if len(corners := seen_part(one, record.width, record.height)) >= 3]
        for corners in seen or [[]]:
            box = hit.box if not corners or corners is seen[0] else None
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image["id"],
                    "category_id": CATEGORY["id"],
                    **_shape(box, corners),
                    "iscrowd": 0,
                    "score": hit.score,
                    "grade": hit.grade,
                }
            )
    info = {"description": f"matches of a search in {index.where}", "contributor": f"manifind {VERSION}"}
    return {"info": info, "images": images, "annotations": annotations, "categories": [CATEGORY]}


def _shape(box: Sequence[float] | None, corners: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return the box as left, top, width, height, the polygon and its area."""
    xs, ys = ([point[axis] for point in corners] for axis in (0, 1))
    x0, y0, x1, y1 = (min(xs), min(ys), max(xs), max(ys)) if box is None else box
    area = abs(sum(xs[i - 1] * ys[i] - xs[i] * ys[i - 1] for i in range(len(xs)))) / 2
    return {
        "bbox": [round(value, 2) for value in (x0, y0, x1 - x0, y1 - y0)],
        "segmentation": [[round(value, 2) for point in corners for value in point]] if corners else [],
        "area": round(area if corners else (x1 - x0) * (y1 - y0), 2),
    }
