"""A store in Qdrant: ``qdrant://[token@]host:port/NAME``, or ``qdrant:///folder/NAME`` in the files of its client.

A collection is two of Qdrant's own: ``NAME_vectors`` has the descriptors that photos are found by, ``NAME_rows`` the
packed rows and the documents, as text. A row is written before its descriptors and removed after them, so that whatever
is found can be fetched. Qdrant answers from what was acknowledged before.
"""

import base64
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np

from manifind.errors import MissingExtraError
from manifind.remote.row_format import Numbers, blob_number, photo_number, row_number
from manifind.remote.store import UNFINISHED, Address, NearestRows, Row, Unavailable, Versions
from manifind.types import FloatArray

T = TypeVar("T")

BLOCK = 256
"""Points sent or asked for at a time."""
FACTS = {"number": "number", "photo": "photo", "born": "generation", "digest": "digest"}
"""The fields of a point, and what a `Row` calls them."""


class QdrantStore:
    """Rows and documents in two collections of Qdrant."""

    def __init__(self, address: Address) -> None:
        try:
            import qdrant_client
            from qdrant_client import models
        except ImportError as error:
            raise MissingExtraError(
                "qdrant-client is not installed; pip install 'manifind[qdrant]' installs it."
            ) from error
        self._models: Any = models
        self._address = address
        self._vectors, self._rows = f"{address.name}_vectors", f"{address.name}_rows"
        self._exact = address.options.get("index", "").upper() == "FLAT"
        if not urlsplit(address.text).netloc:
            where: dict[str, Any] = {"path": str(Path(address.place) / address.name)}
        else:
            where = {"url": f"http://{address.place}", "api_key": address.token, "check_compatibility": False}
        self._client: Any = self._ask(partial(qdrant_client.QdrantClient, **where))

    def _ask(self, work: Callable[[], T]) -> T:
        """Do something with Qdrant; what goes wrong there is one sentence."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what its local mode does not do in a server's way
            try:
                return work()
            except Exception as error:
                module = type(error).__module__.partition(".")[0]
                if module not in ("qdrant_client", "httpx", "grpc", "portalocker") and not (
                    isinstance(error, OSError | RuntimeError)
                ):
                    raise
                said = " ".join(str(error).split())[:200]
                raise Unavailable(
                    f"{self._address.shown} did not answer ({said}); see that Qdrant runs there, and try again."
                ) from error

    def create(self, dimension: int, photos: int) -> None:  # noqa: ARG002 (Qdrant sees for itself)
        """Make the collections that are not there."""
        models, client = self._models, self._client
        for name, size in ((self._rows, 1), (self._vectors, dimension)):
            if not self._ask(partial(client.collection_exists, name)):
                how = models.VectorParams(size=size, distance=models.Distance.DOT)
                self._ask(partial(client.create_collection, name, vectors_config=how))

    @property
    def _there(self) -> bool:
        return bool(self._ask(partial(self._client.collection_exists, self._vectors)))

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    # -- documents ----------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of all documents."""
        if not self._there:
            return []
        of_documents = self._where("kind", "document")
        return sorted(one.payload["name"] for one in self._scrolled(self._rows, of_documents, ["name"]))

    def read(self, name: str) -> bytes | None:
        """Return a document."""
        return self._contents([photo_number(f"document {name}")])[0] if self._there else None

    def write(self, name: str, content: bytes) -> None:
        """Keep a document."""
        payload = {"kind": "document", "name": name, "content": base64.b64encode(content).decode()}
        self._send(self._rows, [(photo_number(f"document {name}"), [1.0], payload)])

    def delete(self, names: Sequence[str]) -> None:
        """Remove documents."""
        self._delete(self._rows, [photo_number(f"document {name}") for name in names])

    # -- rows ---------------------------------------------------------------------------------------------------------

    def upsert(self, rows: Sequence[Row]) -> None:
        """Keep rows: packed first, then their descriptors."""
        contents = [
            (number, content)
            for row in rows
            for number, content in [(row.number, row.packed), (blob_number(row.number), row.blob)]
            if content
        ]
        self._send(
            self._rows,
            [
                (number, [1.0], {"kind": "row", "content": base64.b64encode(content).decode()})
                for number, content in contents
            ],
        )
        self._send(
            self._vectors,
            [
                (
                    row_number(row.number, i),
                    vector.tolist(),
                    {**{field: getattr(row, name) for field, name in FACTS.items()}, "pieces": len(row.vectors)},
                )
                for row in rows
                for i, vector in enumerate(row.vectors)
            ],
        )

    def build_index(self) -> None:
        """Do nothing: Qdrant sees to its index."""

    def remove(self, numbers: Numbers) -> None:
        """Remove the descriptors of rows, and the rows after them."""
        for start in range(0, len(numbers), BLOCK):
            some = numbers[start : start + BLOCK].tolist()
            chosen = self._models.FilterSelector(filter=self._where("number", some))
            self._ask(partial(self._client.delete, self._vectors, chosen, wait=True))
            self._delete(self._rows, some + [blob_number(number) for number in some])

    def versions(self) -> Iterator[Versions]:
        """Yield all rows at once: a row is whole when all its descriptors are there."""
        if not self._there:
            return
        yield self._versions(None)

    def _versions(self, where: Any) -> Versions:
        counts: dict[int, int] = {}
        facts: dict[int, dict[str, int]] = {}
        for one in self._scrolled(self._vectors, where, [*FACTS, "pieces"]):
            number = one.payload["number"]
            counts[number], facts[number] = counts.get(number, 0) + 1, one.payload
        whole = [
            [one[name] for name in [*FACTS][:3]] + [one["digest"] if counts[number] == one["pieces"] else UNFINISHED]
            for number, one in facts.items()
        ]
        return Versions(*np.array(whole, np.int64).reshape(-1, 4).T)

    def nearest(self, queries: FloatArray, count: int, generation: int) -> list[NearestRows]:
        """Let Qdrant search its index."""
        models = self._models
        where = models.Filter(must=[models.FieldCondition(key="born", range=models.Range(lte=generation))])
        found = []
        for query in queries:
            asked = {
                "query": query.tolist(),
                "limit": count,
                "query_filter": where,
                "with_payload": ["number", "photo"],
                "search_params": models.SearchParams(exact=self._exact),
            }
            points = self._ask(partial(self._client.query_points, self._vectors, **asked)).points
            found.append(
                NearestRows(
                    np.array([one.payload["number"] for one in points], np.int64),
                    np.array([one.payload["photo"] for one in points], np.int64),
                    np.array([one.score for one in points], np.float32),
                )
            )
        return found

    def fetch(self, numbers: Numbers) -> list[bytes | None]:
        """Fetch packed rows by their numbers."""
        return self._contents(numbers.tolist())

    def fetch_blobs(self, numbers: Numbers) -> list[bytes | None]:
        """Fetch what lies beside packed rows."""
        return self._contents([blob_number(number) for number in numbers.tolist()])

    def of_photos(self, photos: Numbers, generation: int) -> Versions:
        """Return the rows of some photos."""
        models = self._models
        where = self._where("photo", photos.tolist())
        where.must.append(models.FieldCondition(key="born", range=models.Range(lte=generation)))
        return self._versions(where)

    # -- requests -----------------------------------------------------------------------------------------------------

    def _where(self, field: str, value: Any) -> Any:
        models = self._models
        match = models.MatchAny(any=value) if isinstance(value, list) else models.MatchValue(value=value)
        return models.Filter(must=[models.FieldCondition(key=field, match=match)])

    def _contents(self, numbers: list[int]) -> list[bytes | None]:
        found: dict[int, bytes] = {}
        for start in range(0, len(numbers), BLOCK):
            some = numbers[start : start + BLOCK]
            points = self._ask(partial(self._client.retrieve, self._rows, some, with_payload=["content"]))
            found |= {one.id: base64.b64decode(one.payload["content"]) for one in points}
        return [found.get(number) for number in numbers]

    def _scrolled(self, name: str, where: Any, fields: list[str]) -> Iterator[Any]:
        after = None
        while True:
            asked = {"scroll_filter": where, "limit": 8 * BLOCK, "with_payload": fields, "offset": after}
            points, after = self._ask(partial(self._client.scroll, name, **asked))
            yield from points
            if after is None:
                return

    def _send(self, name: str, points: Sequence[tuple[int, list[float], dict[str, Any]]]) -> None:
        for start in range(0, len(points), BLOCK):
            some = [
                self._models.PointStruct(id=number, vector=vector, payload=payload)
                for number, vector, payload in points[start : start + BLOCK]
            ]
            self._ask(partial(self._client.upsert, name, some, wait=True))

    def _delete(self, name: str, numbers: list[int]) -> None:
        if numbers:
            chosen = self._models.PointIdsList(points=numbers)
            self._ask(partial(self._client.delete, name, chosen, wait=True))
