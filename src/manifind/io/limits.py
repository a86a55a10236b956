"""What decoding a photo takes, known from its header: sides, pixels and bytes are bounded before anything is decoded.

A file of a few bytes can claim any size, and decoders allocate what is claimed. What they take besides the pixels is
counted from how they work: a progressive JPEG keeps all its coefficients, JPEG 2000 four bytes for each value, WebP and
AVIF whole frames before Pillow copies them, a TIFF its strips or tiles.
"""

from collections.abc import Callable

from PIL import ExifTags, Image
from PIL.AvifImagePlugin import AvifImageFile
from PIL.ImageFile import ImageFile
from PIL.Jpeg2KImagePlugin import Jpeg2KImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PpmImagePlugin import PpmImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from manifind.errors import UnreadableImageError
from manifind.io.colour import has_odd_scale
from manifind.io.containers import too_many_parts

MAX_PIXELS = 200_000_000
"""The largest photo decoded by default: what the largest sensors in telephones deliver."""

MAX_SIDE = 65_535
"""The longest side: as many pixels as a JPEG can have."""

MAX_BYTES = 2**32
"""The most memory that reading one photo may take, its file included, by default."""

MAX_RUN_LENGTH_PIXELS = 2**23
"""The largest BMP in run lengths, 4096 × 2048 pixels: Pillow decodes these in Python, pixel by pixel."""

SMALL_MODES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}
"""Bytes that Pillow keeps for a pixel; four in all other modes."""

CONVERTED = 4
"""Bytes a pixel of the flat copy that is made of what is transparent, deep or of other colours than RGB."""

FINISHED = 11
"""Bytes a pixel of the reduced photo: in RGB, turned upright, and as an array."""

Admit = Callable[[int], None]
"""Called with the bytes that a photo is about to take, before it is decoded; it may wait, or raise."""


def check_size(image: Image.Image, max_pixels: int) -> None:
    """Refuse a photo whose header claims more than can be decoded."""
    width, height = image.size
    if max(width, height) > MAX_SIDE:
        reason = f"too large: {width} × {height} pixels, the limit of a side is {MAX_SIDE}"
        raise UnreadableImageError(reason, code="too-large")
    if width * height > max_pixels:
        reason = f"too large: {width} × {height} pixels, the limit is {max_pixels / 1e6:g} million"
        raise UnreadableImageError(reason, code="too-large")


def check_run_lengths(image: ImageFile, file_bytes: int) -> None:
    """Refuse a BMP in run lengths that is large, or longer than its pixels can be."""
    if all(tile[0] != "bmp_rle" for tile in image.tile):
        return
    pixels = image.size[0] * image.size[1]
    if pixels > MAX_RUN_LENGTH_PIXELS:
        reason = f"too large: {pixels} pixels, the limit of a BMP in run lengths is {MAX_RUN_LENGTH_PIXELS / 1e6:.0f}"
        raise UnreadableImageError(f"{reason} million", code="too-large")
    if file_bytes > 3 * pixels + 2**16:
        raise too_many_parts()


def decoding_bytes(image: ImageFile, file_bytes: int, scale: int, factor: int) -> int:
    """Return the bytes that it takes at most to read a photo of which only the header was read.

    Parameters
    ----------
    image : ImageFile
        The photo's header, before a JPEG's decoder is set to a smaller scale.
    file_bytes : int
        The length of its file, which is in memory.
    scale : int
        By which a JPEG is reduced while it is decoded.
    factor : int
        By which the photo is reduced in all.
    """
    whole = image.size[0] * image.size[1]
    decoded = whole // scale**2
    pixel_bytes = SMALL_MODES.get(image.mode, 4)
    converted = 0 if image.mode in ("L", "RGB", "CMYK") and not image.has_transparency_data else CONVERTED
    return file_bytes + decoded * (pixel_bytes + converted) + _besides(image, whole) + FINISHED * (whole // factor**2)


def _besides(image: ImageFile, pixels: int) -> int:
    """Return the bytes that a decoder takes besides the pixels that Pillow keeps."""
    bands = len(image.getbands())
    if isinstance(image, JpegImageFile):
        return 2 * bands * pixels if image.info.get("progressive") else 0
    if isinstance(image, Jpeg2KImageFile):
        return 4 * bands * pixels
    if isinstance(image, PpmImageFile) and has_odd_scale(image):
        return 2 * bands * pixels
    if isinstance(image, TiffImageFile):
        return bands * max(pixels, _tile_pixels(image)) * 4
    if isinstance(image, WebPImageFile | AvifImageFile) or type(image).__name__ == "HeifImageFile":
        return 12 * pixels
    return 0


def _tile_pixels(image: TiffImageFile) -> int:
    """Return the pixels of a TIFF's tile, which the file may say is larger than the photo."""
    sides = (image.tag_v2.get(tag) for tag in (ExifTags.Base.TileWidth, ExifTags.Base.TileLength))
    width, height = (side if isinstance(side, int) else 0 for side in sides)
    return width * height
