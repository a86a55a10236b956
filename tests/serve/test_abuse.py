"""What nobody should send: answered with one sentence, and the service goes on."""

import io
import json
import os
import socket
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from manifind.index import Index
from tests.index.small import small_index
from tests.index.test_bad_files import bomb
from tests.serve.asking import PATIENCE, client_of, get, post, refused
from tests.serve.conftest import background
from tests.serve.running import patient, running

FINE = {"views": [{"key": "first-0.png"}], "top": 3}


@pytest.fixture(autouse=True)
def alive(client: httpx.Client) -> Iterator[None]:
    """After whatever was sent, a search is still answered."""
    yield
    answer = client.post("/api/search", json=FINE)
    assert answer.status_code == 200
    assert len(answer.json()["results"]) == 3


def resident() -> int:
    """Bytes of memory that this process, with the service in it, holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- paths ------------------------------------------------------------------------------------------------------------

PATHS = [
    "../broken.jpg",
    "../../../../etc/passwd",
    "/etc/passwd",
    "more/../first-0.png",
    "./first-0.png",
    "first-0.png/",
    "first-0.png\0.jpg",
    "..\\..\\etc\\passwd",
    "%2e%2e%2fetc%2fpasswd",
    "broken.jpg",
    "\ud800",
    "",
    "x" * 4096,
    "file:///etc/passwd",
    "\\x2e\\x2e/etc/passwd",
]


@pytest.mark.parametrize("key", PATHS)
def test_only_photos_of_the_index_are_served(key: str, client: httpx.Client) -> None:
    body = json.dumps({"views": [{"key": key}]})  # escapes what is no text
    headers = {"Content-Type": "application/json"}
    refused(client.post("/api/search", content=body, headers=headers), 404, 422)
    body = json.dumps({"views": [{"key": "first-0.png"}], "key": key})
    refused(client.post("/api/explain", content=body, headers=headers), 404, 422)
    if key.isprintable():
        refused(client.get("/api/picture", params={"key": key}), 404, 422)
        refused(client.get("/api/photo", params={"key": key}), 404, 422)


@pytest.mark.parametrize("path", ["/page/../app.py", "/page/..%2fapp.py", "/page/%2e%2e/app.py", "/../../etc/passwd"])
def test_only_files_of_the_page_are_served(path: str, address: str) -> None:
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as raw:  # a client library would tidy the path up
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.split()[1] == b"404"
    assert b"import" not in answer


def test_a_link_out_of_the_collection_is_not_followed(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, outside = tmp_path / "photos", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    for i in range(3):
        background(i).save(folder / f"in-{i}.png")
    background(7).save(outside / "secret.png")
    (folder / "link.png").symlink_to(outside / "secret.png")
    (folder / "inside.png").symlink_to(folder / "in-0.png")
    index = Index.create(tmp_path / "x.manifind", folder, whiten="shipped", scales=(1.0,), k=5, query_k=5)
    keys = {image.key for image in index.catalogue.images}
    assert "link.png" in keys
    view = {"key": "link.png", "box": [10, 10, 200, 200]}
    with running(index) as address, client_of(address) as client:
        assert "1 of 4 photos are links out of their folder; use --follow-links" in caplog.text
        assert "link out of the collection" in refused(client.get("/api/picture?key=link.png"), 403)
        refused(client.post("/api/search", json={"views": [view]}), 403)
        archive = client.get("/api/search.zip", params={"q": "k:in-1.png", "top": 10}).content
        assert b"link.png: " in archive
        assert (outside / "secret.png").read_bytes() not in archive
    with running(index, patient(follow_links=True)) as address:
        assert get(f"{address}/api/picture?key=link.png").status_code == 200


def test_a_file_that_is_gone_or_no_photo_any_more_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(4):
        background(i).save(folder / f"{i}.png")
    index = Index.create(tmp_path / "x.manifind", folder, whiten="shipped", scales=(1.0,), k=5, query_k=5)
    (folder / "0.png").unlink()
    (folder / "1.png").write_text("#!/bin/sh")
    (folder / "2.png").unlink()
    os.mkfifo(folder / "2.png")
    with running(index) as address, client_of(address) as client:
        for i, code in enumerate(("no-access", "not-a-photo", "not-a-file")):
            answer = client.get(f"/api/picture?key={i}.png")
            refused(answer, 404)
            assert answer.json()["code"] == code
        found = client.get("/api/search", params={"q": "k:3.png"})
        assert {one["key"] for one in found.json()["results"]} <= {f"{i}.png" for i in range(4)}
        everything = {"q": [f"k:{i}.png" for i in range(4)]}  # extracted when they were indexed
        archive = client.get("/api/search.zip", params=everything).content
        assert b"missing.txt" in archive
        assert b"#!/bin/sh" not in archive


# -- photos -----------------------------------------------------------------------------------------------------------


def png(width: int, height: int, data: bytes) -> bytes:
    """A PNG that says it is so large, whatever its data hold."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def jpeg() -> bytes:
    buffer = io.BytesIO()
    background(3).save(buffer, "JPEG")
    return buffer.getvalue()


