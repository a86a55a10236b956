"""Reads a photo's file of any format into upright sRGB pixels.

The first bytes of a file tell its format, never its name. Only formats of photos are opened: JPEG (MPO too),
PNG, GIF, WebP, AVIF, TIFF, BMP, JPEG 2000, PNM, and HEIC with the extra ``manifind[heic]``. Of several frames the first
is read. Whatever the file holds becomes 8-bit RGB:

- turned upright by the EXIF orientation;
- converted to sRGB by the embedded colour profile; a profile that is broken, or made for another kind of pixels, is
  skipped, and pixels without one are taken for sRGB;
- laid on white where it is transparent, as a browser shows it;
- greys of 16 bits keep their scale (65535 is white, or 4095 if the file says 12 bits); greys of 32 bits run to 65535,
  those in floating point to 1, 255 or 65535, whichever is the first to hold them all; greys that go beyond are
  stretched between their extremes.

A photo that cannot be decoded whole raises `UnreadableImageError` with the reason and a code. The parts of the file are
counted before a decoder parses them, and its size is checked before anything is decoded. A truncated file is an error,
never a photo that ends in grey.

A photo much larger than needed is reduced on the way (`long_side`), a JPEG while it is decoded. The reduced photo has
at least `MARGIN` times the long side that is needed, and exactly the frame of the whole: where the decoder can only
round a side up to full pixels, the fraction is resampled away.

Of a camera's raw file the preview is read: a JPEG that the camera made, as large as the photo or nearly so. Raw files
of most makers are TIFF files (NEF, CR2, ARW, DNG, PEF, SRW, ORF and RW2 with other first bytes): their directories say
where JPEGs lie. A RAF file says it in its head. The largest JPEG is the preview; JPEGs that hold the sensor's own
values are known by their marker (lossless) and skipped.
"""

import io
import os
import re
import struct
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image
from PIL.AvifImagePlugin import AvifImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.Jpeg2KImagePlugin import Jpeg2KImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.PpmImagePlugin import PpmImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from manifind.checks import check_int
from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.io import colour, limits, video
from manifind.io.containers import (
    EXIF,
    JPEG_BYTES,
    JPEG_OFFSET,
    MAX_EXIF_BYTES,
    Directory,
    check_codestream,
    check_items,
    check_parts,
    check_values,
    directories,
)
from manifind.io.files import HEAD_BYTES, access_reason, open_regular, printable
from manifind.io.limits import MAX_BYTES, MAX_PIXELS, Admit

MARGIN = 2
"""A reduced photo keeps this many times the long side that is needed."""
TOO_MUCH_MEMORY = "too large: reading it takes too much memory"
NO_MEMORY = "too large: there was not enough memory to read it"
"""Reasons that another machine, or another moment, may do away with."""
HEIF_READERS = "pi_heif", "pillow_heif"
"""What reads HEIC. The first only decodes: its wheels hold nothing under the GPL."""
RAF = b"FUJIFILMCCD-RAW "
COMPRESSION, STRIP_OFFSETS, ORIENTATION, STRIP_BYTES = 259, 273, 274, 279
JPEG_COMPRESSIONS = (6, 7, 34892)
PICTURES = (b"\xff\xc0", b"\xff\xc1", b"\xff\xc2")
"""Markers of a JPEG that holds a picture: baseline, extended, progressive."""
OTHER_FRAMES = frozenset(bytes((0xFF, code)) for code in range(0xC3, 0xD0)) - {b"\xff\xc4", b"\xff\xc8", b"\xff\xcc"}
MAX_PLACES = 16
"""Places, the largest first, that are looked at for a JPEG; raw files name about five."""
MAX_SEGMENTS = 200
"""Segments of a preview ahead of the one that tells its kind."""


ByteArray = npt.NDArray[np.uint8]
Root = str | os.PathLike[str] | None
Source = str | os.PathLike[str] | bytes | BinaryIO


