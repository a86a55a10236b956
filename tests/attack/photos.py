"""Photos made to harm whoever reads them: ``python -m tests.attack.photos [SECONDS]``.

Each is read in a process with a limit of memory and of time. It must give a photo or a reason; nothing may pass
through, hang or take more memory than it asked for. Then a folder of the worst is indexed: the good photo in it is
found and every bad file is named.
"""

import io
import resource
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
from tests.features.photo_files import SMALL, png, saved, scene, tiff

SECONDS = 60
SLOWEST = 20.0
MEMORY = 6 * 2**30
"""Address space that the reader gets: one photo may take 4 GiB."""

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
        "wide.jp2": saved(scene(24, 17), "JPEG2000").replace(b"\0\0\0\x18", b"\x7f\xff\xff\xff"),
    }


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
        began = time.monotonic()
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
        missing = [name for name in bad if name not in ran.stdout]
        if ran.returncode or missing:
            print(f"index of the worst: exit {ran.returncode}, not named: {missing}\n{ran.stdout}{ran.stderr}")
        else:
            print(f"index of the worst: {len(bad)} files passed over, each by name")
        return len(missing) + bool(ran.returncode)


def main() -> int:
    """Run all of it; return 1 where something gave way."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    failed = index_the_worst()
    return 1 if read_all(seconds) + failed else 0


if __name__ == "__main__":
    sys.exit(main())
