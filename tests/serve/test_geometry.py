"""Geometry in the service: answers verified in time, or given without, and the points that match."""

import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from manifind.geometry import Verdict, verify_many
from manifind.index import Index
from manifind.index.search import pipeline, verification
from manifind.index.search.image_features import extract_full_resolution
from manifind.serve import Settings
from manifind.serve.resources import Resources
from manifind.serve.service import Service
from tests.extraction_options import PLAINLY
from tests.index.conftest import AT, crowded, scene
from tests.index.conftest import BOX as THING
from tests.serve.asking import BOX, FIRST, PATIENCE, VIEW, client_of, counted, ranked, wait_for
from tests.serve.conftest import PLACES
from tests.serve.running import patient, running


def outline_of(i: int) -> list[list[float]]:
    """Where the corners of the first thing were pasted."""
    x, y = PLACES[i]
    return [[x, y], [x + 128, y], [x + 128, y + 128], [x, y + 128]]


def test_the_service_verifies_as_the_index_does(client: httpx.Client, index: Index) -> None:
    told = client.post("/api/search", json={"views": [VIEW], "verify": 12, "top": 20}).json()
    answer = index.search("first-0.png", BOX, verify=12, top=20).nonzero()
    assert [(one["key"], one["verified"], one["inliers"]) for one in told["results"]] == [
        (hit.key, hit.verified, hit.inliers) for hit in answer
    ]
    assert (told["n_matches"], told["n_verified"]) == (answer.n_matches, 6)
    assert {one["key"] for one in told["results"] if one["verified"]} == FIRST
    for one in told["results"][:6]:
        np.testing.assert_allclose(one["outline"], outline_of(int(one["key"][6])), atol=4)
    assert told["milliseconds"]["verify"] > 0


def test_a_whole_photo_of_the_collection_is_looked_for_as_the_index_does(client: httpx.Client, index: Index) -> None:
    told = client.post("/api/search", json={"views": [{"key": "first-0.png"}], "verify": 12, "top": 20}).json()
    answer = index.search("first-0.png", verify=12, top=20).nonzero()
    assert [(one["key"], one["inliers"]) for one in told["results"]] == [(hit.key, hit.inliers) for hit in answer]


def test_points_of_a_mirrored_photo_are_those_of_the_photo_as_given(client: httpx.Client, index: Index) -> None:
    pixels = index.pixels("first-0.png")[:, ::-1].copy()
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    kept = client.post("/api/uploads", content=buffer.getvalue()).json()["upload"]
    width, (x0, y0, x1, y1) = pixels.shape[1], BOX
    view = {"upload": kept, "box": [width - x1, y0, width - x0, y1]}
    told = client.post("/api/geometry", json={"views": [view], "key": "first-0.png", "mirrored": True}).json()
    points = np.array(told["points"])
    assert told["verified"]
    np.testing.assert_allclose(points[:, 0], width - points[:, 2], atol=4)
    np.testing.assert_allclose(points[:, 1], points[:, 3], atol=4)
    answer = client.post("/api/search", json={"vectors": [[1.0]], "views": [view], "mirrored": True})
    assert answer.status_code == 422
    assert "descriptors cannot be mirrored" in answer.json()["error"]


def test_what_the_index_does_by_itself_the_service_does(client: httpx.Client, index: Index) -> None:
    told = client.post("/api/search", json={"views": [VIEW], "top": 20}).json()
    answer = index.search("first-0.png", BOX, top=20).nonzero()
    assert [(one["key"], one["verified"]) for one in told["results"]] == [(hit.key, hit.verified) for hit in answer]
    assert told["n_verified"] == answer.n_verified == 6
    plain = client.post("/api/search", json={"views": [VIEW], "top": 20, "method": "plain"}).json()
    assert plain["n_verified"] is None


def test_the_address_and_an_upload_verify_too(client: httpx.Client, photos: Any) -> None:
    address = client.get("/api/search", params={"q": "k:first-0.png@20,12,148,140", "verify": 6, "top": 6}).json()
    data = (photos / "first-0.png").read_bytes()
    body = client.post("/api/search/photo?box=20,12,148,140&top=6&verify=6", content=data).json()
    assert address["n_verified"] == body["n_verified"] > 0
    table = client.get("/api/search.csv", params={"q": "k:first-0.png@20,12,148,140", "verify": 6, "top": 6}).text
    assert table.count(",yes,yes,") == address["n_verified"]


