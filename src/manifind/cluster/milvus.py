"""A store in Milvus: ``milvus://[token@]host:port/NAME``, or ``milvus-lite:///folder/NAME`` without a server.

A collection is three of Milvus' own: ``NAME_vectors`` has the descriptors that photos are found by, indexed;
``NAME_rows`` the packed rows, and ``NAME_documents`` the documents. With ``?rows=/shared/folder/NAME`` packed rows lie
in files of that folder instead (`folder`). Bytes go into text fields, in parts where they are too long for one.

A row is written before its descriptors and removed after them, so that whatever is found can be fetched. Milvus answers
from a state that may be some seconds old unless it is asked for the newest, which takes a fifth of a second: documents
are always read that way, and rows for a while after their generation came, when an older state may lack some.
"""

import base64
import logging
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from manifind.cluster.folder import FolderStore
from manifind.cluster.packing import Numbers, beside_number, row_number
from manifind.cluster.store import UNFINISHED, Address, Found, Row, Unavailable, Versions
from manifind.errors import InvalidInput, MissingExtra
from manifind.types import FloatArray

T = TypeVar("T")

PART = 48_000
"""Bytes of a part: 64,000 characters, where Milvus takes 65,535."""
MOST = 16_384
"""Rows that Milvus returns at most."""
ANSWER_BYTES, ANSWERS = 2**24, 4
"""Bytes fetched by one request, and requests under way at once."""
SENT = 2**22
"""Bytes sent at a time."""
SETTLED = 10.0
"""Seconds after which every state that Milvus answers from has all rows of a generation; Milvus' own bound is five."""
BUILDING = 600.0
"""Seconds that publishing waits for Milvus to build its index; a generation may be seen before that is done."""
FLAT_UP_TO = 50_000
"""Photos up to which descriptors are compared one by one unless the address says otherwise (``?index=HNSW``)."""
INDEXES: dict[str, tuple[dict[str, int], Callable[[int], dict[str, int]]]] = {
    "FLAT": ({}, lambda _: {}),
    "HNSW": ({"M": 16, "efConstruction": 200}, lambda count: {"ef": max(64, min(32_768, 2 * count))}),
    "IVF_FLAT": ({"nlist": 1024}, lambda _: {"nprobe": 64}),
    "IVF_SQ8": ({"nlist": 1024}, lambda _: {"nprobe": 64}),
}
"""What Milvus may search by, how it is built, and how it is asked for so many."""


def _unanswered(error: BaseException | None) -> bool:
    """Say whether an error came of a server that gave no answer, rather than of one that refused."""
    while error is not None:
        code = getattr(error, "code", None)
        if callable(code) and getattr(code(), "name", "") == "UNAVAILABLE":
            return True
        error = error.__cause__
    return False


def _listens(address: Address) -> bool:
    """Say whether somebody listens where a server should be."""
    host, _, port = address.place.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
    except (OSError, ValueError):
        return False
    return True


