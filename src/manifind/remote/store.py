"""The contract of a store of published collections, and the table of stores.

A store keeps two kinds of things. *Rows*: a photo's packed row (`row_format`) with a few descriptors, by which the
photo is found; a row is written once, never changed, and belongs to the generation it was written for. *Documents*:
small named contents, written once as well. A generation becomes visible when its document does, in one step. The reader
(`collection`) decides which rows it has, so a store needs no transactions.

A new store is one class with the methods of `Store`, and a line in `STORES`; a package of its own names its store among
the entry points of the group ``manifind.stores``. ``tests/distributed/test_store.py`` tests one contract
on all of them.
"""

import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import numpy as np

from manifind.errors import InvalidInputError, ManifindError
from manifind.remote.row_format import Numbers
from manifind.types import FloatArray


class StoreUnavailableError(ManifindError, OSError):
    """A store cannot be reached or gave up; the message says which, and what to do."""

    code = "unavailable"


class Row(NamedTuple):
    """A photo as it goes into a store."""

    number: int
    """Of the row: no other has the same."""
    photo: int
    generation: int
    """The generation that it was written for."""
    digest: int
    vectors: FloatArray
    """(r, d): the descriptors that the photo is found by."""
    packed: bytes
    blob: bytes = b""
    """Local features: fetched apart from the packed row, for the few photos that are verified."""


class Versions(NamedTuple):
    """Rows that a store has, without their contents."""

    numbers: Numbers
    photos: Numbers
    generation: Numbers
    digests: Numbers

    @classmethod
    def concat(cls, parts: "Sequence[Versions]") -> "Versions":
        """Return the rows of all parts."""
        empty = cls(*(np.empty(0, np.int64) for _ in range(4)))
        return cls(*(np.concatenate(columns) for columns in zip(empty, *parts, strict=True)))


def versions_of_pieces(pieces: Iterable[tuple[int, ...]]) -> Versions:
    """Return the rows of which a store has some descriptors; a row is whole when all of them are there.

    Each descriptor says number, photo, generation and digest of its row, and how many descriptors the row has.
    """
    counts = Counter(pieces)
    rows = [(*row, digest if n == whole else UNFINISHED) for (*row, digest, whole), n in counts.items()]
    return Versions(*np.array(rows, np.int64).reshape(-1, 4).T)


class NearestRows(NamedTuple):
    """The rows nearest to one descriptor, best first; a photo may come several times."""

    numbers: Numbers
    photos: Numbers
    similarities: FloatArray


class Store(Protocol):
    """A place that keeps a collection. Every method may raise `StoreUnavailableError`; what returned is kept."""

    def create(self, dimension: int, photos: int) -> None:
        """Create the collection for descriptors of `dimension` dimensions and about so many photos, if missing."""

    def names(self) -> list[str]:
        """Return the names of all documents; none where nothing was published."""

    def read(self, name: str) -> bytes | None:
        """Return a document."""

    def write(self, name: str, content: bytes) -> None:
        """Write a document of a new name; up to `ONE_STEP` bytes appear at once or not at all."""

    def delete(self, names: Sequence[str]) -> None:
        """Remove documents; a missing one is ignored."""

    def upsert(self, rows: Sequence[Row]) -> None:
        """Write rows; a row that exists is replaced by itself."""

    def build_index(self) -> None:
        """Index the rows for fast search; called before a generation becomes visible."""

    def remove(self, numbers: Numbers) -> None:
        """Remove rows by their numbers; a missing one is ignored."""

    def versions(self) -> Iterator[Versions]:
        """Yield all rows, some at a time; the digest of an incomplete row is `UNFINISHED`."""

    def nearest(self, queries: FloatArray, count: int, generation: int) -> list[NearestRows]:
        """Return for each query the `count` nearest descriptors of rows of generation `generation` or before."""

    def fetch(self, numbers: Numbers) -> list[bytes | None]:
        """Return packed rows in the order of `numbers`; None for a missing one."""

    def fetch_blobs(self, numbers: Numbers) -> list[bytes | None]:
        """Return the blobs of rows in the order of `numbers`; None for a row without one."""

    def of_photos(self, photos: Numbers, generation: int) -> Versions:
        """Return the rows of some photos of generation `generation` or before."""

    def close(self) -> None:
        """Close the connection."""


UNFINISHED = -1
"""The digest of an incomplete row, whose writer was interrupted."""

ONE_STEP = 2**15
"""Bytes of a document that every store writes in one step."""

STORES = {
    "folder": "manifind.remote.folder:FolderStore",
    "milvus": "manifind.remote.milvus:MilvusStore",
    "milvus-lite": "manifind.remote.milvus:MilvusStore",
    "qdrant": "manifind.remote.qdrant:QdrantStore",
}
"""The built-in stores by the scheme of their addresses: the module and the class."""

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,199}")
POSITIVE = re.compile(r"[1-9][0-9]{0,17}")
MAX_SHOWN = 200
"""Characters of an address in an error."""


@dataclass(frozen=True)
class Address:
    """Where a collection is: ``scheme://[token@]host:port/name?option=value``."""

    text: str
    scheme: str
    token: str | None
    place: str
    """The host and its port, or a folder."""
    name: str
    options: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read an address, or raise `InvalidInputError`, which shows nothing before an @ and no options."""
        rest = text.rpartition("@")[2].partition("?")[0]
        shown = repr(f"…@{rest}" if "@" in text else rest)[:MAX_SHOWN]
        try:
            parts = urlsplit(text)
            path = unquote(parts.path, errors="strict")
            sound = path.isprintable() and (parts.port is None or parts.port > 0)  # a port may be no number
        except ValueError:
            sound = False
        if not sound or (parts.netloc and "@" in path):
            raise InvalidInputError(
                f"{shown} is no address; give SCHEME://HOST:PORT/NAME or SCHEME:///FOLDER/NAME, and write "
                "a / or @ of a token as %2F or %40.",
                code="address",
            )
        token, _, host = parts.netloc.rpartition("@")
        if "@" in token:
            raise InvalidInputError("the token of an address has an @; write it as %40.", code="address-token")
        folder, _, name = path.rstrip("/").rpartition("/")
        if (not host and not folder) or not NAME.fullmatch(name):
            raise InvalidInputError(
                f"{shown} names no collection; give SCHEME://HOST:PORT/NAME or SCHEME:///FOLDER/NAME, where NAME has "
                "letters, digits and underscores.",
                code="address-name",
            )
        return cls(text, parts.scheme, unquote(token) or None, host + folder, name, dict(parse_qsl(parts.query)))

    @property
    def shown(self) -> str:
        """The address without its token."""
        scheme, _, rest = self.text.partition("://")
        return self.text if self.token is None else f"{scheme}://{rest.partition('@')[2]}"

    def int_option(self, option: str, default: int) -> int:
        """Return an option that is a whole number of at least one."""
        given = self.options.get(option, str(default))
        if not POSITIVE.fullmatch(given):
            raise InvalidInputError(f"{option} is {given!r} in {self.shown}; give a whole number of at least 1.")
        return int(given)


def store_at(address: Address) -> Store:
    """Return the store at an address."""
    known = STORES | {point.name: point.value for point in entry_points(group="manifind.stores")}
    if address.scheme not in known:
        raise InvalidInputError(
            f"{address.scheme!r} is no store; give an address that begins with {', '.join(known)}.",
            code="unknown-store",
        )
    module, _, name = known[address.scheme].partition(":")
    make: Callable[[Address], Store] = getattr(importlib.import_module(module), name)
    return make(address)
