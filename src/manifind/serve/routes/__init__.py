"""The routes of the service: a module for each subject, whose function `add` gives an application its routes."""

from collections.abc import Awaitable
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from fastapi import Query, Request
from pydantic import ValidationError

from manifind.serve.errors import ServiceError, first_sentence
from manifind.serve.schemas import LONGEST_BOX, LONGEST_KEY, ViewRequest, corners
from manifind.serve.service import Service

T = TypeVar("T")

MAX_FILE_NAME = 150
"""Characters of the name of a download."""

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
