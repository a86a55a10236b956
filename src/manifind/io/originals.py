"""The original file of a photo, opened to hand it out: only a photo, and only from below the collection's folder.

An index may come from anybody: its keys may name any file of the folder that it calls its own, and links in that folder
may lead anywhere.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.io.files import HEAD_BYTES, access_reason, open_regular, printable
from manifind.io.image import photo_format
from manifind.io.scan import key_to_path
from manifind.io.video import locate_frame, video_format


@dataclass(frozen=True)
class Original:
    """The open file of a photo, or of its film if it is a frame."""

    file: BinaryIO
    path: Path
    format: str
    """As `photo_format` and `video_format` name it."""
    frame: Path | None
    """The path of the frame, if the photo is one."""


def open_original(root: Path, key: str, *, follow_links: bool = False) -> Original:
    """Open the file of a photo by its key, or raise `UnreadableImageError`.

    The file must begin like a photo, or like a film if the key is that of a frame. Unless `follow_links`, it must lie
    below `root`, links resolved; the error's code is ``outside-root`` where it does not.
    """
    try:
        path = key_to_path(root, key)
    except InvalidInputError as error:
        raise UnreadableImageError("no file can be named so", printable(key), code="no-access") from error
    frame, located = None, locate_frame(path)
    if located is not None:
        frame, path = path, located[0]
    file = open_regular(path, root=None if follow_links else root)
    try:
        head = file.read(HEAD_BYTES)
        file.seek(0)
    except OSError as error:
        file.close()
        raise UnreadableImageError(access_reason(error), printable(path), code="no-access") from error
    found = photo_format(head) if frame is None else video_format(head, path.name)
    if found is None:
        file.close()
        raise UnreadableImageError("not a photo any more", printable(path), code="not-a-photo")
    return Original(file, path, found, frame)