def test_verified_photos_teach_the_query_unless_that_is_not_wanted(client: httpx.Client, index: Index) -> None:
    told = client.post("/api/search", json={"views": [VIEW], "top": 20}).json()
    answer = index.search("first-0.png", BOX, top=20).nonzero()
    assert [(one["key"], one["expanded"]) for one in told["results"]] == [(hit.key, hit.expanded) for hit in answer]
    np.testing.assert_allclose([one["score"] for one in told["results"]], answer.scores, rtol=1e-3)
    once = client.post("/api/search", json={"views": [VIEW], "top": 20, "expand": False}).json()
    assert [one["score"] for one in once["results"]] != [one["score"] for one in told["results"]]
    address = "/api/search?q=k:first-0.png@20,12,148,140&top=20"
    assert client.get(address).json()["results"] == told["results"]
    assert client.get(f"{address}&expand=false").json()["results"] == once["results"]


def test_descriptors_of_the_clients_own_have_nothing_to_verify(client: httpx.Client, index: Index) -> None:
    vectors = index.manifold.vectors_[:3].astype(float).tolist()
    told = client.post("/api/search", json={"vectors": vectors, "verify": 12}).json()
    assert told["n_verified"] is None
    assert {one["verified"] for one in told["results"]} == {None}


def test_an_answer_is_given_without_geometry_rather_than_late(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    look = verify_many
    batches = []

    def slowly(*given: Any, **more: Any) -> list[Verdict]:
        time.sleep(0.6)
        batches.append(given)
        return look(*given, **more)

    monkeypatch.setattr(verification, "verify_many", slowly)
    with (
        running(index, patient(deadline_seconds=0.3)) as address,
        client_of(address) as client,
    ):
        plain = client.post("/api/search", json={"views": [VIEW], "top": 12, "verify": 0})
        late = client.post("/api/search", json={"views": [VIEW], "top": 12, "verify": 100})
        assert late.status_code == 200
        assert ranked(late) == ranked(plain)
        assert late.json()["n_verified"] is None
        assert late.json()["n_matches"] == plain.json()["n_matches"]
        assert counted(client, "manifind_unverified_total") == 1
        time.sleep(0.5)
        assert len(batches) <= 1  # nobody goes on with what nobody waits for


def test_nobody_queues_for_geometry_longer_than_it_takes(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    look, go_on = verify_many, threading.Event()

    def held_up(*given: Any, **more: Any) -> list[Verdict]:
        go_on.wait(PATIENCE)
        return look(*given, **more)

    monkeypatch.setattr(verification, "verify_many", held_up)
    with (
        running(index, patient(initial_verifications=1.5 / PATIENCE)) as address,  # there is no time for two
        client_of(address) as client,
        ThreadPoolExecutor(2) as both,
    ):
        body = {"views": [VIEW], "top": 1, "verify": 1}
        client.post("/api/geometry", json={"views": [VIEW], "key": "first-1.png"})  # the query's features are known now
        asked = [both.submit(client.post, "/api/search", json=body) for _ in range(2)]
        wait_for(lambda: any(one.done() for one in asked))
        go_on.set()
        told = [one.result().json()["n_verified"] for one in asked]
        assert sorted(told, key=str) == [1, None]


def test_a_whole_photo_is_looked_for_without_its_file(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    # The index keeps its description and its features.
    monkeypatch.setattr("manifind.serve.photos.read_photo", _gone)
    with running(index) as address, client_of(address) as client:
        told = client.post("/api/search", json={"views": [{"key": "first-0.png"}], "verify": 6})
        assert told.status_code == 200
        assert told.json()["n_verified"] > 0


def _gone(*_: object, **__: object) -> None:
    from manifind.errors import UnreadableImageError

    raise UnreadableImageError("no such file")


def test_matching_points_lie_where_the_thing_was_pasted(client: httpx.Client) -> None:
    blank = {"key": "more/none-001.jpg", "box": [0, 0, 60, 60]}
    told = client.post("/api/geometry", json={"views": [blank, VIEW], "key": "first-3.png"}).json()
    assert (told["verified"], told["view"]) == (True, 1)
    assert len(told["points"]) >= told["inliers"] >= 6
    shift = np.subtract(PLACES[3], PLACES[0])
    for x, y, u, v in told["points"]:
        assert (u - x, v - y) == (pytest.approx(shift[0], abs=4), pytest.approx(shift[1], abs=4))
    corners = np.array([[*corner, 1] for corner in outline_of(0)]) @ np.array(told["transform"]).T
    np.testing.assert_allclose(corners[:, :2] / corners[:, 2:], outline_of(3), atol=4)


def test_no_points_match_in_photos_of_different_things(client: httpx.Client) -> None:
    told = client.post("/api/geometry", json={"views": [VIEW], "key": "second-3.png"}).json()
    assert (told["verified"], told["transform"], told["points"], told["inliers"]) == (False, None, [], 0)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"views": [VIEW], "key": "nowhere.jpg"}, 404),
        ({"views": [], "key": "first-1.png"}, 422),
        ({"views": [{"key": "first-0.png", "box": [9, 9, 2, 2]}], "key": "first-1.png"}, 422),
    ],
)
def test_what_cannot_be_compared_is_said(request_: dict[str, Any], status: int, client: httpx.Client) -> None:
    answer = client.post("/api/geometry", json=request_)
    assert answer.status_code == status
    assert answer.json()["error"].endswith(".")


