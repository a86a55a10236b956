"""When a photo was taken and by which camera: what its EXIF says. Only the head of the file is read."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from PIL import ExifTags
from PIL.JpegImagePlugin import JpegImageFile

from manifind.io.files import HEAD_BYTES, open_regular
from manifind.io.image import OPENERS, photo_format, quietly

LONGEST = 100
"""Characters of the name of a camera."""


@dataclass(frozen=True)
class ExifData:
    """What a photo says of how it was taken; None where it does not say."""

    taken_at: datetime | None = None
    """By the camera's own clock."""
    camera: str | None = None
    lens: str | None = None


def read_exif(path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None) -> ExifData:
    """Return when and by what camera a photo was taken, as far as its file says; never an error.

    `root` is the folder that must hold the file, as for `open_regular`.
    """
    with suppress(Exception), quietly(), open_regular(path, root=root) as stream:  # metadata may be anything
        name = photo_format(stream.read(HEAD_BYTES))
        stream.seek(0)
        opener: Any = JpegImageFile if name == "JPEG" else OPENERS[str(name)]
        exif = opener(stream).getexif()
        inner = exif.get_ifd(ExifTags.IFD.Exif)
        when = _moment(inner.get(ExifTags.Base.DateTimeOriginal)) or _moment(exif.get(ExifTags.Base.DateTime))
        make, model = (_word(exif.get(tag)) for tag in (ExifTags.Base.Make, ExifTags.Base.Model))
        return ExifData(when, _camera(make, model), _word(inner.get(ExifTags.Base.LensModel)))
    return ExifData()


def _moment(value: object) -> datetime | None:
    """Read ``2019:07:04 12:33:05``."""
    numbers = re.fullmatch(r"(\d{4})[:-](\d\d)[:-](\d\d)[ T](\d\d):(\d\d):(\d\d).*", str(value).strip("\0 "))
    if numbers is None:
        return None
    try:
        return datetime(*map(int, numbers.groups()))  # type: ignore[arg-type]
    except ValueError:  # cameras without a clock write zeros
        return None


def _camera(make: str | None, model: str | None) -> str | None:
    """Join maker and model, the maker once."""
    if make and model and not model.casefold().startswith(make.split()[0].casefold()):
        return f"{make} {model}"[:LONGEST]
    return model or make


def _word(value: object) -> str | None:
    text = str(value).strip("\0 ")[:LONGEST].strip() if isinstance(value, str) else ""
    return text or None
