"""Searches, explanations of what was found, and the photos that people search with."""

from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Query, Request
from pydantic import Field, ValidationError
from starlette.responses import JSONResponse, Response, StreamingResponse

from manifind.pages.answers import as_csv
from manifind.serve.answering import Answering, finder
from manifind.serve.problems import Problem, first_sentence
from manifind.serve.routes.requests import (
    BoxInWords,
    attached,
    box_in_words,
    checked_view,
    text_body,
    while_connected,
)
from manifind.serve.schemas import (
    DATE,
    LONGEST_KEY,
    LONGEST_SHORT,
    REFINE,
    SHORT_VIEW,
    VERIFY,
    ExplainAnswer,
    ExplainRequest,
    GeometryAnswer,
    GeometryRequest,
    Method,
    SearchAnswer,
    SearchRequest,
    UploadAnswer,
    ViewRequest,
)

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
Refine = Annotated[bool, Query(description=REFINE)]
Verify = Annotated[int | None, Query(ge=0, le=200, description=VERIFY)]
ShortView = Annotated[str, Field(max_length=LONGEST_SHORT)]


def add(app: FastAPI, service: Answering) -> None:
    """Add searches, explanations and uploads."""

    def asked(
        q: Annotated[list[ShortView], Query(max_length=64, description=SHORT_VIEW)] = [],  # noqa: B006 (copied)
        n: Annotated[list[ShortView], Query(alias="not", max_length=64, description=SHORT_VIEW)] = [],  # noqa: B006
        method: Method = "regional",
        top: Top = 60,
        verify: Verify = None,
        refine: Refine = True,
        folder: Annotated[str | None, Query(max_length=LONGEST_KEY)] = None,
        since: Annotated[str | None, Query(pattern=DATE)] = None,
        until: Annotated[str | None, Query(pattern=DATE)] = None,
        sort: Literal["score", "date"] = "score",
    ) -> SearchRequest:
        views, not_this = short_views("q", q), short_views("not", n)
        within: dict[str, Any] = {"refine": refine, "folder": folder, "since": since, "until": until, "sort": sort}
        return SearchRequest(views=views, not_this=not_this, method=method, top=top, verify=verify, **within)

    Asked = Annotated[SearchRequest, Depends(asked)]

    async def answered(http: Request, request: SearchRequest) -> dict[str, Any]:
        return await while_connected(service, http, service.search(request))

    @app.post("/api/search", response_model=SearchAnswer, tags=["search"])
    async def search(http: Request, request: SearchRequest) -> Response:
        """Find the photos that contain what the views show: by key, by upload, or by descriptors of your own."""
        return JSONResponse(await answered(http, request))

    @app.get("/api/search", response_model=SearchAnswer, tags=["search"])
    async def search_by_address(http: Request, request: Asked) -> Response:
        """Find photos by the same words that the page's address holds."""
        return JSONResponse(await answered(http, request))

    @app.post("/api/search/photo", response_model=SearchAnswer, tags=["search"], openapi_extra=PHOTO_BODY)
    async def search_by_photo(
        http: Request, box: BoxInWords = None, method: Method = "regional", top: Top = 60, verify: Verify = None
    ) -> Response:
        """Find photos by the photo that is the body of the request."""
        data = await photo_body(http)
        part = box_in_words(box)

        async def taken_and_searched() -> dict[str, Any]:
            upload = await service.common.rendering.take(data)
            view = checked_view(upload=upload.name, box=part)
            return await service.search(SearchRequest(views=[view], method=method, top=top, verify=verify))

        return JSONResponse(await while_connected(service, http, taken_and_searched()))

    @app.get("/api/search.csv", tags=["search"], response_class=Response, responses=text_body("text/csv"))
    async def search_as_table(http: Request, request: Asked) -> Response:
        """Answer a search as a table."""
        text = as_csv((await answered(http, request))["results"])
        return Response(text, media_type="text/csv", headers=attached("results.csv"))

    @app.get("/api/search.zip", tags=["search"], response_class=Response, responses=text_body("application/zip"))
    async def search_as_archive(http: Request, request: Asked) -> Response:
        """Answer a search as an archive of the photos themselves."""
        results = (await answered(http, request))["results"]
        pieces = service.common.archive([one["key"] for one in results], finder(service), as_csv(results))
        return StreamingResponse(pieces, media_type="application/zip", headers=attached("photos.zip"))

    @app.post("/api/explain", response_model=ExplainAnswer, tags=["search"])
    async def explain(http: Request, request: ExplainRequest) -> Response:
        """Show the chain of photos that leads from the query to a photo."""
        return JSONResponse(await while_connected(service, http, service.explain(request)))

    @app.post("/api/geometry", response_model=GeometryAnswer, tags=["search"])
    async def geometry(http: Request, request: GeometryRequest) -> Response:
        """Show the points that match in the views of an object and in a photo of the collection."""
        return JSONResponse(await while_connected(service, http, service.points(request)))

    @app.post("/api/uploads", response_model=UploadAnswer, tags=["search"], openapi_extra=PHOTO_BODY)
    async def upload(http: Request) -> Response:
        """Take in a photo to search with; it is kept in memory, never on disk, until newer ones need the room."""
        taken = await while_connected(service, http, service.common.rendering.take(await photo_body(http)))
        return JSONResponse({"upload": taken.name, "width": taken.width, "height": taken.height})

    @app.get("/api/uploads/{upload}", response_model=UploadAnswer, tags=["search"])
    async def uploaded(upload: str) -> Response:
        """Say whether an upload is still kept."""
        kept = service.common.pictures.upload(upload[:64])
        return JSONResponse({"upload": kept.name, "width": kept.width, "height": kept.height})


def short_views(name: str, texts: list[str]) -> list[ViewRequest]:
    """Return views that the parameter `name` of an address has in short."""
    try:
        return [ViewRequest.short(text) for text in texts]
    except ValidationError as error:
        raise Problem(422, f"{name}: {first_sentence(error.errors())}") from None
    except ValueError as error:
        raise Problem(422, f"{name}: {error}.") from None


async def photo_body(http: Request) -> bytes:
    """Return the body of a request that is to be a photo."""
    kind = http.headers.get("content-type", "application/octet-stream").partition(";")[0].strip().lower()
    if kind != "application/octet-stream" and not kind.startswith("image/"):
        raise Problem(415, "The body must be the bytes of a photo, sent as application/octet-stream or image/….")
    data = await http.body()
    if not data:
        raise Problem(422, "The body is empty; send the bytes of a photo.")
    return data
