"""The preview inside a camera's raw file: a JPEG that the camera made, as large as the photo or nearly so.

Raw files of most makers are TIFF files (NEF, CR2, ARW, DNG, PEF, SRW, ORF and RW2 with other first bytes): their
directories say where JPEGs lie. A RAF file says it in its head. Of the JPEGs the longest is taken; those that hold the
sensor's own values are known by their mark (lossless) and skipped. What a file says is believed only as far as the
file reaches.
"""

import struct
from collections.abc import Iterator

RAF = b"FUJIFILMCCD-RAW "
COMPRESSION, STRIP_OFFSETS, ORIENTATION, STRIP_BYTES, SUB_DIRECTORIES = 259, 273, 274, 279, 330
JPEG_OFFSET, JPEG_BYTES, WHOLE_JPEG = 513, 514, 46
"""Tags; the last is RW2's, whose value is the JPEG itself."""
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 7: 1, 9: 4, 13: 4}
"""Bytes of a value of each type that matters here."""
MOST_DIRECTORIES, MOST_ENTRIES, MOST_VALUES = 40, 1000, 64
JPEG_COMPRESSIONS = (6, 7, 34892)
PICTURES = frozenset((0xC0, 0xC1, 0xC2))
"""Marks of a JPEG that holds a picture: baseline, extended, progressive."""


def preview(data: bytes) -> bytes | None:
    """Return the largest JPEG picture in a raw file, turned as the file says; None where there is none."""
    if data.startswith(RAF):
        at, length = struct.unpack(">II", data[84:92]) if len(data) >= 92 else (0, 0)
        jpeg = data[at : at + length]
        return jpeg if _is_picture(jpeg) else None
    directories = list(_directories(data))
    places = [place for one in directories for place in _places(one)]
    pictures = [data[at : at + length] for at, length in places if 0 < at < at + length <= len(data)]
    largest = max(filter(_is_picture, pictures), key=len, default=None)
    turned = next((one[ORIENTATION][0] for one in directories if one.get(ORIENTATION)), 1)
    return largest if largest is None else _turned(largest, turned)


def _directories(data: bytes) -> Iterator[dict[int, list[int]]]:
    """Yield the directories of a TIFF file and those within them: values of whole numbers, by tag."""
    order = "<" if data[:2] == b"II" else ">"
    ahead = [*_read(data, order, 4, 4, 1)]
    seen: set[int] = set()
    while ahead and len(seen) < MOST_DIRECTORIES:
        at = ahead.pop(0)
        if at in seen or not 0 < at <= len(data) - 2:
            continue
        seen.add(at)
        (entries,) = struct.unpack_from(f"{order}H", data, at)
        found: dict[int, list[int]] = {}
        for number in range(min(entries, MOST_ENTRIES)):
            entry = at + 2 + 12 * number
            if entry + 12 > len(data):
                break
            tag, kind, count = struct.unpack_from(f"{order}HHI", data, entry)
            if tag == WHOLE_JPEG:
                found[JPEG_OFFSET], found[JPEG_BYTES] = _read(data, order, entry + 8, 4, 1), [count]
            elif kind in SIZES and 0 < count <= MOST_VALUES:
                inside = SIZES[kind] * count <= 4
                where = entry + 8 if inside else next(iter(_read(data, order, entry + 8, 4, 1)), len(data))
                found[tag] = _read(data, order, where, SIZES[kind], count)
        ahead += found.get(SUB_DIRECTORIES, []) + _read(data, order, at + 2 + 12 * entries, 4, 1)
        yield found


def _read(data: bytes, order: str, at: int, size: int, count: int) -> list[int]:
    if at < 0 or at + size * count > len(data):
        return []
    return list(struct.unpack_from(f"{order}{count}{ {1: 'B', 2: 'H', 4: 'I'}[size] }", data, at))


def _places(directory: dict[int, list[int]]) -> Iterator[tuple[int, int]]:
    """Yield where a directory says that JPEGs lie, and how long they are."""
    yield from zip(directory.get(JPEG_OFFSET, []), directory.get(JPEG_BYTES, []), strict=False)
    offsets = directory.get(STRIP_OFFSETS, [])
    if len(offsets) == 1 and directory.get(COMPRESSION, [0])[0] in JPEG_COMPRESSIONS:
        yield from zip(offsets, directory.get(STRIP_BYTES, []), strict=False)


def _is_picture(data: bytes) -> bool:
    """Say whether these are the bytes of a JPEG that holds a picture, not a sensor's values."""
    if not data.startswith(b"\xff\xd8\xff"):
        return False
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        mark = data[at + 1]
        if 0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC):
            return mark in PICTURES
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return False


def _turned(jpeg: bytes, orientation: int) -> bytes:
    """Return a JPEG with an EXIF orientation, unless it is upright or has EXIF of its own."""
    if not 2 <= orientation <= 8 or b"Exif\0\0" in jpeg[:64]:
        return jpeg
    entry = struct.pack("<HHIHH", ORIENTATION, 3, 1, orientation, 0)
    exif = b"Exif\0\0" + b"II*\0" + struct.pack("<IH", 8, 1) + entry + bytes(4)
    return jpeg[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + jpeg[2:]
