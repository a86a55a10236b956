"""Photos as a page shows them: thumbnails, crops, and the files themselves. Only what is in the index, never a path."""

import hashlib
import io
import stat
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import Image

from manifind.describe import Photo, Unreadable, key_to_path, read_photo
from manifind.describe.films import at_time, file_of, film_format, frame_of
from manifind.describe.photos import HEAD_BYTES, photo_format
from manifind.errors import InvalidInput
from manifind.index.state.catalogue import ImageRecord
from manifind.index.state.generation import State
from manifind.pages.text import archived, visible
from manifind.recently_used import RecentlyUsed
from manifind.serve.problems import Problem
from manifind.serve.schemas import ViewRequest
from manifind.serve.settings import Settings

SIDES = (160, 320, 640, 1280, 2048)
"""Long sides that pictures are made at: what is asked for is rounded up to one of them."""

QUALITY = 84
PIXELS_A_BYTE = 8
"""What a photo has that is compressed well."""
CHUNK = 2**18
EARLIEST, LATEST = 315_619_200, 4_354_732_800
"""What an archive can date: 1980 to 2107."""
LARGEST_CHANGED = 100_000_000
"""Bytes of a file that is read whole to be changed on its way out."""
Change = Callable[[bytes], bytes | None]
LOOKED_AT = 20_000
"""Photos whose files are looked at to see whether they are links."""


@dataclass(frozen=True)
class Upload:
    """An uploaded photo, as it came."""

    name: str
    sha256: str
    data: bytes
    width: int
    height: int


