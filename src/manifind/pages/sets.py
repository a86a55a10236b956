"""A set of photos in the shapes that people and programs read: plain data, a table, keywords that photo programs read.

Keywords are XMP's ``dc:subject``, which is also the IPTC standard's field for keywords, and Lightroom's own
``lr:hierarchicalSubject``. They stand in sidecar files beside a photo's name, which digiKam and darktable read (and
Lightroom for raw files), or inside copies of JPEG files, which all of them read. A photo of the collection is never
changed.
"""

import html
from collections.abc import Sequence
from typing import Any

from manifind.describe.films import apart
from manifind.index.sets import FoundSet, Member
from manifind.pages.tables import as_csv_text, yes_or_no
from manifind.pages.text import cell

XMP = b"http://ns.adobe.com/xap/1.0/\0"
LARGEST_SEGMENT = 65_533
RAW_NAMES = (
    *(".3fr", ".arw", ".cr2", ".cr3", ".dng", ".erf", ".kdc", ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".raw"),
    *(".rw2", ".sr2", ".srf", ".srw", ".x3f"),
)
"""How cameras call raw files."""


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
    rows = [
        [cell(one.name), cell(photo.key), *(photo.box or [""] * 4), photo.verdict, yes_or_no(photo.there)]
        for photo in one.members
    ]
    return as_csv_text([["set", "key", "x0", "y0", "x1", "y1", "verdict", "there"], *rows])


def sidecars(one: FoundSet) -> list[tuple[str, bytes]]:
    """Return the XMP sidecars of the photos that show the object, by their place below the collection's folder.

    That of ``photo.jpg`` is ``photo.jpg.xmp``. A raw file has a second one, ``photo.xmp``: Lightroom reads that.
    """
    files = dict.fromkeys((apart(photo.key) or (photo.key,))[0] for photo in shown(one))  # of frames, their films
    names = [f"{key}.xmp" for key in files]
    names += [f"{key[: key.rindex('.')]}.xmp" for key in files if key.lower().endswith(RAW_NAMES)]
    return [(name, xmp([one.name])) for name in dict.fromkeys(names)]


def shown(one: FoundSet) -> list[Member]:
    """Return the photos of a set that show the object and are there."""
    return [photo for photo in one.members if photo.verdict == "yes" and photo.there]


def xmp(keywords: Sequence[str]) -> bytes:
    """Return an XMP packet that says the keywords."""
    return (
        '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n'
        '<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="manifind">\n'
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">\n'
        f"{_description(keywords)}</rdf:RDF>\n</x:xmpmeta>\n"
        '<?xpacket end="w"?>'
    ).encode()


def _description(keywords: Sequence[str]) -> str:
    words = _items(keywords)
    return (
        '<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/" '
        'xmlns:lr="http://ns.adobe.com/lightroom/1.0/">\n'
        f"<dc:subject><rdf:Bag>{words}</rdf:Bag></dc:subject>\n"
        f"<lr:hierarchicalSubject><rdf:Bag>{words}</rdf:Bag></lr:hierarchicalSubject>\n"
        "</rdf:Description>\n"
    )


def _items(keywords: Sequence[str]) -> str:
    return "".join(f"<rdf:li>{html.escape(word)}</rdf:li>" for word in keywords)


def with_keywords(jpeg: bytes, keywords: Sequence[str]) -> bytes | None:
    """Return a JPEG file with keywords in it, beside those that it has, and its picture as it was.

    None where it is no JPEG, or what it says already cannot be added to.
    """
    if not jpeg.startswith(b"\xff\xd8\xff"):
        return None
    at, first = 2, 2
    while jpeg[at : at + 2] in (b"\xff\xe0", b"\xff\xe1", b"\xff\xe2", b"\xff\xed"):
        end = at + 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
        if jpeg[at + 4 : end].startswith(XMP):
            packet = _added(jpeg[at + 4 + len(XMP) : end], keywords)
            return None if packet is None else _with_segment(jpeg[:at], packet, jpeg[end:])
        if jpeg[at + 1] in (0xE0, 0xE1):  # JFIF and EXIF go first
            first = end
        at = end
    return _with_segment(jpeg[:first], xmp(keywords), jpeg[first:])


def _with_segment(before: bytes, packet: bytes, after: bytes) -> bytes | None:
    content = XMP + packet
    if len(content) > LARGEST_SEGMENT:
        return None
    return before + b"\xff\xe1" + (len(content) + 2).to_bytes(2, "big") + content + after


def _added(packet: bytes, keywords: Sequence[str]) -> bytes | None:
    """Return an XMP packet with more keywords; None where it has them in a shape that this does not know."""
    for name in (b"dc:subject", b"lr:hierarchicalSubject"):
        bag = packet.find(b"<rdf:Bag>", packet.find(b"<" + name + b">"))
        if b"<" + name + b">" in packet and bag >= 0:
            bag += len(b"<rdf:Bag>")
            packet = packet[:bag] + _items(keywords).encode() + packet[bag:]
        elif name == b"dc:subject":
            end = packet.rfind(b"</rdf:RDF>")
            if end < 0 or packet.count(name) or packet.count(b"lr:hierarchicalSubject"):
                return None
            return packet[:end] + _description(keywords).encode() + packet[end:]
    return packet
