"""Searches, explanations of results, and uploads to search with."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import PurePosixPath
from typing import Annotated

from fastapi import Depends, FastAPI, Query, Request
from pydantic import ValidationError
from starlette.responses import Response, StreamingResponse

from manifind.reports.results import as_csv
from manifind.serve.errors import ServiceError, first_sentence, service_error
from manifind.serve.responses import (
    ErrorResponse,
    ExplainResponse,
    GeometryResponse,
    SearchResponse,
    SearchStep,
    UploadResponse,
)
from manifind.serve.routes import BoxText, attachment, body_of_kind, checked_view, parse_box, while_connected
from manifind.serve.schemas import (
    DEFAULT_TOP,
    MAX_TOP,
    VERIFY,
    ExplainRequest,
    GeometryRequest,
    Method,
    SearchAddress,
    SearchRequest,
    ViewRequest,
)
from manifind.serve.service import Service

PHOTO_BODY = {
    "requestBody": {
        "required": True,
        "description": "The bytes of a photo: JPEG, PNG, WebP, AVIF, TIFF, GIF, BMP, JPEG 2000, PNM or HEIC.",
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}} for kind in ("application/octet-stream", "image/*")
        },
    }
}

NDJSON = "application/x-ndjson"
Top = Annotated[int, Query(ge=1, le=MAX_TOP)]
Verify = Annotated[int | None, Query(ge=0, le=200, description=VERIFY)]


def add(app: FastAPI, service: Service) -> None:
    """Add searches, explanations and uploads."""

    async def parsed(address: Annotated[SearchAddress, Query()]) -> SearchRequest:
        views, negatives = short_views("q", address.q), short_views("negatives", address.negatives)
        parameters = address.model_dump(exclude={"q", "negatives"})
        return SearchRequest(views=views, negatives=negatives, **parameters)

    Parsed = Annotated[SearchRequest, Depends(parsed)]

    async def run(http: Request, request: SearchRequest) -> SearchResponse:
        return await while_connected(service, http, service.search(request))

    @app.post("/api/search", tags=["search"])
    async def search(http: Request, request: SearchRequest) -> SearchResponse:
        """Find the photos that contain what the views show: by key, by upload, or by descriptors of your own."""
        return await run(http, request)

    @app.post("/api/search/stream", tags=["search"], response_class=Response, responses=body_of_kind(NDJSON))
    async def search_stream(http: Request, request: SearchRequest) -> Response:
        """Return the results of a search as they come: a line of JSON each, with `result`, `progress` or `error`."""
        steps = service.search_steps(request)
        first = await while_connected(service, http, anext(steps))

        async def lines() -> AsyncIterator[str]:
            step: SearchStep | None = first
            async with aclosing(steps):
                try:
                    while step is not None:
                        yield f"{step.model_dump_json(exclude_none=step.result is None)}\n"
                        step = await anext(steps, None)
                except Exception as error:  # the status was sent: what is wrong is the last line
                    problem = service_error(error)
                    yield f"{ErrorResponse(error=problem.sentence, code=problem.code).model_dump_json()}\n"

        return StreamingResponse(lines(), media_type=NDJSON)

    @app.get("/api/search", tags=["search"])
    async def search_by_address(http: Request, request: Parsed) -> SearchResponse:
        """Find photos by the same words that the page's address holds."""
        return await run(http, request)

    @app.post("/api/search/photo", tags=["search"], openapi_extra=PHOTO_BODY)
    async def search_by_photo(
        http: Request, box: BoxText = None, method: Method = "regional", top: Top = DEFAULT_TOP, verify: Verify = None
    ) -> SearchResponse:
        """Find photos by the photo that is the body of the request."""
        data = await photo_body(http)
        part = parse_box(box)

        async def upload_and_search() -> SearchResponse:
            upload = await service.thumbnails.add_upload(data)
            view = checked_view(upload=upload.name, box=part)
            return await service.search(SearchRequest(views=[view], method=method, top=top, verify=verify))

        return await while_connected(service, http, upload_and_search())

    @app.get("/api/search.csv", tags=["search"], response_class=Response, responses=body_of_kind("text/csv"))
    async def search_as_table(http: Request, request: Parsed) -> Response:
        """Return the results of a search as a table."""
        text = _table(await run(http, request), mirrored=request.mirrored)
        return Response(text, media_type="text/csv", headers=attachment(f"{_name_of(request)}.csv"))

    @app.get("/api/search.zip", tags=["search"], response_class=Response, responses=body_of_kind("application/zip"))
    async def search_as_archive(http: Request, request: Parsed) -> Response:
        """Return the photos that a search finds, as an archive."""
        response = await run(http, request)
        keys, table = [result.key for result in response.results], _table(response, mirrored=request.mirrored)
        pieces = service.resources.archive(service.photo_store.archive(service.snapshot, keys, table))
        return StreamingResponse(pieces, media_type="application/zip", headers=attachment(f"{_name_of(request)}.zip"))

    @app.post("/api/explain", tags=["search"])
    async def explain(http: Request, request: ExplainRequest) -> ExplainResponse:
        """Return the chain of photos that leads from the query to a photo."""
        return await while_connected(service, http, service.explain(request))

    @app.post("/api/geometry", tags=["search"])
    async def geometry(http: Request, request: GeometryRequest) -> GeometryResponse:
        """Return the points that match in the views of an object and in a photo of the collection."""
        return await while_connected(service, http, service.points(request))

    @app.post("/api/uploads", tags=["search"], openapi_extra=PHOTO_BODY)
    async def upload(http: Request) -> UploadResponse:
        """Take in a photo to search with; it is kept in memory, never on disk, until newer ones need the room."""
        photo = await while_connected(service, http, service.thumbnails.add_upload(await photo_body(http)))
        return UploadResponse(upload=photo.name, width=photo.width, height=photo.height)

    @app.get("/api/uploads/{upload}", tags=["search"])
    async def uploaded(upload: str) -> UploadResponse:
        """Say whether an upload is still kept."""
        photo = service.photo_store.upload(upload[:64])
        return UploadResponse(upload=photo.name, width=photo.width, height=photo.height)


def _name_of(request: SearchRequest) -> str:
    """Return what the file of a search's results is called: by the photo that was searched with."""
    key = request.views[0].key if request.views else None
    return "found" if key is None else f"found with {PurePosixPath(key).stem}"


def _table(response: SearchResponse, *, mirrored: bool) -> str:
    return as_csv([result.model_dump() for result in response.results], mirrored=mirrored)


def short_views(name: str, texts: list[str]) -> list[ViewRequest]:
    """Return views that the parameter `name` of an address has in short."""
    try:
        return [ViewRequest.short(text) for text in texts]
    except ValidationError as error:
        raise ServiceError(422, f"{name}: {first_sentence(error.errors())}") from None
    except ValueError as error:
        raise ServiceError(422, f"{name}: {error}.") from None


async def photo_body(http: Request) -> bytes:
    """Return the body of a request that is to be a photo."""
    kind = http.headers.get("content-type", "application/octet-stream").partition(";")[0].strip().lower()
    if kind != "application/octet-stream" and not kind.startswith("image/"):
        raise ServiceError(415, "The body must be the bytes of a photo, sent as application/octet-stream or image/….")
    data = await http.body()
    if not data:
        raise ServiceError(422, "The body is empty; send the bytes of a photo.")
    return data
