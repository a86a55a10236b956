"""Milvus as it runs in earnest: a server, killed while it is written to and while it is searched."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pymilvus
import pytest

from manifind.errors import InvalidInputError
from manifind.features import RegionExtractor
from manifind.index import Index
from manifind.remote.collection import StoredCollection
from manifind.remote.milvus import MilvusStore
from manifind.remote.publish import publish
from manifind.remote.store import Address, Row, StoreUnavailableError, store_at
from tests.distributed.conftest import save_photo
from tests.distributed.ports import PATIENCE
from tests.distributed.server import MilvusServer
from tests.distributed.test_collection import SHORTLIST, truncated
from tests.errors import raises

DEAD = 3
"""Seconds for which a server that was killed is waited for."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusServer]:
    one = MilvusServer(tmp_path_factory.mktemp("milvus"))
    one.start()
    yield one
    one.kill()


def search_for_ever(index: Index, photo: Path) -> None:
    while True:
        index.search(photo, (0, 0, 32, 48), top=SHORTLIST, verify=0)


def address(server: MilvusServer, seconds: int = int(PATIENCE)) -> str:
    return f"milvus://127.0.0.1:{server.port}/demo?timeout={seconds}&shortlist={SHORTLIST}"


@pytest.mark.slow
def test_a_server_killed_while_written_to_and_while_searched_loses_nothing_acknowledged(
    server: MilvusServer, index: Index, photos: Path, extractor: RegionExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manifind.remote.publish.MAX_UPLOAD_BYTES", 9_000)
    store = store_at(Address.parse(address(server)))
    assert isinstance(store, MilvusStore)
    acknowledged: list[Row] = []
    put, requests = store.upsert, store._milvus

    def put_and_note(rows: list[Row]) -> None:
        if len(acknowledged) > 15:
            server.kill()
            monkeypatch.setattr(requests, "_timeout", DEAD)
        put(rows)
        acknowledged.extend(rows)

    monkeypatch.setattr(store, "upsert", put_and_note)
    with raises("unavailable", StoreUnavailableError):
        publish(index, store, grace=0)
    store.close()
    with raises("unavailable", StoreUnavailableError):
        Index.open(address(server, DEAD), extractor=extractor)
    assert len(acknowledged) > 15

    server.start()
    store = store_at(Address.parse(address(server)))
    with raises("no-collection", InvalidInputError):
        Index.open(address(server), extractor=extractor)
    kept = store.fetch(np.array([row.number for row in acknowledged], np.int64))
    assert kept == [row.packed for row in acknowledged], "what was acknowledged is there"
    sent = publish(index, store, grace=0)
    assert sent.resumed >= len(acknowledged)
    assert sent.added == len(index)

    far = Index.open(address(server), extractor=extractor)
    right = far.search(photos / "003.png", (0, 0, 32, 48), top=SHORTLIST, verify=0)
    assert isinstance(far.state, StoredCollection)
    assert [hit.key for hit in right] == truncated(index, far.state, right.retrieval.query.vectors, SHORTLIST)[0]
    assert isinstance(far.state.store, MilvusStore)
    monkeypatch.setattr(far.state.store._milvus, "_timeout", DEAD)
    killer = threading.Timer(0.3, server.kill)
    killer.start()
    with raises("unavailable", StoreUnavailableError):
        search_for_ever(far, photos / "003.png")
    killer.join()

    server.start()
    far = Index.open(address(server), extractor=extractor)
    again = far.search(photos / "003.png", (0, 0, 32, 48), top=SHORTLIST, verify=0)
    assert [hit.key for hit in again] == [hit.key for hit in right]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["in_milvus", "in_files"])
def test_a_server_answers_as_the_index_does_and_takes_in_what_changed(
    server: MilvusServer, index: Index, photos: Path, extractor: RegionExtractor, tmp_path: Path, where: str
) -> None:
    folder = tmp_path / "rows" / "kept"
    options = f"rows={folder}" if where == "in_files" else "index=HNSW"
    at = f"milvus://127.0.0.1:{server.port}/{where}?timeout={PATIENCE:.0f}&shortlist={SHORTLIST}&{options}"
    store = store_at(Address.parse(at))
    publish(index, store, grace=0)
    assert folder.is_dir() == (where == "in_files"), "packed rows lie where the address says"
    far = Index.open(at, extractor=extractor)
    assert isinstance(far.state, StoredCollection)
    assert far.state.local is not None
    assert index.state.local is not None
    record, mine = far.find("003.png"), index.find("003.png")
    assert record is not None
    assert mine is not None
    np.testing.assert_array_equal(far.state.local.of_photo(record).rows, index.state.local.of_photo(mine).rows)
    answer = far.search(photos / "011.png", (0, 0, 32, 48), top=SHORTLIST, verify=0)
    keys, scores = truncated(index, far.state, answer.retrieval.query.vectors, SHORTLIST)
    assert [hit.key for hit in answer] == keys
    np.testing.assert_allclose(answer.scores, scores, rtol=2e-5)

    save_photo(photos / "new.png", 111)
    index.add([photos / "new.png"])
    index.remove(["003.png"])
    sent = publish(index, store, grace=0)
    assert (sent.generation, sent.added, sent.removed) == (2, 1, 1)
    far.reload()
    assert far.find("003.png") is None
    assert far.info()["photos"] == len(index)
    found = far.search(photos / "new.png", top=SHORTLIST, verify=0)
    assert [hit.key for hit in found] == truncated(index, far.state, found.retrieval.query.vectors, SHORTLIST)[0]
    assert "new.png" in [hit.key for hit in found]
    assert sum(len(one.numbers) for one in store.versions()) == len(index), "rows of the old generation are gone"
    store.close()


def test_a_server_that_listens_and_does_not_answer_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Exception):
        """What grpc raises where no answer came."""

        def code(self) -> SimpleNamespace:
            return SimpleNamespace(name="UNAVAILABLE")

    asked: list[float] = []

    def client(**where: Any) -> str:
        asked.append(where["timeout"])
        if len(asked) == 1:
            raise pymilvus.MilvusException(message="no settings yet") from Silent()
        return "a client"

    monkeypatch.setattr(pymilvus, "MilvusClient", client)
    with socket.create_server(("127.0.0.1", 0)) as starting:
        port = starting.getsockname()[1]
        MilvusStore(Address.parse(f"milvus://127.0.0.1:{port}/demo?timeout={PATIENCE:.0f}"))
    assert len(asked) == 2
    assert asked[1] < asked[0] <= PATIENCE, "the seconds that are left, not all of them again"

    asked.clear()
    with raises("unavailable", StoreUnavailableError):
        MilvusStore(Address.parse(f"milvus://127.0.0.1:{port}/demo?timeout={PATIENCE:.0f}"))
    assert len(asked) == 1, "where nobody listens, waiting is of no use"


def test_a_server_that_refuses_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def client(**where: Any) -> str:
        asked.append(where["token"])
        raise pymilvus.MilvusException(message="wrong token")

    monkeypatch.setattr(pymilvus, "MilvusClient", client)
    with socket.create_server(("127.0.0.1", 0)) as refusing:
        port = refusing.getsockname()[1]
        with pytest.raises(StoreUnavailableError, match="wrong token"):
            MilvusStore(Address.parse(f"milvus://me:not@127.0.0.1:{port}/demo?timeout={PATIENCE:.0f}"))
    assert asked == ["me:not"]
