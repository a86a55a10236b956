"""The parts of a photo's file (segments, chunks, blocks, boxes), walked before a decoder parses them.

Decoders handle each part in Python and keep most of them: a file of millions of empty parts would take minutes and
gigabytes. So the walk counts parts, and raises `UnreadableImageError` with the code ``too-many-parts``. It reads the
heads of parts alone.
"""

import io
import re
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
