"""The local features that an index keeps: made with the descriptions, brought up to date with them, checked."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from manifind.describe import read_photo
from manifind.errors import Damaged
from manifind.index import Index
from manifind.index.kept import KEEPING, keep
from tests.index.conftest import texture
from tests.index.small import small_describer

PARAMETERS = {"k": 12, "query_k": 10}


@pytest.fixture
def made(tmp_path: Path) -> Index:
    """Five photos of patches that no two share, 48 × 64 as the small network sees them."""
    for seed in range(5):
        save(tmp_path / "photos" / f"{seed}.png", seed)
    return Index.create(
        tmp_path / "made.manifind",
        tmp_path / "photos",
        describer=small_describer(),
        **PARAMETERS,  # type: ignore[arg-type]
    )


def save(file: Path, seed: int) -> None:
    file.parent.mkdir(exist_ok=True)
    Image.fromarray(texture(seed, 48, 64, grain=5)).save(file)


def assert_kept(index: Index) -> None:
    """What is kept of each photo is what is made of its file."""
    assert index.state.local is not None
    for record in index.catalogue.images:
        kept = index.state.local.of_photo(record)
        alone = keep(read_photo(index.root / record.key).pixels)
        assert len(kept.rows) > 5
        np.testing.assert_array_equal(kept.rows, alone.rows)
    assert not [problem for problem in index.check() if problem.damage]


def test_features_are_kept_of_every_photo(made: Index) -> None:
    assert_kept(made)
    assert made.info()["geometry"]["kind"] == KEEPING.kind
    assert made.info()["bytes_by_part"]["local features"] > 0


def test_features_follow_photos_that_come_go_move_and_change(made: Index) -> None:
    photos = made.root
    (photos / "1.png").unlink()
    (photos / "3.png").rename(photos / "a-first.png")
    save(photos / "2.png", 22)
    save(photos / "new.png", 7)
    made.sync()
    assert_kept(made)
    made.remove(["new.png"])
    assert_kept(made)
    made.add([photos / "new.png"])
    assert_kept(made)
    assert [one.key for one in made.catalogue.images] == ["0.png", "2.png", "4.png", "a-first.png", "new.png"]


def test_an_index_without_features_stays_without(tmp_path: Path, made: Index) -> None:
    plain = Index.create(
        tmp_path / "plain",
        made.root,
        describer=small_describer(),
        geometry=False,
        **PARAMETERS,  # type: ignore[arg-type]
    )
    assert plain.state.local is None
    assert "geometry" not in json.loads((plain.path / "manifest.json").read_text())["fields"]
    save(made.root / "new.png", 7)
    plain.sync()
    assert plain.state.local is None
    assert plain.search(made.root / "0.png").verified is None
    assert plain.search(made.root / "0.png", verify=3).verified is not None


def test_a_search_asks_geometry_where_the_index_keeps_features(made: Index) -> None:
    assert made.search(made.root / "0.png").verified is not None
    assert made.search(made.root / "0.png", verify=0).verified is None
    assert made.search(made.root / "0.png", method="match").verified is None


def test_damage_of_features_is_found_and_repaired(made: Index) -> None:
    (file,) = made.path.glob("features-*.npy")
    data = bytearray(file.read_bytes())
    data[-5] ^= 0xFF
    file.write_bytes(data)
    problems = made.check()
    assert [problem.what for problem in problems] == [file.name]
    assert "describes the photos again" in problems[0].repair
    Index.repair(made.path, describer=small_describer())
    made.reload()
    assert_kept(made)


def test_features_of_another_collection_are_refused(made: Index, tmp_path: Path) -> None:
    other = Index.create(
        tmp_path / "other",
        made.root,
        describer=small_describer(),
        **PARAMETERS,  # type: ignore[arg-type]
    )
    other.remove(["0.png"])
    manifest = json.loads((made.path / "manifest.json").read_text())
    wrong = json.loads((other.path / "manifest.json").read_text())["files"]["feature_starts.npy"]
    shutil.copy(other.path / wrong["file"], made.path / manifest["files"]["feature_starts.npy"]["file"])
    with pytest.raises(Damaged):
        Index.open(made.path, describer=small_describer())
