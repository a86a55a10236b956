"""A search whose results arrive one after the other."""

import gc
import json
import threading
import time
import weakref
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from manifind import Client, Index
from manifind.client import ServiceUnavailableError
from manifind.errors import DamagedError
from manifind.geometry import verify_many
from manifind.index.search import verification
from manifind.serve.resources import Resources, Settings
from manifind.serve.service import Service
from tests.serve.asking import BOX, PATIENCE, VIEW, counted, refused, wait_for
from tests.serve.running import running
from tests.serve.test_limits import head, raw

STAGES = ["retrieved", "verified", "expanded", "full resolution"]


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name != "milliseconds"}


def test_the_last_line_is_the_answer_of_a_search(client: httpx.Client) -> None:
    body = {"views": [VIEW], "top": 12}
    answer = client.post("/api/search/stream", json=body)
    assert answer.headers["content-type"] == "application/x-ndjson"
    steps = [json.loads(line) for line in answer.text.splitlines()]
    results = [step["result"] for step in steps if step.get("result")]
    assert comparable(results[-1]) == comparable(client.post("/api/search", json=body).json())
    stages = [STAGES.index(one["stage"]) for one in results]
    assert stages == sorted(stages)
    assert stages[0] == 0
    assert len(set(stages)) > 1
    assert not results[0]["complete"]
    progress = [step["progress"] for step in steps if "progress" in step and step.get("result") is None]
    assert all(0 <= one["checked"] < one["total"] for one in progress)


def test_a_client_gets_the_steps_of_a_search(address: str) -> None:
    client = Client(address, timeout=PATIENCE)
    steps = list(client.search_steps("first-0.png", BOX, top=12))
    last = client.search("first-0.png", BOX, top=12)
    assert [hit.key for hit in steps[-1]] == [hit.key for hit in last]
    assert (steps[0].stage, steps[-1].stage, steps[-1].complete) == ("retrieved", last.stage, last.complete)


def test_a_search_that_cannot_begin_has_a_status(client: httpx.Client) -> None:
    refused(client.post("/api/search/stream", json={"views": [{"key": "none.png"}]}), 404)
    refused(client.post("/api/search/stream", json={"views": []}), 422)


def test_a_search_may_set_its_deadline(client: httpx.Client) -> None:
    body = {"views": [VIEW], "top": 12}
    assert client.post("/api/search", json={**body, "deadline": PATIENCE}).json()["complete"]
    cut_short = client.post("/api/search", json={**body, "deadline": 1e-6}).json()
    assert not cut_short["complete"]
    assert cut_short["results"]
    refused(client.post("/api/search", json={**body, "deadline": 0}), 422)


def test_a_search_that_was_cut_short_goes_on_where_it_stopped(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[int] = []
    slow = threading.Event()

    def counting(query: Any, images: Any, *given: Any, **more: Any) -> Any:
        verified.append(len(images))
        if slow.is_set() and len(verified) == 2:
            time.sleep(1)  # the deadline comes amid the second batch
        return verify_many(query, images, *given, **more)

    monkeypatch.setattr(verification, "verify_many", counting)
    with running(index) as address, httpx.Client(base_url=address, timeout=PATIENCE) as client:
        body = {"views": [VIEW], "top": 12}
        whole = client.post("/api/search", json=body).json()
        n_images = sum(verified)
        verified.clear()
        slow.set()
        cut_short = client.post("/api/search", json={**body, "deadline": 0.9}).json()
        assert not cut_short["complete"]
        assert cut_short["n_unchecked"] > 0
        assert 0 < sum(verified) < n_images
        answer = client.post("/api/search/stream", json={**body, "deadline": PATIENCE}).text
        first, *_, last = [step["result"] for step in map(json.loads, answer.splitlines()) if step.get("result")]
        assert not first["complete"]
        assert comparable(last) == comparable(whole)
        assert sum(verified) == n_images  # none is verified twice
        assert comparable(client.post("/api/search", json=body).json()) == comparable(whole)


def test_a_search_that_was_cut_short_is_forgotten_with_its_snapshot(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would answer from another generation, and hold the files of its own."""
    resources = Resources(Settings())
    service = Service(index, resources)
    cut_short = index.search("first-0.png", BOX, top=3, verify=0)
    held = weakref.ref(cut_short)
    service._resumable().put(b"a search", cut_short, 1)
    del cut_short
    assert service._resumable().get(b"a search") is held() is not None
    monkeypatch.setattr(service, "live_index", SimpleNamespace(snapshot=SimpleNamespace(stamp="another")))
    assert service._resumable().get(b"a search") is None
    gc.collect()
    assert held() is None
    resources.stop()


@pytest.mark.parametrize(
    ("error", "code"), [(DamagedError("It is damaged"), "damaged"), (RuntimeError("a fault"), "internal")]
)
def test_what_fails_after_the_first_result_is_the_last_line(
    index: Index, error: Exception, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(verification, "verify_many", fail)
    body = {"views": [VIEW], "top": 12}
    with running(index) as address, httpx.Client(base_url=address, timeout=PATIENCE) as client:
        answer = client.post("/api/search/stream", json=body)
        first, *_, last = [json.loads(line) for line in answer.text.splitlines()]
        assert first["result"]["results"]
        assert set(last) == {"error", "code"}
        assert last["code"] == code
        with pytest.raises(ServiceUnavailableError) as told:
            list(Client(address, timeout=PATIENCE).search_steps("first-0.png", BOX))
        assert told.value.code == code
        assert counted(client, "manifind_searches_under_way") == 0


def test_a_search_whose_client_left_is_cancelled(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, begun = threading.Event(), threading.Event()

    def held_up(*given: Any, **more: Any) -> Any:
        begun.set()
        go_on.wait(PATIENCE)
        return verify_many(*given, **more)

    monkeypatch.setattr(verification, "verify_many", held_up)
    with running(index) as address, httpx.Client(base_url=address, timeout=PATIENCE) as client:
        with raw(address) as leaver:
            body = json.dumps({"views": [VIEW], "top": 12}).encode()
            kind = "Content-Type: application/json"
            leaver.sendall(head("POST", "/api/search/stream", f"Content-Length: {len(body)}", kind) + body)
            assert b"200 OK" in leaver.recv(100)  # the ranking is on its way
            assert begun.wait(PATIENCE)
            assert counted(client, "manifind_searches_under_way") == 1
        wait_for(lambda: counted(client, "manifind_searches_under_way") == 0)
        go_on.set()
