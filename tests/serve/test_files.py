"""The files of photos while they are served: pipes, links, slow disks, ranges, and names of any kind."""

import asyncio
import io
import json
import os
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from manifind.iiif import CANVASES
from manifind.index import Index, PhotoSet
from manifind.index.search.filters import date_of
from manifind.index.sets import Member
from manifind.io.scan import open_original
from manifind.reports.results import archived_sidecars
from manifind.serve.errors import ServiceError
from manifind.serve.photos import FileInfo, PhotoStore, probe_upload
from manifind.serve.workers import MAX_REPLACED, Metrics, WorkerPool
from tests.attack.photos import crowded, long_values
from tests.index.small import save_photo, small_extractor, small_index
from tests.serve.asking import PATIENCE, client_of, get, post, refused, wait_for
from tests.serve.running import patient, running
from tests.serve.test_limits import head, raw


@pytest.fixture
def made(tmp_path: Path) -> Index:
    return small_index(tmp_path, 12, digits=2, alpha=0.9)


def put_pipe(index: Index, key: str) -> None:
    (index.root / key).unlink()
    os.mkfifo(index.root / key)


def test_a_pipe_in_place_of_a_photo_holds_nothing_up(made: Index) -> None:
    put_pipe(made, "03.png")
    search = "/api/search?q=k:01.png"
    with running(made) as address, ExitStack() as leavers:
        for _ in range(40):
            leaver = leavers.enter_context(raw(address))
            leaver.sendall(head("GET", f"{search}&since=2000"))
        found = get(f"{address}{search}&since=2000&sort=date").json()
        assert len(found["results"]) == 12
        assert all(one["date"] for one in found["results"])
        for path in ("/api/photo/facts", "/api/original", "/api/picture"):
            refused(get(f"{address}{path}", params={"key": "03.png"}), 404)
        assert get(f"{address}/api/health").json() == {"status": "ok", "stuck": []}


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Files of photos that cannot be read before an event is set."""
    answers = threading.Event()

    def held_up(work: Callable[..., Any]) -> Callable[..., Any]:
        def wait(*given: Any, **options: Any) -> Any:
            answers.wait(PATIENCE)
            return work(*given, **options)

        return wait

    monkeypatch.setattr("manifind.serve.queries.date_of", held_up(date_of))
    monkeypatch.setattr("manifind.serve.photos.open_original", held_up(open_original))
    yield answers
    answers.set()


def test_a_disk_that_does_not_answer_stops_no_search_and_health_tells(made: Index, slow_disk: threading.Event) -> None:
    paths = [
        *("/api/search?q=k:01.png&since=2000", "/api/search?q=k:01.png&sort=date", "/api/photo/facts?key=01.png"),
        *("/api/original?key=01.png", "/api/picture?key=02.png", "/api/search?q=k:03.png@10,10,90,90"),
    ]
    with running(made, patient(file_seconds=0.3)) as address, ThreadPoolExecutor(40) as clients:
        held = list(clients.map(lambda i: get(address + paths[i % len(paths)]).status_code, range(60)))
        assert set(held) <= {503, 504}
        upload = post(f"{address}/api/uploads", content=(made.root / "05.png").read_bytes()).json()["upload"]
        views = [{"upload": upload, "box": [10, 10, 90, 90]}, {"key": "06.png"}]
        found = post(f"{address}/api/search", json={"views": views})
        assert found.status_code == 200
        assert found.json()["results"]
        health = get(f"{address}/api/health").json()
        assert health["status"] == "degraded"
        assert "files" in health["stuck"]
        for path in ("/api/sets", "/api/photos", "/api/info", "/api/repeats"):
            assert get(address + path).status_code == 200
        slow_disk.set()
        wait_for(lambda: get(f"{address}/api/health").json()["status"] == "ok")
        assert {get(address + path).status_code for path in paths} == {200}


def test_stuck_threads_are_replaced_a_few_times_then_work_is_refused_at_once() -> None:
    answers = threading.Event()

    async def fill() -> None:
        pool = WorkerPool("x", 2, seconds=60, pace=1000, metrics=Metrics(), time_limit=0.1)
        for expected in range(1, 2 + MAX_REPLACED + 1):
            with pytest.raises(ServiceError) as late:
                await pool.submit(1, lambda: answers.wait(PATIENCE))
            assert late.value.status == 504
            async with asyncio.timeout(PATIENCE):
                while pool.stuck < expected:
                    await asyncio.sleep(0.01)
            assert pool.stuck == expected
        with pytest.raises(ServiceError) as refusal:
            await pool.submit(1, lambda: 3)
        assert (refusal.value.status, refusal.value.code) == (503, "stuck")
        answers.set()
        async with asyncio.timeout(PATIENCE):
            while pool.stuck:
                await asyncio.sleep(0.01)
        assert await pool.submit(1, lambda: 3) == 3
        pool.stop()

    asyncio.run(fill())


# -- links ------------------------------------------------------------------------------------------------------------


def test_a_link_put_in_place_of_a_photo_is_never_followed_out_of_the_collection(made: Index, tmp_path: Path) -> None:
    """A photo and a link take turns; whatever is opened is a file of the collection."""
    secret = tmp_path / "secret.png"
    save_photo(secret, 99)
    photo, aside, link = (made.root / name for name in ("02.png", ".aside", ".link"))
    own = photo.read_bytes()
    link.symlink_to(secret)
    store = PhotoStore(patient())
    ended = threading.Event()

    def swap() -> None:
        while not ended.is_set():
            photo.rename(aside)
            link.rename(photo)
            photo.rename(link)
            aside.rename(photo)

    swapper = threading.Thread(target=swap)
    swapper.start()
    outcomes: set[object] = set()
    try:
        for _ in range(600):
            try:
                pieces = store.original(made.state, "02.png")
                info = next(pieces)
                assert isinstance(info, FileInfo)
                content = pieces.send((0, info.size))
                outcomes.add("own" if content == own[: len(content)] else "another")  # type: ignore[arg-type]
            except ServiceError as problem:
                outcomes.add(problem.status)
    finally:
        ended.set()
        swapper.join()
    assert outcomes <= {"own", 403, 404}
    assert "own" in outcomes


# -- ranges -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [("bytes=0-9", 0, 10), ("bytes=5-", 5, None), ("bytes=-7", -7, None), ("bytes=3-99999999", 3, None)],
)
def test_a_part_of_a_file_is_returned(asked: str, start: int, end: int | None, address: str, index: Index) -> None:
    content = (index.root / "first-0.png").read_bytes()
    answer = get(f"{address}/api/original?key=first-0.png", headers={"Range": asked})
    assert answer.status_code == 206
    assert answer.content == content[start:end]
    total = answer.headers["content-range"].rpartition("/")[2]
    assert int(total) == len(content)


def test_a_range_that_is_none_is_refused_or_ignored(address: str, index: Index) -> None:
    content = (index.root / "first-0.png").read_bytes()
    path = f"{address}/api/original?key=first-0.png"
    assert get(path, headers={"Range": "bytes=99999999-"}).status_code == 416
    for ignored in ("bytes=1-2,4-5", "lines=1-2", "bytes=-", "bytes=x-y"):
        assert get(path, headers={"Range": ignored}).content == content
    version = get(path).headers["etag"]
    assert get(path, headers={"Range": "bytes=0-3", "If-Range": version}).content == content[:4]
    assert get(path, headers={"Range": "bytes=0-3", "If-Range": '"another"'}).content == content


# -- names ------------------------------------------------------------------------------------------------------------


def test_facts_link_a_photo_of_a_iiif_collection_to_its_canvas(tmp_path: Path) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    for i in range(5):
        save_photo(root / f"{i}.png", i)

    def published(canvas: str, label: str) -> dict[str, object]:
        image = f"{canvas}/image"
        return {"canvas": canvas, "manifest": "", "label": label, "image": image, "place": [0, 0, 1, 1], "bytes": 1}

    photos = {
        "0.png": published("https://museum.example/canvas/1", "A jug"),
        "1.png": published("javascript:alert(1)", "A \u202ejug"),
        "2.png": published("https://museum.example/\ud800", "\ud800"),
    }
    (root / CANVASES).write_text(json.dumps({"format": 1, "source": "https://museum.example/all", "photos": photos}))
    index = Index.create(f"{root}.manifind", root, extractor=small_extractor(), k=5, query_k=5)
    with running(index, patient()) as address, client_of(address) as client:

        def facts(key: str) -> tuple[str | None, str | None]:
            told = client.get("/api/photo/facts", params={"key": key}).json()
            return told["canvas"], told["label"]

        assert facts("0.png") == ("https://museum.example/canvas/1", "A jug")
        assert facts("1.png") == (None, r"A \u202ejug")
        assert facts("2.png") == (None, r"\ud800")
        assert facts("3.png") == (None, None)
    (root / CANVASES).write_text("{")
    with running(index, patient()) as address, client_of(address) as client:
        assert client.get("/api/photo/facts", params={"key": "0.png"}).json()["canvas"] is None


def test_facts_of_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    for i in range(6):
        save_photo(root / f"{i}.png", i)
    odd = os.fsencode(root) + b"/caf\xe9.png"
    os.rename(root / "5.png", odd)  # noqa: PTH104 (bytes)
    index = Index.create(f"{root}.manifind", root, extractor=small_extractor(), k=5, query_k=5)
    key = next(image.key for image in index.catalogue.images if "caf" in image.key)
    with running(index, patient(tell_paths=True)) as address, client_of(address) as client:
        facts = client.get("/api/photo/facts", params={"key": key})
        assert facts.status_code == 200
        assert facts.json()["path"].endswith("caf\\xe9.png")
        assert client.get("/api/original", params={"key": key}).status_code == 200


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("a/b c.jpg", "a/b c.jpg.xmp"),
        ("Zoë/中.jpg", "Zoë/中.jpg.xmp"),
        (r"..\\..\\evil.jpg", ".._.._evil.jpg.xmp"),
        (r"a/caf\xe9.jpg", "a/caf_xe9.jpg.xmp"),
        ("a/c:d.jpg", "a/c_d.jpg.xmp"),
    ],
)
def test_no_name_in_an_archive_of_sidecars_leads_elsewhere(key: str, name: str) -> None:
    one = PhotoSet("roofs", "2026", (Member(key, "x", None, "yes", True),), None)
    ((archived, _),) = archived_sidecars(one)
    assert "\\" not in archived
    assert archived.replace("__", "_") == name


def test_an_upload_is_probed_where_it_is_decoded(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that takes long to read holds up no thumbnail."""
    go_on, begun = threading.Event(), threading.Event()

    def slow(data: bytes) -> tuple[str, int]:
        begun.set()
        go_on.wait(PATIENCE)
        return probe_upload(data)

    monkeypatch.setattr("manifind.serve.photos.probe_upload", slow)
    content = (index.root / "first-0.png").read_bytes()
    with running(index) as address, ThreadPoolExecutor(4) as senders:
        sent = [senders.submit(post, f"{address}/api/uploads", content=content + bytes([i])) for i in range(4)]
        assert begun.wait(PATIENCE)
        assert get(f"{address}/api/picture?key=first-3.png").status_code == 200
        assert not any(one.done() for one in sent)
        go_on.set()
        assert {one.result().status_code for one in sent} == {200}


@pytest.mark.parametrize("name", ["png-text", "jpeg-segments", "tiff-fractions"])
def test_the_header_of_an_upload_is_read_within_limits(name: str) -> None:
    data = {**crowded(8_000_000), **long_values(8_000_000)}[name]
    began = time.process_time()
    assert probe_upload(data)[1] > len(data)  # as much work as its length suggests
    assert time.process_time() - began < 0.5


def test_an_archive_tells_of_a_photo_that_is_a_pipe(made: Index) -> None:
    put_pipe(made, "04.png")
    with running(made) as address:
        content = get(f"{address}/api/search.zip", params={"q": "k:01.png", "top": 12}).content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert "04.png" in archive.read("missing.txt").decode()
        assert len(archive.namelist()) == 11 + 2
