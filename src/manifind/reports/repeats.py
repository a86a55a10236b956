"""What occurs in several photos, in the shapes that people and programs read: plain data, a table, a page."""

from collections.abc import Iterator
from typing import Any

from manifind.index import Index, ObjectClusters
from manifind.reports.html import render
from manifind.reports.results import photo_picture
from manifind.reports.text import as_csv_text, cell, yes_or_no

SHOWN = 12
"""Photos of an object on a page."""


def repeats_data(found: ObjectClusters) -> dict[str, Any]:
    """Return what repeats as JSON has it."""
    return {
        "found": found.found,
        "objects": [
            {
                "rank": rank,
                "score": one.score,
                "photos": len(one),
                "verified": one.verified,
                "confirmed": one.confirmed,
                "occurrences": [
                    {
                        "key": seen.key,
                        "box": seen.box,
                        "width": seen.width,
                        "height": seen.height,
                        "strength": seen.strength,
                        "verified": seen.verified,
                    }
                    for seen in one.occurrences
                ],
            }
            for rank, one in enumerate(found.objects, 1)
        ],
        "near_duplicates": [list(keys) for keys in found.near_duplicates],
    }


def repeats_csv(found: ObjectClusters) -> str:
    """Return what repeats as CSV: a row for each photo of each object."""
    return as_csv_text(_rows(found))


def _rows(found: ObjectClusters) -> Iterator[list[Any]]:
    yield ["object", "score", "key", "x0", "y0", "x1", "y1", "strength", "verified"]
    for rank, one in enumerate(found.objects, 1):
        for seen in one.occurrences:
            yield [rank, one.score, cell(seen.key), *seen.box, seen.strength, yes_or_no(seen.verified)]


def repeats_page(index: Index, found: ObjectClusters) -> str:
    """Return a page with the photos of each object, and near-duplicates at its end."""
    return render(
        "repeats.html",
        title="What repeats",
        subtitle=f"among {len(index)} photos of {index.root}",
        objects=[
            (one, [photo_picture(index, seen.key, seen.box) for seen in one.occurrences[:SHOWN]])
            for one in found.objects
        ],
        near_duplicates=found.near_duplicates,
    )
