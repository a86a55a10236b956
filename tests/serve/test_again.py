"""Taught queries in the service: solved once more in company, on the state that taught them, and in time."""

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from manifind.index import Index, retrieve
from manifind.index.search import pipeline
from manifind.serve import service as module
from tests.serve.asking import BOX, PATIENCE, VIEW, client_of, counted, wait_for
from tests.serve.conftest import PLACES
from tests.serve.running import patient, running

BOXES = {
    **{f"first-{i}.png": (x, y, x + 128, y + 128) for i, (x, y) in enumerate(PLACES[:2])},
    **{f"second-{i}.png": (192 - x, y, 320 - x, y + 128) for i, (x, y) in enumerate(PLACES[:2])},
}
"""Where the two things are, in two photos each."""


class Solver:
    """Solves as the service does, and notes of each solve the generation and which of its queries were taught."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, before_taught: Callable[[], object] = lambda: None) -> None:
        self.solves: list[tuple[int, list[bool]]] = []
        self._before_taught = before_taught
        monkeypatch.setattr(module, "retrieve", self._retrieve)

    def _retrieve(self, snapshot: Any, queries: Any, *rest: Any, **more: Any) -> Any:
        taught = [query.n_expansion_regions > 0 for query in queries]
        if any(taught):
            self._before_taught()
        found = retrieve(snapshot, queries, *rest, **more)
        self.solves.append((snapshot.number, taught))
        return found

    def solved(self, taught: bool) -> list[int]:
        """How many queries that were taught, or were not, each solve had."""
        counts = (some.count(taught) for _, some in self.solves)
        return [count for count in counts if count]


def before_geometry(monkeypatch: pytest.MonkeyPatch, wait: Callable[[], object]) -> list[None]:
    """Wait for something before an answer is verified; the list has an entry for each answer that was."""
    done: list[None] = []
    vote_for_images: Any = vars(pipeline)["vote_for_images"]  # once a search

    def verified(*given: Any, **more: Any) -> Any:
        wait()
        found = vote_for_images(*given, **more)
        done.append(None)
        return found

    monkeypatch.setattr(pipeline, "vote_for_images", verified)
    return done


def told(client: httpx.Client, key: str) -> dict[str, Any]:
    answer = client.post("/api/search", json={"views": [{"key": key, "box": BOXES[key]}], "top": 20})
    assert answer.status_code == 200, answer.text
    # A search reads no files while another is verified, and is not complete then.
    apart = ("milliseconds", "complete", "n_unchecked", "stage")
    return {name: value for name, value in answer.json().items() if name not in apart}


def test_taught_queries_that_meet_are_solved_together_and_answered_as_if_alone(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(index) as address, client_of(address) as client:
        alone = [told(client, key) for key in BOXES]
        # Nothing is verified before all are solved once, and nothing is solved again before all are verified.
        solver = Solver(monkeypatch, lambda: wait_for(lambda: len(verified) == len(BOXES)))
        verified = before_geometry(
            monkeypatch, lambda: wait_for(lambda: sum(solver.solved(taught=False)) == len(BOXES))
        )
        with ThreadPoolExecutor(len(BOXES)) as pool:
            together = list(pool.map(lambda key: told(client, key), BOXES))
    assert together == alone
    assert sum(solver.solved(taught=True)) == len(BOXES)
    assert max(solver.solved(taught=True)) >= 2
    for one, (key, box) in zip(together, BOXES.items(), strict=True):
        answer = index.search(key, box, top=20).nonzero()
        assert answer.unexpanded is not None
        assert [(hit["key"], hit["score"], hit["expanded"]) for hit in one["results"]] == [
            (hit.key, hit.score, hit.expanded) for hit in answer
        ]
        assert (one["n_matches"], one["n_verified"]) == (answer.n_matches, answer.n_verified)


def test_the_first_answer_stands_where_the_second_solve_is_late(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    with running(index, patient(deadline_seconds=5)) as address, client_of(address) as client:
        body = {"views": [VIEW], "top": 6, "verify": 3}
        once = client.post("/api/search", json={**body, "expand": False}).json()
        late = []
        Solver(monkeypatch, lambda: late.append(go_on.wait(PATIENCE)))
        answer = client.post("/api/search", json=body).json()
        assert not late  # it was answered while the second solve went on
        go_on.set()
        wait_for(lambda: late == [True])
        assert answer["n_verified"] == once["n_verified"] > 0
        assert answer["results"] == once["results"]
        assert counted(client, "manifind_unverified_total") == 0


def test_a_taught_query_is_solved_on_the_state_that_taught_it(
    index: Index, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "photos"
    shutil.copytree(photos, folder)
    shutil.copytree(index.path, tmp_path / "x.manifind")
    writer = Index.open(tmp_path / "x.manifind")
    writer.sync(folder)
    first = writer.generation
    with (
        running(Index.open(writer.path), patient(reload_seconds=0.05)) as address,
        client_of(address) as client,
    ):

        def moves_on() -> None:
            (folder / "first-5.png").unlink()
            writer.sync()
            wait_for(lambda: client.get("/api/info").json()["generation"] == writer.generation)

        expected = Index.open(writer.path).search("first-0.png", BOX, top=20).nonzero()
        solver = Solver(monkeypatch)
        before_geometry(monkeypatch, moves_on)
        answer = told(client, "first-0.png")
    assert writer.generation > first
    assert solver.solves == [(first, [False]), (first, [True])]
    assert answer["generation"] == first
    assert [(hit["key"], hit["score"]) for hit in answer["results"]] == [(hit.key, hit.score) for hit in expected]
