"""What the routes ask of whoever answers them: the service of one collection, or of several.

A photo belongs to one collection, its home. Where there are several collections, clients know it by a key that begins
with the name of its home; `home` takes such a key apart, and `outward` puts it together.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from manifind.serve.common import Common
from manifind.serve.schemas import ExplainRequest, GeometryRequest, SearchRequest, ViewRequest
from manifind.serve.settings import Settings

if TYPE_CHECKING:
    from manifind.serve.service import Service


class Answering(Protocol):
    """Answers searches and tells of photos, for many at once."""

    @property
    def settings(self) -> Settings:
        """Limits and manners."""

    @property
    def common(self) -> Common:
        """What all collections share."""

    @property
    def ready(self) -> bool:
        """Whether the first query need not wait for the network to be loaded."""

    @property
    def homes(self) -> "Sequence[Service]":
        """The services of all collections."""

    def home(self, key: str) -> "tuple[Service, str]":
        """Return the service of the collection that a key belongs to, and the key there."""

    def outward(self, home: "Service", key: str) -> str:
        """Return the key by which clients know a photo of a collection."""

    async def start(self) -> None:
        """Begin to answer."""

    async def stop(self) -> None:
        """Stop answering; what is shared goes on."""

    def check(self) -> None:
        """Raise `Problem` where the files of an index are not those that were opened."""

    async def search(self, request: SearchRequest) -> dict[str, Any]:
        """Answer a search, ready for JSON."""

    async def explain(self, request: ExplainRequest) -> dict[str, Any]:
        """Explain why a photo was found."""

    async def points(self, request: GeometryRequest) -> dict[str, Any]:
        """Return the points that match in views of an object and in a photo."""

    async def photos(self, folder: str, contains: str, start: int, count: int) -> dict[str, Any]:
        """Return a stretch of the photos whose key lies below `folder` and has `contains` in it."""

    def photo(self, key: str) -> dict[str, Any]:
        """Return what the index knows of a photo."""

    async def folders(self) -> dict[str, Any]:
        """Return the folders."""

    async def info(self) -> dict[str, Any]:
        """Return counts, parameters and health."""

    async def picture(self, one: ViewRequest, side: int) -> tuple[str, bytes]:
        """Return a photo or a part of it as a JPEG, and a name of its content."""


def finder(answering: Answering) -> Callable[[str], Path]:
    """Return what finds the file of a photo by the key that clients know."""

    def find(key: str) -> Path:
        home, own = answering.home(key)
        return home.file(own)

    return find
