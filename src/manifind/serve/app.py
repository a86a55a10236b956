"""The service as an ASGI application: routes, and what they answer when something is wrong."""

import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response, StreamingResponse

from manifind.errors import Damaged, InvalidInput, ManifindError, Unreadable
from manifind.index import Index
from manifind.pages.answers import as_csv
from manifind.serve import keeping, looking, repeating
from manifind.serve.answering import Answering, finder
from manifind.serve.collections import Collections
from manifind.serve.common import Common
from manifind.serve.guard import Guard
from manifind.serve.problems import Problem, first_sentence, sentence_response
from manifind.serve.schemas import (
    DATE,
    LONGEST_BOX,
    LONGEST_KEY,
    LONGEST_SHORT,
    REFINE,
    SHORT_VIEW,
    UPLOAD,
    VERIFY,
    BuildingAnswer,
    CollectionsAnswer,
    ExplainAnswer,
    ExplainRequest,
    FoldersAnswer,
    GeometryAnswer,
    GeometryRequest,
    HealthAnswer,
    Method,
    PhotoAnswer,
    PhotosAnswer,
    ProblemAnswer,
    SearchAnswer,
    SearchRequest,
    UploadAnswer,
    ViewRequest,
    corners,
)
from manifind.serve.service import Service
from manifind.serve.settings import Settings
from manifind.version import VERSION

log = logging.getLogger("manifind.serve")
T = TypeVar("T")

PAGE = files("manifind.serve") / "page"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemAnswer, "description": what}
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
PHOTO_BODY = {
    "requestBody": {
        "required": True,
        "description": "The bytes of a photo: JPEG, PNG, WebP, AVIF, TIFF, GIF, BMP, JPEG 2000, PNM or HEIC.",
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}} for kind in ("application/octet-stream", "image/*")
        },
    }
}
JPEG: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}},
    304: {"description": "As it was."},
}

Top = Annotated[int, Query(ge=1, le=1000)]
Refine = Annotated[bool, Query(description=REFINE)]
Verify = Annotated[int | None, Query(ge=0, le=200, description=VERIFY)]
ShortView = Annotated[str, Field(max_length=LONGEST_SHORT)]
ShortBox = Annotated[
    str | None, Query(description="x0,y0,x1,y1 in pixels of the upright photo", max_length=LONGEST_BOX)
]


def create_app(
    index: Index | Sequence[Index], settings: Settings | None = None, common: Common | None = None
) -> FastAPI:
    """Return the service of an index, or of several.

    Parameters
    ----------
    index : Index or sequence of Index
    settings : Settings, optional
    common : Common, optional
        What a service before this one leaves to it: uploads, above all. Whoever made it stops it.
    """
    settings = settings or Settings()
    shared = common or Common(settings, 1 if isinstance(index, Index) else len(index))
    service: Answering
    if isinstance(index, Index):
        service = Service(index, shared)
    else:
        service = Service(index[0], shared) if len(index) == 1 else Collections(index, shared)

    @asynccontextmanager
    async def alive(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()
        if common is None:
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
    _searching(app, service)
    _browsing(app, service)
    looking.routes(app, service)
    repeating.routes(app, service)
    keeping.routes(app, service)
    _watching(app, service)
    _page(app)
    tell_problems(app)
    app.add_middleware(Guard, settings=settings, metrics=shared.metrics)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


def _searching(app: FastAPI, service: Answering) -> None:
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
        views, not_this = _short("q", q), _short("not", n)
        within: dict[str, Any] = {"refine": refine, "folder": folder, "since": since, "until": until, "sort": sort}
        return SearchRequest(views=views, not_this=not_this, method=method, top=top, verify=verify, **within)

    Asked = Annotated[SearchRequest, Depends(asked)]

    async def answered(http: Request, request: SearchRequest) -> dict[str, Any]:
        return await _while_connected(service, http, service.search(request))

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
        http: Request, box: ShortBox = None, method: Method = "regional", top: Top = 60, verify: Verify = None
    ) -> Response:
        """Find photos by the photo that is the body of the request."""
        data = await _photo_body(http)
        part = _corners(box)

        async def taken_and_searched() -> dict[str, Any]:
            upload = await service.common.rendering.take(data)
            view = _checked(ViewRequest, upload=upload.name, box=part)
            return await service.search(SearchRequest(views=[view], method=method, top=top, verify=verify))

        return JSONResponse(await _while_connected(service, http, taken_and_searched()))

    @app.get("/api/search.csv", tags=["search"], response_class=Response, responses=_body("text/csv"))
    async def search_as_table(http: Request, request: Asked) -> Response:
        """Answer a search as a table."""
        text = as_csv((await answered(http, request))["results"])
        return Response(text, media_type="text/csv", headers=_attached("results.csv"))

    @app.get("/api/search.zip", tags=["search"], response_class=Response, responses=_body("application/zip"))
    async def search_as_archive(http: Request, request: Asked) -> Response:
        """Answer a search as an archive of the photos themselves."""
        results = (await answered(http, request))["results"]
        pieces = service.common.archive([one["key"] for one in results], finder(service), as_csv(results))
        return StreamingResponse(pieces, media_type="application/zip", headers=_attached("photos.zip"))

    @app.post("/api/explain", response_model=ExplainAnswer, tags=["search"])
    async def explain(http: Request, request: ExplainRequest) -> Response:
        """Show the chain of photos that leads from the query to a photo."""
        return JSONResponse(await _while_connected(service, http, service.explain(request)))

    @app.post("/api/geometry", response_model=GeometryAnswer, tags=["search"])
    async def geometry(http: Request, request: GeometryRequest) -> Response:
        """Show the points that match in the views of an object and in a photo of the collection."""
        return JSONResponse(await _while_connected(service, http, service.points(request)))

    @app.post("/api/uploads", response_model=UploadAnswer, tags=["search"], openapi_extra=PHOTO_BODY)
    async def upload(http: Request) -> Response:
        """Take in a photo to search with; it is kept in memory, never on disk, until newer ones need the room."""
        taken = await _while_connected(service, http, service.common.rendering.take(await _photo_body(http)))
        return JSONResponse({"upload": taken.name, "width": taken.width, "height": taken.height})

    @app.get("/api/uploads/{upload}", response_model=UploadAnswer, tags=["search"])
    async def uploaded(upload: str) -> Response:
        """Say whether an upload is still kept."""
        kept = service.common.pictures.upload(upload[:64])
        return JSONResponse({"upload": kept.name, "width": kept.width, "height": kept.height})


