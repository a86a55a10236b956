"""The page in the browser: plain files of the package."""

from functools import cache
from importlib.resources import files

from fastapi import FastAPI
from starlette.responses import Response

from manifind.serve.errors import ServiceError

PAGE = files("manifind.serve") / "page"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def _contents() -> dict[str, bytes]:
    """Return the files of the page: what is in the package, read once."""
    return {file.name: file.read_bytes() for file in PAGE.iterdir() if "." in file.name}


def page_file(name: str) -> Response:
    """Return a file of the page."""
    kind = KINDS.get(name[name.rfind(".") :])
    if name not in _contents() or kind is None:
        raise ServiceError(404, "There is nothing at this address.")
    return Response(_contents()[name], headers={"Content-Type": kind, "Cache-Control": "no-cache"})


def add(app: FastAPI) -> None:
    """Add the page and its parts."""

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return page_file("index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return page_file("docs.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        return page_file(name)
