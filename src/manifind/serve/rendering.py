"""Photos decoded and drawn for many at once: each work done once, none for nobody, and no more than there is time for.

::

    a thumbnail   ──▶ read and reduced in a thread
    a crop        ──▶ the photo decoded, once for all its crops ──▶ cut out in a thread
    an upload     ──▶ its header looked at ──▶ decoded, if there is time for so many pixels
"""

from collections.abc import Hashable

from manifind.describe import Photo
from manifind.index import whole_box
from manifind.index.state.catalogue import ImageRecord
from manifind.index.state.generation import State
from manifind.recently_used import RecentlyUsed
from manifind.serve.metrics import Metrics
from manifind.serve.pictures import Pictures, Upload, encoded, look
from manifind.serve.schemas import ViewRequest
from manifind.serve.settings import Settings
from manifind.serve.stages import Shared, Stage

LEAST = 300_000
"""The smallest picture takes as long as so many pixels."""

REDUCED = 8
"""How many times faster a photo is read that is reduced on the way."""

SHARE = 0.35
"""The part of the time limit that what is let in may wait: describing and searching come after it."""

NAME = 32
"""Characters of the checksum of an upload by which it is asked for."""

PACE = 3e7
"""Pixels a second, until it was measured."""


class Rendering:
    """Reads and draws pictures in threads of its own; `decode` and `draw` are its stages."""

    def __init__(self, pictures: Pictures, settings: Settings, metrics: Metrics) -> None:
        self._pictures = pictures
        self._metrics = metrics
        seconds = SHARE * settings.time_limit
        self.decode = Stage("decode", settings.decode_threads, seconds=seconds, pace=PACE, metrics=metrics)
        self.draw = Stage("draw", settings.picture_threads, seconds=seconds, pace=PACE, metrics=metrics)
        self._photos: RecentlyUsed[Photo] = RecentlyUsed(settings.pixels_bytes)
        self._rendered: RecentlyUsed[bytes] = RecentlyUsed(settings.cache_bytes)
        self._decoding: Shared[Photo] = Shared()
        self._drawing: Shared[bytes] = Shared()

    async def photo(self, now: State, view: ViewRequest) -> Photo:
        """Return the photo of a view, whole and upright."""
        name, pixels = self._pictures.content(now, view)
        return await self._decoded(name, pixels, now, view)

    def record(self, now: State, key: str) -> ImageRecord:
        """Return what the index has of a key."""
        return self._pictures.record(now, key)

    def named(self, now: State, view: ViewRequest) -> str:
        """Return what names the content of a view's photo."""
        return self._pictures.content(now, view)[0]

    async def _decoded(self, name: Hashable, pixels: int, now: State, view: ViewRequest) -> Photo:
        known = self._photos.get(name)
        if known is not None:
            return known

        def read() -> Photo:
            with self._metrics.stage("read"):
                photo = self._pictures.pixels(now, view)
            self._photos.put(name, photo, photo.pixels.nbytes)
            return photo

        return await self._decoding.of(name, lambda: self.decode.do(pixels + LEAST, read))

    async def jpeg(self, now: State, view: ViewRequest, side: int) -> tuple[str, bytes]:
        """Return a photo, or a part of it, as a JPEG of about `side` pixels, and what names its content."""
        name, side = self._pictures.name(now, view, side)
        made = self._rendered.get(name)
        if made is None:
            made = await self._drawing.of(name, lambda: self._drawn(now, view, side))
            self._rendered.put(name, made, len(made))
        return name, made

    async def _drawn(self, now: State, view: ViewRequest, side: int) -> bytes:
        content, pixels = self._pictures.content(now, view)
        if view.box is None:

            def reduced() -> bytes:
                with self._metrics.stage("picture"):
                    return encoded(self._pictures.pixels(now, view, long_side=side).pixels, side)

            return await self.draw.do(pixels / REDUCED + LEAST, reduced)
        photo = await self._decoded(content, pixels, now, view)
        x0, y0, x1, y1 = whole_box(view.box, photo.width, photo.height)

        def cut() -> bytes:
            with self._metrics.stage("picture"):
                return encoded(photo.pixels[y0:y1, x0:x1], side)

        return await self.draw.do((x1 - x0) * (y1 - y0) / REDUCED + LEAST, cut)

    async def take(self, data: bytes) -> Upload:
        """Take in an uploaded photo: decoded once, to see whether it is one."""
        sha256, pixels = await self.draw.do(len(data) / REDUCED + LEAST, lambda: look(data))
        name = sha256[:NAME]
        kept = self._pictures.kept(name)
        if kept is not None:
            return kept

        def checked() -> Photo:
            with self._metrics.stage("read"):
                photo = self._pictures.decoded(data)
            self._photos.put(sha256, photo, photo.pixels.nbytes)
            return photo

        photo = await self._decoding.of(sha256, lambda: self.decode.do(pixels + LEAST, checked))
        return self._pictures.keep(Upload(name, sha256, data, photo.width, photo.height))

    def stop(self) -> None:
        """Draw no more."""
        self.decode.stop()
        self.draw.stop()
