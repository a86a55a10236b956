"""Sets of photos: kept in the index's folder, judged, exported, and searched again for new matches."""

import io
import zipfile
from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import FastAPI, Query, Request
from starlette.responses import Response, StreamingResponse

from manifind.errors import InvalidInputError
from manifind.index.sets import MAX_NAME, PhotoSet
from manifind.reports.sets import archived_sidecars, set_csv, shown
from manifind.serve.errors import ServiceError
from manifind.serve.responses import NewsResponse, SetResponse, SetsResponse, SetSummary
from manifind.serve.routes import attachment, body_of_kind, while_connected
from manifind.serve.schemas import SetChange
from manifind.serve.service import Service

T = TypeVar("T")
Name = Annotated[str, Query(max_length=MAX_NAME)]


def add(app: FastAPI, service: Service) -> None:
    """Add what changes and returns sets."""

    async def run(http: Request, work: Callable[[], T]) -> T:
        """Read or change sets in the one thread for them."""
        return await while_connected(service, http, service.resources.sets.submit(1, work))

    @app.get("/api/sets", tags=["sets"])
    async def sets(http: Request) -> SetsResponse:
        """List the sets."""
        found = await run(http, lambda: [SetSummary.of(one) for one in service.live_index.index.sets])
        return SetsResponse(sets=found, writable=service.settings.keep_sets and service.live_index.lasting)

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
        found = await run(http, lambda: _find(service, name))
        keys = [photo.key for photo in shown(found)]
        pieces = service.resources.archive(service.photo_store.archive(service.snapshot, keys, set_csv(found)))
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
    found = service.live_index.index.sets.get(name)
    if found is None:
        raise ServiceError(404, f"there is no set named {name!r}; /api/sets lists the sets.")
    return found


def _stored_search(service: Service, name: str) -> tuple[PhotoSet, frozenset[str]]:
    """Return a set with a search, and the contents of the photos that the search has found before."""
    found = _find(service, name)
    if found.search is None:
        raise InvalidInputError(f"the set {name!r} has no search; store one with it.", code="no-search")
    return found, service.live_index.index.sets.seen(name)


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
        views, negatives = ([(view.key or "", view.box) for view in some] for some in (search.views, search.negatives))
        for key, _ in (*views, *negatives):  # a path would be read when the search is run again
            service.photo_store.record(service.snapshot, key)
        sets.save_search(request.name, views, negatives=negatives, method=search.method, seen=search.seen)
    if request.add or search is None:
        sets.add(request.name, [(one.key, one.box) for one in request.add], verdict=request.verdict)
    if request.take:
        sets.discard(request.name, request.take)
    if request.rename is not None:
        _find(service, request.name)
        sets.rename(request.name, request.rename)
    return _find(service, request.rename or request.name)
