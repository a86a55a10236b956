"""A store in Milvus: ``milvus://[token@]host:port/NAME``, or ``milvus-lite:///folder/NAME`` without a server.

A collection is three of Milvus' own: ``NAME_vectors`` has the descriptors that photos are found by, indexed;
``NAME_rows`` the packed rows, and ``NAME_documents`` the documents. With ``?rows=/shared/folder/NAME`` packed rows lie
in files of that folder instead (`folder`). Bytes go into text fields, in parts where they are too long for one.

A row is written before its descriptors and removed after them, so that whatever is found can be fetched. Milvus answers
from a state that may be some seconds old unless it is asked for the newest, which takes a fifth of a second: documents
are always read that way, and rows for a while after their generation came, when an older state may lack some.
"""

import base64
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from manifind.errors import InvalidInputError
from manifind.kernels.costs import COSTS
from manifind.remote.folder import FolderStore
from manifind.remote.milvus_requests import MAX_QUERY_ROWS, NEWEST, Requests
from manifind.remote.row_format import Numbers, blob_number, row_number
from manifind.remote.store import Address, NearestRows, Row, StoreUnavailableError, Versions, versions_of_pieces
from manifind.types import FloatArray

PART_BYTES = 48_000
"""Bytes of a part: 64,000 characters, where Milvus takes 65,535."""
FETCH_BYTES, MAX_FETCHES = 2**24, 4
"""Bytes fetched by one request, and requests under way at once."""
CONSISTENT_AFTER_SECONDS = 10.0
"""Seconds after which every state that Milvus answers from has all rows of a generation; Milvus' own bound is five."""
INDEX_TIMEOUT_SECONDS = 600.0
"""Seconds that publishing waits for Milvus to build its index; a generation may be seen before that is done."""
INDEXES: dict[str, tuple[dict[str, int], Callable[[int], dict[str, int]]]] = {
    "FLAT": ({}, lambda _: {}),
    "HNSW": ({"M": 16, "efConstruction": 200}, lambda count: {"ef": max(64, min(32_768, 2 * count))}),
    "IVF_FLAT": ({"nlist": 1024}, lambda _: {"nprobe": 64}),
    "IVF_SQ8": ({"nlist": 1024}, lambda _: {"nprobe": 64}),
}
"""What Milvus may search by, how it is built, and how it is asked for so many."""


