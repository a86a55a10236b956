"""A photo, however it is given: its file, the key of one in the collection, its bytes, or its pixels."""

import hashlib
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.snapshot import AnySnapshot
from manifind.io import Photo, content_hash, key_of, key_to_path, read_photo
from manifind.io.video import is_photo_there

Source = str | os.PathLike[str] | bytes | npt.NDArray[np.uint8]
"""A photo: its path, the key of one in the collection, its bytes, or its pixels (h, w, 3)."""


def pixels_of(snapshot: AnySnapshot, image: Source) -> npt.NDArray[np.uint8]:
    """Return the upright pixels (h, w, 3) of a photo, however it is given."""
    pixels = image if isinstance(image, np.ndarray) else _read(snapshot, image).pixels
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise InvalidInputError(f"image has shape {pixels.shape} and dtype {pixels.dtype}; give (h, w, 3) of uint8.")
    return pixels


def photo_of(snapshot: AnySnapshot, key: str, *, long_side: int | None = None) -> Photo:
    """Read a photo of the collection; the key of a file that is identical to one serves as well."""
    record = snapshot.catalogue.photo_of(key)
    if record is None:
        raise InvalidInputError(f"{key!r} is not in the collection; give a key that `search` returned.")
    return read_photo(key_to_path(snapshot.manifest.root, record.key), long_side=long_side)


def record_of(snapshot: AnySnapshot, image: Source) -> ImageRecord | None:
    """Return the photo of the collection that this is: by its key, by the path of its file, or by its content."""
    catalogue, root = snapshot.catalogue, snapshot.manifest.root
    if isinstance(image, bytes):
        return catalogue.of_content(hashlib.sha256(image).hexdigest())
    if isinstance(image, np.ndarray):
        return None
    if not is_photo_there(image):
        return catalogue.photo_of(os.fspath(image))
    for path in (Path(os.path.normpath(Path(image).absolute())), Path(image).resolve()):
        if path.is_relative_to(root):
            found = catalogue.photo_of(key_of(root, path))
            if found is not None:
                return found
    try:
        return catalogue.of_content(content_hash(image))
    except UnreadableImageError:
        return None


def _read(snapshot: AnySnapshot, image: str | os.PathLike[str] | bytes) -> Photo:
    if isinstance(image, bytes):
        return read_photo(image)
    if not isinstance(image, str | os.PathLike):
        raise InvalidInputError(f"image is a {type(image).__name__}; give a path, a key, bytes or pixels.")
    if is_photo_there(image):
        return read_photo(image)
    if snapshot.catalogue.photo_of(os.fspath(image)) is None:
        raise InvalidInputError(
            f"{image} is neither a file nor a key of the collection; give the path of a photo, or of one of the "
            f"collection its path below {snapshot.manifest.root}."
        )
    return photo_of(snapshot, os.fspath(image))
