"""From a folder to a search, on the page alone."""

import os
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from playwright.sync_api import Browser, expect

from manifind.cli.serve import what_to_serve
from manifind.errors import InvalidInputError
from manifind.features import RegionExtractor
from manifind.index import Index
from manifind.serve import Settings
from manifind.serve.app import SetupApp, _first_folder
from manifind.serve.builds import IndexBuild
from tests.index.small import SmallBackbone, save_photos, small_extractor
from tests.serve.asking import PATIENCE, client_of, get, post, wait_for
from tests.serve.browsing import kept, leave, opened, shown
from tests.serve.running import answering, patient

OPTIONS: dict[str, Any] = {"extractor": small_extractor(), "k": 12, "query_k": 10}


def begun(
    settings: Settings, folder: Path | None = None, options: dict[str, Any] = OPTIONS, **others: Any
) -> AbstractContextManager[str]:
    """Serve what has no index yet; gives the address."""
    return answering(SetupApp(settings, folder, options=options, **others), settings)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_photos(tmp_path / "pictures" / "mine", 8)
    return tmp_path / "pictures"


def until_ready(address: str) -> None:
    wait_for(lambda: get(f"{address}/api/ready").status_code == 200)


def test_a_folder_is_chosen_its_index_is_made_and_searched(
    browser: Browser, folder: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with begun(patient()) as address:
        page = opened(browser, address)
        page.goto("/")
        expect(page.locator(".path")).to_have_text(str(folder))
        page.get_by_role("button", name="mine").click()
        expect(page.get_by_text("8 photos seen in it")).to_be_visible()
        kept(page, "start", repository)
        page.get_by_role("button", name="Use this folder").click()
        expect(page.get_by_role("heading", name="Find every photo")).to_be_visible()
        page.goto("/?q=k:1.png")
        expect(page.locator(".card").first).to_be_visible()
        leave(page, address)
    assert len(Index.open(folder / "mine.manifind")) == 8


def test_a_folder_that_was_given_is_made_at_once_and_how_far_it_is_is_told(folder: Path) -> None:
    go_on = threading.Event()

    class Slow(SmallBackbone):
        """Waits before each photo."""

        def features(self, photo: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
            go_on.wait(PATIENCE)
            return super().features(photo)

    with begun(patient(), folder / "mine", {**OPTIONS, "extractor": RegionExtractor(Slow())}) as address:
        wait_for(lambda: get(f"{address}/api/start").json()["building"]["stage"] == "photos")
        building = get(f"{address}/api/start").json()["building"]
        assert (building["folder"], building["total"]) == (str(folder / "mine"), 8)
        assert get(f"{address}/api/ready").status_code == 404  # there is nothing to search yet
        go_on.set()
        until_ready(address)
        assert get(f"{address}/api/info").json()["photos"] == 8
        assert get(f"{address}/api/start").status_code == 404


class Gated(SmallBackbone):
    """Describes so many photos of the collection, and waits before the next; queries pass."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.open, self.photos, self.most = threading.Condition(), 0, most

    def features(self, photo: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        if threading.current_thread().name.startswith("read-ahead"):
            with self.open:
                self.photos += 1
                assert self.open.wait_for(lambda: self.photos <= self.most, PATIENCE)
        return super().features(photo)

    def let(self, most: int) -> None:
        with self.open:
            self.most = most
            self.open.notify_all()


def test_what_is_there_so_far_is_searched_while_the_rest_is_extracted(
    browser: Browser, tmp_path: Path, repository: Path
) -> None:
    save_photos(tmp_path / "pictures", 30, digits=2)
    gate = Gated(most=15)
    with (
        begun(patient(), tmp_path / "pictures", {**OPTIONS, "extractor": RegionExtractor(gate)}) as address,
        client_of(address) as client,
    ):
        until_ready(address)
        told = client.get("/api/building").json()["building"]
        assert (told["stage"], told["total"]) == ("photos", 30)
        page = opened(browser, address)
        page.goto("/?q=k:03.png")
        expect(page.locator("#growth")).to_contain_text("of 30 photos")
        expect(page.locator("#growth-searched")).to_contain_text("that are there so far")
        assert 2 <= len(shown(page)) <= 15
        kept(page, "growing", repository)
        assert client.get("/api/info").json()["photos"] == 12
        upload = client.post("/api/uploads", content=(tmp_path / "pictures" / "29.png").read_bytes()).json()["upload"]
        sets = client.post("/api/set", json={"name": "early", "add": [{"key": "03.png"}]})
        assert "still being built" in sets.json()["error"]
        assert not client.get("/api/sets").json()["writable"]
        gate.let(26)
        wait_for(lambda: client.get("/api/building").json()["building"]["done"] >= 24)
        wait_for(lambda: client.get("/api/collection").json()["photos"] >= 24)  # twice as many
        gate.let(1000)
        wait_for(lambda: client.get("/api/building").json()["building"] is None)
        assert client.get("/api/info").json()["photos"] == 30
        found = client.post("/api/search", json={"views": [{"upload": upload}]}).json()["results"]
        assert found[0]["key"] == "29.png"  # it was uploaded before the collection had it
        expect(page.locator("#growth")).to_be_hidden()
        expect(page.locator("#collection")).to_contain_text("30 photos")
        assert client.post("/api/set", json={"name": "late", "add": [{"key": "29.png"}]}).status_code == 200
        leave(page, address)
    assert Index.open(tmp_path / "pictures.manifind").sets.names() == ["late"]
    assert not list(tmp_path.glob(".*"))


def test_whoever_stops_it_loses_nothing_that_was_extracted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, stop = Gated(most=4), IndexBuild.stop

    def stopped(building: IndexBuild) -> None:
        stop(building)
        gate.let(1000)

    monkeypatch.setattr(IndexBuild, "stop", stopped)
    with begun(patient(), folder / "mine", {**OPTIONS, "extractor": RegionExtractor(gate)}) as address:
        wait_for(lambda: get(f"{address}/api/start").json()["building"]["done"] >= 2)
        wait_for(lambda: any(folder.rglob("photos.jsonl")))
    assert not (folder / "mine.manifind" / "manifest.json").exists()
    (journal,) = folder.rglob("photos.jsonl")
    assert 0 < len(journal.read_text().splitlines()) < 8


def test_a_folder_without_photos_is_told_and_another_can_be_chosen(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with begun(patient()) as address, client_of(address) as client:
        client.post("/api/start", json={"folder": str(tmp_path / "empty")})
        wait_for(lambda: client.get("/api/start").json()["error"] is not None)
        assert "has no photos" in client.get("/api/start").json()["error"]
        assert client.post("/api/start", json={"folder": "relative"}).status_code == 422
        assert client.get("/api/start/folders", params={"path": str(tmp_path / "nowhere")}).status_code == 404
        client.post("/api/start", json={"folder": str(folder / "mine")})
        until_ready(address)


def test_an_empty_folder_is_told_on_the_page_where_it_was_chosen(
    browser: Browser, folder: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "empty").mkdir()
    monkeypatch.chdir(folder)
    with begun(patient()) as address:
        page = opened(browser, address)
        page.goto("/")
        page.get_by_role("button", name="empty").click()
        page.get_by_role("button", name="Use this folder").click()
        expect(page.get_by_role("alert")).to_contain_text("has no photos; give a folder with at least one")
        expect(page.locator(".path")).to_have_text(str(folder / "empty"))  # one folder up there is another
        kept(page, "empty-folder", repository)
        leave(page, address)


def test_odd_folders_are_refused_and_odd_entries_passed_over(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    (folder / "pipe.jpg").unlink(missing_ok=True)
    os.mkfifo(folder / "pipe.jpg")
    os.mkdir(os.fsencode(folder) + b"/caf\xe9")  # noqa: PTH102 (bytes)
    with begun(patient()) as address, client_of(address) as client:
        listing = client.get("/api/start/folders", params={"path": str(folder)}).json()
        assert (listing["folders"], listing["photos"], listing["indexed"]) == (["mine"], 0, False)
        root = client.get("/api/start/folders", params={"path": "/"})
        assert (root.status_code, root.json()["parent"]) == (200, None)
        assert client.get("/api/start/folders", params={"path": f"{folder}\0"}).status_code == 422
        for odd in ("/", f"{folder}\0", "~nobody-of-this-name", f"{folder}/loop", str(folder / "pipe.jpg")):
            assert client.post("/api/start", json={"folder": odd}).status_code == 422, odd


def test_folders_are_shown_to_nobody_else(folder: Path) -> None:
    with begun(patient(hosts=None, token="secret")) as address:  # noqa: S106
        shown = {"Authorization": "Bearer secret"}
        assert get(f"{address}/api/start/folders", headers=shown).status_code == 403
        assert post(f"{address}/api/start", json={"folder": str(folder)}, headers=shown).status_code == 403
        assert get(f"{address}/api/start").status_code == 401
    with begun(patient()) as address:
        elsewhere = {"Origin": "http://elsewhere.example"}
        assert get(f"{address}/api/start/folders", headers=elsewhere).status_code == 403


def test_what_is_typed_is_an_index_a_folder_or_nothing(folder: Path) -> None:
    mine = folder / "mine"
    assert what_to_serve(None, "cpu") is None
    assert what_to_serve(mine, "cpu") == mine
    Index.create(folder / "mine.manifind", mine, **OPTIONS)
    for given in (mine, folder / "mine.manifind"):
        found = what_to_serve(given, "cpu")
        assert isinstance(found, Index)
        assert len(found) == 8
    with pytest.raises(InvalidInputError, match="does not exist"):
        what_to_serve(folder / "nowhere", "cpu")
    (folder / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="empty has no photos; give a folder with at least one"):
        what_to_serve(folder / "empty", "cpu")


def test_choosing_begins_at_home_where_the_folder_of_the_command_is_gone_or_is_no_place_for_photos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    assert _first_folder() == tmp_path / "gone"
    (tmp_path / "gone").rmdir()
    assert _first_folder() == Path.home()
    monkeypatch.chdir("/")
    assert _first_folder() == Path.home()
