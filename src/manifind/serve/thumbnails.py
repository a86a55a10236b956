"""Photos as a page shows them: thumbnails, crops, and the files themselves, for many clients at once.

Only photos of the index and uploads are read, never a path that a client names. Each is decoded once for all who wait
for it, for nobody once they have left, and no more than there is time for.

::

    a thumbnail   ──▶ read and reduced in a thread
    a crop        ──▶ the photo decoded, once for all its crops ──▶ cut out in a thread
    an upload     ──▶ its header read ──▶ decoded, if there is time for so many pixels
"""

import hashlib
import io
import stat
import time
import zipfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import Image

from manifind.cache import LRUCache
from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.index import whole_box
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.snapshot import AnySnapshot
from manifind.io import Photo, key_to_path, read_photo
from manifind.io.files import HEAD_BYTES
from manifind.io.image import photo_format
from manifind.io.video import containing_file, frame_key, locate_frame, video_format
from manifind.reports.text import archived, visible
from manifind.serve.errors import ServiceError
from manifind.serve.metrics import Metrics
from manifind.serve.schemas import ViewRequest
from manifind.serve.settings import Settings
from manifind.serve.worker_pool import SingleFlight, WorkerPool

SIDES = (160, 320, 640, 1280, 2048)
"""Long sides that pictures are made at: what is asked for is rounded up to one of them."""

QUALITY = 84
PIXELS_A_BYTE = 8
"""What a photo has that is compressed well."""
CHUNK = 2**18
EARLIEST, LATEST = 315_619_200, 4_354_732_800
"""What an archive can date: 1980 to 2107."""
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


