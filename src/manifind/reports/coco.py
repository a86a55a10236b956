"""Results as COCO JSON, the boxes and outlines that annotation and training programs read."""

from collections.abc import Iterable, Sequence
from typing import Any

from manifind.index import Hit, Index
from manifind.reports.html import seen_part
from manifind.version import VERSION

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
