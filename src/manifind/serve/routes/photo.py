"""Looking at one photo: what its file says of it, and the file itself."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query
from pydantic import Field
from starlette.responses import FileResponse, Response

from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.snapshot import AnySnapshot
from manifind.io.exif import read_exif
from manifind.io.files import HEAD_BYTES
from manifind.io.image import photo_format
from manifind.io.video import containing_file, video_format
from manifind.reports.text import plain_name
from manifind.serve.schemas import LONGEST_KEY, ResponseModel
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
"""What browsers show, by format; whatever else is handed out to be kept."""

Key = Annotated[str, Query(max_length=LONGEST_KEY)]


class FactsResponse(ResponseModel):
    """What is known of a photo's file."""

    key: str
    duplicates: list[str] = Field(description="Keys of files that are byte for byte the same.")
    path: str | None = Field(description="Where the file lies; null where the service does not tell.")
    bytes: int
    changed: str = Field(description="When the file was changed last, in UTC.")
    taken: str | None = Field(description="When the photo was taken, by the camera's clock.")
    camera: str | None
    lens: str | None
    shown: bool = Field(description="Whether browsers can show the file as it is.")


def add(app: FastAPI, service: Service) -> None:
    """Add what tells of a photo's file and hands it out."""

    @app.get("/api/photo/facts", response_model=FactsResponse, tags=["browse"])
    async def facts(key: Key) -> Any:
        """Tell what the file of a photo says of it: when it was taken, by which camera, where else it lies."""
        snapshot = service.snapshot
        record = service.photo_store.record(snapshot, key)
        return await asyncio.to_thread(_facts, service, snapshot, record)

    @app.get("/api/original", tags=["browse"], response_class=Response, responses=ORIGINAL)
    async def original(key: Key) -> Response:
        """Hand out the file of a photo as it is; of a frame, the film."""
        file, kind = await asyncio.to_thread(_file, service, service.snapshot, key)
        where = "inline" if kind in SHOWN else "attachment"
        return FileResponse(
            file,
            media_type=SHOWN.get(kind, "application/octet-stream"),
            filename=plain_name(file.name),
            content_disposition_type=where,
            headers={"Cache-Control": "private, no-cache"},
        )


ORIGINAL: dict[int | str, dict[str, Any]] = {
    200: {"content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in SHOWN.values()}}
}


def _file(service: Service, snapshot: AnySnapshot, key: str) -> tuple[Path, str]:
    """Return the file of a photo, that of its film if it is a frame, and what it is."""
    file = containing_file(service.photo_store.photo_file(snapshot, key))
    with file.open("rb") as source:
        head = source.read(HEAD_BYTES)
    return file, photo_format(head) or video_format(head, file.name) or ""


def _facts(service: Service, snapshot: AnySnapshot, record: ImageRecord) -> dict[str, Any]:
    file, kind = _file(service, snapshot, record.key)
    exif = read_exif(file)
    return {
        "key": record.key,
        "duplicates": list(snapshot.catalogue.copies_of(record.sha256)),
        "path": str(file) if service.settings.tell_paths else None,
        "bytes": record.bytes,
        "changed": datetime.fromtimestamp(record.mtime_ns / 1e9, UTC).isoformat(timespec="seconds"),
        "taken": None if exif.taken_at is None else exif.taken_at.isoformat(timespec="seconds"),
        "camera": exif.camera,
        "lens": exif.lens,
        "shown": kind in SHOWN,
    }