_SIGNATURES = {
    "JPEG": rb"\xff\xd8\xff",
    "PNG": rb"\x89PNG\r\n\x1a\n",
    "GIF": rb"GIF8[79]a",
    "WEBP": rb"RIFF.{4}WEBP",
    "TIFF": rb"II\*\0|MM\0\*|II\+\0|MM\0\+",
    "BMP": rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0{3}",
    "JPEG2000": rb"\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51",
    "PNM": rb"P[456]\s+[#0-9]",
    "AVIF": rb".{4}ftyp(?:.{4})*?avi[fs]",
    "HEIF": rb".{4}ftyp(?:.{4})*?(?:hei[cxms]|hev[cx]|mif1|msf1)",
    "RAW": rb"FUJIFILMCCD-RAW |IIR[OS]|MMOR|IIU\0",
    "JPEG XL": rb"\xff\x0a|\0\0\0\x0cJXL \r\n\x87\n",
}
CANON = b"CR"
"""The bytes after the head of a TIFF file that is a CR2."""
_PATTERNS = {name: re.compile(signature, re.DOTALL) for name, signature in _SIGNATURES.items()}

_TRANSPOSES = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What turns a photo of each EXIF orientation upright."""


@dataclass(frozen=True, eq=False)
class Photo:
    """The pixels of a photo, and how large it is."""

    pixels: ByteArray
    """(h, w, 3) sRGB, upright, read-only; the whole frame, reduced in size if that was asked for."""
    width: int
    """Of the photo upright and in full, in pixels; boxes are given in these."""
    height: int
    """Of the photo upright and in full, in pixels."""


def read_photo(
    source: Source,
    *,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
    long_side: int | None = None,
    admit: Admit | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Photo:
    """Read one photo, or raise `UnreadableImageError`.

    Parameters
    ----------
    source : path, bytes or binary file
        The photo's file or its contents; or a frame of a film, ``film.mp4#00:12.4``.
    max_pixels : int
        A photo with more is refused before it is decoded, as is a file too long to hold a photo within it. Pillow's
        own limit (twice `PIL.Image.MAX_IMAGE_PIXELS`) holds besides for WebP, GIF and TIFF.
    max_bytes : int
        A photo whose reading would take more memory is refused before it is decoded.
    long_side : int, optional
        The long side that the pixels will be shrunk to by the caller. A photo of at least 2 × `MARGIN` times that is
        handed out reduced, faster than in full, with a long side of no less than `MARGIN` times that.
    admit : callable, optional
        Called with the bytes that reading will take, before the photo is decoded: it may wait for them.
    root : path, optional
        The folder that must hold the file, links resolved, as for `open_regular`.
    """
    max_pixels = check_int(max_pixels, "max_pixels")
    max_bytes = check_int(max_bytes, "max_bytes")
    long_side = None if long_side is None else check_int(long_side, "long_side")
    name = _name(source)
    # A file as long as 16-bit RGBA uncompressed, and room for the rest.
    longest = min(8 * max_pixels + 2**26, max_bytes)
    if isinstance(source, str | os.PathLike) and (frame := video.locate_frame(source)) is not None:
        return _frame(*frame, max_pixels, max_bytes, admit, root)
    try:
        data = _read_bytes(source, longest, root)
        with quietly():
            return _decode(data, max_pixels, max_bytes, long_side, admit)
    except UnreadableImageError as error:
        error.name = name
        raise
    except InvalidInputError:
        raise
    except MemoryError:
        raise UnreadableImageError(
            NO_MEMORY, name, temporary=True, code="memory"
        ) from None  # what is held on to here is not held on to there
    except Exception as error:  # what hostile bytes make a decoder raise is anybody's guess
        reason, code = _reason(error)
        raise UnreadableImageError(reason, name, code=code) from error


def upright_pixels(image: Image.Image) -> ByteArray:
    """Return the pixels of an image of Pillow's, as `read_photo` returns those of its file: upright, sRGB, on white."""
    if not image.width or not image.height:
        raise InvalidInputError(f"image is {image.width} × {image.height} pixels; give one that has pixels.")
    limits.check_size(image, MAX_PIXELS)
    try:
        with quietly():
            image.load()
            pixels = colour.to_srgb(colour.flatten(image), image.info.get("icc_profile"))
    except Exception as error:  # a file that Pillow opened is read only now
        reason, code = _reason(error)
        raise UnreadableImageError(reason, "The image", code=code) from error
    orientation = _orientation(image)
    return colour.as_array(pixels.transpose(_TRANSPOSES[orientation]) if orientation in _TRANSPOSES else pixels)


