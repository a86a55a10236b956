"""Photos made to harm whoever reads them: ``python -m tests.attack.photos [SECONDS]``.

Each is read in a process with a limit of memory and of time. It must give a photo or a reason; nothing may pass
through, hang or take more memory than it asked for. Then a folder of the worst is indexed: the good photo in it is
found and every bad file is named.
"""

import io
import resource
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from PIL import Image

from manifind.errors import UnreadableImageError
from manifind.io import read_photo
from tests.features.photo_files import SMALL, png, png_chunk, saved, scene, tiff

SECONDS = 60
SLOWEST = 20.0
MEMORY = 6 * 2**30
"""Address space that the reader gets: one photo may take 4 GiB."""

MOST_MEGABYTES = 100
"""By which the process may grow for a photo that is refused, besides four times the file."""

READABLE = ("floats.tif", "strips.tif", "more-than-it-says.png")
"""Those of the worst that hold a photo after all."""


def worst() -> dict[str, bytes]:
    """Return files that claim far more than they are."""
    floats = io.BytesIO()
    Image.new("F", (14_000, 14_000)).save(floats, "TIFF", compression="tiff_adobe_deflate")
    return {
        "strip.png": png(34_000_000, 1, b"", bits=16, colour=6),
        "column.png": png(1, 34_000_000, b"", bits=16, colour=6),
        "square.png": png(14_000, 14_000, b"", bits=16, colour=6),
        "endless.png": png(2**31 - 1, 2**31 - 1, b""),
        "more-than-it-says.png": png(100, 100, bytes(200_000_000)),
        "tiles.tif": tiff(16, 16, bytes(256), t322=60_000, t323=60_000, t324=8, t325=256),
        "strips.tif": tiff(16, 16, bytes(256), t278=2**31 - 1),
        "long.tif": tiff(200_000_000, 1, bytes(256)),
        "floats.tif": floats.getvalue(),
        "wide.bmp": b"BM" + bytes(8) + b"\x36\0\0\0\x28\0\0\0" + b"\xff\xff\xff\x7f" * 2 + b"\x01\0\x20\0" + bytes(24),
        "wide.ppm": b"P6 2000000000 1 65535\n" + bytes(100),
        "places.orf": previews(4_000_000, same=False),
        "places.tif": previews(4_000_000, same=False, raw=False),
        "one-place.orf": previews(100_000, same=True),
        **{f"{name}.bin": data for name, data in crowded(8_000_000).items()},
        **{f"{name}.bin": data for name, data in long_values(8_000_000).items()},
        **divided(),
        "rows.bmp": run_lengths(60_000, 3_000, b"\1\0\0\0" * 3_000 + b"\0\1"),
        "nothing.bmp": run_lengths(1000, 1000, b"\0\2\0\0" * 2_000_000),
        "wide.jp2": saved(scene(24, 17), "JPEG2000").replace(b"\0\0\0\x18", b"\x7f\xff\xff\xff"),
    }


