"""`manifind.Client` against a service: the same answers as the index gives, and errors in sentences."""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from manifind import Client, Index
from manifind.errors import InvalidInputError, ManifindError
from manifind.iiif.fetch import retry_after
from tests.serve.asking import BOX, PATIENCE, get
from tests.serve.browsing import kept
from tests.serve.conftest import planted
from tests.serve.running import patient, running


def test_a_client_answers_as_the_index_does(address: str, index: Index) -> None:
    client = Client(address, timeout=PATIENCE)
    found = client.search("first-0.png", BOX, positives=[("first-1.png", None)], top=10, verify=0)
    own = index.search("first-0.png", BOX, positives=[("first-1.png", None)], top=10, verify=0).nonzero()
    assert [hit.key for hit in found] == [hit.key for hit in own]
    assert [hit.score for hit in found] == pytest.approx([hit.score for hit in own], rel=0.02)
    assert (found.n_matches, found.method, found.generation) == (own.n_matches, own.method, own.generation)
    assert found[0].box == pytest.approx(own[0].box, abs=3)
    assert client.explain(found[3]).keys[-1] == found[3].key
    assert client.explain(found[3]).links[0].source.key is None
    assert client.info()["photos"] == len(index)
    assert client.photo("first-0.png") == (index.root / "first-0.png").read_bytes()
    assert client.repeats(top=1)["objects"][0]["rank"] == 1


def test_mirrored_photos_are_told_as_the_index_tells_them(address: str, index: Index) -> None:
    client, pixels = Client(address, timeout=PATIENCE), index.pixels("first-0.png")[:, ::-1].copy()
    box = (pixels.shape[1] - BOX[2], BOX[1], pixels.shape[1] - BOX[0], BOX[3])
    found = client.search(pixels, box, top=10, mirrored=True)
    own = index.search(pixels, box, top=10, mirrored=True).nonzero()
    assert [(hit.key, hit.mirrored, hit.inliers) for hit in found] == [
        (hit.key, hit.mirrored, hit.inliers) for hit in own
    ]
    assert any(hit.mirrored for hit in found)
    assert client.explain(found[0]).keys[-1] == found[0].key
    assert {hit.mirrored for hit in client.search(pixels, box, top=10)} == {None}


def test_a_photo_is_given_by_path_by_bytes_by_pixels_or_as_an_image(address: str, tmp_path: Path) -> None:
    client = Client(address, timeout=PATIENCE)
    shot = planted(5000, 1, (150, 60))
    shot.save(tmp_path / "shot.png")
    sources = (tmp_path / "shot.png", (tmp_path / "shot.png").read_bytes(), np.asarray(shot), shot)
    answers = [client.search(source, (150, 60, 278, 188), top=6) for source in sources]
    assert all([hit.key for hit in one] == [hit.key for hit in answers[0]] for one in answers)
    assert answers[0][0].key.startswith("first-")


def test_errors_have_codes(address: str, index: Index) -> None:
    assert code_of(lambda: Client(address).search("none.png")) == "not-found"
    assert code_of(lambda: Client("file:///etc/passwd")) == "address"
    assert code_of(lambda: Client("http://127.0.0.1:9").info()) == "unavailable"
    with running(index, patient(token="ひらけ")) as guarded:  # noqa: S106 (a test's)
        assert Client(guarded, token="ひらけ").info()["photos"] == len(index)  # noqa: S106
    with running(index, patient(token="secret")) as guarded:  # noqa: S106 (a test's)
        assert code_of(lambda: Client(guarded).info()) == "unauthorized"
        assert Client(f"{guarded}/?token=secret").info()["photos"] == len(index)
        assert Client(guarded, token="secret").search("first-0.png", top=1)[0].key == "first-0.png"  # noqa: S106


def receive_request(connection: socket.socket) -> bytes:
    """Receive a whole request: a connection that is closed before all of it is read is reset."""
    request = b""
    while b"\r\n\r\n" not in request:
        request += connection.recv(65536)
    head = request[: request.index(b"\r\n\r\n")].lower()
    length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
    while len(request) < len(head) + 4 + length:
        request += connection.recv(65536)
    return request