class PhotoStore:
    """Reads and renders photos of the collection and uploads; everything here may take long and runs in threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._uploads: LRUCache[Upload] = LRUCache(settings.uploads_bytes)

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
            raise ServiceError(404, f"The uploaded photo {name} is not kept any more; upload it again.")
        return kept

    def record(self, snapshot: AnySnapshot, key: str) -> ImageRecord:
        """Return what the index has of a key."""
        record = snapshot.catalogue.photo_of(key)
        if record is None:
            raise ServiceError(
                404, f"{ascii(key)[:200]} is no photo of the collection; give a key that a search returned."
            )
        return record

    def file(self, snapshot: AnySnapshot, record: ImageRecord) -> Path:
        """Return the file of a photo, or the path of a film's frame; it must lie in the collection, links resolved."""
        root = snapshot.manifest.root
        try:
            path = key_to_path(root, record.key)
            frame = locate_frame(path)
            real = (path if frame is None else frame[0]).resolve(strict=True)
        except (InvalidInputError, OSError):
            raise ServiceError(404, f"{record.key!a} has no file any more; bring the index up to date.") from None
        if not (self._settings.follow_links or real.is_relative_to(root.resolve())):
            raise ServiceError(403, f"{record.key!a} is a link out of the collection; serve with --follow-links.")
        return real if frame is None else Path(frame_key(str(real), frame[1]))

    def links_out(self, snapshot: AnySnapshot) -> tuple[int, int]:
        """Return how many photos are links out of the collection's folder, of how many that were looked at."""
        records = snapshot.catalogue.images
        some = records[:: 1 + len(records) // LOOKED_AT]
        statuses = []
        for record in some:
            try:
                self.file(snapshot, record)
            except ServiceError as problem:
                statuses.append(problem.status)
        return statuses.count(403), len(some)

    def pixels(self, snapshot: AnySnapshot, view: ViewRequest, *, long_side: int | None = None) -> Photo:
        """Read the photo of a view; the upright whole."""
        if view.upload is not None:
            return self.decoded(self.upload(view.upload).data, long_side)
        record = self.record(snapshot, view.key or "")
        try:
            return read_photo(self.file(snapshot, record), long_side=long_side)
        except UnreadableImageError as error:
            raise ServiceError(404, f"{record.key!a} cannot be read: {error.reason}.") from None

    def decoded(self, data: bytes, long_side: int | None = None) -> Photo:
        """Decode an upload, or say why it cannot be."""
        try:
            return read_photo(data, max_pixels=self._settings.upload_pixels, long_side=long_side)
        except UnreadableImageError as error:
            raise ServiceError(422, f"The uploaded file cannot be read: {error.reason}.") from None

    def photo_file(self, snapshot: AnySnapshot, key: str) -> Path:
        """Return the file of a photo, or the path of a frame, that is still one: nothing put in its place since."""
        path = self.file(snapshot, self.record(snapshot, key))
        file = containing_file(path)
        if not stat.S_ISREG(file.stat().st_mode):
            raise ServiceError(404, f"{key!a} is not a regular file any more; bring the index up to date.")
        with file.open("rb") as source:
            head = source.read(HEAD_BYTES)
        if photo_format(head) is None and (file == path or video_format(head, file.name) is None):
            raise ServiceError(404, f"{key!a} is not a photo any more; bring the index up to date.")
        return path

    # -- as a page shows it -------------------------------------------------------------------------------------------

    def content(self, snapshot: AnySnapshot, view: ViewRequest) -> tuple[str, int]:
        """Return what names the content of a view's photo, and how many pixels it has."""
        if view.upload is not None:
            upload = self.upload(view.upload)
            return upload.sha256, upload.width * upload.height
        record = self.record(snapshot, view.key or "")
        return record.sha256, record.width * record.height

    def name(self, snapshot: AnySnapshot, view: ViewRequest, side: int) -> tuple[str, int]:
        """Return what names a picture of a view, and the long side that it is made at."""
        side = next((size for size in SIDES if size >= side), SIDES[-1])
        box = None if view.box is None else tuple(round(corner, 1) for corner in view.box)
        return hashlib.sha256(f"{self.content(snapshot, view)[0]} {box} {side}".encode()).hexdigest()[:32], side

    def archive(self, keys: Sequence[str], find: Callable[[str], Path], table: str) -> Iterator[bytes]:
        """Return the photos themselves as a zip, in rank order, with a table of the results; piece by piece.

        `find` returns the path of a key; the frame of a film is handed out as a JPEG.
        """
        sink = _Sink()
        missing: list[str] = []
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("results.csv", table)
            for rank, key in enumerate(keys, 1):
                try:
                    path = find(key)
                    file = containing_file(path)
                    entry = _entry(rank, key if file == path else f"{key}.jpg", file.stat().st_mtime)
                    with _opened(path, file) as source, archive.open(entry, "w", force_zip64=True) as into:
                        while chunk := source.read(CHUNK):
                            into.write(chunk)
                            yield sink.taken()
                except (ServiceError, UnreadableImageError, OSError) as error:
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


def _opened(path: Path, file: Path) -> BinaryIO:
    """Open the file of a photo; of a frame, a JPEG of it."""
    if file == path:
        return file.open("rb")
    pixels = read_photo(path).pixels
    return io.BytesIO(encoded(pixels, max(pixels.shape)))


def _entry(rank: int, key: str, changed: float) -> zipfile.ZipInfo:
    """Name and date a photo in an archive as its file is, in its folder; nothing in the name leads out of it."""
    folder, slash, name = archived(key).rpartition("/")
    date = time.localtime(min(max(changed, EARLIEST), LATEST))[:6]
    return zipfile.ZipInfo(f"photos/{folder}{slash}{rank:03d}-{name}", date)


LEAST = 300_000
"""The smallest picture takes as long as so many pixels."""

REDUCED = 8
"""How many times faster a photo is read that is reduced on the way."""

SHARE = 0.35
"""The part of the time limit that what is let in may wait: extraction and search come after it."""

NAME = 32
"""Characters of the checksum of an upload by which it is asked for."""

PACE = 3e7
"""Pixels a second, until it was measured."""


class Thumbnails:
    """Reads and draws pictures in threads of its own; `decode` and `draw` are its stages."""

    def __init__(self, photo_store: PhotoStore, settings: Settings, metrics: Metrics) -> None:
        self._photo_store = photo_store
        self._metrics = metrics
        seconds = SHARE * settings.time_limit
        self.decode = WorkerPool("decode", settings.decode_threads, seconds=seconds, pace=PACE, metrics=metrics)
        self.draw = WorkerPool("draw", settings.picture_threads, seconds=seconds, pace=PACE, metrics=metrics)
        self._photos: LRUCache[Photo] = LRUCache(settings.pixels_bytes)
        self._rendered: LRUCache[bytes] = LRUCache(settings.cache_bytes)
        self._decoding: SingleFlight[Photo] = SingleFlight()
        self._drawing: SingleFlight[bytes] = SingleFlight()

    async def photo(self, snapshot: AnySnapshot, view: ViewRequest) -> Photo:
        """Return the photo of a view, whole and upright."""
        name, pixels = self._photo_store.content(snapshot, view)
        return await self._decoded(name, pixels, snapshot, view)

    def record(self, snapshot: AnySnapshot, key: str) -> ImageRecord:
        """Return what the index has of a key."""
        return self._photo_store.record(snapshot, key)

    def named(self, snapshot: AnySnapshot, view: ViewRequest) -> str:
        """Return what names the content of a view's photo."""
        return self._photo_store.content(snapshot, view)[0]

    async def _decoded(self, name: Hashable, pixels: int, snapshot: AnySnapshot, view: ViewRequest) -> Photo:
        known = self._photos.get(name)
        if known is not None:
            return known

        def read() -> Photo:
            with self._metrics.stage("read"):
                photo = self._photo_store.pixels(snapshot, view)
            self._photos.put(name, photo, photo.pixels.nbytes)
            return photo

        return await self._decoding.run(name, lambda: self.decode.submit(pixels + LEAST, read))

    async def jpeg(self, snapshot: AnySnapshot, view: ViewRequest, side: int) -> tuple[str, bytes]:
        """Return a photo, or a part of it, as a JPEG of about `side` pixels, and what names its content."""
        name, side = self._photo_store.name(snapshot, view, side)
        made = self._rendered.get(name)
        if made is None:
            made = await self._drawing.run(name, lambda: self._drawn(snapshot, view, side))
            self._rendered.put(name, made, len(made))
        return name, made

    async def _drawn(self, snapshot: AnySnapshot, view: ViewRequest, side: int) -> bytes:
        content, pixels = self._photo_store.content(snapshot, view)
        if view.box is None:

            def reduced() -> bytes:
                with self._metrics.stage("picture"):
                    return encoded(self._photo_store.pixels(snapshot, view, long_side=side).pixels, side)

            return await self.draw.submit(pixels / REDUCED + LEAST, reduced)
        photo = await self._decoded(content, pixels, snapshot, view)
        x0, y0, x1, y1 = whole_box(view.box, photo.width, photo.height)

        def cut() -> bytes:
            with self._metrics.stage("picture"):
                return encoded(photo.pixels[y0:y1, x0:x1], side)

        return await self.draw.submit((x1 - x0) * (y1 - y0) / REDUCED + LEAST, cut)

    async def take(self, data: bytes) -> Upload:
        """Take in an uploaded photo: decoded once, to see whether it is one."""
        sha256, pixels = await self.draw.submit(len(data) / REDUCED + LEAST, lambda: look(data))
        name = sha256[:NAME]
        kept = self._photo_store.kept(name)
        if kept is not None:
            return kept

        def checked() -> Photo:
            with self._metrics.stage("read"):
                photo = self._photo_store.decoded(data)
            self._photos.put(sha256, photo, photo.pixels.nbytes)
            return photo

        photo = await self._decoding.run(sha256, lambda: self.decode.submit(pixels + LEAST, checked))
        return self._photo_store.keep(Upload(name, sha256, data, photo.width, photo.height))

    def stop(self) -> None:
        """Draw no more."""
        self.decode.stop()
        self.draw.stop()
