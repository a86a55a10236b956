"""A set of photos in the shapes that people and programs read: plain data, a table, keywords that photo programs read.

Keywords are XMP's ``dc:subject``, which is also the IPTC standard's field for keywords, and Lightroom's own
``lr:hierarchicalSubject``. They stand in sidecar files beside a photo's name, which digiKam and darktable read, and
Lightroom for raw files. A photo of the collection is never changed.
"""

from collections.abc import Sequence
from typing import Any

from manifind.index.sets import Member, PhotoSet
from manifind.io.scan import RAW_NAMES
from manifind.io.video import split_frame_key
from manifind.reports.html import render
from manifind.reports.text import as_csv_text, cell, plain_name, yes_or_no


def set_data(one: PhotoSet) -> dict[str, Any]:
    """Return a set as JSON has it."""
    return {
        "name": one.name,
        "made": one.made,
        "search": None if one.search is None else dict(one.search),
        "photos": [
            {"key": photo.key, "box": photo.box, "verdict": photo.verdict, "there": photo.there}
            for photo in one.members
        ],
    }


def set_csv(one: PhotoSet) -> str:
    """Return a set as CSV, a row for each photo; keys are written so that no spreadsheet runs them."""
    rows = [
        [cell(one.name), cell(photo.key), *(photo.box or [""] * 4), photo.verdict, yes_or_no(photo.there)]
        for photo in one.members
    ]
    return as_csv_text([["set", "key", "x0", "y0", "x1", "y1", "verdict", "there"], *rows])


def sidecars(one: PhotoSet) -> list[tuple[str, bytes]]:
    """Return the XMP sidecars of the photos that show the object, by their place below the collection's folder.

    That of ``photo.jpg`` is ``photo.jpg.xmp``. A raw file has a second one, ``photo.xmp``: Lightroom reads that.
    """
    files = dict.fromkeys(
        (split_frame_key(photo.key) or (photo.key,))[0] for photo in shown(one)
    )  # of frames, their films
    names = [f"{key}.xmp" for key in files]
    names += [f"{key[: key.rindex('.')]}.xmp" for key in files if key.lower().endswith(RAW_NAMES)]
    return [(name, xmp([one.name])) for name in dict.fromkeys(names)]


def archived_sidecars(one: PhotoSet) -> list[tuple[str, bytes]]:
    """Return the sidecars by names for an archive: no part of a name leads out of the folder it is unpacked in."""
    named: dict[str, bytes] = {}
    for name, content in sidecars(one):
        named.setdefault("/".join(map(_archived_part, name.split("/"))), content)
    return list(named.items())


def _archived_part(part: str) -> str:
    """Return the name of a folder or a file as it is, unless some system reads a path or no name in it."""
    unsafe = not part.strip(". ") or not part.isprintable() or any(letter in '\\:*?"<>|' for letter in part)
    return plain_name(part) if unsafe else part


def shown(one: PhotoSet) -> list[Member]:
    """Return the photos of a set that show the object and are there."""
    return [photo for photo in one.members if photo.verdict == "yes" and photo.there]


def xmp(keywords: Sequence[str]) -> bytes:
    """Return an XMP packet that says the keywords."""
    return render("sidecar.xmp", keywords=keywords).encode()
