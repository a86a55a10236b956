"""Milvus as it runs in earnest: a server, killed while it is written to and while it is searched."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from manifind.cluster.collection import StoredCollection
from manifind.cluster.publishing import publish
from manifind.cluster.store import Address, Row, Unavailable, store_at
from manifind.describe import Describer
from manifind.errors import InvalidInput
from manifind.index import Index
from tests.cluster.server import MilvusServer
from tests.cluster.test_collection import SHORTLIST, truncated


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MilvusServer]:
    one = MilvusServer(tmp_path)
    one.start()
    yield one
    one.kill()


def search_for_ever(index: Index, photo: Path) -> None:
    while True:
        index.search(photo, (0, 0, 32, 48), top=SHORTLIST, verify=0)


def address(server: MilvusServer, seconds: int = 60) -> str:
    return f"milvus://127.0.0.1:{server.port}/demo?timeout={seconds}&shortlist={SHORTLIST}"


@pytest.mark.slow
def test_a_server_killed_while_written_to_and_while_searched_loses_nothing_acknowledged(
    server: MilvusServer, index: Index, photos: Path, describer: Describer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manifind.cluster.publishing.BLOCK_BYTES", 9_000)
    store = store_at(Address.of(address(server, 3)))
    acknowledged: list[Row] = []
    put = store.put

    def put_and_note(rows: list[Row]) -> None:
        if len(acknowledged) > 15:
            server.kill()
        put(rows)
        acknowledged.extend(rows)

    monkeypatch.setattr(store, "put", put_and_note)
    with pytest.raises(Unavailable, match="Milvus runs there"):
        publish(index, store, grace=0)
    store.close()
    with pytest.raises(Unavailable, match="Milvus runs there"):
        Index.open(address(server, 2), describer=describer)

    server.start()
    store = store_at(Address.of(address(server)))
    with pytest.raises(InvalidInput, match="has no collection"):
        Index.open(address(server), describer=describer)
    kept = store.fetch(np.array([row.number for row in acknowledged], np.int64))
    assert kept == [row.packed for row in acknowledged], "what was acknowledged is there"
    sent = publish(index, store, grace=0)
    assert sent.found >= len(acknowledged)
    assert sent.added == len(index)

    far = Index.open(address(server, 3), describer=describer)
    right = far.search(photos / "003.png", (0, 0, 32, 48), top=SHORTLIST, verify=0)
    assert isinstance(far.state, StoredCollection)
    assert [hit.key for hit in right] == truncated(index, far.state, right.search.query.vectors, SHORTLIST)[0]
    threading.Timer(0.3, server.kill).start()
    with pytest.raises(Unavailable, match="Milvus runs there"):
        search_for_ever(far, photos / "003.png")

    server.start()
    far = Index.open(address(server), describer=describer)
    again = far.search(photos / "003.png", (0, 0, 32, 48), top=SHORTLIST, verify=0)
    assert [hit.key for hit in again] == [hit.key for hit in right]
