"""What was found in the shapes that programs read: JSON, CSV, COCO, Web Annotations, Parquet, XMP sidecars.

Keywords are XMP's ``dc:subject``, which is also the IPTC standard's field for keywords, and Lightroom's own
``lr:hierarchicalSubject``. They stand in sidecar files beside a photo's name, which digiKam and darktable read, and
Lightroom for raw files. A photo of the collection is never changed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from manifind.errors import InvalidInputError, MissingExtraError
from manifind.iiif import Canvas, read_canvases
from manifind.index import (
    Chain,
    Hit,
    Index,
    MatchingPoints,
    ObjectClusters,
    RegionShare,
    SearchResult,
)
from manifind.index.sets import Member, PhotoSet
from manifind.io.scan import RAW_NAMES
from manifind.io.video import split_frame_key
from manifind.reports.html import Corners, render, seen_part
from manifind.reports.metadata import Metadata
from manifind.reports.text import as_csv_text, cell, plain_name, yes_or_no
from manifind.version import VERSION

BEFORE = "rank", "key", "score", "x0", "y0", "x1", "y1", "share"
COLUMNS = (*BEFORE, "is_match", "verified", "grade", "inliers", "expanded", "outline", "part", "duplicates")
"""Of the table: the box is the one round the object, the share that of its best region, the outline four corners."""
MIRRORED = "mirrored"
"""A further column, where mirrored objects were searched for."""
CATEGORY = {"id": 1, "name": "object", "supercategory": ""}
ROWS = 16_384
"""Regions that are written at once."""


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


def links_data(chain: Chain) -> list[dict[str, Any]]:
    """Return the links of a chain as JSON has them; the key of the query is null."""
    return [asdict(link) for link in chain.links]


def points_data(points: MatchingPoints) -> dict[str, Any]:
    """Return the points that match between two photos as JSON has them: x and y in the one, x and y in the other."""
    pairs = np.hstack([points.query, points.photo]).astype(np.float64).round(1)
    return {
        "verified": points.verified,
        "inliers": points.inliers,
        "transform": None if points.transform is None else points.transform.tolist(),
        "points": pairs.tolist(),
        **({} if points.mirrored is None else {MIRRORED: points.mirrored}),
    }


# -- a table ----------------------------------------------------------------------------------------------------------


def table_rows(results: Iterable[Mapping[str, Any]], *, mirrored: bool = False) -> Iterator[list[Any]]:
    """Yield the rows of a table, the names of the columns first; `results` are what `hit_data` returned.

    Keys are written so that no spreadsheet runs them. `mirrored` says whether mirrored objects were searched for.
    """
    yield [*COLUMNS, *([MIRRORED] if mirrored else [])]
    for hit in results:
        box = hit["box"] or [""] * 4
        share = hit["regions"][0]["share"] if hit["regions"] else ""
        flags = [yes_or_no(hit[name]) for name in ("is_match", "verified")]
        later = yes_or_no(hit["expanded"] if hit["verified"] else None)
        inliers = "" if hit["inliers"] is None else hit["inliers"]
        outline, part = (_corners_text(hit[name]) for name in ("outline", "part"))
        also = cell("; ".join(hit["duplicates"]))
        words = [hit["grade"] or "", inliers, later, outline, part, also]
        turned = [yes_or_no(hit[MIRRORED])] if mirrored else []
        yield [hit["rank"], cell(hit["key"]), hit["score"], *box, share, *flags, *words, *turned]


def _corners_text(outline: Sequence[Sequence[float]] | None) -> str:
    return " ".join(f"{x + 0.0:g},{y + 0.0:g}" for x, y in outline or ())  # never -0


def as_csv(results: Iterable[Mapping[str, Any]], columns: Sequence[str] = (), *, mirrored: bool = False) -> str:
    """Return a table of results as CSV, with columns of a catalogue after its own."""
    hits = list(results)
    header, *rows = table_rows(hits, mirrored=mirrored)
    names = [cell(name if name not in header else f"metadata {name}") for name in columns]
    joined = (
        [*row, *(cell(hit["metadata"].get(name, "")) for name in columns)] for row, hit in zip(rows, hits, strict=True)
    )
    return as_csv_text([[*header, *names], *(joined if columns else rows)])


# -- COCO -------------------------------------------------------------------------------------------------------------


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
        polygons = [
            corners for outline in outlines if len(corners := seen_part(outline, record.width, record.height)) >= 3
        ]
        for corners in polygons or [[]]:
            box = hit.box if not corners or corners is polygons[0] else None
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


def annotations_data(index: Index, hits: Iterable[Hit]) -> dict[str, Any]:
    """Return the matches among some hits as an annotation page."""
    canvases = read_canvases(index.root)
    if not canvases:
        raise InvalidInputError(
            f"the photos of {index.where} are of no IIIF manifest; --annotations needs an index that "
            "manifind index https://… made.",
            code="no-canvases",
        )
    items = [
        _annotation(index, hit, canvases[key])
        for hit in hits
        if hit.is_match is not False
        for key in (hit.key, *hit.duplicates)
        if key in canvases
    ]
    return {
        "@context": "http://www.w3.org/ns/anno.jsonld",
        "id": "urn:manifind:annotations",
        "type": "AnnotationPage",
        "items": [
            {"id": f"urn:manifind:annotations:{place}", **annotation} for place, annotation in enumerate(items, 1)
        ],
    }


def _annotation(index: Index, hit: Hit, canvas: Canvas) -> dict[str, Any]:
    record = index.catalogue.photo_of(hit.key)
    assert record is not None  # noqa: S101 (it was found)
    size = record.width, record.height
    outlines = [outline for outline in (hit.outline, hit.part, *hit.other_outlines) if outline is not None]
    words = [f"rank {hit.rank}", hit.grade, None if hit.inliers is None else f"{hit.inliers} matching points"]
    source = {"id": canvas.canvas, "type": "Canvas", "partOf": [{"id": canvas.manifest, "type": "Manifest"}]}
    return {
        "type": "Annotation",
        "motivation": "commenting",
        "body": {"type": "TextualBody", "value": ", ".join(filter(None, words)), "format": "text/plain"},
        "target": {
            "type": "SpecificResource",
            "source": source,
            "selector": list(_selectors(canvas, size, hit.box, outlines)),
        },
    }


def _selectors(
    canvas: Canvas, size: tuple[int, int], box: Sequence[float] | None, outlines: Sequence[Corners]
) -> Iterator[dict[str, Any]]:
    """Yield the box round a match, and its outlines, in units of the canvas."""
    left, top, width, height = canvas.place
    across, down = (width or size[0]) / size[0], (height or size[1]) / size[1]
    drawn = [seen_part(outline, *size) for outline in outlines]
    drawn = [corners for corners in drawn if len(corners) > 2]
    if drawn:  # the box of a viewer holds what it outlines
        xs, ys = ([corner[axis] for corners in drawn for corner in corners] for axis in (0, 1))
        box = min(xs), min(ys), max(xs), max(ys)
    x0, y0, x1, y1 = box or (0, 0, *size)
    numbers = [left + x0 * across, top + y0 * down, (x1 - x0) * across, (y1 - y0) * down]
    yield {
        "type": "FragmentSelector",
        "conformsTo": "http://www.w3.org/TR/media-frags/",
        "value": "xywh=" + ",".join(str(round(number)) for number in numbers),
    }
    if drawn:
        lines = (
            "M" + " L".join(f"{left + x * across:.1f},{top + y * down:.1f}" for x, y in corners) + " Z"
            for corners in drawn
        )
        path = f'<path d="{" ".join(lines)}" fill="none" stroke="#ff6a2b" stroke-width="2"/>'
        yield {"type": "SvgSelector", "value": f'<svg xmlns="http://www.w3.org/2000/svg">{path}</svg>'}


def write_results(
    file: Path, results: Iterable[Mapping[str, Any]], columns: Sequence[str] = (), *, mirrored: bool = False
) -> None:
    """Write results as `hit_data` returned them, with the columns of a catalogue under ``metadata``."""
    pa, pq = _pyarrow()
    box = ("x0", "y0", "x1", "y1")
    schema = pa.schema(
        [
            ("rank", pa.int32()),
            ("key", pa.string()),
            ("score", pa.float64()),
            *((name, pa.float64()) for name in box),
            ("is_match", pa.bool_()),
            ("verified", pa.bool_()),
            ("grade", pa.string()),
            ("inliers", pa.int32()),
            ("expanded", pa.bool_()),
            ("outline", pa.list_(pa.list_(pa.float64()))),
            ("part", pa.list_(pa.list_(pa.float64()))),
            ("duplicates", pa.list_(pa.string())),
            *([("mirrored", pa.bool_())] if mirrored else []),
            *([("metadata", pa.struct([(name, pa.string()) for name in columns]))] if columns else []),
        ]
    )
    rows = []
    for hit in results:
        row = {name: hit.get(name) for name in schema.names}
        row |= dict(zip(box, hit["box"] or [None] * 4, strict=True))
        rows.append(row)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)


def write_regions(file: Path, index: Index, *, vectors: bool = True) -> int:
    """Write the regions of an index, a row each: key, box, pooling weight, and descriptor; return how many."""
    pa, pq = _pyarrow()
    manifold, boxes = index.manifold, index.boxes
    count, dimension = manifold.vectors_.shape
    image_of, weights = manifold.layout_.image_of, np.asarray(manifold.weights_)
    images = index.catalogue.images
    fields = [("key", pa.string()), ("sha256", pa.string())]
    fields += [(name, pa.float32()) for name in ("x0", "y0", "x1", "y1", "weight")]
    if vectors:
        fields.append(("vector", pa.list_(pa.float32(), dimension)))
    schema = pa.schema(fields)
    with pq.ParquetWriter(file, schema) as writer:
        for start in range(0, count, ROWS):
            rows = slice(start, min(start + ROWS, count))
            numbers = image_of[rows]
            data: list[Any] = [pa.array([getattr(images[i], name) for i in numbers]) for name in ("key", "sha256")]
            data += [pa.array(np.asarray(boxes[rows, side], np.float32)) for side in range(4)]
            data.append(pa.array(np.asarray(weights[rows], np.float32)))
            if vectors:
                flat = np.asarray(manifold.vectors_[rows], np.float32).ravel()
                data.append(pa.FixedSizeListArray.from_arrays(pa.array(flat), dimension))
            arrays = [pa.array(column) if not isinstance(column, pa.Array) else column for column in data]
            writer.write_batch(
                pa.record_batch([column.cast(schema.field(i).type) for i, column in enumerate(arrays)], schema)
            )
    return int(count)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as missing:
        raise MissingExtraError("writing Parquet needs pyarrow; pip install 'manifind[parquet]'") from missing
    return pa, parquet


# -- what repeats
def repeats_data(clusters: ObjectClusters) -> dict[str, Any]:
    """Return what repeats as JSON has it."""
    return {
        "found": clusters.found,
        "objects": [
            {
                "rank": rank,
                "score": cluster.score,
                "photos": len(cluster),
                "verified": cluster.verified,
                "confirmed": cluster.confirmed,
                "occurrences": [
                    {name: value for name, value in asdict(occurrence).items() if name != "image"}
                    for occurrence in cluster.occurrences
                ],
            }
            for rank, cluster in enumerate(clusters.objects, 1)
        ],
        "near_duplicates": [list(keys) for keys in clusters.near_duplicates],
    }


def repeats_csv(clusters: ObjectClusters) -> str:
    """Return what repeats as CSV: a row for each photo of each object."""
    return as_csv_text(_rows(clusters))


def _rows(clusters: ObjectClusters) -> Iterator[list[Any]]:
    yield ["object", "score", "key", "x0", "y0", "x1", "y1", "strength", "verified"]
    for rank, cluster in enumerate(clusters.objects, 1):
        for place in cluster.occurrences:
            yield [rank, cluster.score, cell(place.key), *place.box, place.strength, yes_or_no(place.verified)]


def set_data(photo_set: PhotoSet) -> dict[str, Any]:
    """Return a set as JSON has it."""
    return {
        "name": photo_set.name,
        "made": photo_set.made,
        "search": None if photo_set.search is None else dict(photo_set.search),
        "photos": [
            {"key": photo.key, "box": photo.box, "verdict": photo.verdict, "there": photo.there}
            for photo in photo_set.members
        ],
    }


def set_csv(photo_set: PhotoSet) -> str:
    """Return a set as CSV, a row for each photo; keys are written so that no spreadsheet runs them."""
    rows = [
        [cell(photo_set.name), cell(photo.key), *(photo.box or [""] * 4), photo.verdict, yes_or_no(photo.there)]
        for photo in photo_set.members
    ]
    return as_csv_text([["set", "key", "x0", "y0", "x1", "y1", "verdict", "there"], *rows])


def sidecars(photo_set: PhotoSet) -> list[tuple[str, bytes]]:
    """Return the XMP sidecars of the photos that show the object, by their place below the collection's folder.

    That of ``photo.jpg`` is ``photo.jpg.xmp``. A raw file has a second one, ``photo.xmp``: Lightroom reads that.
    """
    files = dict.fromkeys(
        (split_frame_key(photo.key) or (photo.key,))[0] for photo in shown(photo_set)
    )  # of frames, their films
    names = [f"{key}.xmp" for key in files]
    names += [f"{key[: key.rindex('.')]}.xmp" for key in files if key.lower().endswith(RAW_NAMES)]
    return [(name, xmp([photo_set.name])) for name in dict.fromkeys(names)]


def archived_sidecars(photo_set: PhotoSet) -> list[tuple[str, bytes]]:
    """Return the sidecars by names for an archive: no part of a name leads out of the folder it is unpacked in."""
    named: dict[str, bytes] = {}
    for name, content in sidecars(photo_set):
        named.setdefault("/".join(map(_archived_part, name.split("/"))), content)
    return list(named.items())


def _archived_part(part: str) -> str:
    """Return the name of a folder or a file as it is, unless some system reads a path or no name in it."""
    unsafe = not part.strip(". ") or not part.isprintable() or any(letter in '\\:*?"<>|' for letter in part)
    return plain_name(part) if unsafe else part


def shown(photo_set: PhotoSet) -> list[Member]:
    """Return the photos of a set that show the object and are there."""
    return [photo for photo in photo_set.members if photo.verdict == "yes" and photo.there]


def xmp(keywords: Sequence[str]) -> bytes:
    """Return an XMP packet that says the keywords."""
    return render("sidecar.xmp", keywords=keywords).encode()
