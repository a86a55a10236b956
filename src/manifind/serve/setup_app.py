"""Before there is an index: a page that asks for a folder, then a service that searches the photos so far.

The index is built in a thread of its own. The program stops after the current photo, and the extracted photos are
saved. As soon as a few photos are extracted they are searched; later partial indexes, and at last the index itself,
take the place of the first, and uploads stay. Folders of this machine are listed only where the service answers nobody
else.
"""

import asyncio
import glob
import logging
import os
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query
from pydantic import Field
from starlette.types import Receive, Scope, Send

from manifind.errors import ManifindError, UnreadableImageError
from manifind.index import Index, PartialIndex
from manifind.index.storage.layout import SUFFIX, index_of, is_index
from manifind.io.files import access_reason, printable, read_head
from manifind.io.image import photo_format
from manifind.kernels import AUTO
from manifind.serve.app import add_error_handlers, create_app
from manifind.serve.build_progress import StageClock
from manifind.serve.errors import ServiceError
from manifind.serve.folder_watch import BuildStoppedError
from manifind.serve.guard import Guard
from manifind.serve.resources import Resources
from manifind.serve.responses import BuildingProgress, BuildingResponse, HealthResponse, ResponseModel
from manifind.serve.routes.system import add_page
from manifind.serve.schemas import LONGEST_KEY, Strict
from manifind.serve.settings import Settings
from manifind.storage import disk

log = logging.getLogger("manifind.serve")

MAX_FOLDERS = 2000
MAX_SNIFFED = 200
"""Files of a folder whose heads are read to see whether there are photos in it."""
MIN_PARTIAL_PHOTOS = 12
"""Photos of a partial index, at least."""
PARTIAL_GROWTH = 2
"""How many times more photos a partial index has than the one before, so that all of them take about as long as the
last."""
PARTIAL_SUFFIX = ".so-far"


class StartRequest(Strict):
    """The folder to index."""

    folder: str = Field(max_length=LONGEST_KEY)


class StartResponse(BuildingResponse):
    """The index that is being built, and whether a folder may be chosen."""

    picks: bool


class FolderListing(ResponseModel):
    """The folders in a folder, and how many photos are seen in it."""

    path: str
    parent: str | None
    folders: list[str]
    photos: int
    indexed: bool


class IndexBuild:
    """An index that is being built, and partial indexes of the photos so far, to be searched meanwhile.

    Parameters
    ----------
    folder : Path
        Of the photos.
    device : str
        What builds and searches the index.
    options : dict
        More for `Index.create`.
    on_partial : callable
        Called with each partial index, in a thread of its own.
    """

    def __init__(
        self,
        folder: Path,
        device: str,
        options: dict[str, Any],
        on_partial: Callable[[Index], None],
    ) -> None:
        self.folder, self.target = folder.resolve(), index_of(folder)
        self._device, self._options, self._on_partial = device, options, on_partial
        self._stop = threading.Event()
        self._clock = StageClock(self.folder)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="partial-index")
        self._is_free = True
        """Whether a partial index may be begun: not while one is built, nor after one that could not be."""
        self._least = MIN_PARTIAL_PHOTOS
        """How many photos the next partial index has, at least."""
        self._count = 0
        self._previous: Path | None = None
        """Where the partial index lies that is searched by now."""

    def run(self) -> Index:
        """Build the index, or open it where it is there."""
        if is_index(self.target):
            return Index.open(self.target, device=self._device)
        with tempfile.TemporaryDirectory(
            suffix=PARTIAL_SUFFIX,
            prefix=f".{self.target.name}.",
            dir=self.target.parent,
            ignore_cleanup_errors=True,
        ) as folder:
            self._partials = Path(folder)
            try:
                return Index.create(
                    self.target,
                    self.folder,
                    device=self._device,
                    progress=self._progress,
                    on_partial=self._index_partial,
                    **self._options,
                )
            finally:
                self._pool.shutdown(wait=True, cancel_futures=True)

    def stop(self) -> None:
        """End after the photo at hand."""
        self._stop.set()

    def _progress(self, stage: str, done: int, total: int) -> None:
        if self._stop.is_set():
            raise BuildStoppedError
        self._clock.report(stage, done, total)

    @property
    def progress(self) -> BuildingProgress:
        """The progress of the build, and how long its present stage will take."""
        return self._clock.progress

    def _index_partial(self, partial: PartialIndex) -> None:
        if len(partial) >= self._least and self._is_free:
            if not self._count:
                self._remove_leftovers()
            self._is_free, self._least = False, PARTIAL_GROWTH * len(partial)
            self._pool.submit(self._write, partial)

    def _remove_leftovers(self) -> None:
        """Remove the partial indexes of a program that was killed: nobody else builds this index now."""
        for left in self.target.parent.glob(f".{glob.escape(self.target.name)}.*{PARTIAL_SUFFIX}"):
            if left != self._partials:
                disk.remove_folder(left)

    def _write(self, partial: PartialIndex) -> None:
        self._count += 1
        try:
            path = self._partials / str(self._count) / self.target.name
            partial.write(path)
            self._on_partial(Index.open(path, extractor=self._options.get("extractor"), device=self._device))
            if self._previous is not None:  # searches under way have it open
                disk.remove_folder(self._previous)
            self._previous = path
        except Exception as error:  # the index itself is built all the same
            if not self._stop.is_set():
                log.warning("the photos extracted so far cannot be searched: %s", error)
            return
        self._is_free = True


