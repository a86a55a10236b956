"""Sets of found photos: kept in the index's folder, judged, exported, and told what is new."""

import asyncio
import io
import zipfile
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import FastAPI, Query
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from manifind.index.sets import MAX_NAME, VERDICTS, PhotoSet
from manifind.reports.sets import set_csv, set_data, shown, sidecars
from manifind.serve.errors import ServiceError
from manifind.serve.routes.requests import attached, text_body
from manifind.serve.schemas import LONGEST_KEY, Box, Method, ResponseModel, ResultResponse, Strict, ViewRequest
from manifind.serve.serialization import hit_payload, photo_payload
from manifind.serve.service import Service

T = TypeVar("T")
Name = Annotated[str, Query(max_length=MAX_NAME)]
Key = Annotated[str, Field(max_length=LONGEST_KEY)]
MOST = 2000
"""Photos that one change may name."""


class PhotoOfSet(Strict):
    """A photo for a set, and where the object is in it."""

    key: Key
    box: Box | None = None


class SearchOfSet(Strict):
    """A search to be kept with a set: photos of the collection, and the keys of what was found."""

    views: list[ViewRequest] = Field(min_length=1, max_length=64)
    negatives: list[ViewRequest] = Field(default=[], max_length=64)
    method: Method = "regional"
    seen: list[Key] = Field(default=[], max_length=MOST)


class SetChange(Strict):
    """What to do with a set; it is made if it is not there."""

    name: str = Field(max_length=MAX_NAME)
    add: list[PhotoOfSet] = Field(default=[], max_length=MOST)
    verdict: Literal["yes", "no", "unsure"] = "yes"
    take: list[Key] = Field(default=[], max_length=MOST)
    search: SearchOfSet | None = None
    rename: str | None = Field(default=None, max_length=MAX_NAME)
    delete: bool = False


class SetSummary(ResponseModel):
    """A set, in short."""

    name: str
    made: str
    yes: int
    no: int
    unsure: int
    search: bool = Field(description="Whether a search is kept with it.")


class SetsResponse(ResponseModel):
    """All sets."""

    sets: list[SetSummary]
    writable: bool = Field(description="Whether this service lets its clients change them.")


class MemberResponse(ResponseModel):
    """A photo of a set; sizes and version are null where it is gone."""

    key: str
    box: Box | None
    verdict: Literal["yes", "no", "unsure"]
    there: bool
    width: int | None
    height: int | None
    version: str | None


class SetResponse(ResponseModel):
    """A set."""

    name: str
    made: str
    search: dict[str, Any] | None
    photos: list[MemberResponse]


class NewsResponse(ResponseModel):
    """What the search of a set finds that it had not found before."""

    name: str
    news: list[ResultResponse]


