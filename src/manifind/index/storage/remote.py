"""The interface of remote collections: in a vector database, say.

An index on disk is searched by a `Snapshot`. A remote collection retrieves a shortlist of images and makes a small
`Snapshot` of them. The later steps of a search (verification, cutoff, hits, explanations, reports) see that snapshot.

The package `manifind.remote` opens addresses (``milvus://host:port/name``). It is imported when the first address is
given.
"""

import importlib
import os
import re
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from manifind.errors import InvalidInputError
from manifind.features import RegionExtractor, Whitening
from manifind.index.storage.catalogue import Photos
from manifind.index.storage.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from manifind.index.config import RetrievalConfig
    from manifind.index.search.query import QueryRegions, QueryView
    from manifind.index.search.retrieval import Retrieval
    from manifind.index.storage.catalogue import ImageRecord
    from manifind.index.storage.local_features import StoredLocalFeatures
    from manifind.index.storage.snapshot import SnapshotCache

T = TypeVar("T")

MODULE = "manifind.remote.collection"
"""The module that opens addresses: its function `open_collection` returns a `RemoteCollection`."""

ADDRESS = re.compile(r"[a-z][a-z0-9+-]+://.+", re.DOTALL | re.IGNORECASE)


class RemoteCollection(Protocol):
    """A snapshot of a remote collection."""

    @property
    def number(self) -> int:
        """The number of the generation."""

    @property
    def where(self) -> str:
        """Its address, without what is secret in it."""

    @property
    def stamp(self) -> str:
        """A name that no other snapshot has."""

    @property
    def manifest(self) -> Manifest:
        """How the photos became a collection."""

    @property
    def catalogue(self) -> Photos:
        """The photos."""

    @property
    def whitening(self) -> Whitening | None:
        """The whitening of the extractor, where it was learnt."""

    @property
    def local(self) -> "StoredLocalFeatures | None":
        """The local features of the photos, where they are kept."""

    @property
    def cache(self) -> "SnapshotCache":
        """What was computed from this snapshot when it was first needed."""

    @property
    def regions(self) -> int:
        """How many regions a search solves for at most."""

    @property
    def dimension(self) -> int:
        """The number of dimensions of its descriptors."""

    def retrieve(
        self, queries: "Sequence[QueryRegions]", top: int | None, method: str, config: "RetrievalConfig"
    ) -> "list[Retrieval]":
        """Rank images for queries, each on a shortlist's snapshot of its own."""

    def stored_query_view(self, record: "ImageRecord") -> "QueryView":
        """Return a photo as it was extracted."""

    def newest(self) -> "RemoteCollection":
        """Return the newest snapshot: this one, where nothing has changed."""

    def info(self) -> dict[str, Any]:
        """Return counts, parameters and health, ready for JSON."""

    def modify_source_index(self, change: "Callable[[Any], T]", extractor: RegionExtractor | None) -> T:
        """Change the index on disk that this was published from, and publish it again."""

    def close(self) -> None:
        """Close the connection."""


def is_address(path: str | os.PathLike[str]) -> bool:
    """Return whether this is the address of a remote collection, and no path."""
    return isinstance(path, str) and ADDRESS.fullmatch(path) is not None


def open_collection(address: str, config: "RetrievalConfig") -> RemoteCollection:
    """Open the newest snapshot of a remote collection."""
    state: RemoteCollection = importlib.import_module(MODULE).open_collection(address, config)
    return state


def read_only_error(where: str, what: str) -> InvalidInputError:
    """Return the error that only an index on disk can do something."""
    return InvalidInputError(
        f"{where} lies in a store and cannot be {what} there; take the index that it was published from, and publish "
        "that again where it has changed.",
        code="remote-collection",
    )
