"""Photos as a page shows them: thumbnails and crops, for many clients at once.

A file is read in one pool and decoded in another, so that a disk that does not answer holds up nothing but the files on
it. Each photo is decoded once for all who wait for it, for nobody once they have left, and no more than there is time
for.

::

    a thumbnail   ──▶ file read ──▶ decoded in a reduced size
    a crop        ──▶ file read ──▶ decoded, once for all its crops ──▶ cut out
    an upload     ──▶ header read ──▶ decoded, if there is time for so many pixels
"""

import hashlib
from collections.abc import Hashable

from manifind.cache import LRUCache
from manifind.index import whole_box
from manifind.index.storage.snapshot import AnySnapshot
from manifind.io import Photo
from manifind.serve.metrics import Metrics
from manifind.serve.photos import PhotoStore, Source, Upload, encode_jpeg, probe_upload
from manifind.serve.schemas import ViewRequest
from manifind.serve.settings import Settings
from manifind.serve.worker_pool import SingleFlight, WorkerPool

SIDES = (160, 320, 640, 1280, 2048)
"""Long sides of pictures: a side that is asked for is rounded up to one of them."""
OVERHEAD_PIXELS = 300_000
"""The smallest picture takes as long as so many pixels."""
REDUCED_SPEEDUP = 8
"""How many times faster a photo is decoded in a reduced size."""
WAIT_SHARE = 0.35
"""The part of the time limit that an admitted picture may wait: extraction and search come after it."""
UPLOAD_NAME = 32
"""Characters of the checksum of an upload that name it."""
INITIAL_PACE = 3e7
"""Pixels a second, until the pace is measured."""


class Thumbnails:
    """Reads and draws pictures; `decode` and `draw` are its stages."""

    def __init__(self, photo_store: PhotoStore, files: WorkerPool, settings: Settings, metrics: Metrics) -> None:
        self._photo_store, self._files, self._metrics = photo_store, files, metrics
        self.decode, self.draw = (
            WorkerPool(
                name,
                threads,
                seconds=WAIT_SHARE * settings.time_limit,
                pace=INITIAL_PACE,
                metrics=metrics,
                time_limit=settings.time_limit,
            )
            for name, threads in (("decode", settings.decode_threads), ("draw", settings.picture_threads))
        )
        self._photos: LRUCache[Photo] = LRUCache(settings.pixels_bytes)
        self._rendered: LRUCache[bytes] = LRUCache(settings.cache_bytes)
        self._decoding: SingleFlight[Photo] = SingleFlight()
        self._drawing: SingleFlight[bytes] = SingleFlight()

    async def photo(self, snapshot: AnySnapshot, view: ViewRequest) -> Photo:
        """Return the photo of a view, whole and upright."""
        name, pixels = self._photo_store.content(snapshot, view)
        known = self._photos.get(name)
        if known is not None:
            return known

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
        kept = self._photo_store.find_upload(name)
        if kept is not None:
            return kept
        view = ViewRequest(upload=name)

        def decode() -> Photo:
            with self._metrics.stage("read"):
                return self._keep(sha256, self._photo_store.decode(view, data))

        photo = await self._decoding.run(sha256, lambda: self.decode.submit(pixels + OVERHEAD_PIXELS, decode))
        return self._photo_store.keep(Upload(name, sha256, data, photo.width, photo.height))

    def stop(self) -> None:
        """Draw no more."""
        self.decode.stop()
        self.draw.stop()

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
