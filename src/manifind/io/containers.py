"""The parts of a photo's file (segments, chunks, blocks, boxes, tags), counted before a decoder parses them.

Decoders handle each part in Python and keep most of them: a file of millions of empty parts would take minutes and
gigabytes. So these checks count parts, and raise `UnreadableImageError` with the code ``too-many-parts``. They read the
heads of parts alone.

- AVIF and HEIC: decoders join the stretches (extents) of an item before they do anything else, and read all EXIF while
  they open the file. A small file can name many extents that overlap, or EXIF as long as the file.
- JPEG 2000: a decoder keeps kilobytes for each tile and hundreds of bytes for each code block of a tile, whether the
  file has data for them or not. A file of 400 bytes can name 65,535 tiles, or a code block for each pixel, in its main
  header or in that of any tile.
- TIFF, raw files and EXIF (a TIFF file without pixels): directories, entries and values are bounded, and loops end.
"""

import io
import re
import struct
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from manifind.errors import UnreadableImageError

MAX_PARTS = 10_000
"""Parts of a small file; a longer file may have one more for each `PART_BYTES`."""
PART_BYTES = 1024
MAX_METADATA = 2**25
"""Bytes of all parts that hold no pixels: 32 MiB."""
MAX_EXIF_SEGMENTS = 16
MAX_EXIF_BYTES = 2**20
"""EXIF of a photo that is read; cameras write less than 64 kB."""
MAX_PADDING = 2**20
"""Bytes between the segments of a JPEG, which a decoder skips one by one."""
MAX_SCANS = 100
"""Scans of a progressive JPEG. Each passes over all pixels; encoders write about ten."""
MAX_TEXT_HEADER = 2**16
"""Bytes of the header of a PNM file, its comments included."""

EXIF = b"Exif\0\0"
APP1, SOS, EOI = b"\xff\xe1", b"\xff\xda", b"\xff\xd9"
PIXELS = frozenset((b"IDAT", b"fdAT", b"VP8 ", b"VP8L", b"ALPH", b"ANMF", b"jp2c"))
"""Parts that hold pixels."""

_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
"""What follows the coded data of a scan: neither a stuffed byte nor a restart."""
_PNM_HEADER = re.compile(rb"P(?:4|[56](?:(?:\s|#[^\r\n]*[\r\n])+[0-9]+))(?:(?:\s|#[^\r\n]*[\r\n])+[0-9]+){2}")


class Part(NamedTuple):
    """A segment of a JPEG, a chunk of a PNG or a WebP, a block of a GIF, a box of a JPEG 2000 file."""

    name: bytes
    """Its marker or type."""
    at: int
    """Where its data begin in the file."""
    length: int
    """Bytes of its data."""


def parts(stream: BinaryIO, format_name: str) -> Iterator[Part]:
    """Yield the parts of a file: of a PNG or a WebP all, else those ahead of the pixels; none of other formats."""
    walk = _WALKS.get(format_name)
    if walk is None:
        return
    size = stream.seek(0, io.SEEK_END)
    metadata = 0
    for count, part in enumerate(walk(stream, size), 1):
        metadata += 0 if part.name in PIXELS else max(0, min(part.length, size - part.at))
        if count > MAX_PARTS + size // PART_BYTES or metadata > MAX_METADATA:
            raise too_many_parts()
        yield part


def check_parts(data: bytes, format_name: str) -> None:
    """Raise `UnreadableImageError` where parsing a file or passing over its scans would take a decoder long."""
    stream = io.BytesIO(data)
    exif_segments = end = 0
    for part in parts(stream, format_name):
        end = part.at + part.length
        exif_segments += part.name == APP1 and data.startswith(EXIF, part.at)
    if exif_segments > MAX_EXIF_SEGMENTS:  # a decoder joins them
        raise too_many_parts()
    if format_name == "JPEG":
        _check_scans(data, end)
    if format_name == "PNM" and len(data) > MAX_TEXT_HEADER and not _PNM_HEADER.match(data[:MAX_TEXT_HEADER]):
        raise too_many_parts()


def too_many_parts() -> UnreadableImageError:
    """Return the error of a file that holds more parts than a photo does."""
    return UnreadableImageError("damaged: it holds more parts than a photo does", code="too-many-parts")


