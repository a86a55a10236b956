"""The service as a program meets it."""

import csv
import io
import json
import os
import re
import shutil
import socket
import threading
import time
import zipfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from manifind.index import Hit, Index, retrieve
from manifind.serve import service as module
from tests.serve.asking import BOX, PATIENCE, VIEW, client_of, counted, get, post, ranked, wait_for
from tests.serve.conftest import PLACES
from tests.serve.running import patient, running

TOKEN = "sesame"  # noqa: S105


def expected(hits: Iterable[Hit]) -> list[tuple[str, Any]]:
    return [(hit.key, hit.score) for hit in hits if hit.score > 0]


# -- searching --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["regional", "global", "match", "plain"])
def test_a_search_by_key_answers_as_the_index_does(method: str, client: httpx.Client, index: Index) -> None:
    answer = client.post("/api/search", json={"views": [VIEW], "method": method, "top": 200})
    assert ranked(answer) == expected(index.search("first-0.png", BOX, method=method, top=None))
    assert answer.json()["method"] == method
    assert (answer.json()["confidence"] is not None) == (method == "regional")


def test_the_address_says_the_same_as_the_body(client: httpx.Client) -> None:
    by_address = client.get("/api/search", params={"q": "k:first-0.png@20,12,148,140", "negatives": "k:second-1.png"})
    by_body = client.post("/api/search", json={"views": [VIEW], "negatives": [{"key": "second-1.png"}]})
    assert ranked(by_address) == ranked(by_body)
    assert by_address.json()["query"] == by_body.json()["query"]


def test_a_photo_in_the_body_is_searched_with(client: httpx.Client, index: Index, photos: Path) -> None:
    data = (photos / "first-0.png").read_bytes()
    answer = client.post("/api/search/photo?box=20,12,148,140&top=200", content=data)
    assert ranked(answer) == expected(index.search(data, BOX, top=None))


def test_an_upload_can_be_searched_with_again(client: httpx.Client, index: Index, photos: Path) -> None:
    data = (photos / "first-0.png").read_bytes()
    kept = client.post("/api/uploads", content=data, headers={"Content-Type": "image/png"}).json()
    assert (kept["width"], kept["height"]) == (320, 240)
    answer = client.post("/api/search", json={"views": [{"upload": kept["upload"], "box": BOX}], "top": 200})
    assert ranked(answer) == expected(index.search(data, BOX, top=None))
    assert client.get(f"/api/uploads/{kept['upload']}").json() == kept


def test_descriptors_of_the_clients_own_are_searched_with(client: httpx.Client, index: Index) -> None:
    view = index.extractor.extract(index.photo("first-0.png").pixels)
    answer = client.post("/api/search", json={"vectors": (2 * view.vectors).tolist(), "top": 200})
    assert ranked(answer) == expected(index.search("first-0.png", top=None, verify=0))


def test_several_photos_and_boxes_are_one_query(client: httpx.Client, index: Index) -> None:
    other = (180.0, 20.0, 308.0, 148.0)
    answer = client.post("/api/search", json={"views": [VIEW, {"key": "second-0.png", "box": other}], "top": 200})
    assert ranked(answer) == expected(index.search("first-0.png", BOX, positives=[("second-0.png", other)], top=None))


def test_what_is_not_meant_is_left_out(client: httpx.Client, index: Index) -> None:
    answer = client.post("/api/search", json={"views": [VIEW], "negatives": [{"key": "second-0.png"}], "top": 200})
    hits = index.search("first-0.png", BOX, negatives=[("second-0.png", None)], top=None)
    assert ranked(answer) == expected([hit for hit in hits if hit.key != "second-0.png"])
    assert [one["rank"] for one in answer.json()["results"]] == list(range(1, len(answer.json()["results"]) + 1))


def test_the_box_round_what_matched_meets_the_thing(client: httpx.Client) -> None:
    results = client.post("/api/search", json={"views": [VIEW]}).json()["results"]
    places = {f"first-{i}.png": place for i, place in enumerate(PLACES)}
    assert {one["key"] for one in results[:6]} == set(places)
    for one in results[:6]:
        x, y = places[one["key"]]
        x0, y0, x1, y1 = one["box"]
        width, height = min(x1, x + 128) - max(x0, x), min(y1, y + 128) - max(y0, y)
        assert width * height > 0.4 * 128 * 128


