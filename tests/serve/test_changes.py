"""What becomes of a service when its index changes under it: by the rules, and against them."""

import asyncio
import csv
import io
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from manifind.index import Index
from manifind.serve.live_index import LiveIndex
from manifind.serve.workers import Metrics
from tests.serve.asking import PATIENCE, client_of, wait_for
from tests.serve.conftest import background
from tests.serve.running import patient, running

QUICK: dict[str, Any] = {"whiten": "shipped", "scales": (1.0,), "k": 30, "query_k": 200}
"""How an index is made in little time."""


def collection(folder: Path, names: list[str], first: int = 0) -> Path:
    folder.mkdir()
    for i, name in enumerate(names):
        background(first + i).save(folder / name)
    return folder


def keys(client: httpx.Client, key: str) -> list[str]:
    # Without geometry, which leaves out what it has no time for: that differs with the load.
    answer = client.get("/api/search", params={"q": f"k:{key}", "top": 20, "verify": 0})
    assert answer.status_code == 200, answer.text
    return [one["key"] for one in answer.json()["results"]]


def test_an_index_made_anew_in_its_place_answers_with_its_own_names(tmp_path: Path) -> None:
    """Both are of generation 1, and have as many photos: only their stamps differ."""
    old = collection(tmp_path / "old", [f"old-{i}.png" for i in range(8)])
    new = collection(tmp_path / "new", [f"new-{i}.png" for i in range(8)], first=50)
    place = tmp_path / "x.manifind"
    index = Index.create(place, old, **QUICK)
    settings = patient(reload_seconds=0.05)
    with running(index, settings) as address, client_of(address) as client:
        before = {f"old-{i}.png" for i in range(8)}
        assert set().union(*(keys(client, key) for key in before)) <= before
        assert client.get("/api/photos").json()["photos"][0]["key"] == "old-0.png"
        assert client.get("/api/info").json()["photos"] == 8
        shutil.rmtree(place)
        Index.create(place, new, **QUICK)
        wait_for(lambda: client.get("/api/photo", params={"key": "new-0.png"}).status_code == 200)
        after = {f"new-{i}.png" for i in range(8)}
        for key in after:
            assert set(keys(client, key)) <= after
            assert keys(client, key)[0] == key
        assert {one["key"] for one in client.get("/api/photos").json()["photos"]} == after


@contextmanager
def served(place: Path) -> Iterator[tuple[httpx.Client, "subprocess.Popen[str]"]]:
    """A service in a process of its own: what is done to it may end it."""
    command = [sys.executable, "-m", "manifind.cli", "serve", str(place), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as service:
        try:
            assert service.stdout is not None
            address = service.stdout.readline().split()[0]
            with client_of(address) as client:
                wait_for(lambda: client.get("/api/ready").status_code == 200)
                yield client, service
        finally:
            service.send_signal(signal.SIGINT)


def test_a_service_whose_files_were_cut_says_so_and_reloads(tmp_path: Path) -> None:
    photos = collection(tmp_path / "photos", [f"{i}.png" for i in range(12)])
    place = tmp_path / "x.manifind"
    Index.create(place, photos, **QUICK)
    with served(place) as (client, service):
        right = keys(client, "3.png")
        for damage in ("cut", "overwritten"):
            for file in (place / f"{name}-1.npy" for name in ("vectors", "S_indices", "whitening_project")):
                whole = file.read_bytes()
                if damage == "cut":
                    os.truncate(file, len(whole) // 3)
                else:
                    with file.open("r+b") as into:
                        into.seek(len(whole) // 2)
                        into.write(b"\xff" * (len(whole) - len(whole) // 2))
                answer = client.get("/api/search", params={"q": "k:3.png"})
                assert service.poll() is None
                assert answer.status_code == 503, (file, answer.text)
                assert f"{file.name} was changed in place" in answer.json()["error"]
                assert client.get("/api/ready").status_code == 503
                restored = file.with_suffix(".restored")
                restored.write_bytes(whole)
                restored.replace(file)
                wait_for(lambda: client.get("/api/ready").status_code == 200)
                assert keys(client, "3.png") == right
    assert service.returncode == 0


def test_an_index_that_is_opened_again_is_searched_by_the_same_device(tmp_path: Path) -> None:
    place = tmp_path / "x.manifind"
    Index.create(place, collection(tmp_path / "photos", [f"{i}.png" for i in range(3)]), **QUICK)
    before = Index.open(place, device="auto")
    one = LiveIndex(before, Metrics())
    os.utime(place / "vectors-1.npy")  # as if it had been changed in place

    async def until_it_is_another() -> None:
        following = asyncio.create_task(one.follow(0.01))
        async with asyncio.timeout(PATIENCE):
            while one.index is before:
                await asyncio.sleep(0.01)
        following.cancel()

    asyncio.run(until_it_is_another())
    assert one.index.device == "auto"


FORMULA = "=HYPERLINK(1).png"
TURNED = "photo\u202egnp.exe.png"


@pytest.fixture
def oddly_named(tmp_path: Path) -> Iterator[httpx.Client]:
    names = [FORMULA, "+1.png", "-2.png", "@sum.png", "\tx.png", "plain.png", TURNED, "a\u200bb.png"]
    index = Index.create(tmp_path / "x.manifind", collection(tmp_path / "photos", names), **QUICK)
    with running(index) as address, client_of(address) as client:
        yield client


def test_no_name_of_a_photo_is_run_by_a_spreadsheet(oddly_named: httpx.Client) -> None:
    everything = {"q": [f"k:{one['key']}" for one in oddly_named.get("/api/photos").json()["photos"]], "top": "50"}
    text = oddly_named.get("/api/search.csv", params=everything).text
    with zipfile.ZipFile(io.BytesIO(oddly_named.get("/api/search.zip", params=everything).content)) as archive:
        assert archive.read("results.csv").decode() == text
        assert all(name.isprintable() for name in archive.namelist())
    found = [row["key"] for row in csv.DictReader(io.StringIO(text, newline=""))]
    assert len(found) >= 5
    assert not [key for key in found if key.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert f"'{FORMULA}" in found
