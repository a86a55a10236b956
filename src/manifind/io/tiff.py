"""The directories of a TIFF file, of a camera's raw file, or of EXIF, which is a TIFF file without pixels.

What a file says is believed only as far as the file reaches: directories, entries and values are bounded, and loops
end.
"""

import io
import struct
from collections.abc import Iterator
from typing import BinaryIO

SUB_DIRECTORIES, EXIF_DIRECTORY = 330, 34665
"""Tags whose values are the places of further directories."""
JPEG_OFFSET, JPEG_BYTES, RW2_JPEG = 513, 514, 46
"""Tags of an embedded JPEG; the value of the last is the JPEG itself."""
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 7: 1, 9: 4, 13: 4}
"""Bytes of a value of each type that matters here; type 2 is text."""
MAX_DIRECTORIES, MAX_ENTRIES, MAX_VALUES, MAX_TEXT = 40, 1000, 64, 1000

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


def _numbers(stream: BinaryIO, order: str, at: int, size: int, count: int) -> list[int]:
    """Return so many numbers of `size` bytes; none where the file ends before them."""
    stream.seek(at)
    data = stream.read(size * count)
    if len(data) < size * count:
        return []
    return list(struct.unpack(f"{order}{count}{ {1: 'B', 2: 'H', 4: 'I'}[size] }", data))
