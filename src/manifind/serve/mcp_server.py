"""The tools of a service over the Model Context Protocol: on standard input and output, or at ``/mcp`` of the service.

Every tool reads, and none changes anything. Searches, pictures and explanations come from the same `Service` that the
page asks, under the same limits. Over HTTP each request stands alone: there is no session, and nothing is kept between
two. The checks of the service come first there (its name, the token, other sites, sizes). Needs the extra
``manifind[mcp]``.
"""

import asyncio
import base64
import binascii
import io
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from PIL import Image
from pydantic import Field, ValidationError, field_validator
from starlette.types import Receive, Scope, Send

from manifind.cache import LRUCache
from manifind.errors import MissingExtraError, UnreadableImageError
from manifind.index import Index
from manifind.index.search.filters import DATE
from manifind.index.sets import MAX_NAME
from manifind.index.storage.snapshot import AnySnapshot
from manifind.reports.html import THUMBNAIL_HEIGHT, Picture, contact_sheet
from manifind.serve.errors import ServiceError, first_sentence, service_error
from manifind.serve.guard import too_large
from manifind.serve.photos import OVERHEAD_PIXELS, encode_jpeg
from manifind.serve.resources import Resources, Settings
from manifind.serve.responses import ResultResponse, SearchResponse, SetResponse, SetSummary
from manifind.serve.routes import checked_view
from manifind.serve.schemas import (
    DEADLINE,
    LONGEST_KEY,
    Box,
    ExplainRequest,
    Finite,
    GeometryRequest,
    Method,
    SearchRequest,
    Strict,
    ViewRequest,
    corners,
)
from manifind.serve.service import Service
from manifind.version import VERSION

PATH = "/mcp"
INSTRUCTIONS = (
    "manifind finds every photo of a collection that contains an object, however small. Search by a photo and a box "
    "round the object; look at results before you trust them: those with the grade verified are right nearly always, "
    "the others often. Boxes are x0, y0, x1, y1 in pixels of the upright photo."
)


RESULTS = 200
"""Results of a search that can be paged through: a page is a part of one and the same result."""
PAGE, LARGEST_PAGE = 10, 50
SHEET, LARGEST_SHEET = 20, 30
"""Results on a page, and photos on a contact sheet: by default, and at most."""
SIDE, LARGEST_SIDE = 640, 1280
"""The longer side of a picture, in pixels."""
SEARCHES_CACHED = 16
"""Complete searches whose results are kept for the next page, the contact sheet and other pages."""
UPLOAD_PREFIX, DATA_PREFIX = "upload:", "data:image/"
TOLD = {
    "rank",
    "key",
    "width",
    "height",
    "score",
    "grade",
    "is_match",
    "verified",
    "inliers",
    "box",
    "outline",
    "expanded",
    "duplicates",
}
"""The fields of a result that an agent is told."""

ImageText = Annotated[
    str,
    Field(
        min_length=1,
        description="A photo: its key in the collection, upload:ID of one sent before, data:image/jpeg;base64,…, or "
        "the path of a file where this server was started with --files.",
    ),
]
Start = Annotated[int, Field(ge=0, lt=RESULTS, description="How many results to skip: `next` of the page before.")]


class Example(Strict):
    """A photo, and the part of it that is meant; all of it without a box."""

    image: ImageText
    box: Box | None = None

    @field_validator("box", mode="before")
    @classmethod
    def _read_text(cls, box: object) -> object:
        """Read a box that an agent wrote as text."""
        return corners(box.strip("[] ").replace(" ", "")) or box if isinstance(box, str) else box


class Query(Example):
    """What to look for."""

    positives: list[Example] = Field(default=[], max_length=16, description="More photos of the same object.")
    negatives: list[Example] = Field(
        default=[], max_length=16, description="Photos of what looks like it and is not meant."
    )


class Search(Query):
    """A search; equal words give equal results, and go on where a deadline had cut the search short."""

    method: Method = Field(
        default="regional", description="regional finds the object, global the whole scene, plain look-alikes."
    )
    folder: str | None = Field(default=None, max_length=LONGEST_KEY, description="Only photos below this folder.")
    since: str | None = Field(
        default=None, pattern=DATE.pattern, description="Only photos of 2019, 2019-07, … or later."
    )
    until: str | None = Field(default=None, pattern=DATE.pattern, description="Only photos of then or earlier.")
    deadline: Annotated[Finite, Field(gt=0)] | None = Field(default=None, description=DEADLINE)
    start: Start = 0
    count: int = Field(default=PAGE, ge=1, le=LARGEST_PAGE, description="Results on this page.")


