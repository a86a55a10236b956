"""Every stage admits, limits, cancels and times out: what one client does, another hardly notices."""

import asyncio
import http.client
import io
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from uvicorn.server import ServerState

from manifind.index import Index
from manifind.io import Photo, read_photo
from manifind.serve import photos, workers
from manifind.serve.app import create_app
from manifind.serve.errors import ServiceError
from manifind.serve.guard import Body, BodyLimits
from manifind.serve.photos import PhotoStore
from manifind.serve.run import RateLimitFilter, configured, limited_protocol
from manifind.serve.workers import Metrics, SingleFlight, WorkerPool
from tests.serve.asking import PATIENCE, get, post, refused, wait_for
from tests.serve.running import patient, running

FINE = {"views": [{"key": "first-0.png"}], "top": 3}


def raw(address: str) -> socket.socket:
    """A connection on which anything can be said."""
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def head(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", "")).encode()


def answered(connection: socket.socket) -> tuple[int, bytes]:
    """The status and the body of the one answer that comes, in however many pieces: the service does not hang up."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return answer.status, answer.read()


def heard(connection: socket.socket) -> bytes:
    """Everything that is said until the service hangs up."""
    said = b""
    with suppress(ConnectionError):
        while piece := connection.recv(65536):
            said += piece
    return said


@contextmanager
def slow_reads(
    monkeypatch: pytest.MonkeyPatch, wait: Callable[[], object] = lambda: time.sleep(0.15)
) -> Iterator[list[object]]:
    """Let every photo take a while to decode, and tell which were."""
    decoded: list[object] = []

    def read(source: Any, **options: Any) -> Photo:
        if options.get("long_side") is None:
            decoded.append(source)
            wait()
        return read_photo(source, **options)

    with monkeypatch.context() as patch:
        patch.setattr(photos, "read_photo", read)
        yield decoded


def photo(seed: int, side: int = 200) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


# -- stages -----------------------------------------------------------------------------------------------------------


async def emptied(stage: WorkerPool) -> None:
    """Wait until a stage has no work any more, of which its threads tell it."""
    async with asyncio.timeout(PATIENCE):
        while stage.amount:
            await asyncio.sleep(0.005)


def test_a_stage_lets_in_what_it_can_do_in_time_and_no_more() -> None:
    go_on = threading.Event()

    async def all_have_come() -> None:
        go_on.set()

    async def told() -> list[object]:
        stage = WorkerPool("x", 1, seconds=1, pace=10, metrics=Metrics())
        work = [stage.submit(4, lambda: go_on.wait(PATIENCE)) for _ in range(5)]
        *answers, _ = await asyncio.gather(*work, all_have_come(), return_exceptions=True)
        await emptied(stage)
        stage.stop()
        return list(answers)

    answers = asyncio.run(told())
    assert [isinstance(one, ServiceError) and one.status for one in answers] == [False, False, 503, 503, 503]


def test_work_that_nobody_waits_for_is_not_begun() -> None:
    done: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def held_up(number: int) -> None:
        begun.set()
        go_on.wait(PATIENCE)
        done.append(number)

    async def left() -> None:
        stage = WorkerPool("x", 1, seconds=10, pace=10, metrics=Metrics())
        work = [asyncio.ensure_future(stage.submit(1, partial(held_up, i))) for i in range(6)]
        while not begun.is_set():
            await asyncio.sleep(0.005)
        for one in work[1:]:
            one.cancel()
        await asyncio.gather(*work[1:], return_exceptions=True)
        go_on.set()
        await work[0]
        await emptied(stage)
        stage.stop()

    asyncio.run(left())
    assert done == [0]


def test_work_that_several_wait_for_is_done_once_and_given_up_with_the_last() -> None:
    begun: list[str] = []
    ended: list[str] = []
    go_on = asyncio.Event()

    async def work(name: str) -> str:
        begun.append(name)
        await go_on.wait()
        ended.append(name)
        return name

    async def several() -> None:
        shared: SingleFlight[str] = SingleFlight()
        both = [asyncio.ensure_future(shared.run("a", lambda: work("a"))) for _ in range(3)]
        other = [asyncio.ensure_future(shared.run("b", lambda: work("b"))) for _ in range(2)]
        while begun != ["a", "b"]:
            await asyncio.sleep(0)
        both[0].cancel()  # one of three has left
        for one in other:  # all of them have
            one.cancel()
        await asyncio.gather(both[0], *other, return_exceptions=True)
        go_on.set()
        assert await asyncio.gather(*both[1:]) == ["a", "a"]
        assert await shared.run("b", lambda: work("b again")) == "b again"

    asyncio.run(several())
    assert begun == ["a", "b", "b again"]
    assert ended == ["a", "b again"]


# -- pictures and uploads ---------------------------------------------------------------------------------------------


def watched_stages(monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], list[float]]:
    """Return lists that get an entry for each piece of work that comes to a stage, and for each that leaves it."""
    came: list[float] = []
    left: list[float] = []
    admit = WorkerPool.admit

    @contextmanager
    def watched(stage: WorkerPool, amount: float, seconds: float | None = None) -> Any:
        came.append(amount)
        try:
            with admit(stage, amount, seconds) as job:
                yield job
        finally:
            left.append(amount)

    monkeypatch.setattr(WorkerPool, "admit", watched)
    return came, left


def test_crops_that_nobody_waits_for_are_not_made(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [image.key for image in index.catalogue.images[:40]]
    go_on = threading.Event()
    came, left = watched_stages(monkeypatch)
    with running(index) as address, slow_reads(monkeypatch, lambda: go_on.wait(PATIENCE)) as decoded:
        with ExitStack() as leavers:
            for key in keys:
                leaver = leavers.enter_context(raw(address))
                leaver.sendall(head("GET", f"/api/picture?key={key}&box=10,10,90,90"))
            wait_for(lambda: len(came) == 40 and len(decoded) > 0)
        wait_for(lambda: len(left) == 40)
        go_on.set()
        assert get(f"{address}/api/picture?key={keys[-1]}&box=1,1,50,50").status_code == 200
        assert len(decoded) <= 7  # those that were under way, and the last one


def test_a_photo_is_decoded_once_for_all_its_crops(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(index) as address, slow_reads(monkeypatch) as decoded, ThreadPoolExecutor(8) as pool:
        boxes = [f"{i},{i},{i + 100},{i + 100}" for i in range(16)]
        ask = f"{address}/api/picture?key=first-2.png&box="
        answers = list(pool.map(lambda box: get(ask + box), boxes))
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.content for answer in answers}) == len(boxes)
        view = {"key": "first-2.png", "box": [5, 5, 90, 90]}
        assert post(f"{address}/api/search", json={"views": [view]}).status_code == 200
        assert len(decoded) == 1


def test_an_upload_is_decoded_once_however_often_it_is_searched_with(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(index) as address, slow_reads(monkeypatch) as decoded, ThreadPoolExecutor(4) as pool:
        send = f"{address}/api/search/photo?box=10,10,150,150"
        answers = list(pool.map(lambda _: post(send, content=photo(1)), range(4)))
        assert {answer.status_code for answer in answers} == {200}
        assert len(decoded) == 1


def test_uploads_are_let_in_by_their_pixels_and_the_others_told_to_come_back(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes nine seconds; forty at once take three minutes on two threads, and may take less than one."""
    go_on = threading.Event()
    clock = [0.0]

    def read() -> None:
        if len(decoded) > 6:
            go_on.wait(PATIENCE)
        else:  # by which the pace is measured
            clock[0] += 9

    monkeypatch.setattr(workers, "time", SimpleNamespace(perf_counter=lambda: clock[0], monotonic=time.monotonic))
    with (
        running(index) as address,
        slow_reads(monkeypatch, read) as decoded,
        ThreadPoolExecutor(40) as pool,
    ):
        for i in range(6):
            post(f"{address}/api/uploads", content=photo(100 + i))
        sent = [pool.submit(post, f"{address}/api/uploads", content=photo(i)) for i in range(40)]
        wait_for(lambda: sum(one.done() for one in sent) >= 20)
        go_on.set()
        answers = [one.result() for one in sent]
        statuses = [answer.status_code for answer in answers]
        assert set(statuses) <= {200, 503}
        assert statuses.count(200) >= 3
        assert statuses.count(503) >= 20
        late = next(answer for answer in answers if answer.status_code == 503)
        assert int(late.headers["retry-after"]) >= 1


def test_only_so_many_archives_are_sent_at_a_time(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"q": "k:first-0.png", "top": "3", "verify": "0"}
    go_on, real = threading.Event(), PhotoStore.archive

    def held_up(*given: Any) -> Iterator[bytes]:
        for piece in real(*given):
            yield piece
            go_on.wait(PATIENCE)

    monkeypatch.setattr(PhotoStore, "archive", held_up)
    with running(index, patient(archives=1)) as address:
        with raw(address) as slow:
            slow.sendall(head("GET", "/api/search.zip?q=k:first-0.png&top=3&verify=0"))
            assert b"200 OK" in slow.recv(100)
            refused(get(f"{address}/api/search.zip", params=words), 503)
            go_on.set()
        for _ in range(3):  # one after the other they are all sent
            wait_for(lambda: get(f"{address}/api/search.zip", params=words).status_code == 200)


# -- bodies -----------------------------------------------------------------------------------------------------------


def test_a_body_must_arrive_in_time(index: Index) -> None:
    with running(index, patient(body_seconds=0.4)) as address:
        for path in ("/api/uploads", "/api/search"):
            with raw(address) as sender:
                kind = "application/json" if path == "/api/search" else "image/png"
                sender.sendall(head("POST", path, "Content-Length: 1000", f"Content-Type: {kind}") + b"x")
                status, said = answered(sender)
            assert status == 408
            assert b"did not arrive within 0.4 seconds" in said


def test_bodies_that_do_not_come_to_an_end_make_room_for_others(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, add = [0], BodyLimits.add

    def noted(bodies: BodyLimits, body: Body, size: int) -> None:
        add(bodies, body, size)
        taken[0] += size

    monkeypatch.setattr(BodyLimits, "add", noted)
    with running(index, patient(bodies_bytes=3_000_000)) as address, ExitStack() as senders:
        stalled = [senders.enter_context(raw(address)) for _ in range(6)]
        for number, sender in enumerate(stalled, start=1):
            sender.sendall(head("POST", "/api/uploads", "Content-Length: 2000000") + bytes(900_000))
            wait_for(lambda: taken[0] >= 900_000 * number)  # noqa: B023
        whole = photo(1, 700)
        assert 1_000_000 < len(whole) < 2_000_000
        assert post(f"{address}/api/uploads", content=whole).status_code == 200
        for sender in stalled[:4]:  # the oldest were given up
            assert answered(sender)[0] == 408


def test_the_memory_of_unfinished_bodies_is_bounded(index: Index) -> None:
    page = os.sysconf("SC_PAGE_SIZE")

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    with running(index, patient(bodies_bytes=40_000_000)) as address, ExitStack() as senders:
        before = resident()
        for _ in range(30):
            sender = senders.enter_context(raw(address))
            sender.sendall(head("POST", "/api/uploads", "Content-Length: 49000000"))
            try:
                for _ in range(16):
                    sender.sendall(bytes(500_000))
            except ConnectionError:
                pass
        assert resident() - before < 120e6  # 240 million bytes were sent
        assert post(f"{address}/api/search", json=FINE).status_code == 200


# -- connections ------------------------------------------------------------------------------------------------------


def test_idle_connections_make_room_for_new_ones(index: Index) -> None:
    with running(index, patient(connections=20)) as address, ExitStack() as idle:
        held = [idle.enter_context(raw(address)) for _ in range(60)]
        assert post(f"{address}/api/search", json=FINE).status_code == 200
        assert heard(held[0]) == b""  # hung up on
        held[-1].sendall(head("GET", "/api/health", "Connection: close"))
        assert b"200 OK" in heard(held[-1])


class Connection:
    """What a protocol sees of a connection."""

    def __init__(self) -> None:
        self.closing = False

    def get_extra_info(self, _: str) -> None:
        return None

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True  # the loop tells the protocol later


def test_of_many_connections_that_come_at_once_the_last_ones_stay(index: Index) -> None:
    settings = patient(connections=20)
    config, state = configured(create_app(index, settings), settings), ServerState()
    config.load()
    loop, made = asyncio.new_event_loop(), limited_protocol(settings)
    connections: list[Any] = [Connection() for _ in range(60)]
    for connection in connections:
        protocol: Any = made(config=config, server_state=state, app_state={}, _loop=loop)  # type: ignore[call-arg]
        protocol.connection_made(connection)
    loop.close()
    assert [one.closing for one in connections] == [True] * 40 + [False] * 20


def test_requests_under_way_are_not_hung_up_on(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    came, _ = watched_stages(monkeypatch)
    with (
        running(index, patient(connections=5)) as address,
        slow_reads(monkeypatch, lambda: go_on.wait(PATIENCE)),
        ExitStack() as others,
    ):
        asked = [others.enter_context(raw(address)) for _ in range(5)]
        for i, one in enumerate(asked):
            one.sendall(head("GET", f"/api/picture?key=first-{i}.png&box=1,1,50,50", "Connection: close"))
        wait_for(lambda: len(came) == 5)  # all of them are under way
        refusals = [others.enter_context(raw(address)) for _ in range(3)]
        assert all(heard(one) == b"" for one in refusals)
        go_on.set()
        assert all(heard(one).split()[1] == b"200" for one in asked)


CHUNKED = head("POST", "/api/search", "Transfer-Encoding: chunked", "Content-Type: application/json")
ENDLESS = {
    "header": (b"GET / HTTP/1.1\r\nX-Endless: ", b"x"),
    "address": (b"GET /", b"x"),
    "lines before the head": (b"", b"\r\n"),
    "trailer": (CHUNKED + b"0\r\nX: ", b"x"),
    "chunk's extension": (CHUNKED + b"5;", b"x"),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_what_is_endless_is_ended(what: str, address: str) -> None:
    beginning, more = ENDLESS[what]
    with raw(address) as sender:
        with suppress(ConnectionError):
            sender.sendall(beginning + more * 500_000)
        heard(sender)  # comes to an end: it is hung up on


@pytest.mark.parametrize("request_text", [b"nonsense\r\n\r\n", b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n"])
def test_what_is_no_request_gets_a_sentence_and_a_code(request_text: bytes, address: str) -> None:
    with raw(address) as sender:
        with suppress(ConnectionError):
            sender.sendall(request_text)
        beginning, _, body = heard(sender).partition(b"\r\n\r\n")
    assert beginning.split()[1] == b"400"
    assert json.loads(body)["code"] == "bad-request"


def test_the_size_of_a_head_is_bounded(index: Index) -> None:
    with running(index) as address:
        refused(get(f"{address}/api/info", headers={"X-Long": "x" * 66_000}), 431)
        assert get(f"{address}/api/info", headers={"X-Long": "x" * 30_000}).status_code == 200


# -- the log ----------------------------------------------------------------------------------------------------------


def test_a_log_cannot_be_flooded() -> None:
    now = [1000.0]
    few = RateLimitFilter(few=3, seconds=60, clock=lambda: now[0])
    records = [
        logging.LogRecord("x", logging.WARNING, "", 0, f"socket.accept() failed: {i}", None, None) for i in range(100)
    ]
    assert [few.filter(one) for one in records] == [True] * 3 + [False] * 97
    other = logging.LogRecord("x", logging.ERROR, "", 0, "something else", None, None)
    assert few.filter(other)
    now[0] += 61
    last = logging.LogRecord("x", logging.WARNING, "", 0, "socket.accept() failed: 101", None, None)
    assert few.filter(last)
    assert "97 like it" in last.getMessage()


def test_an_upload_that_is_broken_off_is_no_fault(index: Index, caplog: pytest.LogCaptureFixture) -> None:
    with running(index) as address:
        for path in ("/api/uploads", "/api/search/photo", "/api/search"):
            kind = "application/json" if path == "/api/search" else "image/png"
            with raw(address) as sender:
                sender.sendall(head("POST", path, "Content-Length: 100000", f"Content-Type: {kind}") + bytes(5000))
        time.sleep(0.3)
        assert post(f"{address}/api/search", json=FINE).status_code == 200
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
