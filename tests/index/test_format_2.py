"""An index of format 2, as an earlier manifind wrote it, opens, is searched and becomes format 3 when it changes."""

import zipfile
from pathlib import Path

import pytest

from manifind import Index
from manifind.index.storage.catalogue import SkipReason
from manifind.index.storage.local_features import COARSE_FEATURES
from manifind.index.storage.manifest import FORMAT, read_manifest

STORED = Path(__file__).with_name("format2.zip")
FOUND = {
    "0.jpg": 3.5089263916015625,
    "1.jpg": 3.9596097469329834,
    "2.jpg": 3.9211039543151855,
    "3.jpg": 3.8065919876098633,
    "4.jpg": 2.9318690299987793,
}
"""The scores that the manifind which wrote the index gave its own query."""


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    with zipfile.ZipFile(STORED) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def test_it_is_searched_with_the_same_result(stored: Path) -> None:
    index = Index.open(stored / "format2.manifind", verify=True)
    hits = index.search(stored / "photos" / "0.jpg", box=(10, 20, 74, 84), top=5)
    assert {hit.key: hit.score for hit in hits} == pytest.approx(FOUND, rel=1e-5)
    assert [hit.key for hit in hits if hit.verified] == ["0.jpg", "1.jpg", "2.jpg", "3.jpg"]
    assert index.info()["config"]["local_features"] == COARSE_FEATURES.fields


def test_its_sentences_are_read_as_codes(stored: Path) -> None:
    skipped = Index.open(stored / "format2.manifind").catalogue.skipped
    assert [(one.key, one.code, one.detail) for one in skipped] == [
        ("5.jpg", SkipReason.REMOVED, ""),
        ("copy of 1.jpg", SkipReason.DUPLICATE, "1.jpg"),
        ("letter.jpg", SkipReason.UNREADABLE, "not a photo"),
    ]


def test_info_and_check_read_it(stored: Path) -> None:
    index = Index.open(stored / "format2.manifind")
    assert index.info()["photos"] == 5
    assert not [problem for problem in index.check() if problem.is_damage]


def test_a_change_writes_the_new_format_and_extracts_nothing_again(stored: Path) -> None:
    index = Index.open(stored / "format2.manifind")
    before = index.manifold.vectors_.copy()
    assert read_manifest(index.path)["version"] == 2
    changes = index.sync(stored / "photos")
    assert (changes.extracted, changes.kept, changes.removed) == (0, 5, 0)
    assert read_manifest(index.path)["version"] == FORMAT
    assert (index.manifold.vectors_ == before).all()
    assert [one.code for one in index.catalogue.skipped] == [
        SkipReason.REMOVED,
        SkipReason.DUPLICATE,
        SkipReason.UNREADABLE,
    ]