class Sheet(Search):
    """A search whose results are shown."""

    count: int = Field(default=SHEET, ge=1, le=LARGEST_SHEET, description="Photos on the sheet.")


class Look(Example):
    """A photo or a part of it."""

    side: int = Field(default=SIDE, ge=16, le=LARGEST_SIDE, description="The longer side in pixels, rounded up.")


class Explain(Query):
    """A query, and the result that is asked about."""

    key: str = Field(max_length=LONGEST_KEY, description="The key of the result.")


class Photos(Strict):
    """A stretch of the collection."""

    folder: str = Field(default="", max_length=LONGEST_KEY, description="Only photos below this folder.")
    contains: str = Field(default="", max_length=400, description="Only keys with these letters.")
    start: int = Field(default=0, ge=0, le=10**9)
    count: int = Field(default=LARGEST_PAGE, ge=1, le=200)


class Sets(Strict):
    """All sets, or one of them."""

    name: str | None = Field(default=None, max_length=MAX_NAME, description="Return this set with its photos.")


@dataclass(frozen=True)
class Answer:
    """What a tool returns."""

    data: dict[str, Any]
    jpeg: bytes | None = None


@dataclass(frozen=True)
class Tool:
    """A tool, as an agent is told of it."""

    name: str
    description: str
    parameters: type[Strict]
    run: Callable[[Any], Awaitable[Answer]]


