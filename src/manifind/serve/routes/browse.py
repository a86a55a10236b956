"""Looking through a collection: its photos, its folders, and pictures of them."""

from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from starlette.responses import Response

from manifind.serve.routes.requests import BoxInWords, box_in_words, checked_view, while_connected
from manifind.serve.schemas import LONGEST_KEY, UPLOAD, FoldersResponse, PhotoResponse, PhotosResponse
from manifind.serve.service import Service

JPEG: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}},
    304: {"description": "As it was."},
}


def add(app: FastAPI, service: Service) -> None:
    """Add lists of photos and folders, and pictures."""

    @app.get("/api/photos", response_model=PhotosResponse, tags=["browse"])
    async def photos(
        http: Request,
        folder: Annotated[str, Query(max_length=LONGEST_KEY)] = "",
        contains: Annotated[str, Query(max_length=400)] = "",
        start: Annotated[int, Query(ge=0, le=10**9)] = 0,
        count: Annotated[int, Query(ge=1, le=500)] = 100,
    ) -> Any:
        """List photos in order of their keys, of a folder or with some letters in the key."""
        return await while_connected(service, http, service.photos(folder, contains, start, count))

    @app.get("/api/photo", response_model=PhotoResponse, tags=["browse"])
    async def photo(key: Annotated[str, Query(max_length=LONGEST_KEY)]) -> Any:
        """Tell what the index knows of a photo."""
        return service.photo(key)

    @app.get("/api/folders", response_model=FoldersResponse, tags=["browse"])
    async def folders(http: Request) -> Any:
        """List the folders of the collection."""
        return await while_connected(service, http, service.folders())

    @app.get("/api/picture", tags=["browse"], response_class=Response, responses=JPEG)
    async def picture(
        http: Request,
        key: Annotated[str | None, Query(max_length=LONGEST_KEY)] = None,
        upload: Annotated[str | None, Query(pattern=UPLOAD)] = None,
        box: BoxInWords = None,
        side: Annotated[int, Query(ge=16, le=2048, description="The longer side in pixels, rounded up.")] = 320,
        version: Annotated[str | None, Query(max_length=64, description="Lets the browser keep the picture.")] = None,
    ) -> Response:
        """Show a photo, or a part of it, as a JPEG."""
        view = checked_view(key=key, upload=upload, box=box_in_words(box))
        name, data = await while_connected(service, http, service.picture(view, side))
        kept = "private, max-age=31536000, immutable" if version else "private, no-cache"
        headers = {"ETag": f'"{name}"', "Cache-Control": kept}
        if http.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type="image/jpeg", headers=headers)
