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
from manifind.remote.store import Address, NearestRows, Row, StoreUnavailableError, Versions, versions_of_pieces
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
        self._client: Any = self._request(partial(qdrant_client.QdrantClient, **where))

    def _request(self, work: Callable[[], T]) -> T:
        """Call Qdrant's client; its errors become `StoreUnavailableError`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where its local mode differs from a server
            try:
                return work()
            except Exception as error:
                module = type(error).__module__.partition(".")[0]
                if module not in ("qdrant_client", "httpx", "grpc", "portalocker") and not (
                    isinstance(error, OSError | RuntimeError)
                ):
                    raise
                reason = " ".join(str(error).split())[:200]
                raise StoreUnavailableError(
                    f"{self._address.shown} did not answer ({reason}); see that Qdrant runs there, and try again."
                ) from error

    def create(self, dimension: int, photos: int) -> None:  # noqa: ARG002 (Qdrant grows with its rows)
        """Make the collections that are not there."""
        models, client = self._models, self._client
        for name, size in ((self._rows, 1), (self._vectors, dimension)):
            if not self._request(partial(client.collection_exists, name)):
                how = models.VectorParams(size=size, distance=models.Distance.DOT)
                self._request(partial(client.create_collection, name, vectors_config=how))

    @property
    def _exists(self) -> bool:
        return bool(self._request(partial(self._client.collection_exists, self._vectors)))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    # -- documents ----------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of all documents."""
        if not self._exists:
            return []
        of_documents = self._filter("kind", "document")
        return sorted(point.payload["name"] for point in self._scroll(self._rows, of_documents, ["name"]))

    def read(self, name: str) -> bytes | None:
        """Return a document."""
        return self._read_contents([photo_number(f"document {name}")])[0] if self._exists else None

    def write(self, name: str, content: bytes) -> None:
        """Write a document."""
        payload = {"kind": "document", "name": name, "content": base64.b64encode(content).decode()}
        self._send(self._rows, [(photo_number(f"document {name}"), [1.0], payload)])

    def delete(self, names: Sequence[str]) -> None:
        """Remove documents."""
        self._delete(self._rows, [photo_number(f"document {name}") for name in names])

    # -- rows ---------------------------------------------------------------------------------------------------------

    def upsert(self, rows: Sequence[Row]) -> None:
        """Write rows: packed first, then their descriptors."""
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
        """Do nothing: Qdrant builds its index by itself."""

    def remove(self, numbers: Numbers) -> None:
        """Remove the descriptors of rows, and the rows after them."""
        for start in range(0, len(numbers), BLOCK):
            block = numbers[start : start + BLOCK].tolist()
            chosen = self._models.FilterSelector(filter=self._filter("number", block))
            self._request(partial(self._client.delete, self._vectors, chosen, wait=True))
            self._delete(self._rows, block + [blob_number(number) for number in block])

    def versions(self) -> Iterator[Versions]:
        """Yield all rows at once: a row is whole when all its descriptors are there."""
        if not self._exists:
            return
        yield self._versions(None)

    def _versions(self, where: Any) -> Versions:
        points = self._scroll(self._vectors, where, [*FACTS, "pieces"])
        return versions_of_pieces(tuple(int(point.payload[name]) for name in (*FACTS, "pieces")) for point in points)

    def nearest(self, queries: FloatArray, count: int, generation: int) -> list[NearestRows]:
        """Let Qdrant search its index."""
        models = self._models
        where = models.Filter(must=[models.FieldCondition(key="born", range=models.Range(lte=generation))])
        nearest_rows = []
        for query in queries:
            asked = {
                "query": query.tolist(),
                "limit": count,
                "query_filter": where,
                "with_payload": ["number", "photo"],
                "search_params": models.SearchParams(exact=self._exact),
            }
            points = self._request(partial(self._client.query_points, self._vectors, **asked)).points
            nearest_rows.append(
                NearestRows(
                    np.array([point.payload["number"] for point in points], np.int64),
                    np.array([point.payload["photo"] for point in points], np.int64),
                    np.array([point.score for point in points], np.float32),
                )
            )
        return nearest_rows

    def fetch(self, numbers: Numbers) -> list[bytes | None]:
        """Fetch packed rows by their numbers."""
        return self._read_contents(numbers.tolist())

    def fetch_blobs(self, numbers: Numbers) -> list[bytes | None]:
        """Fetch the blobs of rows by their numbers."""
        return self._read_contents([blob_number(number) for number in numbers.tolist()])

    def of_photos(self, photos: Numbers, generation: int) -> Versions:
        """Return the rows of block photos."""
        models = self._models
        where = self._filter("photo", photos.tolist())
        where.must.append(models.FieldCondition(key="born", range=models.Range(lte=generation)))
        return self._versions(where)

    # -- requests -----------------------------------------------------------------------------------------------------

    def _filter(self, field: str, value: Any) -> Any:
        models = self._models
        match = models.MatchAny(any=value) if isinstance(value, list) else models.MatchValue(value=value)
        return models.Filter(must=[models.FieldCondition(key=field, match=match)])

    def _read_contents(self, numbers: list[int]) -> list[bytes | None]:
        contents: dict[int, bytes] = {}
        for start in range(0, len(numbers), BLOCK):
            block = numbers[start : start + BLOCK]
            points = self._request(partial(self._client.retrieve, self._rows, block, with_payload=["content"]))
            contents |= {point.id: base64.b64decode(point.payload["content"]) for point in points}
        return [contents.get(number) for number in numbers]

    def _scroll(self, name: str, where: Any, fields: list[str]) -> Iterator[Any]:
        after = None
        while True:
            asked = {"scroll_filter": where, "limit": 8 * BLOCK, "with_payload": fields, "offset": after}
            points, after = self._request(partial(self._client.scroll, name, **asked))
            yield from points
            if after is None:
                return

    def _send(self, name: str, points: Sequence[tuple[int, list[float], dict[str, Any]]]) -> None:
        for start in range(0, len(points), BLOCK):
            block = [
                self._models.PointStruct(id=number, vector=vector, payload=payload)
                for number, vector, payload in points[start : start + BLOCK]
            ]
            self._request(partial(self._client.upsert, name, block, wait=True))

    def _delete(self, name: str, numbers: list[int]) -> None:
        if numbers:
            chosen = self._models.PointIdsList(points=numbers)
            self._request(partial(self._client.delete, name, chosen, wait=True))