def jpeg_segments(stream: BinaryIO, size: int) -> Iterator[Part]:
    """Yield the segments of a JPEG up to the head of its first scan."""
    at, padding = 2, 0
    while at + 4 <= size:
        head = _read(stream, at, 4)
        if head[0] != 0xFF or head[1] in (0x00, 0xFF):
            at, padding = at + 1, padding + 1
            if padding > MAX_PADDING:
                raise too_many_parts()
            continue
        alone = head[1] == 0x01 or 0xD0 <= head[1] <= 0xD9
        part = Part(head[:2], at + 2, 0) if alone else Part(head[:2], at + 4, max(_number(head[2:]) - 2, 0))
        yield part
        if part.name == SOS:
            return
        at = part.at + part.length


def _check_scans(data: bytes, at: int) -> None:
    """Count the scans of a JPEG whose first scan's data begin at `at`."""
    scans = markers = 1
    while marker := _MARKER.search(data, at):
        at = marker.end()
        if marker[0] == EOI:
            return
        if marker[0][1] > 0x01:
            at += max(_number(data[at : at + 2]), 2)
        markers += 1
        scans += marker[0] == SOS
        if scans > MAX_SCANS or markers > MAX_PARTS:
            raise too_many_parts()


def _png_chunks(stream: BinaryIO, size: int) -> Iterator[Part]:
    at = 8
    while at + 8 <= size:
        head = _read(stream, at, 8)
        yield Part(head[4:], at + 8, _number(head[:4]))
        if head[4:] == b"IEND":
            return
        at += 12 + _number(head[:4])


def _gif_blocks(stream: BinaryIO, size: int) -> Iterator[Part]:
    flags = _read(stream, 10, 1)[0] if size > 10 else 0
    at = 13 + (3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0)
    while _read(stream, at, 1) == b"!":
        at += 2
        while length := _number(_read(stream, at, 1)):
            yield Part(b"block", at + 1, length)
            at += 1 + length
        yield Part(b"end", at + 1, 0)
        at += 1


def _riff_chunks(stream: BinaryIO, size: int) -> Iterator[Part]:
    at, end = 12, min(size, 8 + int.from_bytes(_read(stream, 4, 4), "little"))
    while at + 8 <= end:
        head = _read(stream, at, 8)
        length = int.from_bytes(head[4:], "little")
        yield Part(head[:4], at + 8, length)
        at += 8 + length + length % 2


def _jp2_boxes(stream: BinaryIO, size: int) -> Iterator[Part]:
    at = 0
    while at + 8 <= size and _read(stream, 0, 2) != b"\xff\x4f":
        head = _read(stream, at, 16)
        begin, length = (16, _number(head[8:])) if _number(head[:4]) == 1 else (8, _number(head[:4]) or size - at)
        yield Part(head[4:8], at + begin, max(length - begin, 0))
        at += begin if head[4:8] in (b"jp2h", b"jp2c") else max(length, begin)  # boxes of the header lie within it
        if head[4:8] == b"jp2c":
            break
    at += 2
    while (head := _read(stream, at, 4))[:1] == b"\xff" and head[:2] != b"\xff\x90":
        yield Part(head[:2], at + 4, max(_number(head[2:]) - 2, 0))
        at += 2 + max(_number(head[2:]), 2)


def _read(stream: BinaryIO, at: int, count: int) -> bytes:
    stream.seek(at)
    return stream.read(count)


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


_WALKS: dict[str, Callable[[BinaryIO, int], Iterator[Part]]] = {
    "JPEG": jpeg_segments,
    "PNG": _png_chunks,
    "GIF": _gif_blocks,
    "WEBP": _riff_chunks,
    "JPEG2000": _jp2_boxes,
}


MAX_REUSE = 2
"""How many times the length of the file all items may take together."""


def check_items(data: bytes) -> None:
    """Raise `UnreadableImageError` where a file has very many extents, items longer than itself, or endless EXIF."""
    for meta in _meta_boxes(memoryview(data)):
        kinds = {item: kind for name, content in _boxes(meta) if name == b"iinf" for item, kind in _kinds(content)}
        total = exif = 0
        locations = (content for name, content in _boxes(meta) if name == b"iloc")
        for count, (item, length) in enumerate((extent for content in locations for extent in _extents(content)), 1):
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


