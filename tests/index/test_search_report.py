"""A report of a search: it stands by itself, its checksums are those of the system, and a check repeats it."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from manifind.index import Index
from manifind.reports import search_report
from manifind.reports.search_report import REPORT, SUMS, verify_report
from tests.commands import refused, run
from tests.index.conftest import scene


@pytest.fixture(scope="module")
def collection(photos: Path, index: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the photos with their index, and a report beside them."""
    base = tmp_path_factory.mktemp("reported")
    shutil.copytree(photos, base / "photos")
    shutil.copytree(index.path, base / "photos.manifind")
    Index.open(base / "photos.manifind").sync(base / "photos")
    Image.fromarray(scene(99, 1)).save(base / "shot.png")
    words = ("--box", "40,60,168,188", "--negative", "second-1.png@20,25,148,153", "--top", 8)
    told = run("search", base / "photos.manifind", base / "shot.png", *words, "--report", base / "report")
    assert told.exit_code == 0, told.output
    return base


@pytest.fixture
def report(collection: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(collection / "report", tmp_path / "report"))


def differences(report: Path, collection: Path) -> list[str]:
    return verify_report(report, Index.open(collection / "photos.manifind")).differences


def test_a_report_has_what_was_asked_and_found_and_the_system_checks_its_files(collection: Path) -> None:
    facts = json.loads((collection / "report" / REPORT).read_text())
    assert [one["key"] for one in facts["results"][:4]]
    assert {one["key"] for one in facts["results"] if one["verified"]} == {f"first-{i}.png" for i in range(4)}
    assert facts["options"] == {"top": 8, "method": "regional", "expand": True}
    assert facts["views"][0]["box"] == [40, 60, 168, 188]
    assert (collection / "report" / "query-1.png").read_bytes() == (collection / "shot.png").read_bytes()
    for one in facts["results"]:
        said = subprocess.run(  # noqa: S603
            ["sha256sum", collection / "photos" / one["key"]],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
        )
        assert said.stdout.split()[0] == one["sha256"]
    command = ["sha256sum", "--check", "--strict", SUMS]
    subprocess.run(command, cwd=collection / "report", check=True, capture_output=True)  # noqa: S603
    page = (collection / "report" / "index.html").read_text()
    assert facts["results"][0]["sha256"] in page
    assert page.count("data:image/jpeg") == 1 + len(facts["results"])


def test_a_report_is_repeated_and_nothing_differs(collection: Path, report: Path) -> None:
    told = run("verify", report, collection / "photos.manifind")
    assert (told.exit_code, told.stdout.strip().split(":")[0]) == (0, "nothing differs"), told.output
    (collection / "shot.png").rename(collection / "moved.png")  # the report has its own
    try:
        assert differences(report, collection) == []
    finally:
        (collection / "moved.png").rename(collection / "shot.png")


def test_what_differs_is_said(collection: Path, report: Path) -> None:
    facts = json.loads((report / REPORT).read_text())
    facts["results"][1]["score"] *= 1.01
    facts["results"][0]["box"][2] += 3
    facts["n_matches"] += 1
    (report / REPORT).write_text(json.dumps(facts))
    said = "\n".join(differences(report, collection))
    for words in (f"{REPORT} is not the file", "rank 2: score was", "rank 1: box was", "photos matched"):
        assert words in said
    Image.fromarray(scene(98, 2)).save(report / "query-1.png")
    assert any("query-1.png is not the photo" in one for one in differences(report, collection))
    assert run("verify", report, collection / "photos.manifind").exit_code == 1


