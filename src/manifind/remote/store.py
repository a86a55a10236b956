"""What is asked of a store that keeps a published collection, and the table of stores.

A store keeps two kinds of things. *Rows*: a photo's packed row (`packing`) with a few descriptors, by which the photo
is found; a row is written once, never changed, and belongs to the generation it was written for. *Documents*: small
named contents, written once as well. A generation becomes visible when its document does, in one step; which rows it
has is decided by whoever reads (`collection`), so that a store needs no transactions.

A new store is one class with the methods of `Store`, and a line in `STORES`; a package of its own names its store among
the entry points of the group ``manifind.stores``. ``tests/distributed/test_store.py`` tests one contract
on all of them.
"""

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import numpy as np

from manifind.errors import InvalidInputError, ManifindError
from manifind.remote.row_format import Numbers
from manifind.types import FloatArray


class Unavailable(ManifindError, OSError):
    """A store cannot be reached or gave up; the message says which, and what to do."""


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
    """What is fetched apart from the packed row, of the few photos of a shortlist that are looked at closely."""


class Versions(NamedTuple):
    """Rows that a store has, without what they hold."""

    numbers: Numbers
    photos: Numbers
    generation: Numbers
    digests: Numbers

    @classmethod
    def concat(cls, parts: "Sequence[Versions]") -> "Versions":
        """Return all of several."""
        empty = cls(*(np.empty(0, np.int64) for _ in range(4)))
        return cls(*(np.concatenate(columns) for columns in zip(empty, *parts, strict=True)))


class NearestRows(NamedTuple):
    """The rows nearest to one descriptor, best first; a photo may come several times."""

    numbers: Numbers
    photos: Numbers
    similarities: FloatArray


class Store(Protocol):
    """A place that keeps a collection. Every method may raise `Unavailable`; what returned is kept."""

    def create(self, dimension: int, photos: int) -> None:
        """Make room for descriptors of so many dimensions, of about so many photos; nothing, where it is there."""

    def names(self) -> list[str]:
        """Return the names of all documents; none where nothing was ever kept here."""

    def read(self, name: str) -> bytes | None:
        """Return a document."""

    def write(self, name: str, content: bytes) -> None:
        """Keep a document of a new name. One of up to `ONE_STEP` bytes is there at once as a whole, or not at all."""

    def delete(self, names: Sequence[str]) -> None:
        """Remove documents; those that are not there are passed over."""

    def upsert(self, rows: Sequence[Row]) -> None:
        """Keep rows; one that is there already is replaced by itself."""

    def build_index(self) -> None:
        """Make what was put as fast to search as it gets; called before a generation becomes visible."""

    def remove(self, numbers: Numbers) -> None:
        """Remove rows by their numbers; those that are not there are passed over."""

    def versions(self) -> Iterator[Versions]:
        """Yield all rows that are there, some at a time; the digest of one that is not whole is `UNFINISHED`."""

    def nearest(self, queries: FloatArray, count: int, generation: int) -> list[NearestRows]:
        """Return for each query the `count` nearest descriptors of rows of generation `generation` or before."""

    def fetch(self, numbers: Numbers) -> list[bytes | None]:
        """Return packed rows in the order of their numbers; None where one is not there."""

    def fetch_blobs(self, numbers: Numbers) -> list[bytes | None]:
        """Return what lies beside packed rows, in the order of their numbers; None where nothing does."""

    def of_photos(self, photos: Numbers, generation: int) -> Versions:
        """Return the rows of some photos of generation `generation` or before."""

    def close(self) -> None:
        """Let go of the connection."""


UNFINISHED = -1
"""Stands for the digest of a row of which only a part is there, because whoever wrote it was interrupted."""

ONE_STEP = 2**15
"""Bytes of a document that every store writes in one step."""

STORES = {
    "folder": "manifind.remote.folder:FolderStore",
    "milvus": "manifind.remote.milvus:MilvusStore",
    "milvus-lite": "manifind.remote.milvus:MilvusStore",
    "qdrant": "manifind.remote.qdrant:QdrantStore",
}
"""The stores that come along, by the scheme of their addresses: the module and the class."""

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
        """Read an address, or raise `InvalidInputError`, which shows nothing before the last @: it may be a token."""
        shown = repr(f"…@{text.rpartition('@')[2]}" if "@" in text else text)[:MAX_SHOWN]
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
    """Return the store that an address leads to."""
    own = {one.name: one.value for one in entry_points(group="manifind.stores")}
    known = {**STORES, **own}
    if address.scheme not in known:
        raise InvalidInputError(
            f"{address.scheme!r} is no store; give an address that begins with {', '.join(known)}.",
            code="unknown-store",
        )
    module, _, name = known[address.scheme].partition(":")
    make: Callable[[Address], Store] = getattr(importlib.import_module(module), name)
    return make(address)
