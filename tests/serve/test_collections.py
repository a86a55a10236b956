"""Several collections behind one address: searched together, told apart by the names that begin their keys."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from manifind import Client, Index
from manifind.serve.merging import merged
from manifind.serve.schemas import SearchRequest, ViewRequest
from tests.described import PLAINLY
from tests.serve.asking import BOX, PATIENCE, client_of, post
from tests.serve.browsing import kept, leave, opened, shown
from tests.serve.conftest import PLACES, background, planted
from tests.serve.running import running

LATER = {"other/late-0.png", "other/late-1.png", "other/late-2.png"}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """A second collection: the first thing in three photos, ten photos without it, a copy of one of the first."""
    root = tmp_path_factory.mktemp("second") / "other"
    root.mkdir()
    for i, place in enumerate(PLACES[:3]):
        planted(6000 + i, 1, place).save(root / f"late-{i}.png")
    for i in range(10):
        background(700 + i).save(root / f"none-{i}.jpg", quality=90)
    planted(1000, 1, PLACES[0]).save(root / "again.png")  # first-0.png of the other collection, byte for byte
    path = root.parent / "other.manifind"
    return Index.create(path, root, **PLAINLY, k=30, query_k=20, alpha=0.9)


@pytest.fixture(scope="module")
def both(index: Index, other: Index) -> Iterator[str]:
    with running([index, other]) as where:
        yield where


@pytest.fixture
def asked(both: str) -> Iterator[httpx.Client]:
    with client_of(both) as client:
        yield client


def query(key: str = "photos/first-0.png") -> dict[str, Any]:
    return {"views": [{"key": key, "box": list(BOX)}], "top": 20}


def test_a_search_finds_the_thing_in_both_collections(asked: httpx.Client) -> None:
    told = asked.post("/api/search", json=query()).json()
    keys = [one["key"] for one in told["results"]]
    assert {f"photos/first-{i}.png" for i in range(6)} | LATER | {"other/again.png"} == set(keys[:10])
    assert [one["rank"] for one in told["results"]] == list(range(1, 21))
    assert told["likely"] >= 10
    assert told["query"]["views"][0]["key"] == "photos/first-0.png"


def test_each_collection_keeps_its_own_order_and_is_searched_as_if_alone(
    asked: httpx.Client, index: Index, address: str
) -> None:
    mixed = asked.post("/api/search", json={**query(), "top": 60}).json()["results"]
    alone = post(f"{address}/api/search", json={**query("first-0.png"), "top": 60}).json()["results"]
    own = [one for one in mixed if one["key"].startswith("photos/")]
    assert [one["key"].removeprefix("photos/") for one in own] == [one["key"] for one in alone[: len(own)]]
    assert [one["score"] for one in own] == pytest.approx([one["score"] for one in alone[: len(own)]])


def test_a_folder_may_be_a_collection(asked: httpx.Client) -> None:
    told = asked.post("/api/search", json={**query(), "folder": "other"}).json()
    assert {one["key"].partition("/")[0] for one in told["results"]} == {"other"}
    below = asked.get("/api/search", params={"q": "k:photos/first-0.png", "folder": "photos/more"}).json()
    assert {one["key"][:12] for one in below["results"]} == {"photos/more/"}
    assert asked.post("/api/search", json={**query(), "folder": "elsewhere"}).status_code == 404
    folders = {one["folder"]: one["photos"] for one in asked.get("/api/folders").json()["folders"]}
    assert folders == {"photos": 116, "photos/more": 104, "other": 14}


def test_a_photo_that_both_have_is_no_evidence_for_itself(asked: httpx.Client, index: Index, other: Index) -> None:
    told = asked.post("/api/search", json={**query("other/again.png"), "folder": "photos", "verify": 0}).json()
    truth = index.search(other.root / "again.png", BOX, verify=0).evidence
    assert truth is not None
    assert told["evidence"]["similarity"] == pytest.approx(truth.similarity, abs=0.02)
    assert told["results"][0]["key"].startswith("photos/first-")


def test_what_is_found_is_explained_and_shown_by_its_key(asked: httpx.Client) -> None:
    why = asked.post("/api/explain", json={"views": query()["views"], "key": "other/late-1.png"}).json()
    assert why["key"] == why["links"][-1]["target"]["key"] == "other/late-1.png"
    assert why["links"][0]["source"]["key"] is None
    assert asked.get("/api/picture", params={"key": "other/late-1.png"}).headers["content-type"] == "image/jpeg"
    points = asked.post("/api/geometry", json={"views": query()["views"], "key": "other/late-1.png"}).json()
    assert points["verified"]
    facts = asked.get("/api/photo/facts", params={"key": "other/late-1.png"}).json()
    assert facts["key"] == "other/late-1.png"
    assert asked.get("/api/photo", params={"key": "late-1.png"}).status_code == 404
    assert asked.get("/api/photo", params={"key": "photos/late-1.png"}).status_code == 404


def test_browsing_goes_from_one_collection_to_the_next(asked: httpx.Client) -> None:
    every = asked.get("/api/photos", params={"count": 500}).json()
    keys = [one["key"] for one in every["photos"]]
    assert (every["total"], len(keys)) == (130, 130)
    for start in (0, 110, 115, 120, 129, 200):
        some = asked.get("/api/photos", params={"start": start, "count": 10}).json()
        assert [one["key"] for one in some["photos"]] == keys[start : start + 10]
    late = asked.get("/api/photos", params={"contains": "LATE"}).json()
    assert {one["key"] for one in late["photos"]} == LATER


def test_downloads_hold_the_photos_of_both(asked: httpx.Client) -> None:
    words: dict[str, str | int] = {"q": f"k:photos/first-0.png@{','.join(map(str, BOX))}", "top": 10}
    archive = zipfile.ZipFile(io.BytesIO(asked.get("/api/search.zip", params=words).content))
    folders = {name.split("/")[1] for name in archive.namelist() if name.startswith("photos/")}
    assert folders == {"photos", "other"}
    assert "other/late-0.png" in asked.get("/api/search.csv", params=words).text


def test_a_set_may_have_photos_of_both_and_its_search_tells_news_of_both(
    asked: httpx.Client, index: Index, other: Index
) -> None:
    search = {"views": query()["views"], "seen": ["photos/first-0.png", "other/late-0.png"]}
    add = [{"key": "photos/first-1.png"}, {"key": "other/late-0.png", "box": [1, 2, 30, 40]}]
    made = asked.post("/api/set", json={"name": "roofs", "add": add, "search": search}).json()
    assert [one["key"] for one in made["photos"]] == ["photos/first-1.png", "other/late-0.png"]
    assert made["search"]["views"][0][0] == "photos/first-0.png"
    assert [member.key for member in index.sets["roofs"].members] == ["first-1.png"]
    assert [member.key for member in other.sets["roofs"].members] == ["late-0.png"]
    news = {one["key"] for one in asked.get("/api/set/news", params={"name": "roofs"}).json()["news"]}
    assert {"photos/first-2.png", "other/late-1.png"} <= news
    assert not news & {"photos/first-0.png", "photos/first-1.png", "other/late-0.png"}
    assert "other/late-0.png,1.0,2.0,30.0,40.0" in asked.get("/api/set.csv", params={"name": "roofs"}).text
    asked.post("/api/set", json={"name": "roofs", "take": ["other/late-0.png"], "rename": "gables"})
    (one,) = asked.get("/api/sets").json()["sets"]
    assert (one["name"], one["yes"], one["search"]) == ("gables", 1, True)
    asked.post("/api/set", json={"name": "gables", "delete": True})
    assert index.sets.names() == other.sets.names() == []


def test_the_client_names_photos_by_collection(both: str) -> None:
    client = Client(both, timeout=PATIENCE)
    assert client.collections() == ["photos", "other"]
    found = client.search("photos/first-0.png", BOX, top=10)
    assert {hit.key for hit in found} >= LATER
    assert {hit.key for hit in client.search("photos/first-0.png", BOX, folder="other", top=4)} >= LATER
    (late,) = (hit for hit in found if hit.key == "other/late-2.png")
    assert client.explain(late).keys[-1] == "other/late-2.png"
    assert client.info()["photos"] == 130
    assert len(client.photo("other/late-2.png")) > 1000
    assert all(seen["key"].startswith(("photos/", "other/")) for seen in client.repeats()["objects"][0]["sightings"])


def test_the_page_searches_all_or_one(browser: Browser, both: str, repository: Path) -> None:
    page = opened(browser, both)
    page.goto("/?q=k:photos/first-0.png@" + ",".join(map(str, BOX)))
    assert set(shown(page)[:10]) >= LATER
    expect(page.locator("#collection")).to_contain_text("2 collections")
    kept(page, "collections", repository)
    page.get_by_label("Search in").select_option("other")
    expect(page.locator(".card").first).to_have_attribute("data-key", "other/again.png")
    assert set(shown(page)) <= {f"other/{name}" for name in ("again.png", *(key[6:] for key in LATER))} | {
        f"other/none-{i}.jpg" for i in range(10)
    }
    page.goto("/?tab=health")
    expect(page.get_by_role("heading", name="other", exact=True)).to_be_visible()
    kept(page, "collections-health", repository)
    leave(page, both)


def answer(*results: tuple[str, float, bool, bool], similarity: float) -> dict[str, Any]:
    likely = sum(above for *_, above in results)
    told = [
        {"rank": rank, "key": key, "score": score, "verified": verified, "likely": above, "date": f"20{key}"}
        for rank, (key, score, verified, above) in enumerate(results, 1)
    ]
    evidence = {"likely": likely, "similarity": similarity, "chance": 0.4, "score": 0.1, "best": results[0][1]}
    return {
        "results": told,
        "likely": likely,
        "verified": 1,
        "generation": 2,
        "evidence": evidence,
        "milliseconds": {"search": float(likely)},
    }


def test_verified_photos_come_first_then_those_above_the_line_then_by_score() -> None:
    one = answer(("03", 0.5, True, True), ("01", 0.9, False, True), ("05", 0.8, False, False), similarity=0.6)
    two = answer(("04", 0.007, True, True), ("02", 0.006, False, True), ("06", 0.002, False, False), similarity=0.9)
    request = SearchRequest(views=[ViewRequest(key="a/x")], top=5)
    told = merged(request, [one, two])
    assert [found["key"] for found in told["results"]] == ["04", "03", "01", "02", "05"]
    assert (told["likely"], told["verified"], told["generation"]) == (4, 2, 4)
    assert told["evidence"]["similarity"] == 0.9
    by_date = merged(request.model_copy(update={"sort": "date"}), [one, two])
    assert [found["key"] for found in by_date["results"]] == ["01", "02", "03", "04", "05"]


def test_where_geometry_had_no_time_for_one_collection_it_is_no_worse_for_that() -> None:
    looked_at = answer(("01", 0.5, True, True), ("02", 0.1, True, True), similarity=0.6)
    not_looked_at = {**answer(("03", 0.5, False, True), ("04", 0.4, False, True), similarity=0.7), "verified": None}
    told = merged(SearchRequest(views=[ViewRequest(key="a/x")]), [looked_at, not_looked_at])
    assert [found["key"] for found in told["results"]] == ["03", "01", "04", "02"]
