"""`manifind.Client` against a service: the same answers as the index gives, and errors in sentences."""

from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from manifind import Client, Index, InvalidInputError
from manifind.client import ServiceUnavailableError
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


def test_a_photo_is_given_by_path_by_bytes_or_by_pixels(address: str, tmp_path: Path) -> None:
    client = Client(address, timeout=PATIENCE)
    shot = planted(5000, 1, (150, 60))
    shot.save(tmp_path / "shot.png")
    sources = (tmp_path / "shot.png", (tmp_path / "shot.png").read_bytes(), np.asarray(shot))
    answers = [client.search(source, (150, 60, 278, 188), top=6) for source in sources]
    assert all([hit.key for hit in one] == [hit.key for hit in answers[0]] for one in answers)
    assert answers[0][0].key.startswith("first-")


def test_what_goes_wrong_is_told_in_a_sentence(address: str, index: Index) -> None:
    with pytest.raises(InvalidInputError, match="no photo of the collection"):
        Client(address).search("none.png")
    with pytest.raises(InvalidInputError, match="give what manifind serve prints"):
        Client("file:///etc/passwd")
    with pytest.raises(ServiceUnavailableError, match="is the service running"):
        Client("http://127.0.0.1:9").info()
    with running(index, patient(token="secret")) as guarded:  # noqa: S106 (a test's)
        with pytest.raises(InvalidInputError, match="needs its token"):
            Client(guarded).info()
        assert Client(f"{guarded}/?token=secret").info()["photos"] == len(index)
        assert Client(guarded, token="secret").search("first-0.png", top=1)[0].key == "first-0.png"  # noqa: S106


def test_the_service_describes_itself_without_asking_anybody_else(page: Page, address: str, repository: Path) -> None:
    page.goto("/docs")
    expect(page.get_by_role("heading", name="manifind")).to_be_visible()
    paths = get(f"{address}/openapi.json").json()["paths"]
    expect(page.locator(".operation")).to_have_count(sum(len(methods) for methods in paths.values()))
    page.locator("#search_api_search_post summary").click()
    page.locator("#search_api_search_post").get_by_role("link", name="SearchRequest").click()
    expect(page.locator("#shape-SearchRequest")).to_contain_text("Photos and boxes of one object.")
    kept(page, "docs", repository)
