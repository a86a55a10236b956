"""When a photo was taken and by which camera: what its EXIF says. Only the heads of a file's parts are read."""

import io
import re
import zlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from typing import Any, BinaryIO

from PIL import ExifTags

from manifind.io.containers import APP1, EXIF, MAX_EXIF_BYTES, check_items, directories, parts
from manifind.io.files import HEAD_BYTES, open_regular
from manifind.io.image import OPENERS, photo_format, quietly

TIME = re.compile(r"(\d{4})[:-](\d\d)[:-](\d\d)[ T](\d\d):(\d\d):(\d\d).*", re.ASCII)
MAX_NAME = 100
"""Characters of the name of a camera."""
MAX_PARSED_WHOLE = 2**26
"""Bytes of an AVIF or HEIC file: these are parsed whole, though not decoded."""


@dataclass(frozen=True)
class ExifData:
    """What a photo says of how it was taken; None where it does not say."""

    taken_at: datetime | None = None
    """By the camera's own clock."""
    camera: str | None = None
    lens: str | None = None


def read_exif(path: str | PathLike[str], *, root: str | PathLike[str] | None = None) -> ExifData:
    """Return when and by what camera a photo was taken, as far as its file says; never an error.

    `root` is the folder that must hold the file, as for `open_regular`.
    """
    with suppress(Exception), open_regular(path, root=root) as stream:  # metadata may be anything
        exif = find_exif(stream)
        return ExifData() if exif is None else _parse(exif)
    return ExifData()


def find_exif(stream: BinaryIO) -> BinaryIO | None:
    """Return the EXIF of a photo's file, a TIFF file in the file; None where there is none."""
    format_name = photo_format(stream.read(HEAD_BYTES))
    if format_name in ("TIFF", "RAW"):
        return stream
    if format_name in ("AVIF", "HEIF") and stream.seek(0, io.SEEK_END) <= MAX_PARSED_WHOLE:
        stream.seek(0)
        data = stream.read()
        check_items(data)
        with quietly():
            return _stream(OPENERS[format_name](io.BytesIO(data)).info.get("exif"))
    for part in parts(stream, str(format_name)):
        if part.name in (APP1, b"eXIf", b"EXIF", b"zTXt", b"tEXt") and part.length <= MAX_EXIF_BYTES:
            stream.seek(part.at)
            data = stream.read(part.length)
            if part.name in (b"zTXt", b"tEXt"):
                data = _raw_profile(data)
            if part.name in (b"eXIf", b"EXIF") or data.startswith(EXIF):
                return _stream(data)
        if part.name == b"IDAT":
            break  # chunks are many from here on
    return None


def _stream(data: Any) -> BinaryIO | None:
    return io.BytesIO(data.removeprefix(EXIF)) if isinstance(data, bytes) else None


def _raw_profile(text: bytes) -> bytes:
    """Return EXIF from a text chunk of a PNG, as ImageMagick writes it: in hexadecimal digits below three lines."""
    keyword, _, value = text.partition(b"\0")
    if keyword != b"Raw profile type exif":
        return b""
    if value.startswith(b"\0"):
        value = zlib.decompressobj().decompress(value[1:], 3 * MAX_EXIF_BYTES)
    return bytes.fromhex(b"".join(value.split(b"\n")[3:]).decode("ascii"))


def _parse(stream: BinaryIO) -> ExifData:
    values: dict[int, str] = {}
    for directory in directories(stream):
        for tag, numbers in directory.items():
            if numbers and max(numbers) < 256:
                values.setdefault(tag, bytes(numbers).decode("utf-8", "replace"))
    make, model, lens = (
        _word(values.get(tag)) for tag in (ExifTags.Base.Make, ExifTags.Base.Model, ExifTags.Base.LensModel)
    )
    taken_at = _time(values.get(ExifTags.Base.DateTimeOriginal)) or _time(values.get(ExifTags.Base.DateTime))
    return ExifData(taken_at, _camera(make, model), lens)


def _time(text: str | None) -> datetime | None:
    """Read ``2019:07:04 12:33:05``."""
    numbers = TIME.fullmatch((text or "").strip("\0 "))
    if numbers is None:
        return None
    try:
        return datetime(*map(int, numbers.groups()))  # type: ignore[arg-type]
    except ValueError:  # cameras without a clock write zeros
        return None


def _camera(make: str | None, model: str | None) -> str | None:
    """Join maker and model, the maker once."""
    if make and model and not model.casefold().startswith(make.split()[0].casefold()):
        return f"{make} {model}"[:MAX_NAME]
    return model or make


def _word(text: str | None) -> str | None:
    return (text or "").strip("\0 ")[:MAX_NAME].strip() or None