@contextmanager
def answering_with(*responses: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Answer each connection with the next of some bytes; gives the address and the requests."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for response in responses:
                connection, _ = server.accept()
                with connection, suppress(OSError):
                    requests.append(receive_request(connection))
                    connection.sendall(response)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", requests


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    head = "\r\n".join((f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""))
    return head.encode() + body


def code_of(work: Callable[[], object]) -> str:
    with pytest.raises(ManifindError) as error:
        work()
    return error.value.code


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_a_redirect_is_not_followed(status: str) -> None:
    with answering_with(response(b"{}")) as (elsewhere, asked):
        moved = response(b"", status, f"Location: {elsewhere}/api/info")
        with answering_with(moved) as (address, _):
            assert code_of(lambda: Client(address, token="secret", timeout=PATIENCE).info()) == "redirect"  # noqa: S106
    assert asked == []


ODD = {
    "not JSON": response(b"<html>"),
    "not an object": response(b"[1]"),
    "deep": response(b"[" * 100_000),
    "not UTF-8": response(b'{"a": "\xff"}'),
    "cut short": response(b"{}").replace(b"Content-Length: 2", b"Content-Length: 2000"),
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "an error in HTML": response(b"<h1>gone</h1>", "404 Not Found"),
    "an odd length": b"HTTP/1.1 200 OK\r\nContent-Length: x\r\nConnection: close\r\n\r\n[",
    "an odd chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nxyz\r\n",
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_response_is_one_kind_of_error(name: str) -> None:
    with answering_with(ODD[name]) as (address, _):
        assert code_of(lambda: Client(address, timeout=PATIENCE).info()) == "unexpected-response"


@pytest.mark.parametrize("payload", [b"{}", b'{"n_matches": 1}', b'{"results": 3, "n_matches": null}'])
def test_a_result_without_its_fields_is_the_same_error(payload: bytes) -> None:
    with answering_with(response(payload)) as (address, _):
        assert code_of(lambda: Client(address, timeout=PATIENCE).search("a.jpg")) == "unexpected-response"


def test_a_response_is_bounded() -> None:
    endless = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"x" * (2**26 + 2**20)
    with answering_with(endless) as (address, _):
        assert code_of(lambda: Client(address, timeout=PATIENCE).info()) == "too-large"


@pytest.mark.parametrize(
    "address", ["http://[::1/?token=secret", "http://a:x/?token=secret", "htp://a/?token=secret", "a?token=secret"]
)
def test_a_malformed_address_is_not_repeated(address: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        Client(address)
    assert error.value.code == "address"
    assert "secret" not in str(error.value)
    assert code_of(lambda: Client("http://a", token="secret\n")) == "token"  # noqa: S106


@contextmanager
def streaming(pieces: Iterable[bytes]) -> Iterator[str]:
    """Answer one request by a stream whose pieces are sent as they come."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                receive_request(connection)
                connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
                for piece in pieces:
                    connection.sendall(piece)

        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def slowly() -> Iterator[bytes]:
    while True:
        time.sleep(0.05)
        yield b" "


@pytest.mark.parametrize(
    ("pieces", "code"),
    [
        (slowly(), "unavailable"),  # a line that never ends
        ((b"x" * 2**20 for _ in range(70)), "too-large"),
        ([b'{"progress": {}}\n{"progre'], "unexpected-response"),
        ([b'{"error": "It is damaged.", "code": "damaged"}\n'], "damaged"),
        ([b"[1]\n"], "unexpected-response"),
        ([b'{"result": {"results": []}}\n'], "unexpected-response"),
    ],
)
def test_a_stream_is_bounded_and_its_errors_have_codes(pieces: Iterable[bytes], code: str) -> None:
    seconds = 0.5 if code == "unavailable" else PATIENCE
    with streaming(pieces) as address:
        assert code_of(lambda: list(Client(address, timeout=seconds).search_steps("a.jpg"))) == code


@pytest.mark.parametrize(
    "later", ["0", "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:00", "soon", "-5", "inf", "\xb2", ""]
)
def test_a_busy_service_is_asked_once_more(later: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifind.client.time", SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic))
    busy = response(b"{}", "503 Busy", f"Retry-After: {later}")
    with answering_with(busy, response(b'{"photos": 3}')) as (address, asked):
        assert Client(address, timeout=PATIENCE).info() == {"photos": 3}
    assert len(asked) == 2


def test_a_date_of_retry_after_is_waited_for() -> None:
    in_an_hour = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert retry_after(in_an_hour) == pytest.approx(3600, abs=5)
    assert retry_after(in_an_hour.removesuffix(" GMT")) == pytest.approx(3600, abs=5)


def test_the_service_describes_itself_without_asking_anybody_else(page: Page, address: str, repository: Path) -> None:
    page.goto("/docs")
    expect(page.get_by_role("heading", name="manifind")).to_be_visible()
    paths = get(f"{address}/openapi.json").json()["paths"]
    expect(page.locator(".operation")).to_have_count(sum(len(methods) for methods in paths.values()))
    page.locator("#search_api_search_post summary").click()
    page.locator("#search_api_search_post").get_by_role("link", name="SearchRequest").click()
    expect(page.locator("#shape-SearchRequest")).to_contain_text("Photos and boxes of one object.")
    kept(page, "docs", repository)
