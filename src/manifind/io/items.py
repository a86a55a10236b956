"""The items of an AVIF or HEIC file: pictures and metadata, each joined from stretches (extents) of the file.

Decoders join the extents of an item before they do anything else, and read all EXIF while they open the file. A small
file can name many extents that overlap, or EXIF as long as the file: `check_items` refuses both.
"""

import io
from collections.abc import Iterator

from manifind.io.containers import MAX_EXIF_BYTES, MAX_PARTS, too_many_parts

MAX_REUSE = 2
"""How many times the length of the file all items may take together."""


def check_items(data: bytes) -> None:
    """Raise `UnreadableImageError` where a file has very many extents, items longer than itself, or endless EXIF."""
    for meta in _meta_boxes(memoryview(data)):
        kinds = {item: kind for name, content in _boxes(meta) if name == b"iinf" for item, kind in _kinds(content)}
        total = exif = 0
        locations = (content for name, content in _boxes(meta) if name == b"iloc")
        for count, (item, length) in enumerate((one for content in locations for one in _extents(content)), 1):
            total += length or len(data)  # 0 stands for the whole file
            exif += (length or len(data)) if kinds.get(item) == b"Exif" else 0
            if count > MAX_PARTS or total > MAX_REUSE * len(data) or exif > MAX_EXIF_BYTES:
                raise too_many_parts()


def _meta_boxes(data: memoryview) -> Iterator[memoryview]:
    """Yield the content of the boxes that list items: of the file, and of the tracks of a sequence."""
    for name, content in _boxes(data):
        if name == b"meta":
            yield content[4:]
        for track_name, track in _boxes(content) if name == b"moov" else ():
            if track_name == b"trak":
                yield from (inner[4:] for inner_name, inner in _boxes(track) if inner_name == b"meta")


def _boxes(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the boxes that lie one after the other in `data`: names and contents."""
    at = count = 0
    while at + 8 <= len(data):
        length, head = int.from_bytes(data[at : at + 4], "big"), 8
        if length == 1:
            length, head = int.from_bytes(data[at + 8 : at + 16], "big"), 16
        length = length or len(data) - at
        yield bytes(data[at + 4 : at + 8]), data[at + head : at + length]
        at, count = at + max(length, head), count + 1
        if count > MAX_PARTS:
            raise too_many_parts()


def _kinds(content: memoryview) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the kind of each item, from the content of an ``iinf`` box."""
    for name, entry in _boxes(content[8 if any(content[:1]) else 6 :]):
        if name == b"infe" and len(entry) > 0:
            wide = 4 if entry[0] > 2 else 2
            yield int.from_bytes(entry[4 : 4 + wide], "big"), bytes(entry[6 + wide : 10 + wide])


def _extents(content: memoryview) -> Iterator[tuple[int, int]]:
    """Yield the item and the length of each extent, from the content of an ``iloc`` box."""
    stream = io.BytesIO(content)

    def number(size: int) -> int:
        return int.from_bytes(stream.read(size), "big")

    version, _, sizes = number(1), number(3), number(2)
    offset_size, length_size, base_size, index_size = (sizes >> shift & 15 for shift in (12, 8, 4, 0))
    wide = 4 if version > 1 else 2
    for _ in range(number(wide)):
        item = number(wide)
        number((2 if version else 0) + 2 + base_size)
        for _ in range(number(2)):
            number((index_size if version else 0) + offset_size)
            yield item, number(length_size)
        if stream.tell() >= len(content):
            return
