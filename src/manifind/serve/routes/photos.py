"""Photos of the collection and sets of them: lists, pictures, files, judgements, exports, news."""

import io
import re
import zipfile
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from fastapi import FastAPI, Query, Request
from starlette.responses import Response, StreamingResponse

from manifind.errors import InvalidInputError
from manifind.iiif import is_web_address
from manifind.index.sets import MAX_NAME, PhotoSet
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.snapshot import AnySnapshot
from manifind.io.exif import read_exif
from manifind.io.files import printable
from manifind.reports.results import archived_sidecars, set_csv, shown
from manifind.reports.text import visible
from manifind.serve.errors import ServiceError
from manifind.serve.photos import FileInfo
from manifind.serve.responses import (
    FactsResponse,
    FoldersResponse,
    NewsResponse,
    PhotoResponse,
    PhotosResponse,
    RepeatsResponse,
    SetResponse,
    SetsResponse,
    SetSummary,
)
from manifind.serve.routes import BoxText, Key, attachment, body_of_kind, checked_view, parse_box, while_connected
from manifind.serve.schemas import LONGEST_KEY, UPLOAD, SetChange
from manifind.serve.service import Service

T = TypeVar("T")
Name = Annotated[str, Query(max_length=MAX_NAME)]
SHOWN = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "GIF": "image/gif",
    "WEBP": "image/webp",
    "AVIF": "image/avif",
    "BMP": "image/bmp",
    "mov": "video/mp4",
    "matroska": "video/webm",
}
"""Formats that browsers show; other files are saved."""
RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


JPEG = {**body_of_kind("image/jpeg"), 304: {"description": "As it was."}}
ORIGINAL = {
    **body_of_kind(*SHOWN.values(), "application/octet-stream"),
    206: {"description": "A part of the file."},
    416: {"description": "The file has no such part."},
}


def add(app: FastAPI, service: Service) -> None:
    """Add lists of photos and folders, pictures, facts and files."""

    @app.get("/api/photos", tags=["browse"])
    async def photos(
        http: Request,
        folder: Annotated[str, Query(max_length=LONGEST_KEY)] = "",
        contains: Annotated[str, Query(max_length=400)] = "",
        start: Annotated[int, Query(ge=0, le=10**9)] = 0,
        count: Annotated[int, Query(ge=1, le=500)] = 100,
    ) -> PhotosResponse:
        """List photos in order of their keys, of a folder or with some letters in the key."""
        return await while_connected(service, http, service.photos(folder, contains, start, count))

    @app.get("/api/photo", tags=["browse"])
    async def photo(key: Key) -> PhotoResponse:
        """Return what the index knows of a photo."""
        return PhotoResponse.of(service.photo_store.record(service.snapshot, key))

    @app.get("/api/folders", tags=["browse"])
    async def folders(http: Request) -> FoldersResponse:
        """List the folders of the collection."""
        return await while_connected(service, http, service.folders())

    @app.get("/api/repeats", tags=["browse"])
    async def repeats(http: Request, top: Annotated[int, Query(ge=1, le=1000)] = 30) -> RepeatsResponse:
        """List objects that occur in several photos; verified where the index stores local features."""
        return await while_connected(service, http, service.repeats(top))

    @app.get("/api/picture", tags=["browse"], response_class=Response, responses=JPEG)
    async def picture(
        http: Request,
        key: Annotated[str | None, Query(max_length=LONGEST_KEY)] = None,
        upload: Annotated[str | None, Query(pattern=UPLOAD)] = None,
        box: BoxText = None,
        side: Annotated[int, Query(ge=16, le=2048, description="The longer side in pixels, rounded up.")] = 320,
        version: Annotated[str | None, Query(max_length=64, description="Lets the browser keep the picture.")] = None,
    ) -> Response:
        """Return a photo, or a part of it, as a JPEG."""
        view = checked_view(key=key, upload=upload, box=parse_box(box))
        name, data = await while_connected(service, http, service.thumbnails.jpeg(service.snapshot, view, side))
        cache_control = "private, max-age=31536000, immutable" if version else "private, no-cache"
        headers = {"ETag": f'"{name}"', "Cache-Control": cache_control}
        if http.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type="image/jpeg", headers=headers)

    @app.get("/api/photo/facts", tags=["browse"])
    async def facts(http: Request, key: Key) -> FactsResponse:
        """Return what the file of a photo says of it: when it was taken, by which camera, its duplicates."""
        snapshot = service.snapshot
        record = service.photo_store.record(snapshot, key)
        return await while_connected(
            service, http, service.resources.files.submit(1, lambda: _read_facts(service, snapshot, record))
        )

    @app.get("/api/original", tags=["browse"], response_class=Response, responses=ORIGINAL)
    async def original(http: Request, key: Key) -> Response:
        """Return the file of a photo as it is; of a frame, the film."""
        pieces = service.photo_store.original(service.snapshot, key)
        info = await while_connected(service, http, service.resources.files.submit(1, lambda: next(pieces)))
        assert isinstance(info, FileInfo)  # noqa: S101 (it comes before the bytes)
        etag = f'"{info.version}"'
        disposition = "inline" if info.format in SHOWN else "attachment"
        headers = {
            "Accept-Ranges": "bytes",
            "Cache-Control": "private, no-cache",
            "Content-Disposition": f"{disposition}; filename*=utf-8''{quote(info.name)}",
            "ETag": etag,
        }
        range_header = http.headers.get("range") if http.headers.get("if-range", etag) == etag else None
        part = _parse_range(range_header, info.size)
        if part == (0, 0) and info.size:
            return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{info.size}"})
        start, end = part or (0, info.size)
        headers["Content-Length"] = str(end - start)
        if part is not None:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{info.size}"

        async def body() -> AsyncIterator[bytes]:
            first = await service.resources.downloads.run(lambda: _first_piece(pieces, (start, end)))
            if first is not None:
                yield first
                async for piece in service.resources.download(pieces):  # type: ignore[arg-type]
                    yield piece

        media_type = SHOWN.get(info.format, "application/octet-stream")
        return StreamingResponse(body(), 200 if part is None else 206, headers, media_type)

    _add_sets(app, service)


