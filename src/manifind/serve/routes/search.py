"""Searches, explanations of what was found, and the photos that people search with."""

from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Query, Request
from pydantic import Field, ValidationError
from starlette.responses import Response, StreamingResponse

from manifind.index.search.filters import DATE
from manifind.reports.results import as_csv
from manifind.serve.errors import ServiceError, first_sentence
from manifind.serve.routes.requests import (
    BoxInWords,
    attached,
    box_in_words,
    checked_view,
    text_body,
    while_connected,
)
from manifind.serve.schemas import (
    EXPAND,
    LONGEST_KEY,
    LONGEST_SHORT,
    SHORT_VIEW,
    VERIFY,
    ExplainRequest,
    ExplainResponse,
    GeometryRequest,
    GeometryResponse,
    Method,
    SearchRequest,
    SearchResponse,
    UploadResponse,
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

Top = Annotated[int, Query(ge=1, le=1000)]
Expand = Annotated[bool, Query(description=EXPAND)]
Verify = Annotated[int | None, Query(ge=0, le=200, description=VERIFY)]
ShortView = Annotated[str, Field(max_length=LONGEST_SHORT)]


def add(app: FastAPI, service: Service) -> None:
    """Add searches, explanations and uploads."""

    def asked(
        q: Annotated[list[ShortView], Query(max_length=64, description=SHORT_VIEW)] = [],  # noqa: B006 (copied)
        negatives: Annotated[list[ShortView], Query(max_length=64, description=SHORT_VIEW)] = [],  # noqa: B006
        method: Method = "regional",
        top: Top = 60,
        verify: Verify = None,
        expand: Expand = True,
        folder: Annotated[str | None, Query(max_length=LONGEST_KEY)] = None,
        since: Annotated[str | None, Query(pattern=DATE.pattern)] = None,
        until: Annotated[str | None, Query(pattern=DATE.pattern)] = None,
        sort: Literal["score", "date"] = "score",
    ) -> SearchRequest:
        views, against = short_views("q", q), short_views("negatives", negatives)
        within: dict[str, Any] = {"expand": expand, "folder": folder, "since": since, "until": until, "sort": sort}
        return SearchRequest(views=views, negatives=against, method=method, top=top, verify=verify, **within)

    Asked = Annotated[SearchRequest, Depends(asked)]

    async def answered(http: Request, request: SearchRequest) -> dict[str, Any]:
        return await while_connected(service, http, service.search(request))

    @app.post("/api/search", response_model=SearchResponse, tags=["search"])
    async def search(http: Request, request: SearchRequest) -> Any:
        """Find the photos that contain what the views show: by key, by upload, or by descriptors of your own."""
        return await answered(http, request)

    @app.get("/api/search", response_model=SearchResponse, tags=["search"])
    async def search_by_address(http: Request, request: Asked) -> Any:
        """Find photos by the same words that the page's address holds."""
        return await answered(http, request)

    @app.post("/api/search/photo", response_model=SearchResponse, tags=["search"], openapi_extra=PHOTO_BODY)
    async def search_by_photo(
        http: Request, box: BoxInWords = None, method: Method = "regional", top: Top = 60, verify: Verify = None
    ) -> Any:
        """Find photos by the photo that is the body of the request."""
        data = await photo_body(http)
        part = box_in_words(box)

        async def taken_and_searched() -> dict[str, Any]:
            upload = await service.resources.thumbnails.take(data)
            view = checked_view(upload=upload.name, box=part)
            return await service.search(SearchRequest(views=[view], method=method, top=top, verify=verify))

        return await while_connected(service, http, taken_and_searched())

    @app.get("/api/search.csv", tags=["search"], response_class=Response, responses=text_body("text/csv"))
    async def search_as_table(http: Request, request: Asked) -> Response:
        """Answer a search as a table."""
        text = as_csv((await answered(http, request))["results"])
        return Response(text, media_type="text/csv", headers=attached("results.csv"))

    @app.get("/api/search.zip", tags=["search"], response_class=Response, responses=text_body("application/zip"))
    async def search_as_archive(http: Request, request: Asked) -> Response:
        """Answer a search as an archive of the photos themselves."""
        results = (await answered(http, request))["results"]
        pieces = service.resources.archive([one["key"] for one in results], service.file, as_csv(results))
        return StreamingResponse(pieces, media_type="application/zip", headers=attached("photos.zip"))

    @app.post("/api/explain", response_model=ExplainResponse, tags=["search"])
    async def explain(http: Request, request: ExplainRequest) -> Any:
        """Show the chain of photos that leads from the query to a photo."""
        return await while_connected(service, http, service.explain(request))

    @app.post("/api/geometry", response_model=GeometryResponse, tags=["search"])
    async def geometry(http: Request, request: GeometryRequest) -> Any:
        """Show the points that match in the views of an object and in a photo of the collection."""
        return await while_connected(service, http, service.points(request))

    @app.post("/api/uploads", response_model=UploadResponse, tags=["search"], openapi_extra=PHOTO_BODY)
    async def upload(http: Request) -> Any:
        """Take in a photo to search with; it is kept in memory, never on disk, until newer ones need the room."""
        taken = await while_connected(service, http, service.resources.thumbnails.take(await photo_body(http)))
        return {"upload": taken.name, "width": taken.width, "height": taken.height}

    @app.get("/api/uploads/{upload}", response_model=UploadResponse, tags=["search"])
    async def uploaded(upload: str) -> Any:
        """Say whether an upload is still kept."""
        kept = service.resources.photo_store.upload(upload[:64])
        return {"upload": kept.name, "width": kept.width, "height": kept.height}


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
