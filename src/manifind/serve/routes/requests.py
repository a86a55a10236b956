"""What routes read off a request, and what they say of what they hand out."""

from collections.abc import Awaitable
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request
from pydantic import ValidationError

from manifind.serve.errors import ServiceError, first_sentence
from manifind.serve.schemas import LONGEST_BOX, ViewRequest, corners
from manifind.serve.service import Service

T = TypeVar("T")

BoxInWords = Annotated[
    str | None, Query(description="x0,y0,x1,y1 in pixels of the upright photo", max_length=LONGEST_BOX)
]


def box_in_words(box: str | None) -> list[float] | None:
    """Return a box that an address has in words, or None where it has none."""
    if box is None:
        return None
    read = corners(box)
    if read is None:
        raise ServiceError(422, f"box is {box[:80]!r}; give four numbers x0,y0,x1,y1 in pixels.")
    return read


def checked_view(**fields: Any) -> ViewRequest:
    """Return a view, or say which of its fields is wrong."""
    try:
        return ViewRequest.model_validate(fields)
    except ValidationError as error:
        raise ServiceError(422, first_sentence(error.errors())) from None


async def while_connected(service: Service, http: Request, work: Awaitable[T]) -> T:
    """Do some work until it is done, its time is up, or whoever asked has left."""

    async def left() -> None:
        while (await http.receive())["type"] != "http.disconnect":
            pass

    return await service.resources.within_limits(work, left())


def text_body(kind: str) -> dict[int | str, dict[str, Any]]:
    """Say in the schema that a route answers with a body of this kind."""
    return {200: {"content": {kind: {"schema": {"type": "string"}}}}}


def attached(name: str) -> dict[str, str]:
    """Return the header that lets a browser save an answer under a name."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}