def _browsing(app: FastAPI, service: Answering) -> None:
    @app.get("/api/photos", response_model=PhotosAnswer, tags=["browse"])
    async def photos(
        http: Request,
        folder: Annotated[str, Query(max_length=LONGEST_KEY)] = "",
        contains: Annotated[str, Query(max_length=400)] = "",
        start: Annotated[int, Query(ge=0, le=10**9)] = 0,
        count: Annotated[int, Query(ge=1, le=500)] = 100,
    ) -> Response:
        """List photos in order of their keys, of a folder or with some letters in the key."""
        return JSONResponse(await _while_connected(service, http, service.photos(folder, contains, start, count)))

    @app.get("/api/photo", response_model=PhotoAnswer, tags=["browse"])
    async def photo(key: Annotated[str, Query(max_length=LONGEST_KEY)]) -> Response:
        """Tell what the index knows of a photo."""
        return JSONResponse(service.photo(key))

    @app.get("/api/folders", response_model=FoldersAnswer, tags=["browse"])
    async def folders(http: Request) -> Response:
        """List the folders of the collection."""
        return JSONResponse(await _while_connected(service, http, service.folders()))

    @app.get("/api/picture", tags=["browse"], response_class=Response, responses=JPEG)
    async def picture(
        http: Request,
        key: Annotated[str | None, Query(max_length=LONGEST_KEY)] = None,
        upload: Annotated[str | None, Query(pattern=UPLOAD)] = None,
        box: ShortBox = None,
        side: Annotated[int, Query(ge=16, le=2048, description="The longer side in pixels, rounded up.")] = 320,
        version: Annotated[str | None, Query(max_length=64, description="Lets the browser keep the picture.")] = None,
    ) -> Response:
        """Show a photo, or a part of it, as a JPEG."""
        view = _checked(ViewRequest, key=key, upload=upload, box=_corners(box))
        name, data = await _while_connected(service, http, service.picture(view, side))
        kept = "private, max-age=31536000, immutable" if version else "private, no-cache"
        headers = {"ETag": f'"{name}"', "Cache-Control": kept}
        if http.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type="image/jpeg", headers=headers)


