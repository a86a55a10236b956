"""What occurs in several photos: found once for each state of the index, then at hand."""

import asyncio
import time
from dataclasses import replace
from typing import Annotated, Any

from fastapi import FastAPI, Query
from pydantic import Field

from manifind.index import Snapshot
from manifind.index.search.repeats import ObjectClusters, confirmed_first, repeats
from manifind.index.storage.remote import read_only_error
from manifind.reports.repeats import repeats_data
from manifind.serve.schemas import Box, ResponseModel
from manifind.serve.service import Service

LONGEST = 3
"""How many times as long as a search's answer this one may wait for geometry: it is found once."""
LOOKED_AT_CLOSELY = 30
"""Objects that geometry looks at, the surest, where the index keeps local features."""


class OccurrenceResponse(ResponseModel):
    """An object in one photo."""

    key: str
    box: Box
    width: int
    height: int
    strength: float = Field(description="How strongly the photo is tied to the others of its object.")
    verified: bool | None


class RepeatResponse(ResponseModel):
    """An object that occurs in several photos."""

    rank: int
    score: float
    photos: int
    verified: int | None
    confirmed: bool | None
    occurrences: list[OccurrenceResponse]


class RepeatsResponse(ResponseModel):
    """What occurs in several photos, the surest and largest first."""

    found: int = Field(description="How many objects there are in all.")
    objects: list[RepeatResponse]
    near_duplicates: list[list[str]] = Field(description="Keys of photos that look alike all over.")
    generation: int


def add(app: FastAPI, service: Service) -> None:
    """Add what tells of what repeats."""
    one_at_a_time = asyncio.Lock()

    @app.get("/api/repeats", response_model=RepeatsResponse, tags=["browse"])
    async def found(top: Annotated[int, Query(ge=1, le=1000)] = 30) -> Any:
        """Tell what occurs in several photos, without any query; geometry confirms where features are kept."""
        async with one_at_a_time:
            snapshot, told = await asyncio.to_thread(_repeated, service)
        return {**told, "objects": told["objects"][:top], "generation": snapshot.number}


def _found(snapshot: Snapshot, until: float) -> ObjectClusters:
    found = repeats(snapshot, top=None, verify=False)
    if snapshot.local is None:
        return found
    first, rest = found.objects[:LOOKED_AT_CLOSELY], found.objects[LOOKED_AT_CLOSELY:]
    return replace(found, objects=(*confirmed_first(snapshot, first, lambda *_: None, until=until), *rest))


def _repeated(service: Service) -> tuple[Snapshot, dict[str, Any]]:
    """Return the state of the index, and what repeats in it."""
    service.check()
    snapshot = service.snapshot
    if not isinstance(snapshot, Snapshot):
        raise read_only_error(snapshot.where, "read as a whole")
    until = time.monotonic() + LONGEST * service.settings.deadline_seconds
    return snapshot, service.once(snapshot, "repeats", lambda: repeats_data(_found(snapshot, until)))