class Tools:
    """The tools on one service.

    Parameters
    ----------
    service : Service
    folders : sequence of Path
        Folders whose files may be named as photos to search with; none where the agent is on another machine.
    """

    def __init__(self, service: Service, folders: Sequence[Path] = ()) -> None:
        self._service = service
        self._folders = tuple(folders)
        self._found: LRUCache[SearchResponse] = LRUCache(SEARCHES_CACHED)
        described = (
            (
                self.search,
                Search,
                "Find the photos that contain what a photo, or a box in it, shows, however small it is there. "
                "n_matches of the first results are believed to show it; where complete is false, the same call again "
                "goes on.",
            ),
            (self.contact_sheet, Sheet, "Show results of a search as one picture, with their ranks and outlines."),
            (self.look, Look, "Look at a photo, or at a box in it, as a small JPEG. Boxes count in its full size."),
            (
                self.explain,
                Explain,
                "Say why a photo was found: the chain of similar photos from the query to it, and how many points of "
                "both match under one transform.",
            ),
            (self.list_photos, Photos, "List keys of the collection, by folder or by letters in the key."),
            (self.list_sets, Sets, "List the named sets of photos that people kept, or the photos of one."),
        )
        self.tools = {run.__name__: Tool(run.__name__, text, model, run) for run, model, text in described}
        """The tools by name."""

    async def search(self, arguments: Search) -> Answer:
        """Return a page of results."""
        names, response = await self._search(arguments)
        end = arguments.start + arguments.count
        page = response.results[arguments.start : end]
        data = response.model_dump(mode="json", include={"n_matches", "n_verified", "complete", "n_unchecked"})
        return Answer(
            {
                "image": names[0],
                **data,
                "results": [result.model_dump(mode="json", include=TOLD) for result in page],
                "next": end if end < len(response.results) else None,
            }
        )

    async def contact_sheet(self, arguments: Sheet) -> Answer:
        """Return a picture of results."""
        names, response = await self._search(arguments)
        page = response.results[arguments.start : arguments.start + arguments.count]
        data = {
            "image": names[0],
            "n_matches": response.n_matches,
            "photos": {result.rank: result.key for result in page},
        }
        if not page:
            return Answer(data)
        snapshot = self._service.snapshot
        pictures = await asyncio.gather(*(self._picture(snapshot, result) for result in page))

        def draw() -> bytes:
            sheet = contact_sheet([(result.rank, picture) for result, picture in zip(page, pictures, strict=True)])
            return encode_jpeg(np.asarray(sheet), max(sheet.size))

        return Answer(data, await self._service.thumbnails.draw.submit(OVERHEAD_PIXELS * len(page), draw))

    async def look(self, arguments: Look) -> Answer:
        """Return a photo or a part of it."""
        view = await self._view(arguments)
        snapshot = self._service.snapshot
        _, jpeg = await self._service.thumbnails.jpeg(snapshot, view, arguments.side)
        if view.upload is not None:
            upload = self._service.photo_store.upload(view.upload)
            size = upload.width, upload.height
        else:
            record = self._service.photo_store.record(snapshot, view.key or "")
            size = record.width, record.height
        return Answer({"image": _name(view), "width": size[0], "height": size[1], "box": view.box}, jpeg)

    async def explain(self, arguments: Explain) -> Answer:
        """Return the chain that leads to a result, and the points that match."""
        views, negatives = await self._views(arguments)
        chain = await self._service.explain(ExplainRequest(views=views, negatives=negatives, key=arguments.key))
        points = await self._service.points(GeometryRequest(views=views[:8], key=arguments.key))
        summary = chain.model_dump(mode="json", include={"key", "rank", "score", "box", "links"})
        return Answer({**summary, "verified": points.verified, "matching_points": points.inliers})

    async def list_photos(self, arguments: Photos) -> Answer:
        """Return keys of the collection."""
        page = await self._service.photos(arguments.folder, arguments.contains, arguments.start, arguments.count)
        photos = [photo.model_dump(include={"key", "width", "height"}) for photo in page.photos]
        end = arguments.start + len(photos)
        return Answer({"total": page.total, "photos": photos, "next": end if end < page.total else None})

    async def list_sets(self, arguments: Sets) -> Answer:
        """Return the sets, or one with its photos."""
        service = self._service

        def read() -> dict[str, Any]:
            sets = service.live_index.index.sets
            if arguments.name is None:
                return {"sets": [SetSummary.of(photo_set).model_dump() for photo_set in sets]}
            photos = sets.get(arguments.name)
            if photos is None:
                raise ServiceError(404, f"there is no set named {arguments.name!r}; list_sets lists the sets.")
            return SetResponse.of(photos, service.snapshot).model_dump(mode="json")

        return Answer(await service.resources.sets.submit(1, read))

    async def _search(self, arguments: Search) -> tuple[list[str], SearchResponse]:
        """Return the names by which the query's photos can be given again, and all results."""
        views, negatives = await self._views(arguments)
        request = SearchRequest(
            views=views,
            negatives=negatives,
            **arguments.model_dump(include={"method", "folder", "since", "until", "deadline"}),
            top=RESULTS,
        )
        name = self._service.snapshot.stamp, request.model_dump_json(exclude={"deadline"})
        response = self._found.get(name)
        if response is None:
            response = await self._service.search(request)
            if response.complete:
                self._found.put(name, response, 1)
        return [_name(view) for view in views], response

    async def _views(self, query: Query) -> tuple[list[ViewRequest], list[ViewRequest]]:
        views = [await self._view(example) for example in (query, *query.positives)]
        return views, [await self._view(example) for example in query.negatives]

    async def _view(self, example: Example) -> ViewRequest:
        """Return the view that is meant; a photo that is no part of the collection becomes an upload."""
        image = example.image
        if image.startswith(UPLOAD_PREFIX):
            return checked_view(upload=image.removeprefix(UPLOAD_PREFIX), box=example.box)
        if image.startswith(DATA_PREFIX):
            data = self._decode(image)
        elif not self._folders or len(image) > LONGEST_KEY or self._is_key(image):
            return checked_view(key=image, box=example.box)
        else:
            data = await self._service.resources.files.submit(1, lambda: self._read(image))
        return checked_view(upload=(await self._service.thumbnails.add_upload(data)).name, box=example.box)

    def _is_key(self, image: str) -> bool:
        return self._service.snapshot.catalogue.photo_of(image) is not None

    def _decode(self, image: str) -> bytes:
        limit = self._service.settings.upload_bytes
        head, _, text = image.partition(",")
        if not head.endswith(";base64"):
            raise ServiceError(422, "image: the photo is not in base64; send data:image/jpeg;base64,….")
        if len(text) * 3 // 4 > limit:
            raise too_large(limit)
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error:
            raise ServiceError(422, "image: what follows base64, is no base64; send the photo again.") from None

    def _read(self, image: str) -> bytes:
        """Return the bytes of a file below one of the folders; a relative path begins at the folder."""
        for folder in self._folders:
            try:
                return self._service.photo_store.read_path(str(folder / image), root=folder)
            except (UnreadableImageError, OSError) as error:
                reason = error.reason if isinstance(error, UnreadableImageError) else "no such file"
        raise ServiceError(
            404,
            f"{ascii(image)[:200]} is neither a key of the collection nor a file below the folders of --files "
            f"({reason}); give one that is.",
        )

    async def _picture(self, snapshot: AnySnapshot, result: ResultResponse) -> Picture:
        """Return a result for a contact sheet; grey, where its file cannot be read."""
        outlines = [
            [(x, y) for x, y in corners] for corners in (result.outline, result.part, *result.other_outlines) if corners
        ]
        box = None if result.box is None or outlines else (result.box[0], result.box[1], result.box[2], result.box[3])
        try:
            _, jpeg = await self._service.thumbnails.jpeg(snapshot, ViewRequest(key=result.key), 2 * THUMBNAIL_HEIGHT)
            pixels = np.asarray(Image.open(io.BytesIO(jpeg)))
        except ServiceError as error:
            if error.status == 503:
                raise
            pixels = np.full((THUMBNAIL_HEIGHT, THUMBNAIL_HEIGHT, 3), 128, np.uint8)
        return Picture(pixels, result.width, result.height, result.key, box, outlines)


