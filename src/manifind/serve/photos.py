"""Photos of the collection and uploads: their files, read and decoded for many clients at once.

Only photos of the index and uploads are read, never a path that a client names. A file of the collection is opened
without following links out of it; what was opened is checked and read, never the path again. A file is read in one pool
and decoded in another, so that a disk that does not answer holds up nothing but the files on it. Each photo is decoded
once for all who wait for it, for nobody once they have left, and no more than there is time for.

::

    a thumbnail   ──▶ file read ──▶ decoded in a reduced size
    a crop        ──▶ file read ──▶ decoded, once for all its crops ──▶ cut out
    an upload     ──▶ header read ──▶ decoded, if there is time for so many pixels
"""

import hashlib
import io
import os
import time
import zipfile
from collections.abc import Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np
import numpy.typing as npt
from PIL import Image

from manifind.cache import LRUCache
from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.index import whole_box
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.snapshot import AnySnapshot
from manifind.io import Photo, key_to_path, open_regular, read_photo
from manifind.io.files import access_reason, printable
from manifind.io.image import read_size
from manifind.io.limits import MAX_PIXELS
from manifind.io.scan import Original, open_original
from manifind.io.video import locate_frame
from manifind.reports.text import archive_name, plain_name, visible
from manifind.serve.errors import ServiceError
from manifind.serve.resources import Resources, Settings
from manifind.serve.schemas import ViewRequest
from manifind.serve.workers import SingleFlight

CHUNK_BYTES = 2**18
JPEG_QUALITY = 84
PIXELS_PER_BYTE = 8
"""Of a photo that is compressed well."""
ZIP_DATES = 315_619_200, 4_354_732_800
"""What an archive can date: 1980 to 2107."""
MAX_LINKS_CHECKED = 20_000
"""Photos whose files are checked for links out of the collection."""
SIDES = (160, 320, 640, 1280, 2048)
"""Long sides of pictures: a side that is asked for is rounded up to one of them."""
OVERHEAD_PIXELS = 300_000
"""The smallest picture takes as long as so many pixels."""
REDUCED_SPEEDUP = 8
"""How many times faster a photo is decoded in a reduced size."""
UPLOAD_NAME = 32
"""Characters of the checksum of an upload that name it."""


@dataclass(frozen=True)
class Frame:
    """A frame of a film."""

    path: Path
    root: Path | None
    """The folder that must hold the film; None where links out of the collection are followed."""


Source = bytes | Frame
"""The contents of a photo's file, or a film's frame."""


@dataclass(frozen=True)
class Upload:
    """An uploaded photo, as it came."""

    name: str
    sha256: str
    data: bytes
    width: int
    height: int


@dataclass(frozen=True)
class FileInfo:
    """What is said of a file before its bytes."""

    name: str
    format: str
    size: int
    version: str
    """Changes with the file."""


