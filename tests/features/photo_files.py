"""Files of photos, written by Pillow or by hand, and what is asked of those that read them."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageCms

from manifind.errors import UnreadableImageError
from manifind.io.image import Photo, read_photo

Pixels = npt.NDArray[np.uint8]
LOSSLESS: dict[str, dict[str, Any]] = {
    "PNG": {},
    "BMP": {},
    "PPM": {},
    "TIFF": {},
    "TIFF LZW": {"compression": "tiff_lzw"},
    "TIFF deflate": {"compression": "tiff_adobe_deflate"},
    "WEBP": {"lossless": True},
    "JPEG2000": {"irreversible": False},
}
LOSSY: dict[str, dict[str, Any]] = {
    "JPEG": {"quality": 95},
    "JPEG progressive": {"quality": 95, "progressive": True},
    "WEBP lossy": {"quality": 95},
    "AVIF": {"quality": 95},
    "GIF": {},
    "TIFF jpeg": {"compression": "jpeg", "quality": 95},
}
FORMATS = LOSSLESS | LOSSY


def noise(height: int, width: int, seed: int = 0) -> Pixels:
    """Pixels of which none tells anything of another."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def scene(width: int, height: int, seed: int = 0) -> Pixels:
    """Draw smooth light with a few boxes: something that every codec keeps, and that no turn or flip maps to itself."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    channels = [255 * x / max(1, width - 1), 255 * y / max(1, height - 1), 128 + 60 * np.sin(x / 9 + y / 13)]
    pixels = np.stack(channels, axis=-1)
    for _ in range(6):
        top, left = rng.integers(0, height), rng.integers(0, width)
        pixels[top : top + height // 4, left : left + width // 4] = rng.integers(0, 256, 3)
    return pixels.astype(np.uint8)


def sharp(width: int, height: int) -> Image.Image:
    """Draw edges and texture down to single pixels."""
    rng = np.random.default_rng(3)
    pixels = np.repeat(np.repeat(rng.integers(0, 256, (height // 40 + 1, width // 40 + 1, 3)), 40, 0), 40, 1)
    noisy = pixels[:height, :width] + rng.normal(0, 12, (height, width, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def saved(pixels: Pixels | Image.Image, kind: str, **options: Any) -> bytes:
    """Return the file of a photo; `kind` is a format with its options in `FORMATS`."""
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    file = io.BytesIO()
    image.save(file, kind.split(" ", maxsplit=1)[0], **(FORMATS.get(kind, {}) | options))
    return file.getvalue()


def png_chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, rows: bytes, *, bits: int = 8, colour: int = 2) -> bytes:
    """Write a PNG by hand; each row of `rows` begins with its filter, 0."""
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(name, data) for name, data in chunks)


def tiff(width: int, height: int, data: bytes, **tags: int) -> bytes:
    """Write an uncompressed grey TIFF by hand, with the tags given by number as ``t254=1``."""
    entries = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: len(data)}
    entries |= {int(name[1:]): value for name, value in tags.items()}
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(entries.items()))
    body = data + b"\0" * (len(data) % 2)
    return b"II*\0" + struct.pack("<I", 8 + len(body)) + body + struct.pack("<H", len(entries)) + directory + bytes(4)


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


def swapped_profile() -> bytes:
    """Return a profile of a space like sRGB but for red and blue, which change places."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for old, new in ((b"rXYZ", b"____"), (b"bXYZ", b"rXYZ"), (b"____", b"bXYZ")):
        assert profile.count(old) == 1
        profile = profile.replace(old, new)
    return profile.replace("sRGB".encode("utf-16-be"), "swap".encode("utf-16-be"))


def difference(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> int:
    assert a.shape == b.shape
    return int(np.abs(a.astype(int) - b.astype(int)).max())


def noise_ratio(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Return the peak signal-to-noise ratio in dB."""
    return float(10 * np.log10(255**2 / np.square(a.astype(float) - b).mean()))


def reason_of(source: Any, **options: Any) -> str:
    with pytest.raises(UnreadableImageError) as error:
        read_photo(source, **options)
    return error.value.reason


def outcome_of(source: Any, **options: Any) -> Photo | UnreadableImageError:
    try:
        return read_photo(source, **options)
    except UnreadableImageError as error:
        return error


def photo_file(path: Path, shade: int = 0) -> Path:
    """Write a small PNG of one grey, whatever the file is called."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    Image.new("RGB", (4, 3), (shade, shade, shade)).save(file, "PNG")
    path.write_bytes(file.getvalue())
    return path


SMALL = {kind: saved(scene(24, 17), kind) for kind in FORMATS} | {
    "MPO": saved(Image.fromarray(scene(24, 17)), "MPO", save_all=True, append_images=[Image.new("RGB", (24, 17))]),
    "PNG with much": saved(
        Image.fromarray(scene(24, 17)), "PNG", exif=exif(6), icc_profile=swapped_profile(), dpi=(72, 72)
    ),
    "JPEG with much": saved(
        Image.fromarray(scene(24, 17)), "JPEG", exif=exif(6), icc_profile=swapped_profile(), comment="hi"
    ),
    "TIFF tiled deep": saved(Image.fromarray(scene(24, 17)[:, :, 0].astype(np.uint16) * 257), "TIFF LZW"),
    "GIF frames": saved(
        Image.fromarray(scene(24, 17)), "GIF", save_all=True, append_images=[Image.new("RGB", (24, 17))]
    ),
    "PNG palette": saved(Image.fromarray(scene(24, 17)).quantize(7), "PNG", transparency=3),
}
"""A small file of each format, and some with more in them than a picture."""