MAX_TILES = 4096
"""A photo of 200 million pixels has 3,052 tiles of 256 × 256."""
MAX_COMPONENTS = 5
"""Colours and transparency."""
MIN_BLOCK_VALUES = 256
"""Values in a code block, on average: 16 × 16; encoders write blocks of 64 × 64 or 32 × 32."""
MAX_SMALL_BLOCKS = 2**14
"""Code blocks of any size that a photo may have."""

SOC, SIZ, COD, COC, SOT, SOD = (bytes((0xFF, code)) for code in (0x4F, 0x51, 0x52, 0x53, 0x90, 0x93))
_MAIN_MARKERS = frozenset(bytes((0xFF, code)) for code in b"PQRSUWY\\]^_`cdtuwx\x90")
"""Of the main header, those that the decoder knows."""


def check_codestream(data: bytes, size: tuple[int, int]) -> None:
    """Raise `UnreadableImageError` where a file is divided into very many tiles or blocks, or is not of this size."""
    at = _find_codestream(data)
    if not data.startswith(SOC + SIZ, at) or len(data) < at + 42:
        raise _damaged()
    x1, y1, x0, y0, tile_width, tile_height, left, top, components = struct.unpack_from(">8IH", data, at + 8)
    if (x1 - x0, y1 - y0) != size or not 0 < components <= MAX_COMPONENTS or not tile_width or not tile_height:
        raise _damaged()
    if -(-(x1 - left) // tile_width) * -(-(y1 - top) // tile_height) > MAX_TILES:
        raise too_many_parts()
    values = components * size[0] * size[1]
    for marker, content in _segments(data, at + 2):
        if marker in (COD, COC):
            flags, style = (content[:1], content[5:]) if marker == COD else (content[1:2], content[2:])
            blocks = _count_blocks(values, style, has_precincts=any(flag & 1 for flag in flags))
            if blocks > max(MAX_SMALL_BLOCKS, values // MIN_BLOCK_VALUES):
                raise too_many_parts()


def _find_codestream(data: bytes) -> int:
    """Return where the codestream begins: in the first box of its kind at the top level."""
    at = 0
    for _ in range(MAX_PARTS):
        if data.startswith(SOC, at) and at == 0:
            return at
        if at + 8 > len(data):
            raise _damaged()
        length, name = struct.unpack_from(">I4s", data, at)
        head = 8
        if length == 1:
            head, length = 16, int.from_bytes(data[at + 8 : at + 16], "big")
        if name == b"jp2c":
            return at + head
        if length < head:
            raise _damaged()
        at += length
    raise too_many_parts()


def _segments(data: bytes, at: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the segments of the main header and of the headers of tile parts: markers and contents."""
    tile_part = None
    for _ in range(MAX_PARTS + len(data) // PART_BYTES):
        marker, length = data[at : at + 2], int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == SOD and tile_part is not None:
            at = tile_part + int.from_bytes(data[tile_part + 6 : tile_part + 10], "big")
            if at <= tile_part or not data.startswith(SOT, at):  # the last, or the end
                return
            continue
        if tile_part is None and marker not in _MAIN_MARKERS:  # the decoder passes over two bytes
            at += 2
            continue
        if length < 2:
            raise _damaged()
        if marker == SOT:
            tile_part = at
        yield marker, data[at + 4 : at + 2 + length]
        at += 2 + length
    raise too_many_parts()


def _count_blocks(values: int, style: bytes, *, has_precincts: bool) -> int:
    """Return how many code blocks so many values have at most, by the style that a ``COD`` or ``COC`` gives them."""
    if len(style) < 5:
        raise _damaged()
    levels, width, height = style[0], style[1] + 2, style[2] + 2
    blocks = 0
    for resolution in range(min(levels, 32) + 1):
        wide, high = width, height
        if has_precincts:
            if 5 + resolution >= len(style):
                raise _damaged()
            # Beyond the lowest resolution, a precinct holds a quarter of each of three bands.
            less = 1 if resolution else 0
            precinct = style[5 + resolution]
            wide, high = min(wide, max((precinct & 15) - less, 0)), min(high, max((precinct >> 4) - less, 0))
        blocks += (values >> 2 * (levels - resolution)) >> (wide + high)
    return blocks


def _damaged() -> UnreadableImageError:
    return UnreadableImageError("damaged, or of a kind that is not read", code="undecodable")


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