class SetupApp:
    """An ASGI application: the page that asks for a folder, then the service of its index, as far as it is made.

    Parameters
    ----------
    settings : Settings
    folder : Path, optional
        The folder of photos, where it is known; else the page asks.
    device : str
        What builds and searches the index.
    options : dict, optional
        More for `Index.create`.
    """

    def __init__(
        self,
        settings: Settings,
        folder: Path | None = None,
        *,
        device: str = AUTO,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._settings, self._device, self._options = settings, device, options or {}
        self._resources = Resources(settings)
        self._resources.building = self._status
        self._setup = self._make_setup()
        self._service: FastAPI | None = None
        self._building: IndexBuild | None = None
        self._error: str | None = None
        self._first = folder
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request by the service, or by the setup page while there is none."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await (self._service or self._setup)(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        if self._first is not None:
            self._begin(self._first)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self._building is not None:
            self._building.stop()
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task
        if self._service is not None:
            await self._service.state.service.stop()
        self._resources.stop()
        await send({"type": "lifespan.shutdown.complete"})

    def _begin(self, folder: Path) -> None:
        if self._task is not None and not self._task.done():
            raise ServiceError(422, "An index is being built already; wait for it.")
        self._error = None
        loop = asyncio.get_running_loop()

        def on_partial(index: Index) -> None:
            asyncio.run_coroutine_threadsafe(self._serve(index, lasting=False), loop).result()

        self._building = IndexBuild(folder, self._device, self._options, on_partial)
        self._task = asyncio.ensure_future(self._build(self._building))

    async def _serve(self, index: Index, *, lasting: bool) -> None:
        """Answer from this index from now on."""
        if self._service is not None:
            live_index = self._service.state.service.live_index
            await asyncio.to_thread(live_index.move_to, index, lasting=lasting)
            return
        service = create_app(index, self._settings, self._resources)
        service.state.service.live_index.lasting = lasting
        await service.state.service.start()
        self._service = service

    async def _build(self, building: IndexBuild) -> None:
        try:
            await self._serve(await asyncio.to_thread(building.run), lasting=True)
            self._building = None
        except BuildStoppedError:
            log.warning(
                "stopped; extracted photos of %s are saved, the same command goes on from there",
                building.folder,
            )
        except (ManifindError, OSError, MemoryError) as error:
            self._building, self._error = None, str(error)
        except Exception as error:
            log.exception("the index could not be built")
            self._building, self._error = None, f"The index could not be built: {error}"

    def _make_setup(self) -> FastAPI:
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
        add_error_handlers(app)
        app.add_middleware(Guard, settings=self._settings, metrics=self._resources.metrics)

        add_page(app, "setup.html")

        @app.get("/api/health")
        async def health() -> HealthResponse:
            return HealthResponse()

        @app.get("/api/start")
        async def status() -> StartResponse:
            return StartResponse(**self._status().model_dump(), picks=self._picks)

        @app.post("/api/start")
        async def start(request: StartRequest) -> StartResponse:
            self._check_here()
            self._begin(await self._resources.files.submit(1, lambda: _check_folder(request.folder)))
            return await status()

        @app.get("/api/start/folders")
        async def folders(path: Annotated[str, Query(max_length=LONGEST_KEY)] = "") -> FolderListing:
            self._check_here()
            return await self._resources.files.submit(1, lambda: _list_folder(path))

        return app

    def _status(self) -> BuildingResponse:
        """Return the progress of the build, and why the index could not be built if it could not."""
        return BuildingResponse(building=None if self._building is None else self._building.progress, error=self._error)

    @property
    def _picks(self) -> bool:
        """Whether folders of this machine may be listed and chosen: where nobody else can ask."""
        return self._settings.hosts is not None and not self._settings.origins

    def _check_here(self) -> None:
        if not self._picks:
            raise ServiceError(403, "Folders are chosen only where the service answers this machine alone.")


def _first_folder() -> Path:
    """Return where choosing begins: in the working folder, or at home where that is no place for photos."""
    try:
        here = Path.cwd()
    except OSError:  # it was removed meanwhile
        return Path.home()
    return Path.home() if here == Path(here.anchor) else here


def _check_folder(text: str) -> Path:
    """Return the folder to index, or say why it cannot be indexed."""
    folder = Path(text)
    if "\0" in text or not folder.is_absolute() or not folder.is_dir():
        raise ServiceError(422, f"{text[:200]!r} is not a folder of this machine; choose one that is.")
    folder = folder.resolve()
    if folder == Path(folder.anchor):
        raise ServiceError(422, f"{str(folder)!r} has no place for an index beside it; choose a folder below.")
    return folder


def _list_folder(text: str) -> FolderListing:
    """Return the folders in a folder, and how many photos are seen in it."""
    folder = Path(text) if text else _first_folder()
    if "\0" in text or not folder.is_absolute():
        raise ServiceError(422, f"{text[:200]!r} is no whole path; begin at the root.")
    folders, files = [], []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                with suppress(OSError):  # an entry that cannot be read is no folder to choose
                    if entry.is_dir():
                        folders.append(entry.name)
                    elif entry.is_file():
                        files.append(entry.path)
    except OSError as error:
        raise ServiceError(404, f"{text[:200]!r} cannot be listed ({access_reason(error)}); choose another.") from None
    # A name that is no text could not be sent back.
    named = [name for name in folders if not name.endswith(SUFFIX) and printable(name) == name]
    is_root = folder.parent == folder
    return FolderListing(
        path=printable(folder),
        parent=None if is_root else printable(folder.parent),
        folders=sorted(named, key=str.casefold)[:MAX_FOLDERS],
        photos=sum(map(_is_photo, sorted(files)[:MAX_SNIFFED])),
        indexed=not is_root and is_index(index_of(folder)),
    )


def _is_photo(file: str) -> bool:
    try:
        return photo_format(read_head(file)) is not None
    except UnreadableImageError:
        return False
