"""The routes of the service: a module for each subject, whose function `add` gives an application its routes.

This one has the page in the browser, the state of the service, and what the routes share.
"""

from collections.abc import Awaitable
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from fastapi import FastAPI, Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from manifind.serve.errors import ServiceError, first_sentence
from manifind.serve.responses import BuildingResponse, CollectionResponse, HealthResponse
from manifind.serve.schemas import LONGEST_BOX, LONGEST_KEY, ViewRequest, corners
from manifind.serve.service import Service

T = TypeVar("T")
MAX_FILE_NAME = 150
"""Characters of the name of a download."""
PAGE = files("manifind.serve") / "page"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
BoxText = Annotated[str | None, Query(description="x0,y0,x1,y1 in pixels of the upright photo", max_length=LONGEST_BOX)]
Key = Annotated[str, Query(max_length=LONGEST_KEY)]


def parse_box(text: str | None) -> list[float] | None:
    """Return the box of an address; None where it has none."""
    if text is None:
        return None
    box = corners(text)
    if box is None:
        raise ServiceError(422, f"box is {text[:80]!r}; give four numbers x0,y0,x1,y1 in pixels.")
    return box


def checked_view(**fields: Any) -> ViewRequest:
    """Return a view; an error names the field that is wrong."""
    try:
        return ViewRequest.model_validate(fields)
    except ValidationError as error:
        raise ServiceError(422, first_sentence(error.errors())) from None


async def while_connected(service: Service, http: Request, work: Awaitable[T]) -> T:
    """Do some work until it is done, its time is up, or the client has left."""

    async def left() -> None:
        while (await http.receive())["type"] != "http.disconnect":
            pass

    return await service.resources.within_limits(work, left())


def body_of_kind(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """Return the part of the schema that describes a response with a body of these kinds."""
    return {200: {"content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in kinds}}}


def attachment(name: str) -> dict[str, str]:
    """Return the header by which a browser saves a response under a name, which may hold what no file's name does."""
    safe = "".join("_" if letter in '/\\:*?"<>|' or not letter.isprintable() else letter for letter in name)
    safe = safe.strip(". ")[:MAX_FILE_NAME]
    plain = safe.encode("ascii", "replace").decode().replace("?", "_")
    return {"Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=utf-8''{quote(safe)}"}


def add(app: FastAPI, service: Service) -> None:
    """Add the page and the state of the service."""
    add_page(app, "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return page_file("docs.html")

    @app.get("/api/info", tags=["service"])
    async def info(http: Request) -> dict[str, Any]:
        """Return counts, parameters and the health of the graph."""
        return await while_connected(service, http, service.info())

    @app.get("/api/collection", tags=["service"])
    async def collection() -> CollectionResponse:
        """Return the name of the collection and how many photos can be searched."""
        snapshot = service.snapshot
        return CollectionResponse(name=service.name, photos=len(snapshot.catalogue), generation=snapshot.number)

    @app.get("/api/building", tags=["service"])
    async def building() -> BuildingResponse:
        """Return the progress of an index that is being built and searched meanwhile."""
        return service.building()

    @app.post("/api/update", tags=["service"])
    async def update() -> BuildingResponse:
        """Bring the index up to date with its folder, in the background; `/api/building` tells how far it is."""
        service.folder_watch.begin()
        return service.building()

    @app.get("/api/health", tags=["service"])
    async def health() -> HealthResponse:
        """Say that the service is alive, and which of its stages a disk or a network holds up."""
        stuck = service.resources.stuck
        return HealthResponse(status="degraded" if stuck else "ok", stuck=stuck)

    @app.get("/api/ready", tags=["service"])
    async def ready() -> HealthResponse:
        """Say whether the network is loaded and queries can be answered."""
        service.live_index.check()
        if not service.ready:
            raise ServiceError(503, "The service is still loading; try again in a second.", {"Retry-After": "1"})
        return HealthResponse()

    @app.get("/metrics", tags=["service"], response_class=Response, responses=body_of_kind("text/plain"))
    async def metrics() -> Response:
        """Return latencies by stage, batch sizes and the queue, for Prometheus."""
        return Response(service.resources.metrics.text(), media_type="text/plain; version=0.0.4")


def add_page(app: FastAPI, start: str) -> None:
    """Add a page that starts with this file, and the files of all pages."""

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return page_file(start)

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        return page_file(name)


def page_file(name: str) -> Response:
    """Return a file of the page."""
    kind = KINDS.get(name[name.rfind(".") :])
    if name not in _contents() or kind is None:
        raise ServiceError(404, "There is nothing at this address.")
    return Response(_contents()[name], headers={"Content-Type": kind, "Cache-Control": "no-cache"})


@cache
def _contents() -> dict[str, bytes]:
    """Return the files of the page, read once."""
    return {file.name: file.read_bytes() for file in PAGE.iterdir() if "." in file.name}
