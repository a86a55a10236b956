"""Before there is an index: a page that asks for a folder, then a service that searches what is there so far.

The index is made in a thread of its own. The program stops after the current photo, and the extracted
photos are saved. As soon as a few photos are extracted they are searched; later indexes of more photos, and at last
the index itself, take the place of the first, and uploads stay. Folders of this machine are listed only where the
service answers nobody else.
"""

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query
from pydantic import Field
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from manifind.errors import InvalidInputError, ManifindError
from manifind.index import Index
from manifind.index.storage.layout import SUFFIX, index_of, is_index
from manifind.io.files import HEAD_BYTES
from manifind.io.image import photo_format
from manifind.kernels import CPU
from manifind.serve.app import add_error_handlers, create_app
from manifind.serve.errors import ServiceError
from manifind.serve.guard import Guard
from manifind.serve.partial_index import IndexBuild, Stopped
from manifind.serve.resources import Resources
from manifind.serve.routes.page import page_file
from manifind.serve.schemas import LONGEST_KEY, Strict
from manifind.serve.settings import Settings

log = logging.getLogger("manifind.serve")

MOST_FOLDERS = 2000
SNIFFED = 200
"""Files of a folder that are looked at to see whether there are photos in it."""


class StartRequest(Strict):
    """The folder to make an index of."""

    folder: str = Field(max_length=LONGEST_KEY)


class SetupApp:
    """An ASGI application: the page that asks for a folder, then the service of its index, as far as it is made.

    Parameters
    ----------
    settings : Settings
    folder : Path, optional
        The folder of photos, where it is known; else the page asks.
    device : str
        What makes and searches the index.
    options : dict, optional
        More for `Index.create`.
    """

    def __init__(
        self,
        settings: Settings,
        folder: Path | None = None,
        *,
        device: str = CPU,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._settings, self._device, self._options = settings, device, options or {}
        self._resources = Resources(settings)
        self._resources.building = self._status
        self._asking = self._made_asking()
        self._service: FastAPI | None = None
        self._building: IndexBuild | None = None
        self._error: str | None = None
        self._first = folder
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request by whichever of the two there is."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await (self._service or self._asking)(scope, receive, send)

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
            raise ServiceError(422, "An index is being made already; wait for it.")
        self._error = None
        loop = asyncio.get_running_loop()

        def searchable(index: Index) -> None:
            asyncio.run_coroutine_threadsafe(self._serve(index, lasting=False), loop).result()

        self._building = IndexBuild(folder, self._device, self._options, searchable)
        self._task = asyncio.ensure_future(self._make(self._building))

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

    async def _make(self, building: IndexBuild) -> None:
        try:
            await self._serve(await asyncio.to_thread(building.run), lasting=True)
            self._building = None
        except Stopped:
            log.warning(
                "stopped; extracted photos of %s are saved, the same command goes on from there",
                building.folder,
            )
        except (ManifindError, OSError, MemoryError) as error:
            self._building, self._error = None, str(error)
        except Exception as error:
            log.exception("the index could not be made")
            self._building, self._error = None, f"The index could not be made: {error}"

    def _made_asking(self) -> FastAPI:
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
        add_error_handlers(app)
        app.add_middleware(Guard, settings=self._settings, metrics=self._resources.metrics)

        @app.get("/")
        async def page() -> Response:
            return page_file("setup.html")

        @app.get("/page/{name}")
        async def part(name: str) -> Response:
            return page_file(name)

        @app.get("/api/health")
        async def health() -> Response:
            return JSONResponse({"status": "ok"})

        @app.get("/api/start")
        async def status() -> Response:
            return JSONResponse({**self._status(), "picks": self._picks})

        @app.post("/api/start")
        async def start(asked: StartRequest) -> Response:
            self._check_here()
            folder = Path(asked.folder).expanduser()
            if not folder.is_absolute() or not folder.is_dir():
                raise ServiceError(422, f"{asked.folder!r} is not a folder of this machine; choose one that is.")
            self._begin(folder)
            return await status()

        @app.get("/api/start/folders")
        async def folders(path: Annotated[str, Query(max_length=LONGEST_KEY)] = "") -> Response:
            self._check_here()
            return JSONResponse(await asyncio.to_thread(_listed, Path(path) if path else _beginning()))

        return app

    def _status(self) -> dict[str, Any]:
        """Return how far the index is, and why it could not be made if it could not."""
        return {"building": None if self._building is None else self._building.told(), "error": self._error}

    @property
    def _picks(self) -> bool:
        """Whether folders of this machine may be listed and chosen: where nobody else can ask."""
        return self._settings.hosts is not None and not self._settings.origins

    def _check_here(self) -> None:
        if not self._picks:
            raise ServiceError(403, "Folders are chosen only where the service answers this machine alone.")


def _beginning() -> Path:
    """Return where choosing begins: where the command was given, or at home where that is no place for photos."""
    try:
        here = Path.cwd()
    except OSError:  # it was removed meanwhile
        return Path.home()
    return Path.home() if here == Path(here.anchor) else here


def _listed(folder: Path) -> dict[str, Any]:
    """Return the folders in a folder, and how many photos are seen in it."""
    try:
        if not folder.is_absolute():
            raise InvalidInputError(f"{str(folder)!r} is no whole path; begin at the root.")
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name.casefold())
    except OSError as error:
        raise ServiceError(404, f"{str(folder)!r} cannot be listed ({error.strerror}); choose another.") from None
    below = [
        one.name for one in entries if one.is_dir() and not one.name.startswith(".") and not one.name.endswith(SUFFIX)
    ]
    files = [one.path for one in entries if one.is_file() and not one.name.startswith(".")]
    parent = None if folder.parent == folder else str(folder.parent)
    return {
        "path": str(folder),
        "parent": parent,
        "folders": below[:MOST_FOLDERS],
        "photos": sum(map(_is_photo, files[:SNIFFED])),
        "indexed": is_index(index_of(folder)),
    }


def _is_photo(file: str) -> bool:
    try:
        with Path(file).open("rb") as stream:
            return photo_format(stream.read(HEAD_BYTES)) is not None
    except OSError:
        return False
