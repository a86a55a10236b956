"""The photos of the collection: lists, pictures, files, and the objects that occur in several of them."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import FastAPI, Query, Request
from starlette.responses import Response, StreamingResponse

from manifind.iiif import is_web_address
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.snapshot import AnySnapshot
from manifind.io.exif import read_exif
from manifind.io.files import printable
from manifind.reports.text import visible
from manifind.serve.photos import FileInfo
from manifind.serve.responses import FactsResponse, FoldersResponse, PhotoResponse, PhotosResponse, RepeatsResponse
from manifind.serve.routes import BoxText, Key, body_of_kind, checked_view, parse_box, while_connected
from manifind.serve.schemas import LONGEST_KEY, UPLOAD
from manifind.serve.service import Service

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
JPEG = {**body_of_kind("image/jpeg"), 304: {"description": "As it was."}}
ORIGINAL = {
    **body_of_kind(*SHOWN.values(), "application/octet-stream"),
    206: {"description": "A part of the file."},
    416: {"description": "The file has no such part."},
}
RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


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
        kept = "private, max-age=31536000, immutable" if version else "private, no-cache"
        headers = {"ETag": f'"{name}"', "Cache-Control": kept}
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
        asked = http.headers.get("range") if http.headers.get("if-range", etag) == etag else None
        part = _parse_range(asked, info.size)
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


def _first_piece(pieces: Any, part: tuple[int, int]) -> bytes | None:
    try:
        piece: bytes = pieces.send(part)
    except StopIteration:
        return None
    return piece


def _parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the first byte of a range and the one after its last: (0, 0) for none of the file, None for all of it."""
    found = RANGE.fullmatch(header or "")
    if found is None or not any(found.groups()):  # a server may ignore a range, and several at once
        return None
    first, last = found.groups()
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
