"""The directories of a TIFF file, of a camera's raw file, or of EXIF, which is a TIFF file without pixels.

What a file says is believed only as far as the file reaches: directories, entries and values are bounded, and loops
end.
"""

import io
import struct
import sys
from collections.abc import Iterator
from typing import BinaryIO

from manifind.io.containers import too_many_parts

SUB_DIRECTORIES, EXIF_DIRECTORY = 330, 34665
"""Tags whose values are the places of further directories."""
JPEG_OFFSET, JPEG_BYTES, RW2_JPEG = 513, 514, 46
"""Tags of an embedded JPEG; the value of the last is the JPEG itself."""
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 7: 1, 9: 4, 13: 4}
"""Bytes of a value of each type that matters here; type 2 is text."""
MAX_DIRECTORIES, MAX_ENTRIES, MAX_VALUES, MAX_TEXT = 40, 1000, 64, 1000
DECODED_BYTES = {3: 36, 4: 36, 5: 280, 6: 36, 8: 36, 9: 36, 10: 280, 11: 32, 12: 32, 13: 36, 16: 36}
"""Bytes that a decoder in Python keeps for a value of each type; text and bytes of other types stay as they are."""
MAX_DECODED_BYTES = 2**25
"""Of the values of a directory: 32 MiB, the places and lengths of 450,000 strips or tiles."""

Directory = dict[int, list[int]]
"""The values of a directory by tag; text as the numbers of its characters."""


def directories(stream: BinaryIO) -> Iterator[Directory]:
    """Yield the directories of a file and those within them: values that are whole numbers, and text."""
    size = stream.seek(0, io.SEEK_END)
    if _numbers(stream, "<", 2, 2, 1) in ([0x2B], [0x2B00]):  # BigTIFF, whose directories are of another kind
        return
    order = "<" if _numbers(stream, "<", 0, 2, 1) == [0x4949] else ">"
    ahead = _numbers(stream, order, 4, 4, 1)
    seen: set[int] = set()
    while ahead and len(seen) < MAX_DIRECTORIES:
        at = ahead.pop(0)
        if at in seen or not 0 < at <= size - 2:
            continue
        seen.add(at)
        (entries,) = _numbers(stream, order, at, 2, 1)
        stream.seek(at + 2)
        table = stream.read(12 * min(entries, MAX_ENTRIES))
        directory: Directory = {}
        for place in range(0, len(table) - 11, 12):
            tag, kind, count, value = struct.unpack_from(f"{order}HHII", table, place)
            if tag == RW2_JPEG:
                directory[JPEG_OFFSET], directory[JPEG_BYTES] = [value], [count]
            elif kind in SIZES and 0 < count <= (MAX_TEXT if kind == 2 else MAX_VALUES):
                inside = SIZES[kind] * count <= 4
                directory[tag] = _numbers(stream, order, at + 10 + place if inside else value, SIZES[kind], count)
        ahead += directory.get(SUB_DIRECTORIES, []) + directory.get(EXIF_DIRECTORY, [])
        ahead += _numbers(stream, order, at + 2 + 12 * entries, 4, 1)
        yield directory


def check_values(stream: BinaryIO) -> None:
    """Raise `UnreadableImageError` where a decoder would keep many values of a TIFF's first directory.

    Two bytes of the file become a number of 36 bytes in Python, eight a fraction of 280.
    """
    order = "<" if _unpack(stream, "=H", 0) == (0x4949,) else ">"
    is_big = _unpack(stream, f"{order}H", 2) == (0x2B,)
    place, entry = ("Q", "HHQQ") if is_big else ("I", "HHII")
    for at in _unpack(stream, order + place, 8 if is_big else 4):
        for entries in _unpack(stream, order + ("Q" if is_big else "H"), at):
            entry_bytes = struct.calcsize(f"={entry}")
            table = stream.read(entry_bytes * min(entries, MAX_ENTRIES))
            whole = len(table) // entry_bytes * entry_bytes
            values = struct.iter_unpack(order + entry, table[:whole])
            decoded = sum(DECODED_BYTES.get(kind, 0) * count for _, kind, count, _ in values)
            if entries > MAX_ENTRIES or decoded > MAX_DECODED_BYTES:
                raise too_many_parts()


def _unpack(stream: BinaryIO, layout: str, at: int) -> tuple[int, ...]:
    """Return the numbers at a place of a file; none where the file ends before them."""
    stream.seek(min(at, sys.maxsize))
    data = stream.read(struct.calcsize(layout))
    return struct.unpack(layout, data) if len(data) == struct.calcsize(layout) else ()


def _numbers(stream: BinaryIO, order: str, at: int, size: int, count: int) -> list[int]:
    """Return so many numbers of `size` bytes; none where the file ends before them."""
    stream.seek(at)
    data = stream.read(size * count)
    if len(data) < size * count:
        return []
    return list(struct.unpack(f"{order}{count}{ {1: 'B', 2: 'H', 4: 'I'}[size] }", data))