def _name(view: ViewRequest) -> str:
    return f"{UPLOAD_PREFIX}{view.upload}" if view.upload is not None else view.key or ""


try:
    from mcp import types
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
except ImportError as error:
    raise MissingExtraError("agents need one more package; pip install 'manifind[mcp]'.") from error

Context = ServerRequestContext[Any, Any]


def create_server(service: Service, folders: Sequence[Path] = ()) -> Server[Any]:
    """Return the tools of a service as a server of the protocol; `folders` are those of `Tools`."""
    tools = Tools(service, folders).tools
    listed = [
        types.Tool(
            name=tool.name,
            description=tool.description,
            input_schema=tool.parameters.model_json_schema(),
            annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
        )
        for tool in tools.values()
    ]

    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(_: Context, call: types.CallToolRequestParams) -> types.CallToolResult:
        tool = tools.get(call.name)
        if tool is None:
            return _refusal(f"There is no tool named {call.name[:100]!r}; there are {', '.join(tools)}.")
        try:
            arguments = tool.parameters.model_validate(call.arguments or {})
            answer = await service.resources.within_limits(tool.run(arguments), _never())
        except ValidationError as error:
            return _refusal(first_sentence(error.errors()))
        except Exception as error:
            return _refusal(service_error(error).sentence)
        return _result(answer)

    return Server(
        "manifind",
        version=VERSION,
        title=f"manifind: {service.name}",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


class Endpoint:
    """The application that answers at `PATH` of a service; no file is read for an agent there."""

    def __init__(self, service: Service) -> None:
        self._server = create_server(service)
        self._max_bytes = service.settings.upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        manager = StreamableHTTPSessionManager(
            self._server, json_response=True, stateless=True, max_request_body_size=self._max_bytes
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)


def serve_stdio(index: Index, folders: Sequence[Path] = ()) -> None:
    """Answer an agent on standard input and output until it leaves.

    Parameters
    ----------
    index : Index
    folders : sequence of Path
        Folders whose files the agent may search with.
    """
    asyncio.run(_serve_stdio(index, [folder.resolve(strict=True) for folder in folders]))


async def _serve_stdio(index: Index, folders: Sequence[Path]) -> None:
    resources = Resources(Settings())
    service = Service(index, resources)
    await service.start()
    try:
        server = create_server(service, folders)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    finally:
        await service.stop()
        resources.stop()


async def _never() -> None:
    await asyncio.Event().wait()


def _result(answer: Answer) -> types.CallToolResult:
    text = types.TextContent(type="text", text=json.dumps(answer.data, ensure_ascii=False))
    if answer.jpeg is None:
        return types.CallToolResult(content=[text], structured_content=answer.data)
    picture = types.ImageContent(
        type="image", data=base64.b64encode(answer.jpeg).decode("ascii"), mime_type="image/jpeg"
    )
    return types.CallToolResult(content=[text, picture])


def _refusal(sentence: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=sentence)], is_error=True)
