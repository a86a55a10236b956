"""Many clients at once get the answers that each would get alone."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from manifind.index import Index
from tests.serve.asking import PATIENCE, client_of
from tests.serve.conftest import PLACES
from tests.serve.running import patient, running

CLIENTS = 64
VIEWS = [
    {"key": f"{name}-{i}.png", "box": [left, top, left + 128, top + 128]}
    for i, (x, top) in enumerate(PLACES[:4])
    for name, left in (("first", x), ("second", 192 - x))
]


def steps_of(client: httpx.Client, view: dict[str, Any], **asked: Any) -> list[dict[str, Any]]:
    """Return the results of a streamed search, the last one last, without what differs from search to search."""
    answer = client.post("/api/search/stream", json={"views": [view], "top": 20, "verify": 10, **asked})
    assert answer.status_code == 200, answer.text
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert not [line for line in lines if line.get("error")]
    results: list[dict[str, Any]] = [line["result"] for line in lines if line.get("result")]
    return [{name: one for name, one in result.items() if name != "milliseconds"} for result in results]


def test_sixty_four_clients_at_once_are_answered_as_if_alone(index: Index) -> None:
    with running(index) as address, client_of(address) as client:
        alone = [steps_of(client, view) for view in VIEWS]
        with ThreadPoolExecutor(CLIENTS) as pool:
            together = list(pool.map(lambda i: steps_of(client, VIEWS[i % len(VIEWS)]), range(CLIENTS)))
    for i, (*before, last) in enumerate(together):
        assert last == alone[i % len(VIEWS)][-1]
        assert last["complete"]
        assert last["n_verified"] == 6
        assert before[0] == alone[i % len(VIEWS)][0]
        assert not before[0]["complete"]


def test_what_a_deadline_cut_short_says_so_and_what_it_did_not_is_whole(index: Index) -> None:
    with running(index, patient()) as address, client_of(address) as client, ThreadPoolExecutor(CLIENTS) as pool:
        whole = steps_of(client, VIEWS[0], deadline=PATIENCE)[-1]
        for *_, last in pool.map(lambda i: steps_of(client, VIEWS[0], deadline=0.01 * (1 + i)), range(12)):
            if last["complete"]:
                assert last == whole
        assert steps_of(client, VIEWS[0])[-1] == whole
