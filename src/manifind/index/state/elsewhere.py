"""The seat for collections that do not lie in a folder: in a vector database, say.

An index on disk searches a `Generation`. A collection elsewhere is another `State`: it answers a query on a shortlist
of photos, which it fetches and makes into a small generation of its own. Whatever comes after a search (hits, the line,
explanations, verification, pages) sees that generation, and no difference.

Addresses (``milvus://host:port/name``) are opened by the room `manifind.cluster`, which knows this one. This room knows
it by its name alone, and imports it when the first address is given.
"""

import importlib
import os
import re
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from manifind.describe import Describer, Whitening
from manifind.errors import InvalidInput
from manifind.index.state.catalogue import Photos
from manifind.index.state.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from manifind.index.asking.query import QueryRegions, Search, View
    from manifind.index.state.catalogue import ImageRecord
    from manifind.index.state.generation import MadeOnce
    from manifind.index.state.kept import KeptFeatures

T = TypeVar("T")

ROOM = "manifind.cluster.collection"
"""The module that opens addresses: its function `opened` returns an `Elsewhere`."""

ADDRESS = re.compile(r"[a-z][a-z0-9+-]+://.+", re.DOTALL)


class Elsewhere(Protocol):
    """One state of a collection that does not lie in a folder; it may go out of date, and `newest` says so."""

    @property
    def number(self) -> int:
        """The number of the generation."""

    @property
    def where(self) -> str:
        """Its address, without what is secret in it."""

    @property
    def stamp(self) -> str:
        """A stamp that no other generation has."""

    @property
    def manifest(self) -> Manifest:
        """How the photos became a collection."""

    @property
    def catalogue(self) -> Photos:
        """The photos."""

    @property
    def whitening(self) -> Whitening | None:
        """The whitening of the describer, where it was learnt."""

    @property
    def local(self) -> "KeptFeatures | None":
        """The local features of the photos, where they are kept."""

    @property
    def made(self) -> "MadeOnce":
        """What was made from this state when it was first needed, kept for later."""

    @property
    def regions(self) -> int:
        """How many regions a search solves for at most."""

    @property
    def dimension(self) -> int:
        """The number of dimensions of its descriptors."""

    def rank(self, queries: "Sequence[QueryRegions]", top: int | None, method: str) -> "list[Search]":
        """Answer queries, each on a generation of its own."""

    def stored_view(self, record: "ImageRecord") -> "View":
        """Return a photo as it was described."""

    def newest(self) -> "Elsewhere":
        """Return the newest state: this one, where nothing has changed."""

    def info(self) -> dict[str, Any]:
        """Return counts, parameters and health, ready for JSON."""

    def through(self, change: "Callable[[Any], T]", describer: Describer | None) -> T:
        """Change the index on disk that this is a copy of, and bring the copy to its new state."""

    def close(self) -> None:
        """Let go of the connection."""


def is_address(path: str | os.PathLike[str]) -> bool:
    """Say whether this is the address of a collection elsewhere, and no path."""
    return isinstance(path, str) and ADDRESS.fullmatch(path) is not None


def opened(address: str) -> Elsewhere:
    """Open the newest state of a collection elsewhere."""
    state: Elsewhere = importlib.import_module(ROOM).opened(address)
    return state


def refused(where: str, what: str) -> InvalidInput:
    """Return the error that only an index on disk can do something."""
    return InvalidInput(
        f"{where} lies in a store and cannot be {what} there; take the index that it was published from, and publish "
        "that again where it has changed."
    )