def add(app: FastAPI, service: Service) -> None:
    """Add what keeps and tells of sets."""
    one_at_a_time = asyncio.Lock()

    async def on(work: Callable[[], T]) -> T:
        async with one_at_a_time:
            return await asyncio.to_thread(work)

    @app.get("/api/sets", response_model=SetsResponse, tags=["sets"])
    async def every() -> Any:
        """List the sets of found photos."""
        found = await on(lambda: [_summary(one) for one in service.live_index.index.sets])
        return {"sets": found, "writable": service.settings.keep_sets and service.live_index.lasting}

    @app.get("/api/set", response_model=SetResponse, tags=["sets"])
    async def one(name: Name) -> Any:
        """Show a set with its photos."""
        return await on(lambda: _told(service, _set_of(service, name)))

    @app.post("/api/set", response_model=SetResponse, tags=["sets"])
    async def change(asked: SetChange) -> Any:
        """Add photos to a set, take some out, keep a search with it, rename or delete it."""
        if not service.settings.keep_sets:
            raise ServiceError(403, "This service keeps no sets; serve on this machine alone, or with a token.")
        if not service.live_index.lasting:
            raise ServiceError(422, "The index is still being made; keep sets once it is finished.")
        return await on(lambda: _changed(service, asked))

    @app.get("/api/set/news", response_model=NewsResponse, tags=["sets"])
    async def news(name: Name) -> Any:
        """Tell what the search of a set finds above the line and had not found before."""

        def found() -> list[dict[str, Any]]:
            _set_of(service, name)
            service.check()
            catalogue = service.snapshot.catalogue
            hits = service.live_index.index.sets.new_matches(name)
            return [hit_payload(hit, record) for hit in hits if (record := catalogue.photo_of(hit.key)) is not None]

        return {"name": name, "news": await on(found)}

    @app.get("/api/set.csv", tags=["sets"], response_class=Response, responses=text_body("text/csv"))
    async def table(name: Name) -> Response:
        """Hand out a set as a table."""
        text = await on(lambda: set_csv(_set_of(service, name)))
        return Response(text, media_type="text/csv", headers=attached("set.csv"))

    @app.get("/api/set.zip", tags=["sets"], response_class=Response, responses=text_body("application/zip"))
    async def archive(name: Name) -> Response:
        """Hand out the photos of a set that show the object."""
        found = await on(lambda: _set_of(service, name))
        keys = [photo.key for photo in shown(found)]
        pieces = service.resources.archive(keys, service.file, set_csv(found))
        return StreamingResponse(pieces, media_type="application/zip", headers=attached("set.zip"))

    @app.get("/api/set.xmp.zip", tags=["sets"], response_class=Response, responses=text_body("application/zip"))
    async def sidecar_archive(name: Name) -> Response:
        """Hand out XMP sidecars with the name of the set, for programs that manage photos."""
        found = await on(lambda: _set_of(service, name))
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for key, content in sidecars(found):
                archive.writestr(key, content)
        return Response(buffer.getvalue(), media_type="application/zip", headers=attached("sidecars.zip"))


def _set_of(service: Service, name: str) -> PhotoSet:
    found = service.live_index.index.sets.get(name)
    if found is None:
        raise ServiceError(404, f"there is no set named {name!r}; /api/sets lists those there are.")
    return found


def _changed(service: Service, asked: SetChange) -> dict[str, Any]:
    sets = service.live_index.index.sets
    if asked.delete:
        kept = _told(service, _set_of(service, asked.name))
        sets.delete(asked.name)
        return kept
    if asked.search is not None:
        uploads = any(view.key is None for view in (*asked.search.views, *asked.search.negatives))
        if uploads:
            raise ServiceError(422, "A search with an uploaded photo cannot be kept; add the photo to the collection.")
        views, negatives = (
            [(view.key or "", view.box) for view in some] for some in (asked.search.views, asked.search.negatives)
        )
        for key, _ in (*views, *negatives):  # a path would be read when the search is run again
            service.photo_store.record(service.snapshot, key)
        sets.save_search(asked.name, views, negatives=negatives, method=asked.search.method, seen=asked.search.seen)
    if asked.add or asked.search is None:
        sets.add(asked.name, [(one.key, one.box) for one in asked.add], verdict=asked.verdict)
    if asked.take:
        sets.discard(asked.name, asked.take)
    if asked.rename is not None:
        _set_of(service, asked.name)
        sets.rename(asked.name, asked.rename)
    return _told(service, _set_of(service, asked.rename or asked.name))


def _summary(one: PhotoSet) -> dict[str, Any]:
    counts = {verdict: sum(photo.verdict == verdict for photo in one.members) for verdict in VERDICTS}
    return {"name": one.name, "made": one.made, **counts, "search": one.search is not None}


def _told(service: Service, one: PhotoSet) -> dict[str, Any]:
    told = set_data(one)
    for photo, member in zip(told["photos"], one.members, strict=True):
        record = service.snapshot.catalogue.of_content(member.sha256)
        gone = {"width": None, "height": None, "version": None}
        photo.update(gone if record is None else {**photo_payload(record), "key": member.key})
    return told
