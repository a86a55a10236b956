"""New photos while the service runs: noticed, brought in on demand or by itself, and followed by open pages."""

import shutil
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from manifind.index import Index, PendingChanges
from tests.index.small import save_photo, small_index
from tests.serve.asking import client_of, get, post, refused, wait_for
from tests.serve.browsing import kept, leave, opened, shown
from tests.serve.running import patient, running


@pytest.fixture
def made(tmp_path: Path) -> Index:
    return small_index(tmp_path, 12, digits=2, alpha=0.9)


def photos_of(address: str) -> int:
    return int(get(f"{address}/api/collection").json()["photos"])


def test_a_folder_is_compared_by_names_sizes_and_times(made: Index) -> None:
    assert not made.pending_changes()
    root = made.root
    (root / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(300))
    save_photo(root / "new.png", 51)
    save_photo(root / "03.png", 52)
    shutil.copy2(root / "02.png", root / "twin.png")
    (root / "04.png").rename(root / "renamed.png")
    (root / "05.png").unlink()
    assert made.pending_changes() == PendingChanges(new=3, changed=1, moved=1, gone=1)
    made.sync()
    # What is broken, and what is a copy, is not told again and again.
    assert not made.pending_changes()
    assert len(made) == 12


def test_new_photos_are_told_and_a_button_brings_them_in(
    browser: Browser, made: Index, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)  # as where it is not to be had
    settings = patient(updates=True, poll_seconds=0.2, reload_seconds=0.2)
    with running(made, settings) as address, client_of(address) as client:
        page = opened(browser, address)
        page.goto("/?q=k:01.png")
        assert "new.png" not in shown(page)
        expect(page.locator("#growth")).to_be_hidden()
        for number in range(2):
            save_photo(made.root / f"new-{number}.png", 51 + number)
        (made.root / "04.png").rename(made.root / "renamed.png")
        (made.root / "05.png").unlink()
        expect(page.locator("#growth")).to_contain_text("2 new photos, 1 renamed, 1 gone")
        assert client.get("/api/building").json()["watching"] == "polling"
        assert photos_of(address) == 12  # nothing is done without being asked
        kept(page, "new-photos", repository)
        other = page.context.new_page()
        other.goto(f"{address}/?tab=browse")
        expect(other.locator(".browse .count")).to_have_text("12 photos")
        page.get_by_role("button", name="Bring up to date").click()
        expect(page.locator("#growth")).to_be_hidden()
        expect(page.locator("#collection")).to_contain_text("13 photos")
        expect(other.locator(".browse .count")).to_have_text("13 photos")
        expect(page.locator(".card[data-key='renamed.png']")).to_be_visible()  # the open page follows
        assert photos_of(address) == 13
        leave(page, address)


@pytest.mark.parametrize("events", [True, False])
def test_a_watching_service_brings_them_in_by_itself(
    made: Index, events: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if events:
        pytest.importorskip("watchfiles")
    else:
        monkeypatch.setitem(sys.modules, "watchfiles", None)
    # Where the system reports changes, nothing looks every so often.
    settings = patient(updates=True, watch=True, poll_seconds=1e6 if events else 0.2, reload_seconds=0.2)
    with running(made, settings) as address:
        wait_for(lambda: get(f"{address}/api/building").json()["watching"] == ("events" if events else "polling"))
        save_photo(made.root / "new.png", 51)
        wait_for(lambda: photos_of(address) == 13)


def test_a_folder_of_links_to_folders_is_compared_every_so_often(made: Index) -> None:
    """Three links in each of twelve folders to the next are half a million ways, which watchfiles would follow."""
    pytest.importorskip("watchfiles")
    folders = [made.root / f"level-{number}" for number in range(13)]
    for folder in folders:
        folder.mkdir()
    for folder, below in pairwise(folders):
        for number in range(3):
            (folder / str(number)).symlink_to(below)
    with running(made, patient(updates=True, watch=True, poll_seconds=0.2, reload_seconds=0.2)) as address:
        wait_for(lambda: get(f"{address}/api/building").json()["watching"] == "polling")
        save_photo(folders[-1] / "new.png", 51)
        wait_for(lambda: photos_of(address) == 13)


def test_a_service_that_may_not_write_tells_and_changes_nothing(made: Index) -> None:
    save_photo(made.root / "new.png", 51)
    with running(made, patient(reload_seconds=0.1)) as address:
        told = get(f"{address}/api/building").json()
        assert (told["pending"], told["watching"], told["building"]) == (None, None, None)
        assert "does not change its index" in refused(post(f"{address}/api/update"), 403)
        assert photos_of(address) == 12
