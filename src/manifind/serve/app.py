"""The service as an ASGI application; before there is an index, a page that asks for a folder.

A build stops after the current photo, and the extracted photos are saved. As soon as a few photos are extracted they
are searched; later partial indexes, and at last the index itself, take the place of the first, and uploads stay.
Folders of this machine are listed only where the service answers nobody else.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from manifind.errors import DamagedError, InvalidInputError, ManifindError, UnreadableImageError
from manifind.index import Index
from manifind.index.storage.layout import SUFFIX, index_of, is_index
from manifind.io.files import access_reason, printable, read_head
from manifind.io.image import photo_format
from manifind.kernels import AUTO
from manifind.serve import routes
from manifind.serve.builds import BuildStoppedError, IndexBuild
from manifind.serve.errors import ServiceError, first_sentence, service_error
from manifind.serve.guard import Guard
from manifind.serve.resources import Resources, Settings
from manifind.serve.responses import BuildingResponse, ErrorResponse, HealthResponse, ResponseModel
from manifind.serve.routes import add_page, photos, proposals, search
from manifind.serve.schemas import LONGEST_KEY, Strict
from manifind.serve.service import Service
from manifind.version import VERSION

log = logging.getLogger("manifind.serve")

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": what}
    for status, what in {
        400: "The request cannot be read.",
        401: "The token is missing.",
        403: "Another site's page asks, or the photo lies outside the collection.",
        404: "There is no such photo.",
        405: "The address does not take this method.",
        408: "The body did not arrive in time.",
        413: "The body is too large.",
        415: "The body is of another kind than the route takes.",
        421: "The service does not go by this name.",
        422: "What was asked for cannot be answered; the sentence says why.",
        431: "The head of the request is too large.",
        503: "There is too much to do; Retry-After says when to come back.",
        504: "The answer took too long and was given up.",
    }.items()
}


def create_app(index: Index, settings: Settings | None = None, resources: Resources | None = None) -> FastAPI:
    """Return the service of an index.

    Parameters
    ----------
    index : Index
    settings : Settings, optional
    resources : Resources, optional
        Those of the page that asked for a folder. Whoever made them stops them.
    """
    settings = settings or Settings()
    shared = resources or Resources(settings)
    service = Service(index, shared)

    @asynccontextmanager
    async def alive(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()
        if resources is None:
            shared.stop()

    app = FastAPI(
        title="manifind",
        version=VERSION,
        description="Finds every photo of a collection that contains this object, however small.",
        lifespan=alive,
        docs_url=None,
        redoc_url=None,
        responses=PROBLEMS,
        redirect_slashes=False,
    )
    app.state.service = service
    for subject in (search, photos, proposals, routes):
        subject.add(app, service)
    if settings.mcp:
        from manifind.serve import mcp_server  # an extra

        app.router.routes.append(Route(mcp_server.PATH, mcp_server.Endpoint(service), methods=["POST"]))
    add_error_handlers(app)
    app.add_middleware(Guard, settings=settings, metrics=shared.metrics)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


def add_error_handlers(app: FastAPI) -> None:
    """Tell every error as one sentence."""

    @app.exception_handler(ServiceError)
    @app.exception_handler(InvalidInputError)
    @app.exception_handler(UnreadableImageError)
    @app.exception_handler(DamagedError)
    @app.exception_handler(Exception)
    async def told(_: Request, error: Exception) -> Response:
        return service_error(error).response()

    @app.exception_handler(RequestValidationError)
    @app.exception_handler(ValidationError)
    async def invalid(_: Request, error: RequestValidationError | ValidationError) -> Response:
        return ServiceError(422, first_sentence(error.errors())).response()

    @app.exception_handler(ClientDisconnect)
    async def left(_: Request, __: ClientDisconnect) -> Response:
        return ServiceError(499, "The client has left.").response()

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        sentences = {404: "There is nothing at this address.", 405: "The address does not take this method."}
        sentence = sentences.get(error.status_code, f"{str(error.detail).rstrip('.')}.")
        return ServiceError(error.status_code, sentence, dict(error.headers or {})).response()


MAX_FOLDERS = 2000
MAX_SNIFFED = 200
"""Files of a folder whose heads are read to see whether there are photos in it."""


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
