"""Milvus as it runs in earnest: a server, killed while it is written to and while it is searched."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

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
        index.search(photo, (0, 0, 32, 48), top=SHORTLIST)


def test_a_server_killed_while_written_to_and_while_searched_loses_nothing_acknowledged(
    server: MilvusServer,
    index: Index,
    photos: Path,
    describer: Describer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("manifind.cluster.publishing.BLOCK_BYTES", 9_000)
    address = f"milvus://127.0.0.1:{server.port}/demo?timeout=20&shortlist={SHORTLIST}"
    store = store_at(Address.of(address))
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
        Index.open(address.replace("timeout=20", "timeout=2"), describer=describer)

    server.start()
    store = store_at(Address.of(address))
    with pytest.raises(InvalidInput, match="has no collection"):
        Index.open(address, describer=describer)
    kept = store.fetch(np.array([row.number for row in acknowledged], np.int64))
    assert kept == [row.packed for row in acknowledged], "what was acknowledged is there"
    sent = publish(index, store, grace=0)
    assert sent.found >= len(acknowledged)
    assert sent.added == len(index)

    far = Index.open(address, describer=describer)
    right = [hit.key for hit in far.search(photos / "003.png", (0, 0, 32, 48), top=SHORTLIST)]
    keys, _ = truncated(index, far.state, describer.describe(far.pixels(photos / "003.png")[:48, :32]).vectors, 15)  # type: ignore[arg-type]
    assert right == keys

    again = Index.open(address.replace("timeout=20", "timeout=3"), describer=describer)
    threading.Timer(0.3, server.kill).start()
    with pytest.raises(Unavailable, match="Milvus runs there"):
        search_for_ever(again, photos / "003.png")
    server.start()
    assert [
        hit.key
        for hit in Index.open(address, describer=describer).search(photos / "003.png", (0, 0, 32, 48), top=SHORTLIST)
    ] == right