class PhotoStore:
    """The photos of the collection, and uploads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._uploads: LRUCache[Upload] = LRUCache(settings.uploads_bytes)

    # -- uploads ------------------------------------------------------------------------------------------------------

    def find_upload(self, name: str) -> Upload | None:
        """Return an upload, if it is still kept."""
        return self._uploads.get(name)

    def keep(self, upload: Upload) -> Upload:
        """Keep an upload, until newer ones need the room."""
        self._uploads.put(upload.name, upload, len(upload.data))
        return upload

    def upload(self, name: str) -> Upload:
        """Return an upload that is still kept."""
        upload = self._uploads.get(name)
        if upload is None:
            raise ServiceError(404, f"The uploaded photo {name} is not kept any more; upload it again.")
        return upload

    # -- photos of the collection -------------------------------------------------------------------------------------

    def record(self, snapshot: AnySnapshot, key: str) -> ImageRecord:
        """Return what the index has of a key."""
        record = snapshot.catalogue.photo_of(key)
        if record is None:
            raise ServiceError(
                404, f"{ascii(key)[:200]} is no photo of the collection; give a key that a search returned."
            )
        return record

    def content(self, snapshot: AnySnapshot, view: ViewRequest) -> tuple[str, int]:
        """Return what names the content of a view's photo, and how many pixels it has."""
        if view.upload is not None:
            upload = self.upload(view.upload)
            return upload.sha256, upload.width * upload.height
        record = self.record(snapshot, view.key or "")
        return record.sha256, record.width * record.height

    def root(self, snapshot: AnySnapshot) -> Path | None:
        """Return the folder that must hold the files of photos; None where links out of the collection are followed."""
        return None if self._settings.follow_links else snapshot.manifest.root

    def open(self, snapshot: AnySnapshot, record: ImageRecord) -> Original:
        """Open the file of a photo; it must lie in the collection and begin like a photo still."""
        try:
            return open_original(snapshot.manifest.root, record.key, follow_links=self._settings.follow_links)
        except UnreadableImageError as error:
            root = snapshot.manifest.root
            if not root.is_dir():
                where = f", {printable(root)}," if self._settings.tell_paths else ""
                raise ServiceError(
                    404,
                    f"The folder of the photos{where} is not there: connect its disk, or if it was moved, "
                    "run manifind index NEW_PLACE -o INDEX.",
                    code="no-folder",
                ) from None
            if error.code == "outside-root":
                raise ServiceError(
                    403, f"{record.key!a} is a link out of the collection; serve with --follow-links.", code=error.code
                ) from None
            _refuse(record, error.reason, error.code)

    def read(self, snapshot: AnySnapshot, view: ViewRequest) -> Source:
        """Return the bytes of a view's photo; of a film's frame, its path."""
        if view.upload is not None:
            return self.upload(view.upload).data
        record = self.record(snapshot, view.key or "")
        photo = self.open(snapshot, record)
        with photo.file as file:
            if photo.frame is not None:
                return Frame(photo.frame, self.root(snapshot))
            limit = max(record.bytes, self._settings.upload_bytes)  # it may be another file by now
            try:
                data = file.read(limit + 1)
            except OSError as error:
                _refuse(record, access_reason(error), "no-access")
        if len(data) > limit:
            _refuse(record, f"longer than {limit / 1e6:.0f} million bytes", "too-large")
        return data

    def read_path(self, path: str, *, root: Path | None = None) -> bytes:
        """Return the bytes of a file that a stored search or an agent names, like an upload; `root` must hold it."""
        limit = self._settings.upload_bytes
        with open_regular(path, root=root) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise InvalidInputError(f"{path!a} is longer than {limit / 1e6:g} million bytes; give another photo.")
        return data

    def original(self, snapshot: AnySnapshot, key: str) -> Generator[FileInfo | bytes, tuple[int, int] | None, None]:
        """Yield what the file of a photo is, then its bytes from a first to before a last, which are sent in between.

        Of a frame, the file is the film.
        """
        photo = self.open(snapshot, self.record(snapshot, key))
        with photo.file as file:
            status = os.fstat(file.fileno())
            version = hashlib.sha256(f"{status.st_ino} {status.st_mtime_ns} {status.st_size}".encode()).hexdigest()[:16]
            stretch = yield FileInfo(plain_name(photo.path.name), photo.format, status.st_size, version)
            start, end = stretch or (0, status.st_size)
            file.seek(start)
            while start < end and (chunk := file.read(min(CHUNK_BYTES, end - start))):
                start += len(chunk)
                yield chunk

    def count_links_out(self, snapshot: AnySnapshot) -> tuple[int, int]:
        """Return how many photos are links out of the collection's folder, of how many that were checked."""
        root = self.root(snapshot)
        if root is None:
            return 0, 0
        records, root = snapshot.catalogue.images, root.resolve()
        checked = records[:: 1 + len(records) // MAX_LINKS_CHECKED]
        outside = 0
        for record in checked:
            try:
                path = key_to_path(root, record.key)
                frame = locate_frame(path)
                outside += not (path if frame is None else frame[0]).resolve(strict=True).is_relative_to(root)
            except (InvalidInputError, OSError):
                continue
        return outside, len(checked)

    def archive(self, snapshot: AnySnapshot, keys: Sequence[str], table: str) -> Iterator[bytes]:
        """Yield photos as a zip, in rank order, with a table of the results; the frame of a film as a JPEG."""
        sink = _Sink()
        missing: list[str] = []
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("results.csv", table)
            for rank, key in enumerate(keys, 1):
                try:
                    photo = self.open(snapshot, self.record(snapshot, key))
                    with photo.file as file:
                        entry = _zip_entry(rank, key if photo.frame is None else f"{key}.jpg", file)
                        frame = None if photo.frame is None else Frame(photo.frame, self.root(snapshot))
                        source = file if frame is None else io.BytesIO(_whole_jpeg(frame))
                        with archive.open(entry, "w", force_zip64=True) as into:
                            while chunk := source.read(CHUNK_BYTES):
                                into.write(chunk)
                                yield sink.take()
                except (ServiceError, UnreadableImageError, OSError) as error:
                    missing.append(f"{visible(key)}: {error}")
                yield sink.take()
            if missing:
                archive.writestr("missing.txt", "\n".join(missing) + "\n")
        yield sink.take()

    # -- decoding -----------------------------------------------------------------------------------------------------

    def decode(self, view: ViewRequest, source: Source, long_side: int | None = None, *, pixels: int = 0) -> Photo:
        """Decode the photo of a view from its file, upright and whole.

        `pixels` are those that the index has of a photo: by now its file may be another, which gets the limit of an
        upload.
        """
        limit = max(min(pixels, MAX_PIXELS), self._settings.upload_pixels)
        try:
            if isinstance(source, Frame):
                return read_photo(source.path, long_side=long_side, root=source.root)
            return read_photo(source, max_pixels=limit, long_side=long_side)
        except UnreadableImageError as error:
            if view.upload is not None:
                raise ServiceError(422, f"The uploaded file cannot be read: {error.reason}.", code=error.code) from None
            raise ServiceError(404, f"{view.key!a} cannot be read: {error.reason}.", code=error.code) from None


def probe_upload(data: bytes) -> tuple[str, int]:
    """Return the checksum of an upload, and how many pixels its header announces."""
    sha256 = hashlib.sha256(data).hexdigest()
    try:
        width, height = read_size(data)
    except UnreadableImageError:  # decoding will say why; until then its length must do
        return sha256, PIXELS_PER_BYTE * len(data)
    return sha256, width * height


def encode_jpeg(pixels: npt.NDArray[np.uint8], side: int) -> bytes:
    """Return pixels as a JPEG of at most `side` pixels a side."""
    image = Image.fromarray(pixels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue()


def _refuse(record: ImageRecord, reason: str, code: str) -> NoReturn:
    raise ServiceError(
        404, f"{record.key!a} cannot be read: {reason}; bring the index up to date.", code=code
    ) from None


def _whole_jpeg(frame: Frame) -> bytes:
    pixels = read_photo(frame.path, root=frame.root).pixels
    return encode_jpeg(pixels, max(pixels.shape))


def _zip_entry(rank: int, key: str, file: BinaryIO) -> zipfile.ZipInfo:
    """Return the name and date of a photo in an archive, in its folder; nothing in the name leads out of it."""
    folder, slash, name = archive_name(key).rpartition("/")
    first, last = ZIP_DATES
    date = time.localtime(min(max(os.fstat(file.fileno()).st_mtime, first), last))[:6]
    return zipfile.ZipInfo(f"photos/{folder}{slash}{rank:03d}-{name}", date)


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

    def take(self) -> bytes:
        piece, self._buffer = bytes(self._buffer), bytearray()
        return piece


class Thumbnails:
    """Reads and draws pictures; `decode` and `draw` are its stages."""

    def __init__(self, photo_store: PhotoStore, resources: Resources) -> None:
        self._photo_store, self._files, self._metrics = photo_store, resources.files, resources.metrics
        self.decode, self.draw = resources.decode, resources.draw
        self._photos: LRUCache[Photo] = LRUCache(resources.settings.pixels_bytes)
        self._rendered: LRUCache[bytes] = LRUCache(resources.settings.cache_bytes)
        self._decoding: SingleFlight[Photo] = SingleFlight()
        self._drawing: SingleFlight[bytes] = SingleFlight()

    async def photo(self, snapshot: AnySnapshot, view: ViewRequest) -> Photo:
        """Return the photo of a view, whole and upright."""
        name, pixels = self._photo_store.content(snapshot, view)
        cached = self._photos.get(name)
        if cached is not None:
            return cached

        def decode(source: Source) -> Photo:
            with self._metrics.stage("read"):
                return self._keep(name, self._photo_store.decode(view, source, pixels=pixels))

        return await self._decoding.run(
            name,
            lambda: self.decode.submit_prepared(pixels + OVERHEAD_PIXELS, lambda: self._read(snapshot, view), decode),
        )

    async def jpeg(self, snapshot: AnySnapshot, view: ViewRequest, side: int) -> tuple[str, bytes]:
        """Return a photo, or a part of it, as a JPEG of about `side` pixels, and what names its content."""
        side = next((size for size in SIDES if size >= side), SIDES[-1])
        box = None if view.box is None else tuple(round(corner, 1) for corner in view.box)
        content = self._photo_store.content(snapshot, view)[0]
        name = hashlib.sha256(f"{content} {box} {side}".encode()).hexdigest()[:32]
        jpeg = self._rendered.get(name)
        if jpeg is None:
            jpeg = await self._drawing.run(name, lambda: self._draw(snapshot, view, side))
            self._rendered.put(name, jpeg, len(jpeg))
        return name, jpeg

    async def add_upload(self, data: bytes) -> Upload:
        """Return an uploaded photo, decoded once to see whether it is one."""
        amount = len(data) / REDUCED_SPEEDUP + OVERHEAD_PIXELS
        sha256, pixels = await self.decode.submit(amount, lambda: probe_upload(data), measure=False)
        name = sha256[:UPLOAD_NAME]
        cached = self._photo_store.find_upload(name)
        if cached is not None:
            return cached
        view = ViewRequest(upload=name)

        def decode() -> Photo:
            with self._metrics.stage("read"):
                return self._keep(sha256, self._photo_store.decode(view, data))

        photo = await self._decoding.run(sha256, lambda: self.decode.submit(pixels + OVERHEAD_PIXELS, decode))
        return self._photo_store.keep(Upload(name, sha256, data, photo.width, photo.height))

    async def _draw(self, snapshot: AnySnapshot, view: ViewRequest, side: int) -> bytes:
        if view.box is None:
            pixels = self._photo_store.content(snapshot, view)[1]

            def reduce(source: Source) -> bytes:
                with self._metrics.stage("picture"):
                    return encode_jpeg(self._photo_store.decode(view, source, side, pixels=pixels).pixels, side)

            amount = pixels / REDUCED_SPEEDUP + OVERHEAD_PIXELS
            return await self.draw.submit_prepared(amount, lambda: self._read(snapshot, view), reduce)
        photo = await self.photo(snapshot, view)
        x0, y0, x1, y1 = whole_box(view.box, photo.width, photo.height)

        def crop() -> bytes:
            with self._metrics.stage("picture"):
                return encode_jpeg(photo.pixels[y0:y1, x0:x1], side)

        return await self.draw.submit((x1 - x0) * (y1 - y0) / REDUCED_SPEEDUP + OVERHEAD_PIXELS, crop)

    async def _read(self, snapshot: AnySnapshot, view: ViewRequest) -> Source:
        if view.upload is not None:
            return self._photo_store.upload(view.upload).data
        return await self._files.run(lambda: self._photo_store.read(snapshot, view))

    def _keep(self, name: Hashable, photo: Photo) -> Photo:
        self._photos.put(name, photo, photo.pixels.nbytes)
        return photo