class MilvusStore:
    """Rows and documents in three collections of Milvus."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._kind = address.options.get("index", "").upper()
        if self._kind and self._kind not in INDEXES:
            raise InvalidInputError(f"index is {self._kind!r} in {address.shown}; give one of {', '.join(INDEXES)}.")
        self._seen: dict[int, float] = {}
        self._folder: FolderStore | None = None
        self._knows_folder = False
        self._milvus = Requests(address)

    def close(self) -> None:
        """Close the connection."""
        self._milvus.close()

    # -- collections --------------------------------------------------------------------------------------------------

    def create(self, dimension: int, photos: int) -> None:
        """Make the collections that are not there."""
        types, has, make = self._milvus.types, self._milvus.has, self._milvus.make
        kind = self._kind or ("FLAT" if photos <= COSTS.max_flat_photos else "HNSW")
        whole: dict[str, Any] = {name: (types.INT64, {}) for name in ("photo", "born", "digest", "number")}
        text: dict[str, Any] = {"part": (types.INT64, {}), "parts": (types.INT64, {})}
        text["content"] = (types.VARCHAR, {"max_length": 65_535})
        plain = "FLAT", INDEXES["FLAT"][0]
        make("documents", {"name": (types.VARCHAR, {"max_length": 200}), **text}, 2, plain, text_id=True)
        folder = self._address.options.get("rows")
        if folder is not None and not has("vectors"):
            self.write("rows_folder", str(Path(folder).resolve()).encode())
        # The descriptors come last: where they are, all of it is settled.
        if folder is None and not has("vectors"):
            make("rows", {"number": (types.INT64, {}), **text}, 2, plain, sorted_by=("number",))
        index = kind, INDEXES[kind][0]
        make("vectors", {**whole, "pieces": (types.INT64, {})}, dimension, index, sorted_by=("photo", "number"))
        if self._rows_folder is not None:
            self._rows_folder.create(dimension, photos)

    @property
    def _exists(self) -> bool:
        parts = ("documents", "vectors") if self._rows_folder else ("documents", "vectors", "rows")
        return all(self._milvus.has(part) for part in parts)

    @property
    def _rows_folder(self) -> FolderStore | None:
        """Where packed rows lie, if not in Milvus; settled when the collection is made."""
        if not self._knows_folder and self._milvus.has("vectors"):
            folder = self._read_document("rows_folder")
            self._folder, self._knows_folder = None if folder is None else FolderStore(Path(folder.decode())), True
        return self._folder

    @cached_property
    def _index_type(self) -> str:
        kind = str(self._milvus.index_of("vectors").get("index_type", "FLAT"))
        return kind if kind in INDEXES else "FLAT"

    # -- documents ----------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of all documents."""
        if not self._milvus.has("documents"):
            return []
        return sorted(str(entity["name"]) for entity in self._milvus.query("documents", "part == 0", ["name"]))

    def read(self, name: str) -> bytes | None:
        """Return a document."""
        return self._read_document(name) if self._milvus.has("documents") else None

    def _read_document(self, name: str) -> bytes | None:
        parts = self._milvus.query("documents", f'name == "{name}"', ["part", "parts", "content"])
        return _join_parts(parts)

    def write(self, name: str, content: bytes) -> None:
        """Write a document, its first part last."""
        parts = _split_parts(content)
        rows = [
            {"id": f"{name}#{i}", "name": name, "part": i, "parts": len(parts), "content": part, "vector": [0.0, 0.0]}
            for i, part in enumerate(parts)
        ]
        self._milvus.send("documents", rows[1:])
        self._milvus.send("documents", rows[:1])

    def delete(self, names: Sequence[str]) -> None:
        """Remove documents."""
        for name in names:
            self._milvus.delete("documents", f'name == "{name}"')

    # -- rows ---------------------------------------------------------------------------------------------------------

    def upsert(self, rows: Sequence[Row]) -> None:
        """Write rows: packed first, then their descriptors."""
        if self._rows_folder is not None:
            self._rows_folder.upsert([row._replace(vectors=row.vectors[:0]) for row in rows])
        else:
            self._milvus.send(
                "rows",
                (
                    {
                        "id": row_number(number, i),
                        "number": number,
                        "part": i,
                        "parts": len(parts),
                        "content": part,
                        "vector": [0.0, 0.0],
                    }
                    for row in rows
                    for number, content in [(row.number, row.packed), (blob_number(row.number), row.blob)]
                    if content
                    for parts in [_split_parts(content)]
                    for i, part in enumerate(parts)
                ),
            )
        self._milvus.send(
            "vectors",
            (
                {
                    "id": row_number(row.number, i),
                    "number": row.number,
                    "photo": row.photo,
                    "born": row.generation,
                    "digest": row.digest,
                    "pieces": len(row.vectors),
                    "vector": np.ascontiguousarray(vector, np.float32),
                }
                for row in rows
                for i, vector in enumerate(row.vectors)
            ),
        )

    def build_index(self) -> None:
        """Seal what was written, and wait until Milvus has built its index over it, `INDEX_TIMEOUT_SECONDS` at most.

        Milvus takes the index into use some seconds later; until then it searches by what it has made as rows came.
        """
        if self._address.scheme != "milvus" or not self._milvus.has("vectors"):
            return
        self._milvus.flush("vectors")
        until = time.monotonic() + INDEX_TIMEOUT_SECONDS
        while self._index_type != "FLAT" and time.monotonic() < until and self._pending_index_rows():
            time.sleep(0.5)

    def _pending_index_rows(self) -> int:
        """Return how many rows Milvus has sealed and not yet indexed."""
        return int(self._milvus.index_of("vectors").get("pending_index_rows", 0))

    def remove(self, numbers: Numbers) -> None:
        """Remove the descriptors of rows, and the rows after them."""
        for start in range(0, len(numbers), MAX_QUERY_ROWS // 16):
            block = numbers[start : start + MAX_QUERY_ROWS // 16]
            self._milvus.delete("vectors", f"number in {block.tolist()}")
            if self._rows_folder is not None:
                self._rows_folder.remove(block)
            else:
                blobs = [blob_number(number) for number in block.tolist()]
                self._milvus.delete("rows", f"number in {block.tolist() + blobs}")

    def versions(self) -> Iterator[Versions]:
        """Yield all rows at once: a row is whole when all its descriptors are there."""
        if not self._exists:
            return
        fields = ["number", "photo", "born", "digest", "pieces"]
        blocks = self._milvus.all("vectors", fields)
        yield versions_of_pieces(tuple(int(entity[name]) for name in fields) for block in blocks for entity in block)

    def nearest(self, queries: FloatArray, count: int, generation: int) -> list[NearestRows]:
        """Let Milvus search its index."""
        if count > MAX_QUERY_ROWS:
            raise InvalidInputError(
                f"Milvus returns {MAX_QUERY_ROWS} rows at most, not {count}; give a smaller shortlist."
            )
        self._check_exists()
        hits_of_queries = self._milvus.search(
            "vectors",
            data=[np.ascontiguousarray(query, np.float32) for query in queries],
            limit=count,
            filter=f"born <= {generation}",
            output_fields=["number", "photo"],
            search_params={"metric_type": "IP", "params": INDEXES[self._index_type][1](count)},
            consistency_level=self._consistency(generation),
        )
        return [
            NearestRows(
                np.array([int(hit["entity"]["number"]) for hit in hits], np.int64),
                np.array([int(hit["entity"]["photo"]) for hit in hits], np.int64),
                np.array([float(hit["distance"]) for hit in hits], np.float32),
            )
            for hits in hits_of_queries
        ]

    def fetch(self, numbers: Numbers) -> list[bytes | None]:
        """Fetch packed rows, some requests at a time."""
        if self._rows_folder is not None:
            return self._rows_folder.fetch(numbers)
        return self._fetch_rows(numbers)

    def fetch_blobs(self, numbers: Numbers) -> list[bytes | None]:
        """Fetch the blobs of rows by their numbers."""
        if self._rows_folder is not None:
            return self._rows_folder.fetch_blobs(numbers)
        return self._fetch_rows(np.array([blob_number(number) for number in numbers.tolist()], np.int64))

    def _fetch_rows(self, numbers: Numbers) -> list[bytes | None]:
        self._check_exists()
        each = max(1, FETCH_BYTES // (2 * PART_BYTES))
        blocks = [numbers[start : start + each] for start in range(0, len(numbers), each)]

        def block(some: Numbers) -> dict[int, list[dict[str, Any]]]:
            fields = ["number", "part", "parts", "content"]
            parts_of_row: dict[int, list[dict[str, Any]]] = {}
            for entity in self._milvus.query("rows", f"number in {some.tolist()}", fields):
                parts_of_row.setdefault(int(entity["number"]), []).append(entity)
            return parts_of_row

        with ThreadPoolExecutor(min(MAX_FETCHES, max(1, len(blocks)))) as pool:
            parts = {
                number: entities
                for rows_of_block in pool.map(block, blocks)
                for number, entities in rows_of_block.items()
            }
        return [_join_parts(parts.get(number, [])) for number in numbers.tolist()]

    def of_photos(self, photos: Numbers, generation: int) -> Versions:
        """Return the rows of some photos."""
        self._check_exists()
        fields = ["number", "photo", "born", "digest"]
        rows: dict[int, tuple[int, ...]] = {}
        for start in range(0, len(photos), MAX_QUERY_ROWS // 16):
            where = f"photo in {photos[start : start + MAX_QUERY_ROWS // 16].tolist()} and born <= {generation}"
            for entity in self._milvus.query("vectors", where, fields):
                rows[int(entity["number"])] = tuple(int(entity[name]) for name in fields)
        columns = zip(*rows.values(), strict=True) if rows else [[]] * 4
        return Versions(*(np.array(column, np.int64) for column in columns))

    def _check_exists(self) -> None:
        if not self._exists:
            raise StoreUnavailableError(f"{self._address.shown} has no collection; manifind publish makes one.")

    def _consistency(self, generation: int) -> str:
        seen = self._seen.setdefault(generation, time.monotonic())
        return NEWEST if time.monotonic() - seen < CONSISTENT_AFTER_SECONDS else "Bounded"


def _split_parts(content: bytes) -> list[str]:
    """Return bytes as texts that Milvus takes."""
    starts = range(0, max(1, len(content)), PART_BYTES)
    return [base64.b64encode(content[start : start + PART_BYTES]).decode() for start in starts]


def _join_parts(parts: Sequence[dict[str, Any]]) -> bytes | None:
    """Return the bytes of texts; None unless all are there."""
    if not parts or len({int(entity["part"]) for entity in parts}) != int(parts[0]["parts"]):
        return None
    texts = {int(entity["part"]): entity["content"] for entity in parts}
    return b"".join(base64.b64decode(texts[part]) for part in sorted(texts))