def read_size(data: bytes) -> tuple[int, int]:
    """Return the sides that the header of a photo's file announces, as stored; raise `UnreadableImageError`."""
    try:
        with quietly():
            return _open(data)[0].size
    except UnreadableImageError:
        raise
    except Exception as error:
        reason, code = _reason(error)
        raise UnreadableImageError(reason, code=code) from error


def _frame(film: Path, tenths: int, max_pixels: int, max_bytes: int, admit: Admit | None, root: Root) -> Photo:
    """Read a frame of a film: whole, since ffmpeg decodes it whole."""
    pixels = video.read_frame(
        film, tenths, max_pixels, admit=lambda needed: _admit(needed, max_bytes, admit), root=root
    )
    height, width, _ = pixels.shape
    return Photo(pixels, width, height)


def _admit(needed: int, max_bytes: int, admit: Admit | None) -> None:
    """Refuse a photo that takes more memory than one may; wait until there is as much."""
    if needed > max_bytes:
        reason = f"{TOO_MUCH_MEMORY}: {needed / 2**20:.0f} MiB, the limit is {max_bytes / 2**20:.0f} MiB"
        raise UnreadableImageError(reason, temporary=True, code="memory")
    if admit is not None:
        admit(needed)


def photo_format(head: bytes) -> str | None:
    """Return the format of the photo whose first `HEAD_BYTES` are given; None if these begin no photo."""
    return next((name for name, pattern in _PATTERNS.items() if pattern.match(head)), None)


def _name(source: Source) -> str:
    """Name the source in an error, in characters that can be printed."""
    return printable(source) if isinstance(source, str | os.PathLike) else ""


def _read_bytes(source: Source, most: int, root: Root) -> bytes:
    """Return the bytes of a photo's file, at most so many; a file that does not begin like a photo is left unread."""
    if isinstance(source, str | os.PathLike):
        with open_regular(source, root=root) as file:
            return _read_bytes(file, most, root)
    if isinstance(source, bytes):
        source = io.BytesIO(source)
    if not hasattr(source, "read"):
        raise InvalidInputError(
            f"source is a {type(source).__name__}; give a path, bytes or a file opened in binary mode."
        )
    head = source.read(HEAD_BYTES)
    if not isinstance(head, bytes):
        raise InvalidInputError("source is a file opened in text mode; open it in binary mode, 'rb'.")
    if not head:
        raise UnreadableImageError("empty file", code="not-a-photo")
    if photo_format(head) is None:
        raise UnreadableImageError("not a photo", code="not-a-photo")
    if getattr(source, "seekable", bool)():
        source.seek(-len(head), os.SEEK_CUR)
        head = b""  # joined to what follows, it would copy the file
    data = head + source.read(most + 1 - len(head))
    if len(data) > most:
        reason = f"too large: the file is longer than {most / 1e6:.0f} million bytes"
        raise UnreadableImageError(reason, code="too-large")
    return data


