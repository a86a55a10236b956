"""Sets of found photos: kept in the index's folder, judged, exported, and told what is new."""

import asyncio
import io
import zipfile
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import FastAPI, Query
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response, StreamingResponse

from manifind.index.sets import LONGEST_NAME, VERDICTS, FoundSet
from manifind.pages.answers import hit_data
from manifind.pages.sets import set_csv, set_data, shown, sidecars, with_keywords
from manifind.serve.answering import Answering, finder
from manifind.serve.answers import shown as shown_photo
from manifind.serve.problems import Problem
from manifind.serve.routes.requests import attached, text_body
from manifind.serve.schemas import LONGEST_KEY, Box, Method, Strict, ViewRequest
from manifind.serve.sets import GatheredSets

T = TypeVar("T")
Name = Annotated[str, Query(max_length=LONGEST_NAME)]
Key = Annotated[str, Field(max_length=LONGEST_KEY)]
KEYWORDS = "Write the name of the set into the copies of JPEG files, as a keyword."
MOST = 2000
"""Photos that one change may name."""


class PhotoOfSet(Strict):
    """A photo for a set, and where the object is in it."""

    key: Key
    box: Box | None = None


class SearchOfSet(Strict):
    """A search to be kept with a set: photos of the collection, and the keys of what was found."""

    views: list[ViewRequest] = Field(min_length=1, max_length=64)
    not_this: list[ViewRequest] = Field(default=[], max_length=64)
    method: Method = "regional"
    seen: list[Key] = Field(default=[], max_length=MOST)


class SetChange(Strict):
    """What to do with a set; it is made if it is not there."""

    name: str = Field(max_length=LONGEST_NAME)
    add: list[PhotoOfSet] = Field(default=[], max_length=MOST)
    verdict: Literal["yes", "no", "unsure"] = "yes"
    take: list[Key] = Field(default=[], max_length=MOST)
    search: SearchOfSet | None = None
    rename: str | None = Field(default=None, max_length=LONGEST_NAME)
    delete: bool = False


class SetSummary(BaseModel):
    """A set, in short."""

    name: str
    made: str
    yes: int
    no: int
    unsure: int
    search: bool = Field(description="Whether a search is kept with it.")


class SetsAnswer(BaseModel):
    """All sets."""

    sets: list[SetSummary]
    writable: bool = Field(description="Whether this service lets its clients change them.")


class MemberAnswer(BaseModel):
    """A photo of a set; sizes and version are null where it is gone."""

    key: str
    box: Box | None
    verdict: Literal["yes", "no", "unsure"]
    there: bool
    width: int | None
    height: int | None
    version: str | None


class SetAnswer(BaseModel):
    """A set."""

    name: str
    made: str
    search: dict[str, Any] | None
    photos: list[MemberAnswer]


class NewsAnswer(BaseModel):
    """What the search of a set finds that it had not found before."""

    name: str
    news: list[dict[str, Any]]


