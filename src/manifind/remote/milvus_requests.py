"""What is asked of Milvus: a connection, and requests that say in one sentence what went wrong.

A name stands for a collection of Milvus: ``NAME_vectors`` is the part ``vectors`` of the collection NAME. Whatever is
read here is read from the newest state, unless the caller says otherwise.
"""

import logging
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from manifind.errors import MissingExtraError
from manifind.remote.store import Address, StoreUnavailableError

T = TypeVar("T")

MAX_QUERY_ROWS = 16_384
"""Rows that Milvus returns at most."""
MAX_REQUEST_BYTES = 2**22
"""Bytes sent at a time."""
NEWEST = "Strong"
"""What Milvus calls the newest state."""

Entity = dict[str, Any]
"""A row of Milvus, by the names of its fields."""
Fields = dict[str, tuple[Any, dict[str, Any]]]
"""The type of each field and its options."""


class Requests:
    """Requests to the collections of one name."""

    def __init__(self, address: Address) -> None:
        try:
            import pymilvus
        except ImportError as error:
            raise MissingExtraError(
                "pymilvus is not installed; pip install 'manifind[cluster]' installs it with what else a cluster takes."
            ) from error
        self._milvus = pymilvus
        self._address = address
        self._timeout = float(address.int_option("timeout", 60))
        self._loaded: set[str] = set()
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # what it logs is raised as well
        self._client = self._connect(_client_options(address))

    @property
    def types(self) -> Any:
        """The types of fields, by Milvus' names."""
        return self._milvus.DataType

    def _connect(self, where: dict[str, Any]) -> Any:
        """Return a client; a server that listens but does not answer yet is starting, and is asked again."""
        until = time.monotonic() + self._timeout
        while True:
            left = max(1.0, until - time.monotonic())
            try:
                return self._request(lambda: self._milvus.MilvusClient(**where, timeout=left))  # noqa: B023
            except StoreUnavailableError as error:
                if time.monotonic() + 1 > until or not (_is_unavailable(error) and _accepts_connections(self._address)):
                    raise
                time.sleep(0.5)

    def _request(self, work: Callable[[], T]) -> T:
        """Do something with Milvus; what goes wrong there is one sentence."""
        try:
            return work()
        except (self._milvus.MilvusException, OSError, EOFError) as error:
            reason = " ".join(str(getattr(error, "message", "") or error).split())[:200]
            raise StoreUnavailableError(
                f"{self._address.shown} did not answer ({reason}); see that Milvus runs there, and try again."
            ) from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "grpc":
                raise
            raise StoreUnavailableError(
                f"{self._address.shown} cannot be reached; see that Milvus runs there, and try again."
            ) from error

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def _full_name(self, part: str) -> str:
        return f"{self._address.name}_{part}"

    # -- collections --------------------------------------------------------------------------------------------------

    def make(
        self,
        part: str,
        fields: Fields,
        dimension: int,
        index: tuple[str, dict[str, int]],
        *,
        text_id: bool = False,
        sorted_by: Sequence[str] = (),
    ) -> None:
        """Make a collection that is not there.

        `fields` are those besides ``id`` and ``vector``; `index` is what vectors are searched by, and how that is
        built; `sorted_by` are the fields by which rows are looked up.
        """
        if self.has(part):
            return
        kind, options = index
        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        id_options = {"max_length": 250} if text_id else {}
        schema.add_field("id", self.types.VARCHAR if text_id else self.types.INT64, is_primary=True, **id_options)
        for field, (of_type, more) in fields.items():
            schema.add_field(field, of_type, **more)
        schema.add_field("vector", self.types.FLOAT_VECTOR, dim=dimension)
        indexes = self._client.prepare_index_params()
        indexes.add_index(field_name="vector", index_type=kind, metric_type="IP", params=options)
        if self._address.scheme == "milvus":  # Milvus Lite has no such index
            for field in sorted_by:
                indexes.add_index(field_name=field, index_type="STL_SORT")
        self._request(
            lambda: self._client.create_collection(
                self._full_name(part),
                schema=schema,
                index_params=indexes,
                consistency_level=NEWEST,
                timeout=self._timeout,
            )
        )

    def has(self, part: str) -> bool:
        """Whether a collection is there; loaded for searching, which a reopened one may not be."""
        name = self._full_name(part)
        if part in self._loaded:
            return True
        # Asked of a server that has died meanwhile, pymilvus says that a collection is not there.
        if not self._request(lambda: self._client.has_collection(name, timeout=self._timeout)):
            self._request(lambda: self._client.list_collections(timeout=self._timeout))
            return False
        self._request(lambda: self._client.load_collection(name, timeout=self._timeout))
        self._loaded.add(part)
        return True

    def index_of(self, part: str) -> dict[str, Any]:
        """Return what Milvus says of the index of a collection's vectors."""
        return dict(self._request(lambda: self._client.describe_index(self._full_name(part), "vector")) or {})

    def flush(self, part: str) -> None:
        """Seal what was written to a collection."""
        self._request(lambda: self._client.flush(self._full_name(part), timeout=self._timeout))

    # -- rows ---------------------------------------------------------------------------------------------------------

    def search(self, part: str, **asked: Any) -> list[list[Entity]]:
        """Return the rows whose vectors are nearest to each of some; `asked` is what pymilvus takes."""
        hits: list[list[Entity]] = self._request(
            lambda: self._client.search(self._full_name(part), anns_field="vector", timeout=self._timeout, **asked)
        )
        return hits

    def query(self, part: str, where: str, fields: list[str]) -> list[Entity]:
        """Return fields of the rows of which an expression holds, up to `MAX_QUERY_ROWS`."""
        entities: list[Entity] = self._request(
            lambda: self._client.query(
                self._full_name(part),
                filter=where,
                output_fields=fields,
                consistency_level=NEWEST,
                limit=MAX_QUERY_ROWS,
                timeout=self._timeout,
            )
        )
        return entities

    def all(self, part: str, fields: list[str]) -> Iterator[list[Entity]]:
        """Yield fields of all rows, some at a time."""
        scan = self._request(
            lambda: self._client.query_iterator(
                self._full_name(part),
                filter="",
                output_fields=fields,
                batch_size=MAX_QUERY_ROWS // 2,
                consistency_level=NEWEST,
                timeout=self._timeout,
            )
        )
        while block := self._request(scan.next):
            yield block
        scan.close()

    def send(self, part: str, rows: "Iterator[Entity] | Sequence[Entity]") -> None:
        """Write rows, about `MAX_REQUEST_BYTES` bytes at a time."""
        name, waiting, size = self._full_name(part), [], 0

        def send_block(block: list[Entity]) -> None:
            if block:
                self._request(lambda: self._client.upsert(name, block, timeout=self._timeout))

        for row in rows:
            waiting.append(row)
            size += len(row.get("content", "")) + 4 * len(row["vector"]) + 64
            if size > MAX_REQUEST_BYTES:
                send_block(waiting)
                waiting, size = [], 0
        send_block(waiting)

    def delete(self, part: str, where: str) -> None:
        """Remove the rows of which an expression holds."""
        self._request(lambda: self._client.delete(self._full_name(part), filter=where, timeout=self._timeout))


def _client_options(address: Address) -> dict[str, Any]:
    """Return what pymilvus takes for an address."""
    if address.scheme == "milvus-lite":
        folder = Path(address.place)
        folder.mkdir(parents=True, exist_ok=True)
        return {"uri": str(folder / f"{address.name}.db")}
    secure = address.options.get("tls", "") not in ("", "0", "no")
    return {"uri": f"{'https' if secure else 'http'}://{address.place}", "token": address.token or ""}


def _is_unavailable(error: BaseException | None) -> bool:
    """Say whether an error came of a server that gave no answer, rather than of one that refused."""
    while error is not None:
        code = getattr(error, "code", None)
        if callable(code) and getattr(code(), "name", "") == "UNAVAILABLE":
            return True
        error = error.__cause__
    return False


def _accepts_connections(address: Address) -> bool:
    """Say whether somebody listens where a server should be."""
    host, _, port = address.place.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
    except (OSError, ValueError):
        return False
    return True