def test_evidence_ends_behind_the_photos_of_the_thing(client: httpx.Client) -> None:
    answer = client.post("/api/search", json={"views": [VIEW]}).json()
    likely = {one["key"] for one in answer["results"][: answer["n_matches"]]}
    assert [one["is_match"] for one in answer["results"]] == [one["key"] in likely for one in answer["results"]]
    assert {f"first-{i}.png" for i in range(6)} <= likely
    assert len(likely) < 20


def test_nothing_matches_what_is_not_there(client: httpx.Client) -> None:
    noise = np.random.default_rng(5).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "PNG")
    told = client.post("/api/search/photo", content=buffer.getvalue()).json()
    evidence = told["confidence"]
    assert told["n_matches"] == 0
    assert evidence["similarity"] <= evidence["null_similarity"]
    thing = client.post("/api/search", json={"views": [VIEW]}).json()["confidence"]
    assert thing["similarity"] > 1.5 * evidence["similarity"]


def test_an_explanation_is_the_chain_of_the_index(client: httpx.Client, index: Index) -> None:
    answer = client.post("/api/explain", json={"views": [VIEW], "key": "first-3.png"}).json()
    # An explanation is of the first pass, whose query is the one that was given.
    found = index.search("first-0.png", BOX, top=None, verify=0)
    hit = next(hit for hit in found if hit.key == "first-3.png")
    chain = index.explain(hit)
    assert answer["rank"] == hit.rank
    assert [link["target"]["key"] for link in answer["links"]] == [link.target.key for link in chain.links]
    assert answer["links"][0]["source"]["key"] is None
    assert sum(region["share"] for region in answer["regions"]) == pytest.approx(1, abs=1e-3)


def test_results_can_be_taken_away_as_a_table_and_an_archive(client: httpx.Client, photos: Path) -> None:
    words = {"q": "k:first-0.png@20,12,148,140", "top": "3"}
    keys = [one["key"] for one in client.get("/api/search", params=words).json()["results"]]
    rows = list(csv.DictReader(io.StringIO(client.get("/api/search.csv", params=words).text)))
    assert [row["key"] for row in rows] == keys
    answer = client.get("/api/search.zip", params=words)
    header = "attachment; filename=\"found with first-0.zip\"; filename*=utf-8''found%20with%20first-0.zip"
    assert answer.headers["content-disposition"] == header
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert names == ["results.csv", *(f"photos/{i:03d}-{key}" for i, key in enumerate(keys, 1))]
        assert archive.read(names[1]) == (photos / keys[0]).read_bytes()


def test_an_archive_keeps_the_dates_and_folders_of_the_files(client: httpx.Client, photos: Path) -> None:
    file = photos / "more" / "none-007.jpg"
    os.utime(file, (1_000_000_000, 1_000_000_000))
    words = {"q": "k:more/none-007.jpg", "top": "1"}
    with zipfile.ZipFile(io.BytesIO(client.get("/api/search.zip", params=words).content)) as archive:
        entry = archive.getinfo("photos/more/001-none-007.jpg")
        assert entry.date_time[:5] == time.localtime(1_000_000_000)[:5]
        assert archive.read(entry) == file.read_bytes()


# -- browsing ---------------------------------------------------------------------------------------------------------


def test_photos_are_listed_by_folder_and_name(client: httpx.Client, index: Index) -> None:
    everything = [image.key for image in index.catalogue.images]

    def listed(**words: Any) -> tuple[int, list[str]]:
        answer = client.get("/api/photos", params=words).json()
        return answer["total"], [one["key"] for one in answer["photos"]]

    assert listed() == (116, everything[:100])
    assert listed(start=3, count=4) == (116, everything[3:7])
    assert listed(folder="more", count=500) == (104, [key for key in everything if key.startswith("more/")])
    assert listed(contains="FIRST") == (6, [key for key in everything if "first" in key])
    assert listed(contains="nowhere") == (0, [])
    assert client.get("/api/folders").json() == {"folders": [{"folder": "more", "photos": 104}]}
    assert client.get("/api/photo", params={"key": "first-0.png"}).json()["width"] == 320