def test_a_photo_that_was_changed_or_removed_is_named(collection: Path, report: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(collection / "photos", other)
    shutil.copytree(collection / "photos.manifind", tmp_path / "other.manifind")
    index = Index.open(tmp_path / "other.manifind")
    Image.fromarray(scene(50, None)).save(other / "first-2.png")
    (other / "first-3.png").unlink()
    index.sync(other)
    found = verify_report(report, index)
    assert any("first-2.png is another file now" in one for one in found.differences)
    assert any("first-3.png is not in the index any more" in one for one in found.differences)
    assert any("snapshot was" in note for note in found.notes)


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts.update(format=2),
        lambda facts: facts.update(views=[]),
        lambda facts: facts.update(results={}),
        lambda facts: facts["views"][0].update(file="../../shot.png"),
        lambda facts: facts["views"][0].update(file="query-9.png"),
        lambda facts: facts["views"][0].update(box=[1, 2, "3", 4]),
        lambda facts: facts["results"].append({"key": "\ud800"}),
        lambda facts: facts["results"].append(7),
        lambda facts: facts["results"].append(facts["results"][0]),
        lambda facts: facts["options"].update(top="many"),
        lambda facts: facts["options"].update(keys=[3]),
        lambda facts: facts["options"].update(image="/etc/passwd"),
    ],
)
def test_a_report_that_is_none_is_one_sentence(
    collection: Path, report: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    facts = json.loads((report / REPORT).read_text())
    change(facts)
    (report / REPORT).write_text(json.dumps(facts))
    assert refused("verify", report, collection / "photos.manifind")


def test_a_report_leads_nowhere(collection: Path, report: Path) -> None:
    (report / "query-1.png").unlink()
    (report / "query-1.png").symlink_to(collection / "shot.png")
    assert "link out of the folder" in refused("verify", report, collection / "photos.manifind")
    for content in ("0" * 64 + "  ../photos/first-0.png\n", "x", "\0"):
        (report / SUMS).write_text(content)
        assert "no report" in refused("verify", report, collection / "photos.manifind")
    (report / SUMS).unlink()
    assert "cannot be read" in refused("verify", report, collection / "photos.manifind")
    (report / REPORT).write_text("[" * 200_000)
    (report / SUMS).write_text("")
    assert "no JSON" in refused("verify", report, collection / "photos.manifind")


def test_numbers_of_any_size_are_differences(collection: Path, report: Path) -> None:
    facts = json.loads((report / REPORT).read_text())
    huge = 10**400
    facts["results"][0].update(score=huge, box=[huge] * 4)
    (report / REPORT).write_text(json.dumps(facts))
    assert any("score was" in one for one in differences(report, collection))
    facts["views"][0].update(box=[0, 0, huge, 5])
    (report / REPORT).write_text(json.dumps(facts))
    assert any("cannot be repeated: box is" in one for one in differences(report, collection))


def test_what_a_report_has_is_read_once_and_within_a_limit(
    collection: Path, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sparse file of any length takes no room in an archive."""
    facts = json.loads((report / REPORT).read_text())
    facts["views"] = [facts["views"][0]] * 3
    (report / REPORT).write_text(json.dumps(facts))
    size = (report / "query-1.png").stat().st_size
    monkeypatch.setattr(search_report, "MAX_PHOTO_BYTES", 2 * size)  # of one photo three times, and a negative
    differences(report, collection)
    shutil.copy(report / "query-1.png", report / "query-3.png")
    facts["views"].append({**facts["views"][0], "file": "query-3.png"})
    (report / REPORT).write_text(json.dumps(facts))
    assert "have more than" in refused("verify", report, collection / "photos.manifind")
    line = (report / SUMS).read_text().splitlines(keepends=True)[0]
    facts["views"] = facts["views"][:1]
    (report / REPORT).write_text(json.dumps(facts))
    with (report / "index.html").open("r+b") as page:
        page.truncate(10**12)
    assert any("index.html cannot be read" in one for one in differences(report, collection))
    with (report / SUMS).open("a") as sums:
        sums.write(line)
    assert "one twice" in refused("verify", report, collection / "photos.manifind")


def test_a_report_is_of_a_whole_search_and_overwrites_nothing(collection: Path, tmp_path: Path) -> None:
    words = ("search", collection / "photos.manifind", collection / "shot.png")
    assert "there already" in refused(*words, "--report", collection / "report")
    told = run("search", collection / "photos.manifind", "first-1.png", "--report", tmp_path / "by-key")
    assert told.exit_code == 0
    assert differences(tmp_path / "by-key", collection) == []