@pytest.fixture(scope="module")
def crowded_index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Photos one of which shows the thing so small that what is kept of it does not verify it."""
    root = tmp_path_factory.mktemp("crowded")
    photos = root / "photos"
    photos.mkdir()
    for name, shown in (("small", 1), ("none", None)):
        Image.fromarray(crowded(len(name), shown)).save(photos / f"{name}.png")
    Image.fromarray(scene(99, 1)).save(photos / "query.png")
    return Index.create(root / "photos.manifind", photos, **PLAINLY, k=20, query_k=20)


SMALL_VIEW = {"key": "query.png", "box": list(THING)}


def verified_of(client: httpx.Client, **asked: Any) -> set[str]:
    told = client.post("/api/search", json={"views": [SMALL_VIEW], **asked}).json()
    return {one["key"] for one in told["results"] if one["verified"]}


@pytest.mark.parametrize("expand", [False, True])
def test_a_search_verifies_at_full_resolution(
    crowded_index: Index, expand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(crowded_index) as address, client_of(address) as client:
        assert verified_of(client, expand=expand) == {"query.png", "small.png"}
        monkeypatch.setattr(pipeline, "full_resolution_candidates", lambda *_: iter(()))
        assert verified_of(client, expand=expand) == {"query.png"}


def test_no_search_waits_for_the_files_of_another(crowded_index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, reading = threading.Event(), threading.Event()
    extract = extract_full_resolution

    def slow_disk(*given: Any, **more: Any) -> Any:
        reading.set()
        go_on.wait(PATIENCE)
        return extract(*given, **more)

    monkeypatch.setattr(verification, "extract_full_resolution", slow_disk)
    with running(crowded_index) as address, client_of(address) as client, ThreadPoolExecutor(1) as other:
        waiting = other.submit(verified_of, client)
        assert reading.wait(PATIENCE)
        beside = client.post("/api/search", json={"views": [{"key": "none.png"}]}).json()
        assert (beside["complete"], beside["n_verified"]) == (True, 1)
        assert not waiting.done()
        go_on.set()
        assert waiting.result() == {"query.png", "small.png"}


@pytest.mark.parametrize("stuck", [False, True])
def test_files_are_not_read_while_the_disk_does_not_answer(
    index: Index, stuck: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    resources = Resources(Settings())
    monkeypatch.setattr(type(resources.files), "stuck", int(stuck))
    assert Service(index, resources).may_read_files() is not stuck
    resources.stop()


def test_why_has_a_closer_look_too(crowded_index: Index) -> None:
    with running(crowded_index) as address, client_of(address) as client:

        def why(key: str) -> Any:
            return client.post("/api/geometry", json={"views": [SMALL_VIEW], "key": key}).json()

        told = why("small.png")
        assert told["verified"]
        assert all(AT[0] <= u <= AT[0] + 80 and AT[1] <= v <= AT[1] + 80 for _, _, u, v in told["points"])
        other = why("none.png")
        assert (other["verified"], other["points"]) == (False, [])
        # Without its file there is what the index keeps.
        (crowded_index.root / "small.png").rename(crowded_index.root / "away.png")
        assert why("small.png")["verified"] is False
        (crowded_index.root / "away.png").rename(crowded_index.root / "small.png")
