"""A folder as it may be: the good photos are found, the bad files are listed with reasons, nothing is fatal."""

import io
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from manifind.index import Index
from tests.extraction_options import PLAINLY
from tests.index.conftest import scene, texture


def encoded(pixels: "np.typing.NDArray[np.uint8]", kind: str = "JPEG", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


def bomb(width: int, height: int, bits: int = 8, colour: int = 2, data: bytes = bytes(1000)) -> bytes:
    """A PNG that claims to be huge."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("corpus")
    whole = encoded(texture(3, 300, 400, grain=2), quality=95)
    for size in range(0, len(whole), 1024):
        (root / f"truncated-{size:06}.jpg").write_bytes(whole[:size])
    (root / "bomb.png").write_bytes(bomb(60_000, 60_000))
    (root / "strip.png").write_bytes(bomb(34_000_000, 1, bits=16, colour=6, data=b""))
    (root / "wrong-magic.jpg").write_bytes(b"hello, world" * 100)
    (root / "only-magic.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (root / "notes.txt").write_text("no photo at all")
    for mode in ("1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "YCbCr"):
        image = Image.fromarray(scene(40 + len(mode), 1))
        if mode == "I;16":
            image = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
        else:
            image = image.convert(mode)
        image.save(root / f"good-{mode.replace(';', '')}.{'tif' if mode in ('CMYK', 'I;16', 'YCbCr', 'LA') else 'png'}")
    (root / "good-really-a-png.jpg").write_bytes(encoded(scene(60, 1), "PNG"))
    (root / "good-first-frame.gif").write_bytes(encoded(scene(61, 1), "GIF"))
    (root / "good.webp").write_bytes(encoded(scene(62, 1), "WEBP"))
    (root / "good-tall.png").write_bytes(encoded(texture(7, 3000, 30), "PNG"))
    (root / "good-tiny.png").write_bytes(encoded(texture(8, 1, 1), "PNG"))
    (root / "loop").symlink_to(root, target_is_directory=True)
    (root / "dangling.jpg").symlink_to(root / "nowhere.jpg")
    with (root / os.fsdecode(b"good-\xff\xfe.png")).open("wb") as stream:
        stream.write(encoded(scene(63, 2), "PNG"))
    (root / "good-twin.webp").write_bytes(encoded(scene(62, 1), "WEBP"))
    return root


def test_the_good_are_indexed_and_the_bad_are_listed(corpus: Path, tmp_path: Path) -> None:
    index = Index.create(tmp_path / "corpus.manifind", corpus, **PLAINLY)
    keys = {image.key for image in index.catalogue.images}
    skipped = {one.key: one.reason for one in index.catalogue.skipped}
    assert all(key.startswith("good") for key in keys)
    assert len(keys) == 14
    assert skipped["good.webp"] == "the same content as good-twin.webp"
    assert "pixels" in skipped["bomb.png"]
    assert skipped["strip.png"] == "too large: 34000000 × 1 pixels, the limit of a side is 65535"
    truncated = {key: reason for key, reason in skipped.items() if key.startswith("truncated")}
    assert len(truncated) == len(list(corpus.glob("truncated-*")))
    assert all(reason for reason in skipped.values())
    assert {"wrong-magic.jpg", "only-magic.png", "dangling.jpg"} <= set(skipped)
    assert "notes.txt" not in skipped
    hits = index.search("good-really-a-png.jpg", top=None)
    assert hits[0].key.startswith("good")
    odd = next(key for key in keys if "\\x" in key)
    assert index.photo(odd).width == 320
    assert index.search(odd, top=1)


INDEX_IN_LITTLE = """
import re, sys
from manifind.index import Index
index = Index.create("large.manifind", "large", memory=int(sys.argv[1]))
print(len(index), index.catalogue.skipped[0].key, index.catalogue.skipped[0].reason, sep="\\n")
print(1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]))
"""


def test_large_photos_are_read_within_the_memory_that_is_given(tmp_path: Path) -> None:
    folder, memory = tmp_path / "large", 640 * 2**20
    folder.mkdir()
    for i in range(6):
        # Each of 25 million pixels takes some 250 MB while it is decoded and laid on white.
        transparent = np.zeros((5000, 5000, 4), np.uint8)
        transparent[:, :, :3] = texture(i, 40, 40)[0, 0] + np.uint8(i)
        (folder / f"{i}.png").write_bytes(encoded(transparent, "PNG", compress_level=1))
    Image.new("F", (9000, 9000)).save(folder / "deep.tif", compression="tiff_adobe_deflate")
    script = [sys.executable, "-c", INDEX_IN_LITTLE, str(memory)]
    ran = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=True)  # noqa: S603
    photos, key, reason, highest = ran.stdout.splitlines()
    assert int(photos) == 6
    assert key == "deep.tif"
    assert reason.startswith("too large: reading it takes too much memory")
    assert reason.endswith("the limit is 384 MiB")
    assert int(highest) < memory