def crowded(size: int) -> dict[str, bytes]:
    """Return files of about `size` bytes made of many parts, each nearly empty; the format's name goes first."""
    jpeg, png_file, gif, jp2 = (SMALL[kind] for kind in ("JPEG", "PNG", "GIF", "JPEG2000"))
    webp, codestream = SMALL["WEBP"][12:], jp2.index(b"\xff\x52")
    gif_start = 13 + 3 * 2 ** ((gif[10] & 7) + 1)
    pixels, end = (png_file.index(name) - 4 for name in (b"IDAT", b"IEND"))
    progressive = saved(Image.new("RGB", (640, 480), "gray"), "JPEG progressive")
    scan = progressive[progressive.rindex(b"\xff\xc4") : -2]
    exif = b"\xff\xe1\xff\xff" + b"Exif\0\0".ljust(65_533, b"\0")
    extended = b"VP8X" + struct.pack("<IIHBHB", 10, 0, 23, 0, 16, 0)
    chunks = webp + (b"JUNK" + bytes(4)) * (size // 8)

    def within(whole: bytes, at: int, part: bytes) -> bytes:
        return whole[:at] + part * (size // len(part)) + whole[at:]

    return {
        "jpeg-segments": within(jpeg, 2, b"\xff\xe0\0\2"),
        "jpeg-comments": within(jpeg, 2, b"\xff\xfe\0\2"),
        "jpeg-padding": within(jpeg, 2, b"\xff"),
        "jpeg-exif": within(jpeg, 2, exif),
        "jpeg-scans": within(progressive, len(progressive) - 2, scan),
        "png-text": within(png_file, 33, png_chunk(b"tEXt", b"")),
        "png-private": within(png_file, 33, png_chunk(b"abCd", b"")),
        "png-pixels": within(png_file, pixels, png_chunk(b"IDAT", b"")),
        "png-end": within(png_file, end, png_chunk(b"tEXt", b"")),
        "gif-comments": within(gif, gif_start, b"!\xfe\1a\0"),
        "gif-comment": gif[:gif_start] + b"!\xfe" + b"\1a" * (size // 2) + b"\0" + gif[gif_start:],
        "webp-chunks": b"RIFF" + struct.pack("<I", len(extended + chunks) + 4) + b"WEBP" + extended + chunks,
        "jp2-markers": within(jp2, codestream, b"\xff\x30\0\2"),
        "jp2-boxes": within(jp2, jp2.index(b"jp2h") - 4, b"\0\0\0\x08free"),
        "pnm-comment": b"P6\n#" + b"x" * size + b"\n1 1 255\n" + bytes(3),
    }


def long_values(size: int) -> dict[str, bytes]:
    """Return files of about `size` bytes whose metadata a decoder keeps as many numbers in Python, or joins often."""
    orientation = b"II*\0" + struct.pack("<IHHHIII", 8, 1, 0x112, 3, size // 2, 26, 0) + bytes(size)
    marked = saved(Image.new("RGB", (64, 64)), "AVIF", exif=b"Exif\0\0" + orientation.replace(b"\x12\1", b"\x99\x99"))

    def box(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content) + 8) + name + content

    kinds = box(b"iinf", bytes(5) + b"\1" + box(b"infe", b"\2" + bytes(4) + b"\1" + bytes(2) + b"av01"))
    extents = struct.pack(">II", 0, size) * 5000
    places = box(b"iloc", struct.pack(">IHHHHH", 0, 0x4400, 1, 1, 0, 5000) + extents)
    overlapping = box(b"ftyp", b"avif" + bytes(4) + b"avif") + box(b"meta", bytes(4) + kinds + places)
    return {
        "tiff-fractions": tiff_values(282, 5, size // 8),
        "tiff-numbers": tiff_values(274, 3, size // 2),
        "tiff-strips": tiff_values(273, 4, size // 4),
        "tiff-entries": tiff_values(700, 7, size, entries=3000),
        "bigtiff-fractions": tiff_values(282, 5, size // 8, big=True),
        "avif-exif": marked.replace(b"\x99\x99", b"\x12\1"),
        "avif-extents": overlapping + bytes(size),
    }


def tiff_values(tag: int, kind: int, count: int, *, entries: int = 1, big: bool = False) -> bytes:
    """Return a TIFF of which some entries have `count` values of a kind, the same for all."""
    numbers = {256: 16, 257: 16, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 16, 279: 256}
    known = [(number, 4, 1, value) for number, value in numbers.items() if number != tag]
    layout, count_layout, head = ("<HHQQ", "<Q", b"II+\0\x08\0\0\0") if big else ("<HHII", "<H", b"II*\0")
    pointer = struct.calcsize("<Q" if big else "<I")
    begin = len(head) + pointer + 256
    values = begin + struct.calcsize(count_layout) + struct.calcsize(layout) * (len(known) + entries) + pointer
    table = sorted([*known, *((tag + i, kind, count, values) for i in range(entries))])
    directory = struct.pack(count_layout, len(table)) + b"".join(struct.pack(layout, *entry) for entry in table)
    content = b"\1\2" * (count * {3: 2, 4: 4, 5: 8, 7: 1}[kind] // 2)
    return head + begin.to_bytes(pointer, "little") + bytes(256) + directory + bytes(pointer) + content


def previews(size: int, *, same: bool, raw: bool = True) -> bytes:
    """Return a raw file, or a TIFF whose first page is a thumbnail, that names 2,560 places of a JPEG preview.

    The places are one JPEG of empty segments, or stretches of nearly the whole file, no two the same.
    """
    named, folders = 64, 40
    page = [(254, 1), (256, 8), (257, 8), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 8), (279, 64)]
    first, folder = 8 + 64, 2 + 12 * (len(page) + 2) + 4
    values = first + folders * folder
    begin = values + 8 * named * folders
    tables = lists = b""
    for number in range(folders):
        starts = [begin if same else begin + 4 * (named * number + i) for i in range(named)]
        entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in page)
        entries += b"".join(
            struct.pack("<HHII", 513 + i, 4, named, values + len(lists) + 4 * named * i) for i in (0, 1)
        )
        following = 0 if number == folders - 1 else first + folder * (number + 1)
        tables += struct.pack("<H", len(page) + 2) + entries + struct.pack("<I", following)
        lists += struct.pack(f"<{2 * named}I", *starts, *[size - begin - (0 if same else 4 * named * folders)] * named)
    jpegs = (b"" if same else b"\xff\xd8\xff\xe0" * named * folders) + b"\xff\xd8" + b"\xff\xe0\0\2" * (size // 4)
    return ((b"IIRO" if raw else b"II*\0") + struct.pack("<I", first) + bytes(64) + tables + lists + jpegs)[:size]


def divided() -> dict[str, bytes]:
    """Return JPEG 2000 files of some hundred bytes that name tens of thousands of tiles, or millions of blocks."""
    return {
        "tiles.jp2": jpeg_2000(256, 255, tile=1),
        "values.jp2": jpeg_2000(256, 256, components=16_000),
        "larger.jp2": jpeg_2000(256, 256, stored=30_000),
        "blocks.jp2": jpeg_2000(4000, 4000, block=4),
        "precincts.jp2": jpeg_2000(1000, 1000, precincts=b"\0"),
        "precincts-of-a-tile.jp2": jpeg_2000(1000, 1000, tile_precincts=b"\0"),
        "hidden.jp2": jpeg_2000(1000, 1000, precincts=b"\0", ahead=b"\xff\x30"),
    }


def jpeg_2000(
    width: int,
    height: int,
    *,
    tile: int = 2**15,
    stored: int = 0,
    components: int = 3,
    block: int = 64,
    precincts: bytes = b"",
    tile_precincts: bytes = b"",
    ahead: bytes = b"",
) -> bytes:
    """Return a JPEG 2000 file whose one tile part has no data; `ahead` is put before the style of its blocks."""

    def box(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content) + 8) + name + content

    def style(sides: bytes) -> bytes:
        power = block.bit_length() - 3
        head = struct.pack(">HBBHB5B", 12 + len(sides), bool(sides), 0, 1, 0, 0, power, power, 0, 1)
        return b"\xff\x52" + head + sides

    sides = (stored or width, stored or height, 0, 0, tile, tile, 0, 0)
    sizes = struct.pack(">HH8IH", 38 + 3 * components, 0, *sides, components) + b"\7\1\1" * components
    steps = b"\xff\x5c" + struct.pack(">HBB", 4, 0x20, 0x40)
    part = b"\xff\x90" + struct.pack(">HHIBB", 10, 0, 0, 0, 1)
    part += (style(tile_precincts) if tile_precincts else b"") + b"\xff\x93" + bytes(8)
    stream = b"\xff\x4f\xff\x51" + sizes + ahead + style(precincts) + steps + part + b"\xff\xd9"
    header = box(b"ihdr", struct.pack(">IIHBBBB", height, width, 3, 7, 7, 0, 0))
    header += box(b"colr", struct.pack(">BBBI", 1, 0, 0, 16))
    # A box between keeps Pillow from reading the stream's header as well.
    start = b"\0\0\0\x0cjP  \r\n\x87\n" + box(b"ftyp", b"jp2 \0\0\0\0jp2 ")
    return start + box(b"jp2h", header) + box(b"free", b"") + box(b"jp2c", stream)


def run_lengths(width: int, height: int, data: bytes) -> bytes:
    """Return a BMP of 8 bits in run lengths."""
    begin = 14 + 40 + 1024
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(data), 0, 0, 256, 256)
    return b"BM" + struct.pack("<IHHI", begin + len(data), 0, 0, begin) + header + bytes(1024) + data


def mutated(rng: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    """Yield small photos of every format with wrong bytes, one after the other, without end."""
    while True:
        for kind in sorted(SMALL):
            data = bytearray(SMALL[kind])
            for _ in range(int(rng.choice([1, 2, 4, 32]))):
                data[int(rng.integers(len(data)))] = int(rng.integers(256))
            yield kind, bytes(data[: int(rng.integers(1, len(data) + 1))] if rng.random() < 0.2 else data)


def read_all(seconds: float) -> int:
    """Read the worst, then mutated photos until the time is up; return how many broke the promise."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    failures = read = 0
    end = time.monotonic() + seconds
    for name, data in chain(worst().items(), _until(end, mutated(np.random.default_rng()))):
        began, peak = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            read_photo(data)
        except UnreadableImageError:
            pass
        except BaseException:
            failures += 1
            print(f"{name}, {data[:64]!r} …: {traceback.format_exc(limit=-2)}")
        if time.monotonic() - began > SLOWEST:
            failures += 1
            print(f"{name}: {time.monotonic() - began:.0f} s")
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024
        if name not in READABLE and (grown > MOST_MEGABYTES + 4 * len(data) / 2**20):
            failures += 1
            print(f"{name}: {grown:.0f} MB")
        read += 1
    print(f"{read} hostile photos read, {failures} failures")
    return failures


def _until(end: float, cases: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    for case in cases:
        if time.monotonic() > end:
            return
        yield case


def index_the_worst() -> int:
    """Index a folder of them by the command; return how many files were neither indexed nor named."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "photos")
        folder.mkdir()
        bad = {name: data for name, data in worst().items() if name not in READABLE}
        for name, data in bad.items():
            (folder / name).write_bytes(data)
        (folder / "good.png").write_bytes(saved(scene(320, 240), "PNG"))
        command = [sys.executable, "-m", "manifind.cli", "index", str(folder), "--memory", "1GiB"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)  # noqa: S603
        told = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "manifind.cli", "info", f"{folder}.manifind", "--json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        missing = [name for name in bad if name not in told.stdout]
        if ran.returncode or missing:
            print(f"index of the worst: exit {ran.returncode}, not named: {missing}\n{ran.stdout}{ran.stderr}")
        else:
            print(f"index of the worst: {len(bad)} files skipped, each by name")
        return len(missing) + bool(ran.returncode)


def main() -> int:
    """Run all of it; return 1 where something gave way."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    failed = index_the_worst()
    return 1 if read_all(seconds) + failed else 0


if __name__ == "__main__":
    sys.exit(main())