def _decode(data: bytes, max_pixels: int, max_bytes: int, long_side: int | None, admit: Admit | None) -> Photo:
    """Decode a photo from the bytes of its file."""
    image, file_bytes = _open(data)
    limits.check_size(image, max_pixels)
    size = image.size
    factor = max(1, max(size) // (MARGIN * long_side)) if long_side else 1
    scale = max(s for s in (1, 2, 4, 8) if s <= factor) if isinstance(image, JpegImageFile) else 1
    needed = limits.decoding_bytes(image, file_bytes, scale, factor)
    _admit(needed, max_bytes, admit)
    if isinstance(image, PpmImageFile) and colour.has_odd_scale(image):
        image = colour.rescale(image, data)
    if isinstance(image, JpegImageFile):
        image.draft(None, (max(1, size[0] // scale), max(1, size[1] // scale)))
    image.load()
    if scale == 1:
        size = image.size  # a TIFF is upright only now
    orientation = _orientation(image)
    profile = image.info.get("icc_profile")
    pixels = colour.to_srgb(_resize(colour.flatten(image), size, scale, factor // scale), profile)
    if orientation in _TRANSPOSES:
        pixels = pixels.transpose(_TRANSPOSES[orientation])
    width, height = size if orientation < 5 else size[::-1]
    return Photo(colour.as_array(pixels), width, height)


def _open(data: bytes) -> tuple[ImageFile, int]:
    """Read a photo's header; return the bytes held as well, of the file and of a preview in it."""
    stream = io.BytesIO(data)
    name = str(photo_format(data[:HEAD_BYTES]))
    check_parts(data, name)
    if name == "TIFF":
        check_values(stream)
        stream.seek(0)
    if name in ("AVIF", "HEIF"):
        check_items(data)
    if name == "JPEG XL":
        raise UnreadableImageError("JPEG XL is not read: convert it to JPEG or PNG", code="not-read")
    if name == "JPEG":
        image: ImageFile = JpegImageFile(stream)
        # Where the end was never written (a download given up), there is no end mark; libjpeg would draw it grey.
        if data.find(b"\xff\xd9", stream.tell()) < 0:
            raise UnreadableImageError("truncated", code="truncated")
        return image, len(data)
    if name == "PNG" and b"IEND" not in data:
        raise UnreadableImageError("truncated", code="truncated")
    if name == "WEBP" and int.from_bytes(data[4:8], "little") + 8 > len(data):
        raise UnreadableImageError("truncated", code="truncated")
    if name == "RAW" or (name == "TIFF" and data[8:10] == CANON):
        return _open_preview(data)
    image = OPENERS[name](stream)
    if name == "JPEG2000":
        check_codestream(data, image.size)
    if name == "BMP":
        limits.check_run_lengths(image, len(data))
    if isinstance(image, TiffImageFile) and image.tag_v2.get(ExifTags.Base.NewSubfileType) == 1:
        return _open_preview(data)  # its first page is a thumbnail
    return image, len(data)


def _open_preview(data: bytes) -> tuple[ImageFile, int]:
    """Read the header of the JPEG that a camera's raw file holds; return the bytes of both as well."""
    jpeg = raw_preview(data)
    if jpeg is None:
        reason = "a camera's raw file without a preview that can be read: export it as JPEG"
        raise UnreadableImageError(reason, code="no-preview")
    check_parts(jpeg, "JPEG")
    return JpegImageFile(io.BytesIO(jpeg)), len(data) + len(jpeg)


def _open_heif(stream: BinaryIO) -> ImageFile:
    for name in HEIF_READERS:
        with suppress(ImportError):
            plugin: Any = import_module(name)
            image: ImageFile = plugin.HeifImageFile(stream)
            return image
    reason = "needs manifind[heic]: pip install 'manifind[heic]'"
    raise UnreadableImageError(reason, temporary=True, code="missing-extra")


OPENERS: dict[str, Callable[[BinaryIO], ImageFile]] = {
    "PNG": PngImageFile,
    "GIF": GifImageFile,
    "WEBP": WebPImageFile,
    "TIFF": TiffImageFile,
    "BMP": BmpImageFile,
    "JPEG2000": Jpeg2KImageFile,
    "PNM": PpmImageFile,
    "AVIF": AvifImageFile,
    "HEIF": _open_heif,
}


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 (upright) to 8; one that is missing, broken or in endless EXIF is upright."""
    exif = (image.info.get(name) or b"" for name in ("exif", "Raw profile type exif"))
    if any(len(data) > 3 * MAX_EXIF_BYTES for data in exif):
        return 1
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # metadata is no reason to lose the photo
        return 1
    return orientation if isinstance(orientation, int) and orientation in _TRANSPOSES else 1


def _resize(image: Image.Image, size: tuple[int, int], scale: int, factor: int) -> Image.Image:
    """Shrink a photo of `size`, decoded at 1 / `scale`, by a whole factor more; keep the frame exact."""
    frame = (0.0, 0.0, size[0] / scale, size[1] / scale)
    target = (max(1, size[0] // (scale * factor)), max(1, size[1] // (scale * factor)))
    if target == image.size == frame[2:]:
        return image
    # A gap of 1 averages whole blocks of pixels, and leaves to the filter what is not whole.
    return image.resize(target, Image.Resampling.BICUBIC, box=frame, reducing_gap=1.0)


def _reason(error: Exception) -> tuple[str, str]:
    """Return in a few words why a photo could not be decoded, and the code of that."""
    if isinstance(error, OSError) and error.errno is not None:
        return access_reason(error), "no-access"
    if isinstance(error, Image.DecompressionBombError):
        return "too large: more pixels than Pillow's own limit", "too-large"
    text = str(error).lower()
    if isinstance(error, EOFError) or "truncated" in text or "unexpected end" in text:
        return "truncated", "truncated"
    if "not installed" in text:
        return "Pillow was built without this format", "not-read"
    return "damaged, or of a kind that is not read", "undecodable"


class _ThisThread:
    """Matches the module of any warning, on one thread while it reads a photo: the fourth field of a filter."""

    def __init__(self) -> None:
        self.reader: int | None = threading.get_ident()

    def match(self, _module: str) -> bool:
        return threading.get_ident() == self.reader


@contextmanager
def quietly() -> Iterator[None]:
    """Drop the warnings of this thread alone.

    Pillow warns of every oddity of a file. `warnings.catch_warnings` swaps the filters of the whole process, which
    photos read side by side would leave swapped; a filter of one's own can be put in and taken out while others are.
    """
    here = _ThisThread()
    entry: Any = ("ignore", None, Warning, here, 0)
    filters: Any = warnings.filters
    filters.insert(0, entry)
    try:
        yield
    finally:
        here.reader = None  # a copy of the filters may keep the entry
        with suppress(ValueError):
            filters.remove(entry)


def raw_preview(data: bytes) -> bytes | None:
    """Return the largest JPEG in a raw file, with the orientation of the file; None where there is none."""
    if data.startswith(RAF):
        places = [struct.unpack(">II", data[84:92])] if len(data) >= 92 else []
        orientation = 1
    else:
        tables = list(directories(io.BytesIO(data)))
        places = [place for table in tables for place in _jpeg_places(table)]
        orientation = next((table[ORIENTATION][0] for table in tables if table.get(ORIENTATION)), 1)
    longest = {at: length for at, length in sorted(places) if 0 < at < at + length <= len(data)}
    for at, length in sorted(longest.items(), key=lambda place: -place[1])[:MAX_PLACES]:
        if _is_picture(memoryview(data)[at : at + length]):
            return _with_orientation(memoryview(data)[at : at + length], orientation)
    return None


def _jpeg_places(table: Directory) -> Iterator[tuple[int, int]]:
    """Yield where a directory says that JPEGs lie, and how long they are."""
    yield from zip(table.get(JPEG_OFFSET, []), table.get(JPEG_BYTES, []), strict=False)
    offsets = table.get(STRIP_OFFSETS, [])
    if len(offsets) == 1 and table.get(COMPRESSION, [0])[:1] in ([compression] for compression in JPEG_COMPRESSIONS):
        yield from zip(offsets, table.get(STRIP_BYTES, []), strict=False)


def _is_picture(data: memoryview) -> bool:
    """Whether a JPEG begins here that holds a picture, not a sensor's values."""
    if bytes(data[:3]) != b"\xff\xd8\xff":
        return False
    at = 2
    for _ in range(MAX_SEGMENTS):
        marker = bytes(data[at : at + 2])
        if marker in PICTURES:
            return True
        if marker[:1] != b"\xff" or marker in OTHER_FRAMES:
            return False
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return False


def _with_orientation(jpeg: memoryview, orientation: int) -> bytes:
    """Return the bytes of a JPEG with an EXIF orientation, unless it is upright or has EXIF of its own."""
    if not 2 <= orientation <= 8 or EXIF in bytes(jpeg[:64]):
        return bytes(jpeg)
    entry = struct.pack("<HHIHH", ORIENTATION, 3, 1, orientation, 0)
    exif = EXIF + b"II*\0" + struct.pack("<IH", 8, 1) + entry + bytes(4)
    return b"".join((jpeg[:2], b"\xff\xe1", (len(exif) + 2).to_bytes(2, "big"), exif, jpeg[2:]))
