"""What occurs in several photos, in the shapes that people and programs read: plain data, a table, a page."""

from collections.abc import Iterator
from typing import Any

from manifind.index import Index, Repeat, Repeats
from manifind.pages.answers import escaped, photo_picture
from manifind.pages.html import gallery, page
from manifind.pages.tables import as_csv_text, yes_or_no
from manifind.pages.text import cell

SHOWN = 12
"""Photos of an object on a page."""


def repeats_data(found: Repeats) -> dict[str, Any]:
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
                "sightings": [
                    {
                        "key": seen.key,
                        "box": seen.box,
                        "width": seen.width,
                        "height": seen.height,
                        "strength": seen.strength,
                        "verified": seen.verified,
                    }
                    for seen in one.sightings
                ],
            }
            for rank, one in enumerate(found.objects, 1)
        ],
        "near_duplicates": [list(keys) for keys in found.near_duplicates],
    }


def repeats_csv(found: Repeats) -> str:
    """Return what repeats as CSV: a row for each photo of each object."""
    return as_csv_text(_rows(found))


def _rows(found: Repeats) -> Iterator[list[Any]]:
    yield ["object", "score", "key", "x0", "y0", "x1", "y1", "strength", "verified"]
    for rank, one in enumerate(found.objects, 1):
        for seen in one.sightings:
            yield [rank, one.score, cell(seen.key), *seen.box, seen.strength, yes_or_no(seen.verified)]


def repeats_page(index: Index, found: Repeats) -> str:
    """Return a page with the photos of each object, and near-duplicates at its end."""
    sections = [(_heading(rank, one), _photos(index, one)) for rank, one in enumerate(found.objects, 1)]
    if found.near_duplicates:
        lines = "".join(f"<li>{escaped(', '.join(keys))}</li>" for keys in found.near_duplicates)
        sections.append(("Near-duplicates and bursts", f"<ul>{lines}</ul>"))
    if not sections:
        sections.append(("Nothing", "<p>Nothing occurs in several photos.</p>"))
    return page("What repeats", f"among {len(index)} photos of {index.root}", sections)


def _heading(rank: int, one: Repeat) -> str:
    confirmed = f", {one.verified} of them confirmed by geometry" if one.verified else ""
    return f"{rank}. In {len(one)} photos{confirmed}"


def _photos(index: Index, one: Repeat) -> str:
    pictures = [photo_picture(index, seen.key, [(seen.box, 1.0)], escaped(seen.key)) for seen in one.sightings[:SHOWN]]
    more = f"<p class=faint>and {len(one) - SHOWN} more</p>" if len(one) > SHOWN else ""
    return gallery(pictures) + more