class Pictures:
    """Reads and renders photos of the collection and uploads; everything here may take long and runs in threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._uploads: RecentlyUsed[Upload] = RecentlyUsed(settings.uploads_bytes)

    # -- what there is ------------------------------------------------------------------------------------------------

    def kept(self, name: str) -> Upload | None:
        """Return an upload, if it is still kept."""
        return self._uploads.get(name)

    def keep(self, upload: Upload) -> Upload:
        """Keep an upload, until newer ones need the room."""
        self._uploads.put(upload.name, upload, len(upload.data))
        return upload

    def upload(self, name: str) -> Upload:
        """Return an upload that is still kept."""
        kept = self._uploads.get(name)
        if kept is None:
            raise Problem(404, f"The uploaded photo {name} is not kept any more; upload it again.")
        return kept

    def record(self, now: State, key: str) -> ImageRecord:
        """Return what the index has of a key."""
        record = now.catalogue.photo_of(key)
        if record is None:
            raise Problem(404, f"{ascii(key)[:200]} is no photo of the collection; give a key that a search returned.")
        return record

    def file(self, now: State, record: ImageRecord) -> Path:
        """Return the file of a photo, or the path of a film's frame; it must lie in the collection, links resolved."""
        root = now.manifest.root
        try:
            path = key_to_path(root, record.key)
            frame = frame_of(path)
            real = (path if frame is None else frame[0]).resolve(strict=True)
        except (InvalidInput, OSError):
            raise Problem(404, f"{record.key!a} has no file any more; bring the index up to date.") from None
        if not (self._settings.follow_links or real.is_relative_to(root.resolve())):
            raise Problem(403, f"{record.key!a} is a link out of the collection; serve with --follow-links.")
        return real if frame is None else Path(at_time(str(real), frame[1]))

    def links_out(self, now: State) -> tuple[int, int]:
        """Return how many photos are links out of the collection's folder, of how many that were looked at."""
        records = now.catalogue.images
        some = records[:: 1 + len(records) // LOOKED_AT]
        statuses = []
        for record in some:
            try:
                self.file(now, record)
            except Problem as problem:
                statuses.append(problem.status)
        return statuses.count(403), len(some)

    def pixels(self, now: State, view: ViewRequest, *, long_side: int | None = None) -> Photo:
        """Read the photo of a view; the upright whole."""
        if view.upload is not None:
            return self.decoded(self.upload(view.upload).data, long_side)
        now = view.lies_in or now
        record = self.record(now, view.key or "")
        try:
            return read_photo(self.file(now, record), long_side=long_side)
        except Unreadable as error:
            raise Problem(404, f"{record.key!a} cannot be read: {error.reason}.") from None

    def decoded(self, data: bytes, long_side: int | None = None) -> Photo:
        """Decode an upload, or say why it cannot be."""
        try:
            return read_photo(data, max_pixels=self._settings.upload_pixels, long_side=long_side)
        except Unreadable as error:
            raise Problem(422, f"The uploaded file cannot be read: {error.reason}.") from None

    def photo_file(self, now: State, key: str) -> Path:
        """Return the file of a photo, or the path of a frame, that is still one: nothing put in its place since."""
        path = self.file(now, self.record(now, key))
        file = file_of(path)
        if not stat.S_ISREG(file.stat().st_mode):
            raise Problem(404, f"{key!a} is not a regular file any more; bring the index up to date.")
        with file.open("rb") as source:
            head = source.read(HEAD_BYTES)
        if photo_format(head) is None and (file == path or film_format(head, file.name) is None):
            raise Problem(404, f"{key!a} is not a photo any more; bring the index up to date.")
        return path

    # -- as a page shows it -------------------------------------------------------------------------------------------

    def content(self, now: State, view: ViewRequest) -> tuple[str, int]:
        """Return what names the content of a view's photo, and how many pixels it has."""
        if view.upload is not None:
            upload = self.upload(view.upload)
            return upload.sha256, upload.width * upload.height
        record = self.record(view.lies_in or now, view.key or "")
        return record.sha256, record.width * record.height

    def name(self, now: State, view: ViewRequest, side: int) -> tuple[str, int]:
        """Return what names a picture of a view, and the long side that it is made at."""
        side = next((size for size in SIDES if size >= side), SIDES[-1])
        box = None if view.box is None else tuple(round(corner, 1) for corner in view.box)
        return hashlib.sha256(f"{self.content(now, view)[0]} {box} {side}".encode()).hexdigest()[:32], side

    def archive(
        self, keys: Sequence[str], find: Callable[[str], Path], table: str, change: Change | None = None
    ) -> Iterator[bytes]:
        """Return the photos themselves as a zip, in rank order, with a table of the results; piece by piece.

        `find` returns the path of a key; the frame of a film is handed out as a JPEG. `change` is given the bytes of
        each file, and returns others or None for no change.
        """
        sink = _Sink()
        missing: list[str] = []
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("results.csv", table)
            for rank, key in enumerate(keys, 1):
                try:
                    path = find(key)
                    file = file_of(path)
                    entry = _entry(rank, key if file == path else f"{key}.jpg", file.stat().st_mtime)
                    with _opened(path, file, change) as source, archive.open(entry, "w", force_zip64=True) as into:
                        while chunk := source.read(CHUNK):
                            into.write(chunk)
                            yield sink.taken()
                except (Problem, Unreadable, OSError) as error:
                    missing.append(f"{visible(key)}: {error}")
                yield sink.taken()
            if missing:
                archive.writestr("missing.txt", "\n".join(missing) + "\n")
        yield sink.taken()


class _Sink(io.RawIOBase):
    """A file that is read off while it is written."""

    def __init__(self) -> None:
        super().__init__()
        self._buffer = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = memoryview(data)  # type: ignore[arg-type]
        self._buffer += piece
        return len(piece)

    def taken(self) -> bytes:
        piece, self._buffer = bytes(self._buffer), bytearray()
        return piece


def look(data: bytes) -> tuple[str, int]:
    """Return the checksum of an upload, and how many pixels its header announces."""
    sha256 = hashlib.sha256(data).hexdigest()
    try:
        with Image.open(io.BytesIO(data)) as image:
            return sha256, image.width * image.height
    except Exception:  # whatever it is, decoding will say; until then its length must do
        return sha256, PIXELS_A_BYTE * len(data)


def encoded(pixels: npt.NDArray[np.uint8], side: int) -> bytes:
    """Return pixels as a JPEG of at most `side` pixels a side."""
    image = Image.fromarray(pixels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def _opened(path: Path, file: Path, change: Change | None) -> BinaryIO:
    """Open the file of a photo; of a frame, a JPEG of it."""
    if file != path:
        pixels = read_photo(path).pixels
        data = encoded(pixels, max(pixels.shape))
    elif change is None or file.stat().st_size > LARGEST_CHANGED:
        return file.open("rb")
    else:
        data = file.read_bytes()
    return io.BytesIO((None if change is None else change(data)) or data)


def _entry(rank: int, key: str, changed: float) -> zipfile.ZipInfo:
    """Name and date a photo in an archive as its file is, in its folder; nothing in the name leads out of it."""
    folder, slash, name = archived(key).rpartition("/")
    date = time.localtime(min(max(changed, EARLIEST), LATEST))[:6]
    return zipfile.ZipInfo(f"photos/{folder}{slash}{rank:03d}-{name}", date)
