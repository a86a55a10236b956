"""What people are told who name a folder that is no index."""

import json
from pathlib import Path
from typing import Any

import pytest

from manifind.errors import InvalidInputError
from manifind.index import Index
from tests.commands import run
from tests.index.small import save_photos, small_extractor


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_photos(tmp_path / "photos", 6)


def test_the_folder_of_photos_is_told_from_its_index(folder: Path) -> None:
    with pytest.raises(
        InvalidInputError, match=r"is a folder of photos; make its index with manifind index .*photos\."
    ):
        Index.open(folder)
    Index.create(f"{folder}.manifind", folder, extractor=small_extractor(), k=12, query_k=10)
    for command in (("search", folder, folder / "0.png"), ("info", folder), ("check", folder)):
        told = run(*command)
        assert told.exit_code == 2
        assert told.stderr.strip() == f"{folder} is a folder of photos; its index is {folder}.manifind."


def test_what_to_type_can_be_copied_where_a_name_has_spaces(tmp_path: Path) -> None:
    folder = save_photos(tmp_path / "my photos", 2)
    told = run("search", f"{folder}.manifind", folder / "0.png")
    assert told.exit_code == 2
    assert told.stderr.strip() == f"{folder}.manifind is not there yet; make it with manifind index '{folder}'."
    assert run("search", folder, folder / "0.png").stderr.strip().endswith(f"manifind index '{folder}'.")


def test_copies_are_told_apart_from_what_was_passed_over(folder: Path) -> None:
    (folder / "again.png").write_bytes((folder / "0.png").read_bytes())
    (folder / "letter.jpg").write_text("no photo")
    target = f"{folder}.manifind"
    made = Index.create(target, folder, extractor=small_extractor(), k=12, query_k=10)
    assert {one["key"]: one["duplicate_of"] for one in made.info()["skipped"]} == {
        "again.png": "0.png",
        "letter.jpg": None,
    }
    told = run("info", target).stdout
    assert "skipped 1:\n  letter.jpg: not a photo" in told
    assert "copies of others, listed with their twins, 1:\n  again.png: the same content as 0.png" in told


def test_a_file_and_an_empty_folder_are_called_what_they_are(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is a file; give the folder of an index"):
        Index.open(folder / "0.png")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="without an index in it"):
        Index.open(tmp_path / "empty")


def test_an_interrupted_index_says_how_far_it_came_and_how_to_go_on(folder: Path) -> None:
    def stop(stage: str, done: int, total: int) -> None:
        if (stage, done) == ("photos", 4):
            raise KeyboardInterrupt

    target = Path(f"{folder}.manifind")
    given: dict[str, Any] = {"extractor": small_extractor(), "k": 12, "query_k": 10}
    with pytest.raises(KeyboardInterrupt):
        Index.create(target, folder, progress=stop, **given)
    told = run("info", target)
    assert told.exit_code == 2
    sentence = f"{target} has 4 of 6 photos extracted; run manifind index {folder} to go on."
    assert told.stderr.strip() == sentence
    assert (
        run("info", folder).stderr.strip() == f"{folder} is a folder of photos. Its index is not finished: {sentence}"
    )
    assert len(Index.create(target, folder, **given)) == 6
    assert not (target / ".part").exists()


def test_info_notices_that_the_folder_is_gone(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "i.manifind"
    Index.create(target, folder, extractor=small_extractor(), k=12, query_k=10)
    assert "not there" not in run("info", target).stdout
    folder.rename(tmp_path / "elsewhere")
    told = run("info", target)
    assert told.exit_code == 0
    assert f"{folder} (not there now)" in told.stdout
    assert "Is its disk connected?" in told.stdout
    assert json.loads(run("info", target, "--json").stdout)["photos_folder_is_there"] is False