BAD = {
    "empty": b"",
    "text": b"hello",
    "truncated": jpeg()[:4000],
    "html in a jpeg's coat": b"\xff\xd8\xff\xe0<html><script>alert(1)</script>\xff\xd9",
    "script in a gif's coat": b"GIF89a/*" + bytes(100) + b"*/=1;alert(1)",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
    "pdf": b"%PDF-1.7\n" + bytes(500),
    "a bomb of pixels": png(60_000, 60_000, zlib.compress(bytes(1000))),
    "a bomb in a sentence": png(2**31 - 1, 2**31 - 1, b""),
    "a strip that no decoder holds": bomb(34_000_000, 1, bits=16, colour=6, data=b""),
    "no pixels": png(0, 0, b""),
    "random": np.random.default_rng(1).bytes(100_000),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_whole_photo_is_refused(name: str, client: httpx.Client) -> None:
    for path in ("/api/uploads", "/api/search/photo"):
        sentence = refused(client.post(path, content=BAD[name]), 422)
        assert len(sentence) < 200


def test_a_photo_with_something_behind_it_is_only_ever_shown_as_its_pixels(client: httpx.Client) -> None:
    polyglot = jpeg() + b"<script>alert(1)</script>PK\x03\x04"
    kept = client.post("/api/uploads", content=polyglot).json()
    shown = client.get("/api/picture", params={"upload": kept["upload"]})
    assert shown.headers["content-type"] == "image/jpeg"
    assert b"script" not in shown.content


def test_bombs_leave_memory_as_it_was(client: httpx.Client) -> None:
    more_than_it_says = png(2000, 2000, zlib.compress(bytes(300_000_000)))
    for i in range(10):  # what is kept of photos that were decoded is as much as it will be
        client.post("/api/uploads", content=more_than_it_says + bytes([100 + i]))
    before = resident()
    for i in range(10):
        for data in (BAD["a bomb of pixels"], more_than_it_says + bytes([i]), BAD["random"]):
            client.post("/api/uploads", content=data)
    assert resident() - before < 100e6


def test_a_photo_beyond_the_limits_is_refused(index: Index) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (1200, 1000)).save(buffer, "PNG")
    with running(index, patient(upload_pixels=1_000_000, upload_bytes=200_000)) as address:
        assert "too large" in refused(post(f"{address}/api/uploads", content=buffer.getvalue()), 422)
        assert "larger than 0.2 million" in refused(post(f"{address}/api/uploads", content=bytes(300_000)), 413)

        def endless() -> Iterator[bytes]:  # no length announced
            for _ in range(100):
                yield bytes(10_000)

        refused(post(f"{address}/api/uploads", content=endless()), 413)


def test_a_large_photo_put_in_place_of_a_small_one_is_not_decoded(tmp_path: Path) -> None:
    index = small_index(tmp_path, 4)
    Image.new("RGB", (1200, 1000)).save(index.root / "1.png")
    with running(index, patient(upload_pixels=1000)) as address:
        for box in ("", "&box=1,1,60,60"):  # in a reduced size, and a part of the whole
            assert get(f"{address}/api/picture?key=2.png{box}").status_code == 200
            answer = get(f"{address}/api/picture?key=1.png{box}")
            assert (answer.status_code, answer.json()["code"]) == (404, "too-large")


def test_old_uploads_make_room_for_new_ones(index: Index) -> None:
    with running(index, patient(uploads_bytes=300_000)) as address, client_of(address) as client:
        names = []
        for i in range(8):
            buffer = io.BytesIO()
            background(i).save(buffer, "PNG")
            names.append(client.post("/api/uploads", content=buffer.getvalue()).json()["upload"])
        statuses = [client.get(f"/api/uploads/{name}").status_code for name in names]
        assert statuses[0] == 404
        assert statuses[-1] == 200
        view = {"upload": names[0]}
        assert "upload it again" in refused(client.post("/api/search", json={"views": [view]}), 404)


# -- boxes, numbers, bodies -------------------------------------------------------------------------------------------

NAN, INFINITE = float("nan"), float("inf")
BOXES: list[Any] = [
    [NAN, 0, 10, 10],
    [0, 0, INFINITE, 10],
    [-INFINITE, 0, 10, 10],
    [-50, -50, -10, -10],
    [10, 10, 10, 10],
    [100, 100, 50, 50],
    [1e308, 1e308, 1.7e308, 1.7e308],
    [0, 0, 0, 0],
    [],
    [1, 2, 3],
    [1, 2, 3, 4, 5],
    ["a", 0, 1, 1],
    [None, 0, 1, 1],
    [[0], 0, 1, 1],
    "0,0,9,9",
    {"x": 1},
    [True, {}, [], 1],
    [10**400, 0, 10, 10],
]


