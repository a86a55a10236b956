"""What occurs in several photos: found once for each state of the index, then at hand."""

import asyncio
import time
from dataclasses import replace
from typing import Annotated, Any

from fastapi import FastAPI, Query
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from manifind.index import Generation
from manifind.index.asking.repeats import Repeats, confirmed_first, repeats
from manifind.index.state.elsewhere import refused
from manifind.pages.repeats import repeats_data
from manifind.serve.answering import Answering
from manifind.serve.schemas import Box
from manifind.serve.service import Service

LONGEST = 3
"""How many times as long as a search's answer this one may wait for geometry: it is found once."""
LOOKED_AT_CLOSELY = 30
"""Objects that geometry looks at, the surest, where the index keeps local features."""


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


def add(app: FastAPI, service: Answering) -> None:
    """Add what tells of what repeats."""
    one_at_a_time = asyncio.Lock()

    @app.get("/api/repeats", response_model=RepeatsAnswer, tags=["browse"])
    async def found(top: Annotated[int, Query(ge=1, le=1000)] = 30) -> Response:
        """Tell what occurs in several photos, without any query; geometry confirms where features are kept."""
        async with one_at_a_time:
            told = [await asyncio.to_thread(_repeated, service, home) for home in service.homes]
        objects = [one for each in told for one in each["objects"]]
        if len(told) > 1:  # those of each collection are in order
            objects.sort(key=lambda one: (one["confirmed"] is not True, -one["score"]))
        return JSONResponse(
            {
                "found": sum(each["found"] for each in told),
                "objects": [{**one, "rank": rank} for rank, one in enumerate(objects[:top], 1)],
                "near_duplicates": [keys for each in told for keys in each["near_duplicates"]],
                "generation": sum(home.now.number for home in service.homes),
            }
        )


def _found(now: Generation, until: float) -> Repeats:
    found = repeats(now, top=None, verify=False)
    if now.local is None:
        return found
    first, rest = found.objects[:LOOKED_AT_CLOSELY], found.objects[LOOKED_AT_CLOSELY:]
    return replace(found, objects=(*confirmed_first(now, first, lambda *_: None, until=until), *rest))


def _repeated(service: Answering, home: Service) -> dict[str, Any]:
    """Return what repeats in a collection, in keys that clients know."""
    home.check()
    now = home.now
    if not isinstance(now, Generation):
        raise refused(now.where, "read as a whole")
    until = time.monotonic() + LONGEST * home.settings.verify_seconds
    told = home.once(now, "repeats", lambda: repeats_data(_found(now, until)))

    def outward(seen: dict[str, Any]) -> dict[str, Any]:
        return {**seen, "key": service.outward(home, seen["key"])}

    return {
        **told,
        "objects": [{**one, "sightings": [outward(seen) for seen in one["sightings"]]} for one in told["objects"]],
        "near_duplicates": [[service.outward(home, key) for key in keys] for keys in told["near_duplicates"]],
    }
