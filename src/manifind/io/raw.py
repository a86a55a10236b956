"""The preview inside a camera's raw file: a JPEG that the camera made, as large as the photo or nearly so.

Raw files of most makers are TIFF files (NEF, CR2, ARW, DNG, PEF, SRW, ORF and RW2 with other first bytes): their
directories say where JPEGs lie. A RAF file says it in its head. The largest JPEG is the preview; JPEGs that hold the
sensor's own values are known by their marker (lossless) and skipped.
"""

import io
import struct
from collections.abc import Iterator

from manifind.io.containers import EXIF
from manifind.io.tiff import JPEG_BYTES, JPEG_OFFSET, Directory, directories

RAF = b"FUJIFILMCCD-RAW "
COMPRESSION, STRIP_OFFSETS, ORIENTATION, STRIP_BYTES = 259, 273, 274, 279
JPEG_COMPRESSIONS = (6, 7, 34892)
PICTURES = (b"\xff\xc0", b"\xff\xc1", b"\xff\xc2")
"""Markers of a JPEG that holds a picture: baseline, extended, progressive."""
OTHER_FRAMES = frozenset(bytes((0xFF, code)) for code in range(0xC3, 0xD0)) - {b"\xff\xc4", b"\xff\xc8", b"\xff\xcc"}
MAX_PLACES = 16
"""Places, the largest first, that are looked at for a JPEG; raw files name about five."""
MAX_SEGMENTS = 200
"""Segments of a preview ahead of the one that tells its kind."""


def preview(data: bytes) -> bytes | None:
    """Return the largest JPEG in a raw file, with the orientation of the file; None where there is none."""
    if data.startswith(RAF):
        places = [struct.unpack(">II", data[84:92])] if len(data) >= 92 else []
        orientation = 1
    else:
        tables = list(directories(io.BytesIO(data)))
        places = [place for table in tables for place in _jpeg_places(table)]
        orientation = next((table[ORIENTATION][0] for table in tables if table.get(ORIENTATION)), 1)
    longest = {at: length for at, length in sorted(places) if 0 < at < at + length <= len(data)}
    for at, length in sorted(longest.items(), key=lambda place: -place[1])[:MAX_PLACES]:
        if _is_picture(memoryview(data)[at : at + length]):
            return _with_orientation(memoryview(data)[at : at + length], orientation)
    return None


def _jpeg_places(table: Directory) -> Iterator[tuple[int, int]]:
    """Yield where a directory says that JPEGs lie, and how long they are."""
    yield from zip(table.get(JPEG_OFFSET, []), table.get(JPEG_BYTES, []), strict=False)
    offsets = table.get(STRIP_OFFSETS, [])
    if len(offsets) == 1 and table.get(COMPRESSION, [0])[:1] in ([one] for one in JPEG_COMPRESSIONS):
        yield from zip(offsets, table.get(STRIP_BYTES, []), strict=False)


def _is_picture(data: memoryview) -> bool:
    """Whether a JPEG begins here that holds a picture, not a sensor's values."""
    if bytes(data[:3]) != b"\xff\xd8\xff":
        return False
    at = 2
    for _ in range(MAX_SEGMENTS):
        marker = bytes(data[at : at + 2])
        if marker in PICTURES:
            return True
        if marker[:1] != b"\xff" or marker in OTHER_FRAMES:
            return False
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return False


def _with_orientation(jpeg: memoryview, orientation: int) -> bytes:
    """Return the bytes of a JPEG with an EXIF orientation, unless it is upright or has EXIF of its own."""
    if not 2 <= orientation <= 8 or EXIF in bytes(jpeg[:64]):
        return bytes(jpeg)
    entry = struct.pack("<HHIHH", ORIENTATION, 3, 1, orientation, 0)
    exif = EXIF + b"II*\0" + struct.pack("<IH", 8, 1) + entry + bytes(4)
    return b"".join((jpeg[:2], b"\xff\xe1", (len(exif) + 2).to_bytes(2, "big"), exif, jpeg[2:]))
