"""Which files an index takes: given once, kept, said in `info`, and changed without extracting a photo again."""

import json
import shutil
from pathlib import Path

import pytest

from manifind.errors import DamagedError, InvalidInputError
from manifind.index import Index
from manifind.index.storage.manifest import Manifest, read_manifest
from manifind.io.ignore import FileRules
from tests.commands import refused, run
from tests.index.small import save_photo, save_photos, small_extractor, small_index


def test_rules_are_kept_and_changing_them_extracts_what_is_new_alone(tmp_path: Path) -> None:
    save_photo(tmp_path / "photos" / "raw" / "a.png", 40)
    save_photo(tmp_path / "photos" / "raw" / "b.png", 41)
    index = small_index(tmp_path, 8, exclude=["raw/", "7.*"])
    assert len(index) == 7
    changes = index.sync()
    assert (changes.extracted, changes.removed, index.info()["files"]["exclude"]) == (0, 0, ["raw/", "7.*"])
    changes = index.sync(exclude=["/raw/b*"])
    assert (changes.extracted, changes.kept, changes.removed) == (2, 7, 0)
    assert {"7.png", "raw/a.png"} <= {image.key for image in index.catalogue.images}
    changes = index.sync(exclude=[], follow_links=False)
    assert (changes.extracted, len(index)) == (1, 10)
    reopened = Index.open(tmp_path / "i.manifind", extractor=small_extractor())
    assert reopened.state.manifest.files == FileRules((), follow_links=False)


def test_a_photo_that_is_left_out_cannot_be_added(tmp_path: Path) -> None:
    index = small_index(tmp_path, 8, exclude=["raw/"])
    save_photos(tmp_path / "photos" / "raw", 2, first=20)
    save_photos(tmp_path / "photos" / "sub", 2, first=30)
    (tmp_path / "photos" / "sub" / ".manifindignore").write_text("1.*")
    for left_out in ("raw", "raw/1.png", "sub/1.png"):
        with pytest.raises(InvalidInputError) as error:
            index.add([tmp_path / "photos" / left_out])
        assert error.value.code == "excluded"
    assert index.add([tmp_path / "photos" / "sub"]).extracted == 1
    assert index.find("sub/0.png") is not None


def test_photos_of_a_folder_whose_ignore_file_breaks_stay(tmp_path: Path) -> None:
    save_photos(tmp_path / "photos" / "sub", 2, first=20)
    index = small_index(tmp_path, 8)
    (tmp_path / "photos" / "sub" / ".manifindignore").write_bytes(b"#" * 100_000)
    changes = index.sync()
    assert (changes.removed, len(index)) == (0, 10)
    assert ".manifindignore has more than" in index.info()["skipped"][0]["reason"]


@pytest.mark.parametrize(
    "files", [[], {"exclude": "a"}, {"exclude": [3]}, {"exclude": ["a\n"]}, {"exclude": [], "follow_links": 1}]
)
def test_a_manifest_with_impossible_rules_is_damaged(tmp_path: Path, files: object) -> None:
    small_index(tmp_path, 6)
    fields = {**read_manifest(tmp_path / "i.manifind")["fields"], "files": files}
    with pytest.raises(DamagedError):
        Manifest.of(fields)


def test_the_command_takes_patterns_and_info_says_them(photos: Path, index: Index, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "photos")
    shutil.copytree(index.path, tmp_path / "photos.manifind")
    Index.open(tmp_path / "photos.manifind").sync(tmp_path / "photos")
    (tmp_path / "photos" / ".manifindignore").write_text("second-*\n!second-1.png\n")
    told = run("index", tmp_path / "photos", "--exclude", "more/", "--no-follow-links", "--json")
    assert (told.exit_code, json.loads(told.stdout)["changes"]["removed"]) == (0, 7), told.output
    said = run("info", tmp_path / "photos.manifind").stdout
    assert "what matches more/" in said
    assert "Links are not followed." in said
    again = run("index", tmp_path / "photos", "--exclude", "", "--json")
    assert (json.loads(again.stdout)["changes"]["extracted"], json.loads(again.stdout)["files"]["exclude"]) == (4, [])
    assert "run of their own" in refused("index", tmp_path / "photos", "--exclude", "a", "--repair")
