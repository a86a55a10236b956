"""What occurs in several photos: found once for each state of the index, then at hand."""

import asyncio
from typing import Annotated, Any

from fastapi import FastAPI, Query
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from manifind.index import Generation
from manifind.index.elsewhere import refused
from manifind.index.repeats import repeats
from manifind.pages.repeats import repeats_data
from manifind.serve.schemas import Box
from manifind.serve.service import Service


class SightingAnswer(BaseModel):
    """An object in one photo."""

    key: str
    box: Box
    width: int
    height: int
    strength: float = Field(description="How strongly the photo is tied to the others of its object.")
    verified: bool | None


class RepeatAnswer(BaseModel):
    """An object that occurs in several photos."""

    rank: int
    score: float
    photos: int
    verified: int | None
    confirmed: bool | None
    sightings: list[SightingAnswer]


class RepeatsAnswer(BaseModel):
    """What occurs in several photos, the surest and largest first."""

    found: int = Field(description="How many objects there are in all.")
    objects: list[RepeatAnswer]
    near_duplicates: list[list[str]] = Field(description="Keys of photos that look alike all over.")
    generation: int


def routes(app: FastAPI, service: Service) -> None:
    """Add what tells of what repeats."""
    one_at_a_time = asyncio.Lock()

    @app.get("/api/repeats", response_model=RepeatsAnswer, tags=["browse"])
    async def found(top: Annotated[int, Query(ge=1, le=1000)] = 30) -> Response:
        """Tell what occurs in several photos, without any query; geometry is not asked."""
        now = service.now

        def look() -> dict[str, Any]:
            service.served.check()
            if not isinstance(now, Generation):
                raise refused(now.where, "read as a whole")
            return service.once(now, "repeats", lambda: repeats_data(repeats(now, top=None)))

        async with one_at_a_time:
            told = await asyncio.to_thread(look)
        return JSONResponse({**told, "objects": told["objects"][:top], "generation": now.number})