def _first_piece(pieces: Any, part: tuple[int, int]) -> bytes | None:
    try:
        piece: bytes = pieces.send(part)
    except StopIteration:
        return None
    return piece


def _parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the first byte of a range and the one after its last: (0, 0) for none of the file, None for all of it."""
    match = RANGE.fullmatch(header or "")
    if match is None or not any(match.groups()):  # a server may ignore a range, and several at once
        return None
    first, last = match.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last) + 1, size) if first and last else size
    return (start, end) if start < end else (0, 0)


def _is_link(address: str) -> bool:
    """Return whether a page may link to an address that anybody may have written."""
    return is_web_address(address) and address.isascii() and address.isprintable()


def _read_facts(service: Service, snapshot: AnySnapshot, record: ImageRecord) -> FactsResponse:
    store = service.photo_store
    photo = store.open(snapshot, record)
    photo.file.close()
    exif = read_exif(photo.path, root=store.root(snapshot))
    canvas = service.canvases(snapshot).get(record.key)
    return FactsResponse(
        key=record.key,
        duplicates=list(snapshot.catalogue.copies_of(record.sha256)),
        path=printable(photo.path) if service.settings.tell_paths else None,
        bytes=record.bytes,
        changed=datetime.fromtimestamp(record.mtime_ns / 1e9, UTC).isoformat(timespec="seconds"),
        taken=None if exif.taken_at is None else exif.taken_at.isoformat(timespec="seconds"),
        camera=exif.camera,
        lens=exif.lens,
        shown=photo.format in SHOWN,
        canvas=None if canvas is None or not _is_link(canvas.canvas) else canvas.canvas,
        label=None if canvas is None else visible(canvas.label),
    )


def _add_sets(app: FastAPI, service: Service) -> None:
    """Add what changes and returns sets."""

    async def run(http: Request, work: Callable[[], T]) -> T:
        """Read or change sets in the one thread for them."""
        return await while_connected(service, http, service.resources.sets.submit(1, work))

    @app.get("/api/sets", tags=["sets"])
    async def sets(http: Request) -> SetsResponse:
        """List the sets."""
        summaries = await run(http, lambda: [SetSummary.of(photo_set) for photo_set in service.live_index.index.sets])
        return SetsResponse(sets=summaries, writable=service.settings.keep_sets and service.live_index.lasting)

    @app.get("/api/set", tags=["sets"])
    async def one_set(http: Request, name: Name) -> SetResponse:
        """Return a set with its photos."""
        return await run(http, lambda: SetResponse.of(_find(service, name), service.snapshot))

    @app.post("/api/set", tags=["sets"])
    async def change(http: Request, request: SetChange) -> SetResponse:
        """Add photos to a set, remove some, store a search with it, rename or delete it."""
        if not service.settings.keep_sets:
            raise ServiceError(403, "This service keeps no sets; serve on this machine alone, or with a token.")
        if not service.live_index.lasting:
            raise ServiceError(422, "The index is still being built; keep sets once it is finished.")
        return await run(http, lambda: SetResponse.of(_change(service, request), service.snapshot))

    @app.get("/api/set/news", tags=["sets"])
    async def news(http: Request, name: Name) -> NewsResponse:
        """Return the matches of a set's search that are new since it was stored."""

        async def find() -> NewsResponse:
            stored, seen = await service.resources.sets.submit(1, lambda: _stored_search(service, name))
            matches, complete = await service.new_matches(stored.search or {}, seen)
            return NewsResponse(name=name, news=matches, complete=complete)

        return await while_connected(service, http, find())

    @app.get("/api/set.csv", tags=["sets"], response_class=Response, responses=body_of_kind("text/csv"))
    async def table(http: Request, name: Name) -> Response:
        """Return a set as a table."""
        text = await run(http, lambda: set_csv(_find(service, name)))
        return Response(text, media_type="text/csv", headers=attachment(f"{name}.csv"))

    @app.get("/api/set.zip", tags=["sets"], response_class=Response, responses=body_of_kind("application/zip"))
    async def archive(http: Request, name: Name) -> Response:
        """Return the photos of a set that show the object."""
        photos = await run(http, lambda: _find(service, name))
        keys = [photo.key for photo in shown(photos)]
        pieces = service.resources.archive(service.photo_store.archive(service.snapshot, keys, set_csv(photos)))
        return StreamingResponse(pieces, media_type="application/zip", headers=attachment(f"{name}.zip"))

    @app.get("/api/set.xmp.zip", tags=["sets"], response_class=Response, responses=body_of_kind("application/zip"))
    async def sidecar_archive(http: Request, name: Name) -> Response:
        """Return XMP sidecars with the name of the set, for programs that manage photos."""

        def pack() -> bytes:
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
                for key, content in archived_sidecars(_find(service, name)):
                    archive.writestr(key, content)
            return buffer.getvalue()

        content = await run(http, pack)
        return Response(content, media_type="application/zip", headers=attachment(f"{name} sidecars.zip"))


