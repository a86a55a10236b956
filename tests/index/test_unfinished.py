"""What people are told who name a folder that is no index."""

import json
from pathlib import Path
from typing import Any

import pytest

from manifind.errors import InvalidInput
from manifind.index import Index
from tests.commands import run
from tests.index.small import save_photos, small_describer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_photos(tmp_path / "photos", 6)


def test_the_folder_of_photos_is_told_from_its_index(folder: Path) -> None:
    with pytest.raises(InvalidInput, match=r"is a folder of photos; make its index with manifind index .*photos\."):
        Index.open(folder)
    Index.create(f"{folder}.manifind", folder, describer=small_describer(), k=12, query_k=10)
    for command in (("search", folder, folder / "0.png"), ("info", folder), ("check", folder)):
        told = run(*command)
        assert told.exit_code == 2
        assert told.stderr.strip() == f"{folder} is a folder of photos; its index is {folder}.manifind."


def test_a_file_and_an_empty_folder_are_called_what_they_are(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is a file; give the folder of an index"):
        Index.open(folder / "0.png")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="without an index in it"):
        Index.open(tmp_path / "empty")


def test_an_interrupted_index_says_how_far_it_came_and_how_to_go_on(folder: Path) -> None:
    def stop(stage: str, done: int, total: int) -> None:
        if (stage, done) == ("photos", 4):
            raise KeyboardInterrupt

    target = Path(f"{folder}.manifind")
    given: dict[str, Any] = {"describer": small_describer(), "k": 12, "query_k": 10}
    with pytest.raises(KeyboardInterrupt):
        Index.create(target, folder, progress=stop, **given)
    told = run("info", target)
    assert told.exit_code == 2
    sentence = f"{target} has 4 of 6 photos described; run manifind index {folder} to go on."
    assert told.stderr.strip() == sentence
    assert (
        run("info", folder).stderr.strip() == f"{folder} is a folder of photos. Its index is not finished: {sentence}"
    )
    assert len(Index.create(target, folder, **given)) == 6
    assert not (target / ".part").exists()


def test_info_notices_that_the_folder_is_gone(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "i.manifind"
    Index.create(target, folder, describer=small_describer(), k=12, query_k=10)
    assert "not there" not in run("info", target).stdout
    folder.rename(tmp_path / "elsewhere")
    told = run("info", target)
    assert told.exit_code == 0
    assert f"{folder} (not there now)" in told.stdout
    assert "Is its disk connected?" in told.stdout
    assert json.loads(run("info", target, "--json").stdout)["photos_folder_is_there"] is False