class MilvusStore:
    """Rows and documents in three collections of Milvus."""

    def __init__(self, address: Address) -> None:
        try:
            import pymilvus
        except ImportError as error:
            raise MissingExtra(
                "pymilvus is not installed; pip install 'manifind[cluster]' installs it with what else a cluster takes."
            ) from error
        self._milvus = pymilvus
        self._address, self._name = address, address.name
        self._timeout = float(address.whole("timeout", 60))
        self._kind = address.options.get("index", "").upper()
        if self._kind and self._kind not in INDEXES:
            raise InvalidInput(f"index is {self._kind!r} in {address.shown}; give one of {', '.join(INDEXES)}.")
        self._seen: dict[int, float] = {}
        self._loaded: set[str] = set()
        self._folder: FolderStore | None = None
        self._asked_for_folder = False
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # what it logs is raised as well
        if address.scheme == "milvus-lite":
            folder = Path(address.place)
            folder.mkdir(parents=True, exist_ok=True)
            where: dict[str, Any] = {"uri": str(folder / f"{address.name}.db")}
        else:
            secure = address.options.get("tls", "") not in ("", "0", "no")
            where = {"uri": f"{'https' if secure else 'http'}://{address.place}", "token": address.token or ""}
        self._client = self._connected(where)

    def _connected(self, where: dict[str, Any]) -> Any:
        """Return a client; a server that listens but does not answer yet is starting, and is asked again."""
        until = time.monotonic() + self._timeout
        while True:
            left = max(1.0, until - time.monotonic())
            try:
                return self._ask(lambda: self._milvus.MilvusClient(**where, timeout=left))  # noqa: B023
            except Unavailable as error:
                if time.monotonic() + 1 > until or not (_unanswered(error) and _listens(self._address)):
                    raise
                time.sleep(0.5)

    def _ask(self, work: Callable[[], T]) -> T:
        """Do something with Milvus; what goes wrong there is one sentence."""
        try:
            return work()
        except (self._milvus.MilvusException, OSError, EOFError) as error:
            said = " ".join(str(getattr(error, "message", "") or error).split())[:200]
            raise Unavailable(
                f"{self._address.shown} did not answer ({said}); see that Milvus runs there, and try again."
            ) from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "grpc":
                raise
            raise Unavailable(
                f"{self._address.shown} cannot be reached; see that Milvus runs there, and try again."
            ) from error

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    # -- collections --------------------------------------------------------------------------------------------------

    def create(self, dimension: int, photos: int) -> None:
        """Make the collections that are not there."""
        kinds = self._milvus.DataType
        kind = self._kind or ("FLAT" if photos <= FLAT_UP_TO else "HNSW")
        whole: dict[str, Any] = {name: (kinds.INT64, {}) for name in ("photo", "born", "digest", "number")}
        text: dict[str, Any] = {"part": (kinds.INT64, {}), "parts": (kinds.INT64, {})}
        text["content"] = (kinds.VARCHAR, {"max_length": 65_535})
        self._make("documents", {"name": (kinds.VARCHAR, {"max_length": 200}), **text}, 2, "FLAT", text_id=True)
        folder = self._address.options.get("rows")
        if folder is not None and not self._has("vectors"):
            self.write("rows_folder", str(Path(folder).resolve()).encode())
        # The descriptors come last: where they are, all of it is settled.
        if folder is None and not self._has("vectors"):
            self._make("rows", {"number": (kinds.INT64, {}), **text}, 2, "FLAT", sorted_by=("number",))
        self._make("vectors", {**whole, "pieces": (kinds.INT64, {})}, dimension, kind, sorted_by=("photo", "number"))
        if self._rows_folder is not None:
            self._rows_folder.create(dimension, photos)

    def _make(
        self,
        part: str,
        fields: dict[str, tuple[Any, dict[str, Any]]],
        dimension: int,
        kind: str,
        *,
        text_id: bool = False,
        sorted_by: Sequence[str] = (),
    ) -> None:
        name, kinds = f"{self._name}_{part}", self._milvus.DataType
        if self._has(part):
            return
        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        own = {"max_length": 250} if text_id else {}
        schema.add_field("id", kinds.VARCHAR if text_id else kinds.INT64, is_primary=True, **own)
        for field, (of_type, options) in fields.items():
            schema.add_field(field, of_type, **options)
        schema.add_field("vector", kinds.FLOAT_VECTOR, dim=dimension)
        indexes = self._client.prepare_index_params()
        indexes.add_index(field_name="vector", index_type=kind, metric_type="IP", params=INDEXES[kind][0])
        if self._address.scheme == "milvus":  # Milvus Lite has no such index
            for field in sorted_by:
                indexes.add_index(field_name=field, index_type="STL_SORT")
        self._ask(
            lambda: self._client.create_collection(
                name, schema=schema, index_params=indexes, consistency_level="Strong", timeout=self._timeout
            )
        )

    def _has(self, part: str) -> bool:
        """Whether a collection is there; loaded for searching, which a reopened one may not be."""
        name = f"{self._name}_{part}"
        if part in self._loaded:
            return True
        # Asked of a server that has died meanwhile, pymilvus says that a collection is not there.
        if not self._ask(lambda: self._client.has_collection(name, timeout=self._timeout)):
            self._ask(lambda: self._client.list_collections(timeout=self._timeout))
            return False
        self._ask(lambda: self._client.load_collection(name, timeout=self._timeout))
        self._loaded.add(part)
        return True

    @property
    def _there(self) -> bool:
        parts = ("documents", "vectors") if self._rows_folder else ("documents", "vectors", "rows")
        return all(self._has(part) for part in parts)

    @property
    def _rows_folder(self) -> FolderStore | None:
        """Where packed rows lie, if not in Milvus; settled when the collection is made."""
        if not self._asked_for_folder and self._has("vectors"):
            said = self._document("rows_folder")
            self._folder, self._asked_for_folder = None if said is None else FolderStore(Path(said.decode())), True
        return self._folder

    @cached_property
    def _searched_by(self) -> str:
        facts = self._ask(lambda: self._client.describe_index(f"{self._name}_vectors", "vector"))
        kind = str((facts or {}).get("index_type", "FLAT"))
        return kind if kind in INDEXES else "FLAT"

    # -- documents ----------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of all documents."""
        if not self._has("documents"):
            return []
        return sorted(str(one["name"]) for one in self._query("documents", "part == 0", ["name"]))

    def read(self, name: str) -> bytes | None:
        """Return a document."""
        return self._document(name) if self._has("documents") else None

    def _document(self, name: str) -> bytes | None:
        parts = self._query("documents", f'name == "{name}"', ["part", "parts", "content"])
        return _joined(parts)

    def write(self, name: str, content: bytes) -> None:
        """Keep a document, its first part last."""
        parts = _parts(content)
        rows = [
            {"id": f"{name}#{i}", "name": name, "part": i, "parts": len(parts), "content": part, "vector": [0.0, 0.0]}
            for i, part in enumerate(parts)
        ]
        self._send("documents", rows[1:])
        self._send("documents", rows[:1])

    def erase(self, names: Sequence[str]) -> None:
        """Remove documents."""
        for name in names:
            self._delete("documents", f'name == "{name}"')

    # -- rows ---------------------------------------------------------------------------------------------------------

    def put(self, rows: Sequence[Row]) -> None:
        """Keep rows: packed first, then their descriptors."""
        if self._rows_folder is not None:
            self._rows_folder.put([row._replace(vectors=row.vectors[:0]) for row in rows])
        else:
            self._send(
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
                    for number, content in [(row.number, row.packed), (beside_number(row.number), row.beside)]
                    if content
                    for parts in [_parts(content)]
                    for i, part in enumerate(parts)
                ),
            )
        self._send(
            "vectors",
            (
                {
                    "id": row_number(row.number, i),
                    "number": row.number,
                    "photo": row.photo,
                    "born": row.born,
                    "digest": row.digest,
                    "pieces": len(row.vectors),
                    "vector": np.ascontiguousarray(vector, np.float32),
                }
                for row in rows
                for i, vector in enumerate(row.vectors)
            ),
        )

    def settle(self) -> None:
        """Seal what was written, and wait until Milvus has built its index over it, but no longer than `BUILDING`.

        Milvus takes the index into use some seconds later; until then it searches by what it has made as rows came.
        """
        if self._address.scheme != "milvus" or not self._has("vectors"):
            return
        self._ask(lambda: self._client.flush(f"{self._name}_vectors", timeout=self._timeout))
        until = time.monotonic() + BUILDING
        while self._searched_by != "FLAT" and time.monotonic() < until and self._unfinished():
            time.sleep(0.5)

    def _unfinished(self) -> int:
        """Return how many rows Milvus has sealed and not yet indexed."""
        facts = self._ask(lambda: self._client.describe_index(f"{self._name}_vectors", "vector"))
        return int((facts or {}).get("pending_index_rows", 0))

    def remove(self, numbers: Numbers) -> None:
        """Remove the descriptors of rows, and the rows after them."""
        for start in range(0, len(numbers), MOST // 16):
            some = numbers[start : start + MOST // 16]
            self._delete("vectors", f"number in {some.tolist()}")
            if self._rows_folder is not None:
                self._rows_folder.remove(some)
            else:
                beside = [beside_number(number) for number in some.tolist()]
                self._delete("rows", f"number in {some.tolist() + beside}")

    def versions(self) -> Iterator[Versions]:
        """Yield all rows at once: a row is whole when all its descriptors are there."""
        if not self._there:
            return
        counts: dict[int, int] = {}
        facts: dict[int, tuple[int, int, int, int]] = {}
        fields = ["number", "photo", "born", "digest", "pieces"]
        for block in self._all("vectors", fields):
            for one in block:
                number = int(one["number"])
                counts[number] = counts.get(number, 0) + 1
                facts[number] = tuple(int(one[name]) for name in fields[1:])  # type: ignore[assignment]
        rows = [
            (number, photo, born, digest if counts[number] == pieces else UNFINISHED)
            for number, (photo, born, digest, pieces) in facts.items()
        ]
        yield Versions(*(np.array(column, np.int64) for column in (zip(*rows, strict=True) if rows else [[]] * 4)))

    def nearest(self, queries: FloatArray, count: int, born: int) -> list[Found]:
        """Let Milvus search its index."""
        if count > MOST:
            raise InvalidInput(f"Milvus returns {MOST} rows at most, not {count}; give a smaller shortlist.")
        self._must_be_there()
        found = self._ask(
            lambda: self._client.search(
                f"{self._name}_vectors",
                data=[np.ascontiguousarray(query, np.float32) for query in queries],
                anns_field="vector",
                limit=count,
                filter=f"born <= {born}",
                output_fields=["number", "photo"],
                search_params={"metric_type": "IP", "params": INDEXES[self._searched_by][1](count)},
                consistency_level=self._consistency(born),
                timeout=self._timeout,
            )
        )
        return [
            Found(
                np.array([int(hit["entity"]["number"]) for hit in hits], np.int64),
                np.array([int(hit["entity"]["photo"]) for hit in hits], np.int64),
                np.array([float(hit["distance"]) for hit in hits], np.float32),
            )
            for hits in found
        ]

    def fetch(self, numbers: Numbers) -> list[bytes | None]:
        """Fetch packed rows, some requests at a time."""
        if self._rows_folder is not None:
            return self._rows_folder.fetch(numbers)
        return self._fetched(numbers)

    def fetch_beside(self, numbers: Numbers) -> list[bytes | None]:
        """Fetch what lies beside packed rows."""
        if self._rows_folder is not None:
            return self._rows_folder.fetch_beside(numbers)
        return self._fetched(np.array([beside_number(number) for number in numbers.tolist()], np.int64))

    def _fetched(self, numbers: Numbers) -> list[bytes | None]:
        self._must_be_there()
        each = max(1, ANSWER_BYTES // (2 * PART))
        blocks = [numbers[start : start + each] for start in range(0, len(numbers), each)]

        def block(some: Numbers) -> dict[int, list[dict[str, Any]]]:
            fields = ["number", "part", "parts", "content"]
            found: dict[int, list[dict[str, Any]]] = {}
            for one in self._query("rows", f"number in {some.tolist()}", fields):
                found.setdefault(int(one["number"]), []).append(one)
            return found

        with ThreadPoolExecutor(min(ANSWERS, max(1, len(blocks)))) as pool:
            parts = {number: own for found in pool.map(block, blocks) for number, own in found.items()}
        return [_joined(parts.get(number, [])) for number in numbers.tolist()]

    def of_photos(self, photos: Numbers, born: int) -> Versions:
        """Return the rows of some photos."""
        self._must_be_there()
        fields = ["number", "photo", "born", "digest"]
        found: dict[int, tuple[int, ...]] = {}
        for start in range(0, len(photos), MOST // 16):
            where = f"photo in {photos[start : start + MOST // 16].tolist()} and born <= {born}"
            for one in self._query("vectors", where, fields):
                found[int(one["number"])] = tuple(int(one[name]) for name in fields)
        columns = zip(*found.values(), strict=True) if found else [[]] * 4
        return Versions(*(np.array(column, np.int64) for column in columns))

    # -- requests -----------------------------------------------------------------------------------------------------

    def _must_be_there(self) -> None:
        if not self._there:
            raise Unavailable(f"{self._address.shown} has no collection; manifind publish makes one.")

    def _consistency(self, born: int) -> str:
        seen = self._seen.setdefault(born, time.monotonic())
        return "Strong" if time.monotonic() - seen < SETTLED else "Bounded"

    def _query(self, part: str, where: str, fields: list[str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask(
            lambda: self._client.query(
                f"{self._name}_{part}",
                filter=where,
                output_fields=fields,
                consistency_level="Strong",
                limit=MOST,
                timeout=self._timeout,
            )
        )
        return found

    def _all(self, part: str, fields: list[str]) -> Iterator[list[dict[str, Any]]]:
        scan = self._ask(
            lambda: self._client.query_iterator(
                f"{self._name}_{part}",
                filter="",
                output_fields=fields,
                batch_size=MOST // 2,
                consistency_level="Strong",
                timeout=self._timeout,
            )
        )
        while block := self._ask(scan.next):
            yield block
        scan.close()

    def _send(self, part: str, rows: "Iterator[dict[str, Any]] | Sequence[dict[str, Any]]") -> None:
        name, waiting, size = f"{self._name}_{part}", [], 0

        def sent(block: list[dict[str, Any]]) -> None:
            if block:
                self._ask(lambda: self._client.upsert(name, block, timeout=self._timeout))

        for row in rows:
            waiting.append(row)
            size += len(row.get("content", "")) + 4 * len(row["vector"]) + 64
            if size > SENT:
                sent(waiting)
                waiting, size = [], 0
        sent(waiting)

    def _delete(self, part: str, where: str) -> None:
        self._ask(lambda: self._client.delete(f"{self._name}_{part}", filter=where, timeout=self._timeout))


def _parts(content: bytes) -> list[str]:
    """Return bytes as texts that Milvus takes."""
    starts = range(0, max(1, len(content)), PART)
    return [base64.b64encode(content[start : start + PART]).decode() for start in starts]


def _joined(parts: Sequence[dict[str, Any]]) -> bytes | None:
    """Return the bytes of texts; None unless all are there."""
    if not parts or len({int(one["part"]) for one in parts}) != int(parts[0]["parts"]):
        return None
    texts = {int(one["part"]): one["content"] for one in parts}
    return b"".join(base64.b64decode(texts[part]) for part in sorted(texts))