def _find(service: Service, name: str) -> PhotoSet:
    photos = service.live_index.index.sets.get(name)
    if photos is None:
        raise ServiceError(404, f"there is no set named {name!r}; /api/sets lists the sets.")
    return photos


def _stored_search(service: Service, name: str) -> tuple[PhotoSet, frozenset[str]]:
    """Return a set with a search, and the contents of the photos that the search has found before."""
    photos = _find(service, name)
    if photos.search is None:
        raise InvalidInputError(f"the set {name!r} has no search; store one with it.", code="no-search")
    return photos, service.live_index.index.sets.seen(name)


def _change(service: Service, request: SetChange) -> PhotoSet:
    sets, search = service.live_index.index.sets, request.search
    if request.delete:
        deleted = _find(service, request.name)
        sets.delete(request.name)
        return deleted
    if search is not None:
        if any(view.key is None for view in (*search.views, *search.negatives)):
            raise ServiceError(
                422, "A search with an uploaded photo cannot be stored; add the photo to the collection."
            )
        views, negatives = (
            [(view.key or "", view.box) for view in given] for given in (search.views, search.negatives)
        )
        for key, _ in (*views, *negatives):  # a path would be read when the search is run again
            service.photo_store.record(service.snapshot, key)
        sets.save_search(request.name, views, negatives=negatives, method=search.method, seen=search.seen)
    if request.add or search is None:
        sets.add(request.name, [(photo.key, photo.box) for photo in request.add], verdict=request.verdict)
    if request.take:
        sets.discard(request.name, request.take)
    if request.rename is not None:
        _find(service, request.name)
        sets.rename(request.name, request.rename)
    return _find(service, request.rename or request.name)
