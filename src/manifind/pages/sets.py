"""A set of photos in the shapes that people and programs read: plain data, a table, keywords that photo programs read.

Keywords are written as XMP (``dc:subject``), which digiKam, darktable and Lightroom read: in sidecar files of their own
beside a photo's name, or inside copies of JPEG files. A photo of the collection is never changed.
"""

import csv
import html
import io
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from manifind.describe.films import apart
from manifind.index.sets import FoundSet, Member
from manifind.pages.text import cell

XMP = b"http://ns.adobe.com/xap/1.0/\0"
LARGEST_SEGMENT = 65_533


def set_data(one: FoundSet) -> dict[str, Any]:
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


def set_csv(one: FoundSet) -> str:
    """Return a set as CSV, a row for each photo; keys are written so that no spreadsheet runs them."""
    buffer = io.StringIO()
    rows = csv.writer(buffer)
    rows.writerow(["set", "key", "x0", "y0", "x1", "y1", "verdict", "there"])
    for photo in one.members:
        there = "yes" if photo.there else "no"
        rows.writerow([cell(one.name), cell(photo.key), *(photo.box or [""] * 4), photo.verdict, there])
    return buffer.getvalue()


def sidecars(one: FoundSet) -> list[tuple[str, bytes]]:
    """Return the XMP sidecars of the photos that show the object, by their place below the collection's folder."""
    files = dict.fromkeys((apart(photo.key) or (photo.key,))[0] for photo in shown(one))  # of frames, their films
    return [(f"{key}.xmp", xmp([one.name])) for key in files]


def shown(one: FoundSet) -> list[Member]:
    """Return the photos of a set that show the object and are there."""
    return [photo for photo in one.members if photo.verdict == "yes" and photo.there]


def xmp(keywords: Sequence[str]) -> bytes:
    """Return an XMP packet that says the keywords."""
    words = "".join(f"<rdf:li>{html.escape(word)}</rdf:li>" for word in keywords)
    return (
        '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n'
        '<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="manifind">\n'
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">\n'
        '<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/">\n'
        f"<dc:subject><rdf:Bag>{words}</rdf:Bag></dc:subject>\n"
        "</rdf:Description>\n</rdf:RDF>\n</x:xmpmeta>\n"
        '<?xpacket end="w"?>'
    ).encode()


def with_keywords(jpeg: bytes, keywords: Sequence[str]) -> bytes | None:
    """Return a JPEG file with keywords in it, its picture as it was; None where it is none, or has XMP of its own."""
    packet = XMP + xmp(keywords)
    if not jpeg.startswith(b"\xff\xd8\xff") or XMP in jpeg[:200_000] or len(packet) > LARGEST_SEGMENT:
        return None
    at = 2
    while jpeg[at : at + 2] in (b"\xff\xe0", b"\xff\xe1"):  # after JFIF and EXIF, which go first
        at += 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
    segment = b"\xff\xe1" + (len(packet) + 2).to_bytes(2, "big") + packet
    return jpeg[:at] + segment + jpeg[at:]


def archived(key: str) -> str:
    """Return the name of a photo in an archive: its key, in characters that every system can unpack."""
    parts = (
        "".join(c if c.isalnum() or c in " ._-()" else "_" for c in part)[-120:].strip(" .") or "_"
        for part in PurePosixPath(key).parts
    )
    return "/".join(parts)