def add(app: FastAPI, service: Answering) -> None:
    """Add what keeps and tells of sets."""
    one_at_a_time = asyncio.Lock()
    sets = GatheredSets(service)

    async def on(work: Callable[[], T]) -> T:
        async with one_at_a_time:
            return await asyncio.to_thread(work)

    @app.get("/api/sets", response_model=SetsAnswer, tags=["sets"])
    async def every() -> Response:
        """List the sets of found photos."""
        found = await on(lambda: [_summary(one) for one in sets])
        lasting = all(home.served.lasting for home in service.homes)
        return JSONResponse({"sets": found, "writable": service.settings.keep_sets and lasting})

    @app.get("/api/set", response_model=SetAnswer, tags=["sets"])
    async def one(name: Name) -> Response:
        """Show a set with its photos."""
        return JSONResponse(await on(lambda: _told(service, sets[name])))

    @app.post("/api/set", response_model=SetAnswer, tags=["sets"])
    async def change(asked: SetChange) -> Response:
        """Add photos to a set, take some out, keep a search with it, rename or delete it."""
        if not service.settings.keep_sets:
            raise Problem(403, "This service keeps no sets; serve on this machine alone, or with a token.")
        if not all(home.served.lasting for home in service.homes):
            raise Problem(422, "The index is still being made; keep sets once it is finished.")
        return JSONResponse(await on(lambda: _changed(service, sets, asked)))

    @app.get("/api/set/news", response_model=NewsAnswer, tags=["sets"])
    async def news(name: Name) -> Response:
        """Tell what the search of a set finds above the line and had not found before."""

        def found() -> list[dict[str, Any]]:
            told = []
            for home, hit in sets.news(name):
                photo = shown_photo(hit.search.generation.catalogue[hit.image])
                key = service.outward(home, hit.key)
                told.append({**hit_data(hit), **photo, "key": key, "where": hit.box})
            return told

        return JSONResponse({"name": name, "news": await on(found)})

    @app.get("/api/set.csv", tags=["sets"], response_class=Response, responses=text_body("text/csv"))
    async def table(name: Name) -> Response:
        """Hand out a set as a table."""
        text = await on(lambda: set_csv(sets[name]))
        return Response(text, media_type="text/csv", headers=attached("set.csv"))

    @app.get("/api/set.zip", tags=["sets"], response_class=Response, responses=text_body("application/zip"))
    async def archive(name: Name, keywords: Annotated[bool, Query(description=KEYWORDS)] = False) -> Response:
        """Hand out the photos of a set that show the object."""
        found = await on(lambda: sets[name])
        keys = [photo.key for photo in shown(found)]
        change = (lambda data: with_keywords(data, [found.name])) if keywords else None
        pieces = service.common.archive(keys, finder(service), set_csv(found), change)
        return StreamingResponse(pieces, media_type="application/zip", headers=attached("set.zip"))

    @app.get("/api/set.xmp.zip", tags=["sets"], response_class=Response, responses=text_body("application/zip"))
    async def keywords(name: Name) -> Response:
        """Hand out XMP sidecars with the name of the set, for programs that manage photos."""
        found = await on(lambda: sets[name])
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for key, content in sidecars(found):
                archive.writestr(key, content)
        return Response(buffer.getvalue(), media_type="application/zip", headers=attached("sidecars.zip"))


def _changed(service: Answering, sets: GatheredSets, asked: SetChange) -> dict[str, Any]:
    if asked.delete:
        kept = _told(service, sets[asked.name])
        sets.delete(asked.name)
        return kept
    if asked.search is not None:
        uploads = any(view.key is None for view in (*asked.search.views, *asked.search.not_this))
        if uploads:
            raise Problem(422, "A search with an uploaded photo cannot be kept; add the photo to the collection.")
        views, not_this = (
            [(view.key or "", view.box) for view in some] for some in (asked.search.views, asked.search.not_this)
        )
        sets.keep_search(asked.name, views, not_this, asked.search.method, asked.search.seen)
    if asked.add or asked.search is None:
        sets.add(asked.name, [(one.key, one.box) for one in asked.add], asked.verdict)
    if asked.take:
        sets.take(asked.name, asked.take)
    if asked.rename is not None:
        sets.rename(asked.name, asked.rename)
    return _told(service, sets[asked.rename or asked.name])


def _summary(one: FoundSet) -> dict[str, Any]:
    counts = {verdict: sum(photo.verdict == verdict for photo in one.members) for verdict in VERDICTS}
    return {"name": one.name, "made": one.made, **counts, "search": one.search is not None}


def _told(service: Answering, one: FoundSet) -> dict[str, Any]:
    told = set_data(one)
    for photo, member in zip(told["photos"], one.members, strict=True):
        home, _ = service.home(member.key)
        record = home.now.catalogue.of_content(member.sha256)
        gone = {"width": None, "height": None, "version": None}
        photo.update(gone if record is None else {**shown_photo(record), "key": member.key})
    return told
