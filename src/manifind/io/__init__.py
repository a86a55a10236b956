"""Image files: find them in a folder, decode them within limits, read ahead; EXIF, raw previews and video frames."""

from manifind.io.files import content_hash, open_regular
from manifind.io.image import Photo, read_photo, upright_pixels
from manifind.io.prefetch import extract_ahead
from manifind.io.scan import ListedFile, SkippedFile, key_of, key_to_path, list_photos

__all__ = [
    "ListedFile",
    "Photo",
    "SkippedFile",
    "content_hash",
    "extract_ahead",
    "key_of",
    "key_to_path",
    "list_photos",
    "open_regular",
    "read_photo",
    "upright_pixels",
]
