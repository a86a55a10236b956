"""The codestream of a JPEG 2000 file: what it divides the photo into is counted before a decoder reads it.

A decoder keeps kilobytes for each tile and hundreds of bytes for each code block of a tile, whether the file has data
for them or not. A file of 400 bytes can name 65,535 tiles, or a code block for each pixel, in its main header or in
that of any tile. `check_codestream` refuses such files, and passes over segments as OpenJPEG does.
"""

import struct
from collections.abc import Iterator

from manifind.errors import UnreadableImageError
from manifind.io.containers import MAX_PARTS, PART_BYTES, too_many_parts

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
