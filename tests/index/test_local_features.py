"""The local features that an index keeps: made with the descriptions, brought up to date with them, checked."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from manifind.errors import DamagedError
from manifind.features import RegionExtractor
from manifind.geometry import PackedFeatures
from manifind.index import Index
from manifind.index.build import gather
from manifind.index.maintenance.check import Remedy
from manifind.index.storage.local_features import ARRAYS, LOCAL_FEATURES, LocalFeatureConfig, keep
from manifind.io import read_photo
from tests.commands import run
from tests.extraction_options import QUICKLY
from tests.index.conftest import scene, texture
from tests.index.small import small_extractor


def index_of(photos: Path, path: Path, *, local_features: bool = True) -> Index:
    return Index.create(path, photos, extractor=small_extractor(), local_features=local_features, k=12, query_k=10)


@pytest.fixture
def made(tmp_path: Path) -> Index:
    """Five photos of patches that no two share, 48 × 64 as the small network sees them."""
    for seed in range(5):
        save(tmp_path / "photos" / f"{seed}.png", seed)
    return index_of(tmp_path / "photos", tmp_path / "made.manifind")


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
    assert not [problem for problem in index.check() if problem.is_damage]


def test_features_are_kept_of_every_photo(made: Index) -> None:
    assert_kept(made)
    local = made.state.local
    assert local is not None
    told = made.info()["local_features"]
    assert (told["kind"], told["features_a_photo"]) == (LOCAL_FEATURES.kind, round(local.starts[-1] / 5, 1))
    assert made.info()["bytes_by_part"]["local features"] > 0


def test_what_is_kept_is_small() -> None:
    kept = keep(scene(99, 1))
    assert isinstance(kept, PackedFeatures)
    assert kept.rows.nbytes <= 20_000


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
    plain = index_of(made.root, tmp_path / "plain", local_features=False)
    assert plain.state.local is None
    assert "local_features" not in json.loads((plain.path / "manifest.json").read_text())["fields"]
    save(made.root / "new.png", 7)
    plain.sync()
    assert plain.state.local is None
    assert plain.search(made.root / "0.png").n_verified is None
    assert plain.search(made.root / "0.png", verify=3).n_verified is not None


def test_a_search_asks_geometry_where_the_index_keeps_features(made: Index) -> None:
    assert made.search(made.root / "0.png").n_verified is not None
    assert made.search(made.root / "0.png", verify=0).n_verified is None
    assert made.search(made.root / "0.png", method="match").n_verified is None


def test_damage_of_features_is_found_and_repaired(made: Index) -> None:
    (file,) = made.path.glob("features-*.npy")
    data = bytearray(file.read_bytes())
    data[-5] ^= 0xFF
    file.write_bytes(data)
    problems = made.check()
    assert [problem.what for problem in problems] == [file.name]
    assert problems[0].remedy is Remedy.EXTRACT
    Index.repair(made.path, extractor=small_extractor())
    made.reload()
    assert_kept(made)


def test_features_of_another_collection_are_refused(made: Index, tmp_path: Path) -> None:
    other = index_of(made.root, tmp_path / "other")
    other.remove(["0.png"])
    manifest = json.loads((made.path / "manifest.json").read_text())
    wrong = json.loads((other.path / "manifest.json").read_text())["files"]["feature_starts.npy"]
    shutil.copy(other.path / wrong["file"], made.path / manifest["files"]["feature_starts.npy"]["file"])
    with pytest.raises(DamagedError):
        Index.open(made.path, extractor=small_extractor())


@pytest.fixture
def bare(made: Index, tmp_path: Path) -> Index:
    """The same photos in an index that keeps no features."""
    return index_of(made.root, tmp_path / "bare", local_features=False)


def test_features_are_added_to_an_index_without_extracting_again(
    made: Index, bare: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = bare.info()["local_features"]
    assert (told["kind"], told["features_a_photo"]) == (None, 0)
    assert "--local-features" in told["words"]
    before = {file.name for file in bare.path.glob("*.npy")}
    monkeypatch.setattr(RegionExtractor, "extract", None)  # whoever extracts fails
    changes = bare.sync(local_features=True)
    monkeypatch.undo()
    assert (changes.supplemented, changes.extracted, changes.kept, changes.unreadable) == (5, 0, 5, ())
    assert_kept(bare)
    assert bare.state.local is not None
    assert made.state.local is not None
    for ours, theirs in zip(bare.state.local.arrays.values(), made.state.local.arrays.values(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    # All that was there stays as it is: the same files, and the features beside them.
    assert {file.name for file in bare.path.glob("*.npy")} - before == {f"{name}-2.npy" for name in ARRAYS}
    assert bare.search(made.root / "0.png").n_verified is not None
    assert bare.sync(local_features=True).supplemented == 0
    assert bare.generation == 2


def test_features_are_added_while_photos_come_and_go(bare: Index) -> None:
    (bare.root / "1.png").unlink()
    (bare.root / "3.png").rename(bare.root / "z.png")
    save(bare.root / "2.png", 22)
    save(bare.root / "new.png", 7)
    changes = bare.sync(local_features=True)
    assert (changes.supplemented, changes.extracted, changes.moved) == (3, 2, 1)
    assert_kept(bare)
    assert [one.key for one in bare.catalogue.images] == ["0.png", "2.png", "4.png", "new.png", "z.png"]


def test_adding_features_goes_on_where_it_was_interrupted(bare: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def until_the_third(pixels: npt.NDArray[np.uint8], keeping: LocalFeatureConfig) -> PackedFeatures:
        seen.append(1)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return keep(pixels, keeping)

    monkeypatch.setattr(gather, "keep", until_the_third)
    monkeypatch.setattr(gather, "thread_count", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        bare.sync(local_features=True)
    assert bare.state.local is None
    begun = len(seen)
    bare.sync(local_features=True)
    assert len(seen) - begun == 3
    assert_kept(bare)


def test_a_photo_that_cannot_be_read_any_more_is_named_and_has_no_features(bare: Index) -> None:
    file = bare.root / "1.png"
    status, size = file.stat(), file.stat().st_size
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(size - 8))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    changes = bare.sync(local_features=True)
    assert (changes.unreadable, changes.supplemented) == (("1.png",), 4)
    local = bare.state.local
    assert local is not None
    assert [len(local.of_photo(one).rows) > 0 for one in bare.catalogue.images] == [True, False, True, True, True]


def test_the_command_adds_features_and_says_so(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    for name in ("first-0.png", "second-0.png"):
        shutil.copy(photos / name, tmp_path / "few" / name)
    assert run("index", tmp_path / "few", "--no-local-features", *QUICKLY).exit_code == 0
    assert "--local-features adds them" in run("info", tmp_path / "few.manifind").stdout
    assert "2 supplemented" in run("index", tmp_path / "few", "--local-features").stdout
    assert "results are verified by geometry" in run("info", tmp_path / "few.manifind").stdout