def _watching(app: FastAPI, service: Answering) -> None:
    @app.get("/api/info", tags=["service"], response_model=dict[str, Any])
    async def info(http: Request) -> Response:
        """Tell counts, parameters and the health of the graph."""
        return JSONResponse(await _while_connected(service, http, service.info()))

    @app.get("/api/collections", tags=["service"], response_model=CollectionsAnswer)
    async def collections() -> Response:
        """List the collections of the service; where there are several, their names begin all keys and folders."""
        told = [
            {"name": one.name, "photos": len(one.now.catalogue), "generation": one.now.number} for one in service.homes
        ]
        return JSONResponse({"collections": told, "several": len(told) > 1})

    @app.get("/api/building", tags=["service"], response_model=BuildingAnswer)
    async def building() -> Response:
        """Tell how far the index is, while it is made and what is there so far is searched."""
        return JSONResponse(service.common.building())

    @app.get("/api/health", tags=["service"], response_model=HealthAnswer)
    async def health() -> Response:
        """Say that the service is alive."""
        return JSONResponse({"status": "ok"})

    @app.get("/api/ready", tags=["service"], response_model=HealthAnswer)
    async def ready() -> Response:
        """Say whether the network is loaded and queries can be answered."""
        service.check()
        if not service.ready:
            raise Problem(503, "The service is still loading; try again in a second.", {"Retry-After": "1"})
        return JSONResponse({"status": "ok"})

    @app.get("/metrics", tags=["service"], response_class=Response, responses=_body("text/plain"))
    async def metrics() -> Response:
        """Tell Prometheus latencies by stage, batch sizes and the queue."""
        return Response(service.common.metrics.text(), media_type="text/plain; version=0.0.4")


@cache
def _contents() -> dict[str, bytes]:
    """Return the files of the page: what is in the package, read once."""
    return {file.name: file.read_bytes() for file in PAGE.iterdir() if "." in file.name}


def page_file(name: str) -> Response:
    """Return a file of the page."""
    kind = KINDS.get(name[name.rfind(".") :])
    if name not in _contents() or kind is None:
        raise Problem(404, "There is nothing at this address.")
    return Response(_contents()[name], headers={"Content-Type": kind, "Cache-Control": "no-cache"})


def _page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return page_file("index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return page_file("docs.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        return page_file(name)


def tell_problems(app: FastAPI) -> None:
    """Tell every error as one sentence."""

    @app.exception_handler(Problem)
    async def told(_: Request, problem: Problem) -> Response:
        return sentence_response(problem.status, problem.sentence, problem.headers)

    @app.exception_handler(RequestValidationError)
    @app.exception_handler(ValidationError)
    async def invalid(_: Request, error: RequestValidationError | ValidationError) -> Response:
        return sentence_response(422, first_sentence(error.errors()))

    @app.exception_handler(InvalidInput)
    @app.exception_handler(Unreadable)
    async def unusable(_: Request, error: ManifindError) -> Response:
        return sentence_response(422, str(error))

    @app.exception_handler(Damaged)
    async def damaged(_: Request, error: ManifindError) -> Response:
        log.error("the index cannot be read: %s", error)
        return sentence_response(503, "The index is damaged; see what manifind check says of it.", {"Retry-After": "5"})

    @app.exception_handler(ClientDisconnect)
    async def left(_: Request, __: ClientDisconnect) -> Response:
        return sentence_response(499, "The client has left.")

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        sentences = {404: "There is nothing at this address.", 405: "The address does not take this method."}
        sentence = sentences.get(error.status_code, f"{str(error.detail).rstrip('.')}.")
        return sentence_response(error.status_code, sentence, dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def fault(_: Request, error: Exception) -> Response:
        log.error("a request could not be answered", exc_info=error)
        return sentence_response(500, "The service failed; its log has the reason.")


def _short(name: str, texts: list[str]) -> list[ViewRequest]:
    try:
        return [ViewRequest.short(text) for text in texts]
    except ValidationError as error:
        raise Problem(422, f"{name}: {first_sentence(error.errors())}") from None
    except ValueError as error:
        raise Problem(422, f"{name}: {error}.") from None


def _checked(model: type[ViewRequest], **fields: Any) -> ViewRequest:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise Problem(422, first_sentence(error.errors())) from None


def _corners(box: str | None) -> list[float] | None:
    if box is None:
        return None
    read = corners(box)
    if read is None:
        raise Problem(422, f"box is {box[:80]!r}; give four numbers x0,y0,x1,y1 in pixels.")
    return read


async def _photo_body(http: Request) -> bytes:
    kind = http.headers.get("content-type", "application/octet-stream").partition(";")[0].strip().lower()
    if kind != "application/octet-stream" and not kind.startswith("image/"):
        raise Problem(415, "The body must be the bytes of a photo, sent as application/octet-stream or image/….")
    data = await http.body()
    if not data:
        raise Problem(422, "The body is empty; send the bytes of a photo.")
    return data


async def _while_connected(service: Answering, http: Request, work: Awaitable[T]) -> T:
    async def left() -> None:
        while (await http.receive())["type"] != "http.disconnect":
            pass

    return await service.common.within_limits(work, left())


def _body(kind: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {kind: {"schema": {"type": "string"}}}}}


def _attached(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