@pytest.mark.parametrize("box", BOXES, ids=str)
def test_an_absurd_box_is_refused(box: Any, client: httpx.Client) -> None:
    body = json.dumps({"views": [{"key": "first-0.png", "box": box}]})
    refused(client.post("/api/search", content=body, headers={"Content-Type": "application/json"}), 400, 422)


@pytest.mark.parametrize("box", ["nan,0,1,1", "1,2,3", "0,0,inf,1", "9,9,2,2", "", "a,b,c,d", "1e999,0,1,1", "0,0,0,0"])
def test_an_absurd_box_in_an_address_is_refused(box: str, client: httpx.Client) -> None:
    refused(client.get("/api/picture", params={"key": "first-0.png", "box": box}), 422)
    refused(client.post("/api/search/photo", params={"box": box}, content=jpeg()), 422)
    if box:
        refused(client.get("/api/search", params={"q": f"k:first-0.png@{box}"}), 404, 422)


def test_a_box_beyond_the_photo_is_cut_to_it(client: httpx.Client) -> None:
    answer = client.post("/api/search", json={"views": [{"key": "first-0.png", "box": [-1e9, -5, 1e9, 1e300]}]})
    assert answer.status_code == 200


def test_a_box_of_one_pixel_is_answered(client: httpx.Client) -> None:
    answer = client.post("/api/search", json={"views": [{"key": "first-0.png", "box": [5, 5, 5.5, 5.5]}]})
    assert answer.status_code == 200


def test_ten_thousand_boxes_are_refused(client: httpx.Client) -> None:
    views = [{"key": "first-0.png", "box": [i % 100, 0, 200, 200]} for i in range(10_000)]
    assert "at most 64" in refused(client.post("/api/search", json={"views": views}), 422)
    refused(client.get("/api/search", params={"q": ["k:first-0.png"] * 100}), 422)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"views": 1}',
        b'{"views": []}',
        b'{"views": [{}]}',
        b'{"views": [{"key": "first-0.png", "upload": "' + b"0" * 32 + b'"}]}',
        b'{"views": [{"upload": "../../etc/passwd"}]}',
        b'{"views": [{"key": "first-0.png"}], "top": 0}',
        b'{"views": [{"key": "first-0.png"}], "top": 1e9}',
        b'{"views": [{"key": "first-0.png"}], "method": "magic"}',
        b'{"views": [{"key": "first-0.png"}], "surprise": 1}',
        b'{"vectors": [[1, 2, 3]]}',
        b'{"vectors": [[]]}',
        b'{"vectors": []}',
        b'{"vectors": [[1], [1, 2]]}',
        b'{"vectors": [[' + b",".join([b"0"] * 512) + b"]]}",
        b'{"vectors": [[NaN]]}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"\xff\xfe\x00",
        b'{"views": [{"key": 1' + b"0" * 5000 + b"}]}",
    ],
    ids=lambda body: body[:60].decode("latin-1"),
)
def test_a_body_that_makes_no_sense_is_refused(body: bytes, client: httpx.Client) -> None:
    refused(client.post("/api/search", content=body, headers={"Content-Type": "application/json"}), 400, 422)


def test_forms_and_other_kinds_of_bodies_are_refused(client: httpx.Client) -> None:
    refused(client.post("/api/uploads", files={"photo": ("x.jpg", jpeg())}), 415)
    refused(client.post("/api/uploads", data={"photo": "x"}), 415)
    broken = {"Content-Type": "multipart/form-data; boundary=" + "x" * 5000}
    refused(client.post("/api/search/photo", content=b"--x\r\n" * 1000, headers=broken), 415)
    refused(client.post("/api/search", content=b"views=1", headers={"Content-Type": "text/plain"}), 400, 415, 422)


def test_a_body_of_json_is_bounded(client: httpx.Client) -> None:
    refused(client.post("/api/search", content=b" " * 9_000_000, headers={"Content-Type": "application/json"}), 413)


@pytest.mark.parametrize(
    "request_text",
    [
        "GET /api/info HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + "x" * 200_000 + "\r\n\r\n",
        "GET /api/info HTTP/1.1\r\nHost: 127.0.0.1\r\n" + "".join(f"X-{i}: y\r\n" for i in range(20_000)) + "\r\n",
        "GET /" + "x" * 200_000 + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "GET /api/info HTTP/1.1\r\n\r\n",
        "POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
        "POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "BREW /coffee HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "\0\1\2\3\r\n\r\n",
        "GET /api/info?" + "a=%ff%00&" * 1000 + " HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: manifind=;;==\r\n\r\n",
    ],
    ids=["long header", "many headers", "long path", "no host", "negative length", "huge length", "two lengths",
         "odd method", "no http", "odd query"],
)  # fmt: skip
def test_odd_requests_do_no_harm(request_text: str, address: str) -> None:
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as raw:
        try:
            raw.sendall(request_text.encode("latin-1"))
            raw.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: raw.recv(65536), b""))
        except OSError:
            return  # hung up on, which is an answer too
    status = int(answer.split()[1]) if answer.startswith(b"HTTP/") else 400
    assert status < 500