def test_pictures_are_small_jpegs_of_the_photo_or_a_part(client: httpx.Client, photos: Path) -> None:
    answer = client.get("/api/picture", params={"key": "first-0.png", "side": 100})
    picture = Image.open(io.BytesIO(answer.content))
    assert (picture.format, picture.size) == ("JPEG", (160, 120))
    crop = client.get("/api/picture", params={"key": "first-0.png", "box": "20,12,148,140", "side": 160})
    shown = np.asarray(Image.open(io.BytesIO(crop.content)), np.float32)
    truth = np.asarray(Image.open(photos / "first-0.png").crop((20, 12, 148, 140)), np.float32)
    assert shown.shape == truth.shape
    assert np.abs(shown - truth).mean() < 9


def test_a_picture_is_not_sent_twice(client: httpx.Client) -> None:
    first = client.get("/api/picture", params={"key": "first-0.png"})
    again = client.get("/api/picture", params={"key": "first-0.png"}, headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert not again.content
    kept = client.get("/api/picture", params={"key": "first-0.png", "version": "x"})
    assert "immutable" in kept.headers["cache-control"]


def test_info_tells_counts_and_no_paths(client: httpx.Client, photos: Path) -> None:
    text = client.get("/api/info").text
    assert json.loads(text)["photos"] == 116
    assert json.loads(text)["name"] == "photos.manifind"
    assert str(photos.parent) not in text


def test_the_service_says_how_it_is(client: httpx.Client) -> None:
    assert client.get("/api/health").json() == {"status": "ok", "stuck": []}
    assert client.get("/api/ready").json()["status"] == "ok"
    client.post("/api/search", json={"views": [VIEW]})
    text = client.get("/metrics").text
    for stage in ("read", "describe", "wait", "solve"):
        assert f'manifind_stage_seconds_count{{stage="{stage}"}}' in text
    assert "manifind_batch_queries_bucket" in text
    assert "manifind_queue_queries" in text


# -- many at once -----------------------------------------------------------------------------------------------------


def slowly(monkeypatch: pytest.MonkeyPatch, wait: Callable[[], object]) -> list[int]:
    """Let every solve wait a while, and return the list of how many queries each had."""
    batches: list[int] = []

    def slow(snapshot: Any, queries: Any, *rest: Any, **more: Any) -> Any:
        batches.append(len(queries))
        wait()
        return retrieve(snapshot, queries, *rest, **more)

    monkeypatch.setattr(module, "retrieve", slow)
    return batches


def test_queries_that_meet_are_solved_together_and_answered_as_if_alone(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [image.key for image in index.catalogue.images[:12]] * 4
    with running(index) as address, client_of(address) as client:

        def asked(key: str) -> httpx.Response:
            # Geometry leaves out what it has no time for, which differs with the load.
            return client.post("/api/search", json={"views": [{"key": key}], "verify": 0})

        alone = {key: ranked(asked(key)) for key in set(keys)}
        go_on = threading.Event()
        batches = slowly(monkeypatch, lambda: go_on.wait(PATIENCE))
        with ThreadPoolExecutor(len(keys)) as pool:
            answers = pool.map(asked, keys)
            wait_for(lambda: sum(batches) + counted(client, "manifind_queue_queries") == len(keys))  # all have met
            go_on.set()
        assert all(ranked(answer) == alone[key] for key, answer in zip(keys, answers, strict=True))
    assert sum(batches) == len(keys)
    assert len(batches) <= 2


def test_too_many_are_told_to_come_back_and_the_service_recovers(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(index, patient(waiting=4)) as address, client_of(address) as client:
        go_on = threading.Event()
        slowly(monkeypatch, lambda: go_on.wait(PATIENCE))
        with ThreadPoolExecutor(40) as pool:
            sent = [pool.submit(client.post, "/api/search", json={"views": [VIEW]}) for _ in range(40)]
            wait_for(lambda: sum(one.done() for one in sent) >= 36)
            go_on.set()
        answers = [one.result() for one in sent]
        statuses = [answer.status_code for answer in answers]
        assert (statuses.count(200), statuses.count(503)) == (4, 36)
        refused = next(answer for answer in answers if answer.status_code == 503)
        assert int(refused.headers["retry-after"]) >= 1
        assert "try again" in refused.json()["error"]
        assert client.post("/api/search", json={"views": [VIEW]}).status_code == 200
        assert counted(client, "manifind_refused_total") == statuses.count(503)
        assert counted(client, "manifind_searches_under_way") == 0


def test_a_search_that_takes_too_long_is_given_up(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(index, patient(time_limit=0.2)) as address, client_of(address) as client:
        go_on = threading.Event()
        slowly(monkeypatch, lambda: go_on.wait(PATIENCE))
        answer = client.post("/api/search", json={"views": [{"key": "first-0.png"}]})
        go_on.set()
        assert answer.status_code == 504
        assert "given up" in answer.json()["error"]


def test_who_leaves_is_not_worked_for(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(index) as address, client_of(address) as client:
        go_on = threading.Event()
        batches = slowly(monkeypatch, lambda: go_on.wait(PATIENCE))
        once = {"views": [{"key": "first-0.png"}], "expand": False}
        waiting = threading.Thread(target=lambda: client.post("/api/search", json=once))
        waiting.start()
        wait_for(lambda: batches == [1])  # the solver is busy now
        body = b'{"views": [{"key": "first-1.png"}]}'
        host, port = address.removeprefix("http://").split(":")
        for _ in range(5):
            with socket.create_connection((host, int(port))) as leaver:
                head = f"POST /api/search HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
                leaver.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                wait_for(lambda: counted(client, "manifind_searches_under_way") == 2)
            wait_for(lambda: counted(client, "manifind_searches_under_way") == 1)
        assert counted(client, "manifind_given_up_total") == 5
        go_on.set()
        waiting.join()
        wait_for(lambda: counted(client, "manifind_searches_under_way") == 0)
        assert batches == [1]


def test_a_new_generation_is_taken_up_without_losing_a_request(index: Index, photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    shutil.copytree(photos, folder)
    shutil.copytree(index.path, tmp_path / "x.manifind")
    writer = Index.open(tmp_path / "x.manifind")
    assert writer.sync(folder).extracted == 0  # it is the index of these photos now
    first = writer.generation
    settings = patient(reload_seconds=0.05)
    with running(Index.open(writer.path), settings) as address, client_of(address) as client:
        seen: list[tuple[int, int, int]] = []
        stop = threading.Event()

        def ask() -> None:
            while not stop.is_set():
                answer = client.post("/api/search", json={"views": [{"key": "first-1.png"}], "top": 200})
                results = answer.json().get("results", [])
                seen.append((answer.status_code, answer.json().get("generation", 0), len(results)))

        with ThreadPoolExecutor(3) as pool:
            for _ in range(3):
                pool.submit(ask)
            try:
                for i in range(3):
                    (folder / f"second-{i}.png").unlink()
                    writer.sync()
                    wait_for(lambda: any(generation == writer.generation for _, generation, _ in seen))
            finally:
                stop.set()
        assert {status for status, _, _ in seen} == {200}
        assert {generation for _, generation, _ in seen} >= {first, writer.generation}
        # Searches under way finish on the generation that they began with.
        assert all(found <= 113 for _, generation, found in seen if generation == writer.generation)
        assert client.get("/api/photos").json()["total"] == 113


# -- whom it answers --------------------------------------------------------------------------------------------------


def test_a_token_is_demanded_where_there_is_one(index: Index) -> None:
    with running(index, patient(token=TOKEN)) as address, client_of(address) as client:
        assert client.get("/api/info").status_code == 401
        assert client.get("/").status_code == 401
        assert client.get("/api/info?token=wrong").status_code == 401
        assert client.get("/api/health").status_code == 200
        assert client.get("/api/info", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/api/info", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        entered = client.get(f"/?tab=browse&token={TOKEN}")
        assert entered.status_code == 303
        assert entered.headers["location"] == "/?tab=browse"
        assert "HttpOnly" in entered.headers["set-cookie"]
        assert TOKEN not in entered.headers["set-cookie"]
        assert client.get("/api/info").status_code == 200  # the client keeps the cookie


@pytest.mark.parametrize("token", ["sésame", "сезам", "ひらけごま", "a b&c=d+e%f"])
def test_a_token_may_have_any_letters(token: str, index: Index) -> None:
    with running(index, patient(token=token)) as address, client_of(address) as client:
        shown = {b"Authorization": b"Bearer " + token.encode()}
        assert client.get("/api/health", headers=shown).status_code == 200
        assert client.get("/api/info").status_code == 401
        assert client.get("/api/info", headers=shown).status_code == 200
        assert (
            client.get("/api/info", headers={b"Authorization": b"Bearer " + token.encode() + b"\xff"}).status_code
            == 401
        )
        if token == "sésame":  # noqa: S105
            assert client.get("/api/info", headers={b"Authorization": token.encode("latin-1")}).status_code == 200
        assert client.get("/", params={"token": token}).status_code == 303
        assert client.get("/api/info").status_code == 200


@pytest.mark.parametrize("path", ["//evil.example/", "///evil.example/", "/%5cevil.example/", "//evil.example/%2e%2e"])
def test_a_token_in_an_address_leads_nowhere_else(path: str, index: Index) -> None:
    with running(index, patient(token=TOKEN)) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as raw:
            raw.sendall(f"GET {path}?token={TOKEN} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda: raw.recv(65536), b"")).decode()
        assert answer.split()[1] == "303"
        to = re.search(r"location: (\S+)", answer)
        assert to is not None
        assert re.match(r"/[^/\\]", to[1])


def test_another_name_or_another_site_is_refused(client: httpx.Client) -> None:
    assert client.get("/api/info", headers={"Host": "evil.example"}).status_code == 421
    assert client.get("/api/info", headers={"Host": "["}).status_code == 421
    body = {"views": [{"key": "first-0.png"}]}
    elsewhere = [
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://[::1"},
    ]
    for headers in elsewhere:
        assert client.post("/api/search", json=body, headers=headers).status_code == 403
    same = {"Origin": str(client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/search", json=body, headers=same).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/api/search?q=k:first-0.png",
        "/api/search.csv?q=k:first-0.png",
        "/api/search.zip?q=k:first-0.png",
        "/api/picture?key=first-0.png&box=1,1,99,99",
        "/api/photos",
        "/api/folders",
        "/api/info",
        "/metrics",
    ],
)
def test_another_site_cannot_make_the_service_work(path: str, client: httpx.Client) -> None:
    """A picture in another site's page asks without its reader's knowing: it is answered as a form of it would be."""
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert client.get(path, headers=headers).status_code == 403
    assert client.get(path, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert client.get(path, headers={"Sec-Fetch-Site": "none"}).status_code == 200  # typed by hand
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200  # a link to the page
    assert client.get("/api/health", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def test_other_sites_may_ask_only_if_told_so(index: Index, client: httpx.Client) -> None:
    origin = {"Origin": "https://friend.example"}
    assert "access-control-allow-origin" not in client.get("/api/info", headers=origin).headers
    with running(index, patient(origins=("https://friend.example",))) as address:
        answer = get(f"{address}/api/info", headers=origin)
        assert answer.headers["access-control-allow-origin"] == "https://friend.example"
        body = {"views": [{"key": "first-0.png"}]}
        assert post(f"{address}/api/search", json=body, headers=origin).status_code == 200


@pytest.mark.parametrize("path", ["/", "/page/main.js", "/api/info", "/nowhere", "/api/picture?key=nowhere"])
def test_every_answer_carries_the_headers_that_keep_a_browser_safe(path: str, client: httpx.Client) -> None:
    headers = client.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"


def test_the_page_asks_nobody_else(repository: Path) -> None:
    for file in (repository / "src" / "manifind" / "serve" / "page").iterdir():
        hosts = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+", file.read_text()))
        assert hosts <= {"http://www.w3.org"}
