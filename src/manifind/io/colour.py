"""Pixels of any kind -> 8-bit sRGB without transparency.

Deep greys and what is transparent are converted a strip of rows at a time: besides the pixels as they were decoded and
as they will be, nothing of a photo's size is held.
"""

import io
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageCms
from PIL.PpmImagePlugin import PpmImageFile
from PIL.TiffImagePlugin import TiffImageFile

STRIP = 2**20
"""Pixels that are converted at a time."""
SPACES = {"L": "GRAY", "RGB": "RGB", "CMYK": "CMYK"}
"""The colour space of the profiles that fit each mode."""
SRGB = ("sRGB IEC61966-2", "sRGB built-in")
"""How the descriptions of the profiles begin that most photos carry and that change nothing."""
CODEC = "ppm"
"""Pillow's name for the decoder of such files."""
BLOCK = 2**20
"""Values that are brought to their scale at once."""


def flatten(image: Image.Image) -> Image.Image:
    """Bring any mode to L, RGB or CMYK: 8 bits a channel, no palette, no transparency."""
    if image.mode.startswith("I;16"):
        return _sixteen_bits(image)
    if image.mode in ("F", "I"):
        return _deep_greys(image)
    if image.mode == "LAB":
        return _by_profile(image, ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")))
    if image.has_transparency_data:
        return _on_white(image)
    if image.mode in SPACES:
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def to_srgb(image: Image.Image, profile: object) -> Image.Image:
    """Convert to RGB, by the photo's colour profile if that can be used."""
    if isinstance(profile, bytes) and profile:
        with suppress(Exception):  # what a broken profile raises is anybody's guess; without it, the photo is still one
            source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            fits = source.profile.xcolor_space.strip() == SPACES[image.mode]
            if fits and not (source.profile.profile_description or "").startswith(SRGB):
                return _by_profile(image, source)
    return image if image.mode == "RGB" else image.convert("RGB")


def as_array(image: Image.Image) -> npt.NDArray[np.uint8]:
    """Return the pixels of an RGB image, (h, w, 3), read-only."""
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    for top, bottom in _strips(image):
        pixels[top:bottom] = np.asarray(_rows(image, top, bottom))
    pixels.flags.writeable = False
    return pixels


def _strips(image: Image.Image) -> Iterator[tuple[int, int]]:
    """Yield the first row and the end of each strip."""
    rows = max(1, STRIP // image.width)
    for top in range(0, image.height, rows):
        yield top, min(top + rows, image.height)


def _rows(image: Image.Image, top: int, bottom: int) -> Image.Image:
    return image if (top, bottom) == (0, image.height) else image.crop((0, top, image.width, bottom))


def _on_white(image: Image.Image) -> Image.Image:
    """Lay what is transparent on white, as a browser shows it."""
    grey = image.mode in ("LA", "La")
    laid = Image.new("L" if grey else "RGB", image.size, "white")
    for top, bottom in _strips(image):
        strip = _rows(image, top, bottom).convert("LA" if grey else "RGBA")
        laid.paste(strip.convert(laid.mode), (0, top), mask=strip.getchannel("A"))
    return laid


def _sixteen_bits(image: Image.Image) -> Image.Image:
    """Bring greys of 16 bits to 8; white is 65535, or less if the file says fewer bits."""
    depth = image.tag_v2.get(ExifTags.Base.BitsPerSample) if isinstance(image, TiffImageFile) else None
    white = 2 ** depth[0] - 1 if isinstance(depth, tuple) and 8 < depth[0] < 16 else 65535
    table = np.minimum(np.rint(np.arange(65536) * (255 / white)), 255).astype(np.uint8)
    grey = Image.new("L", image.size)
    for top, bottom in _strips(image):
        grey.paste(Image.fromarray(table[np.asarray(_rows(image, top, bottom))]), (0, top))
    return grey


def _deep_greys(image: Image.Image) -> Image.Image:
    """Bring greys of 32 bits, whole or floating point, to 8."""
    low, high = _extremes(image)
    for white in (1, 255, 65535) if image.mode == "F" else (65535,):
        if low >= 0 and high <= white:
            low, high = 0, white
            break
    gain = 255 / (high - low) if high > low else 0.0
    grey = Image.new("L", image.size)
    for top, bottom in _strips(image):
        values = np.nan_to_num(_values(image, top, bottom), nan=low, posinf=high, neginf=low)
        scaled = np.rint(values * gain - low * gain).clip(0, 255).astype(np.uint8)
        grey.paste(Image.fromarray(scaled), (0, top))
    return grey


def _extremes(image: Image.Image) -> tuple[float, float]:
    """Return the smallest and the largest finite value; zeros where there is none."""
    low, high = np.inf, -np.inf
    for top, bottom in _strips(image):
        values = _values(image, top, bottom)
        finite = values[np.isfinite(values)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high) if low <= high else (0.0, 0.0)


def _values(image: Image.Image, top: int, bottom: int) -> npt.NDArray[np.float32]:
    return np.asarray(_rows(image, top, bottom)).astype(np.float32)


def _by_profile(image: Image.Image, profile: ImageCms.ImageCmsProfile) -> Image.Image:
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
    converted = ImageCms.profileToProfile(image, profile, srgb, outputMode="RGB")
    if converted is None:
        raise ValueError("the profile converts nothing")
    return converted


def has_odd_scale(image: PpmImageFile) -> bool:
    """Whether the values of a file run to another number than 255 or 65535."""
    return any(tile[0] == CODEC for tile in image.tile)


def rescale(image: PpmImageFile, data: bytes) -> PpmImageFile:
    """Return the image of a file whose values run to 255, or to 65535 where they are greys of two bytes."""
    (tile,) = image.tile
    arguments: Any = tile.args
    begin, white = tile.offset, int(arguments[1])
    is_wide = image.mode == "I"
    target, kind = (65535, ">u2") if is_wide else (255, "u1")
    given = np.dtype("u1" if white < 256 else ">u2")
    count = min(image.width * image.height * len(image.getbands()), (len(data) - begin) // given.itemsize)
    values = np.frombuffer(data, given, count, begin)
    scale = np.minimum(np.rint(np.arange(2 ** (8 * given.itemsize)) / white * target), target).astype(kind)
    header = b"P%d %d %d %d\n" % (5 if len(image.getbands()) == 1 else 6, *image.size, target)
    scaled = bytearray(len(header) + count * scale.itemsize)
    scaled[: len(header)] = header
    out = np.frombuffer(scaled, kind, offset=len(header))
    for start in range(0, count, BLOCK):
        out[start : start + BLOCK] = scale[values[start : start + BLOCK]]
    return PpmImageFile(io.BytesIO(scaled))
