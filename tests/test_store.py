"""Saving and loading: nothing lost, nothing trusted blindly."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifind import DamagedError, InvalidInputError, Manifold, NotFittedError
from manifind.baselines.appended import search_appended
from manifind.storage import store
from tests.collections_of_regions import Collection
from tests.errors import raises
from tests.faults import faulty


@pytest.fixture
def manifold(collection: Collection) -> Manifold:
    return Manifold(k=10, query_k=12, alpha=0.98, seeding="released").fit(collection.vectors, collection.image_of)


@pytest.fixture
def saved(manifold: Manifold, tmp_path: Path) -> Path:
    path = tmp_path / "x.manifold"
    manifold.save(path)
    return path


def backing(array: Any) -> Any:
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return array


@pytest.mark.parametrize("verify", [True, False])
def test_a_loaded_manifold_answers_as_the_saved_one(
    manifold: Manifold, saved: Path, collection: Collection, verify: bool
) -> None:
    loaded = Manifold.load(saved, verify=verify)
    assert loaded.get_params() == manifold.get_params()
    for query in collection.queries:
        for arguments in ({}, {"shortlist": 6}):
            a, b = manifold.search(query, **arguments), loaded.search(query, **arguments)  # type: ignore[arg-type]
            np.testing.assert_array_equal(a.images, b.images)
            np.testing.assert_array_equal(a.scores, b.scores)
    appended = [search_appended(m, collection.queries[0]) for m in (manifold, loaded)]
    np.testing.assert_array_equal(appended[0].scores, appended[1].scores)


def test_loading_memory_maps_what_is_large_and_reads_what_is_small(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not isinstance(backing(Manifold.load(saved).vectors_), np.memmap)
    assert not Manifold.load(saved).vectors_.flags.writeable
    monkeypatch.setattr(store, "SMALL", 100)
    loaded = Manifold.load(saved)
    for array in (loaded.vectors_, loaded.S_.data, loaded.S_.indices, loaded.neighbours_.ids, loaded.weights_):
        assert isinstance(backing(array), np.memmap)
        assert not array.flags.writeable


def test_the_arrays_are_plain_files_without_pickle(saved: Path) -> None:
    for file in saved.glob("*.npy"):
        np.load(file, allow_pickle=False)
    assert json.loads((saved / "manifest.json").read_text())["fields"]["alpha"] == 0.98


def test_every_file_cut_short_is_noticed(saved: Path, tmp_path: Path) -> None:
    for file in [*saved.glob("*.npy"), saved / "manifest.json"]:
        for kept in (0, 1, file.stat().st_size // 2, file.stat().st_size - 1):
            copy = tmp_path / "cut"
            shutil.copytree(saved, copy)
            os.truncate(copy / file.name, kept)
            for verify in (True, False):
                with pytest.raises(DamagedError, match=r"cut short|cannot be read"):
                    Manifold.load(copy, verify=verify)
            shutil.rmtree(copy)


def test_every_file_altered_or_missing_is_noticed(saved: Path, tmp_path: Path) -> None:
    for file in [*saved.glob("*.npy"), saved / "manifest.json"]:
        copy = tmp_path / "altered"
        shutil.copytree(saved, copy)
        content = bytearray((copy / file.name).read_bytes())
        content[-3] ^= 1
        (copy / file.name).write_bytes(content)
        with pytest.raises(DamagedError, match=r"checksum|cannot be read"):
            Manifold.load(copy)
        (copy / file.name).unlink()
        with pytest.raises(DamagedError, match=r"missing|no manifest.json"):
            Manifold.load(copy)
        shutil.rmtree(copy)


def test_an_edited_parameter_is_noticed(saved: Path) -> None:
    manifest = json.loads((saved / "manifest.json").read_text())
    manifest["fields"]["alpha"] = 0.5
    (saved / "manifest.json").write_text(json.dumps(manifest))
    with raises("wrong-checksum", DamagedError):
        Manifold.load(saved)


def test_what_is_not_a_manifold_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Manifold.load(tmp_path / "nowhere")
    with raises("no-manifest", DamagedError):
        Manifold.load(tmp_path)
    with store.writing(tmp_path / "other", "index") as writer:
        writer.write(1, {}, {"a": np.arange(3)})
    with raises("other-kind", DamagedError):
        Manifold.load(tmp_path / "other")
    with store.writing(tmp_path / "newer", "manifold") as writer:
        writer.write(99, {}, {"a": np.arange(3)})
    with raises("format-version", DamagedError):
        Manifold.load(tmp_path / "newer")


def test_saving_over_something_else_is_refused(manifold: Manifold, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    for name in ("file", "folder"):
        with raises("occupied", InvalidInputError):
            manifold.save(tmp_path / name)
    assert (tmp_path / "file").read_text() == (tmp_path / "folder" / "notes.txt").read_text() == "mine"
    with pytest.raises(NotFittedError):
        Manifold().save(tmp_path / "unfitted")
    assert not (tmp_path / "unfitted").exists()


def test_saving_again_replaces_the_old_and_leaves_no_litter(
    manifold: Manifold, saved: Path, collection: Collection
) -> None:
    reader = Manifold.load(saved)
    before = reader.search(collection.queries[0])
    files = len(list(saved.iterdir()))
    Manifold(k=3, query_k=12).fit(collection.vectors, collection.image_of).save(saved)
    assert len(list(saved.iterdir())) == files
    assert Manifold.load(saved).k == 3
    np.testing.assert_array_equal(reader.search(collection.queries[0]).scores, before.scores)
    reader.save(saved)  # onto the folder that it has mapped
    assert Manifold.load(saved).k == 10


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO"])
def test_a_full_or_failing_disk_leaves_the_old_one_whole(saved: Path, collection: Collection, fault: str) -> None:
    other = Manifold(k=3).fit(collection.vectors, collection.image_of)
    files = sorted(saved.iterdir())
    for at in range(1000):
        with faulty(at, fault) as stand_in:
            try:
                other.save(saved)
            except OSError:
                pass
            else:
                assert stand_in.seen <= at or fault == "ENOSPC"
                break
        loaded = Manifold.load(saved)
        if loaded.k == 3:  # the disk failed while the old generation was being cleared away
            break
        assert loaded.k == 10
        if fault == "ENOSPC":
            assert sorted(saved.iterdir()) == files
    assert at > 40
    other.save(saved)
    assert Manifold.load(saved).k == 3
    assert len(list(saved.iterdir())) == len(files)


def test_a_first_saving_that_was_cut_off_can_be_repeated(manifold: Manifold, tmp_path: Path) -> None:
    path = tmp_path / "x.manifold"
    path.mkdir()
    (path / ".lock").touch()
    (path / "vectors-1.npy").write_bytes(b"half of it")
    (path / "manifest.json.draft").write_text("{")
    manifold.save(path)
    assert Manifold.load(path).k == 10


def test_a_second_writer_is_told_who_has_the_lock(manifold: Manifold, saved: Path) -> None:
    with store.writing(saved, "manifold"), pytest.raises(InvalidInputError, match=f"written by process {os.getpid()}"):
        manifold.save(saved)
    manifold.save(saved)


def test_readers_never_see_a_half_saved_folder(manifold: Manifold, saved: Path) -> None:
    def read() -> int:
        return sum(Manifold.load(saved, verify=False).k == 10 for _ in range(60))

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for _ in range(15):
            manifold.save(saved)
        assert [reader.result() for reader in readers] == [60, 60]


@pytest.mark.parametrize("text", ["[]", "{}", "null", '{"checksum": "x"}'])
def test_a_manifest_that_is_none_is_noticed(saved: Path, text: str) -> None:
    (saved / "manifest.json").write_text(text)
    with pytest.raises(DamagedError, match=r"manifest\.json"):
        Manifold.load(saved)


def test_a_graph_without_edges_survives(tmp_path: Path) -> None:
    manifold = Manifold(k=1).fit(np.eye(3))
    assert manifold.S_.nnz == 0
    manifold.save(tmp_path / "empty")
    assert Manifold.load(tmp_path / "empty").search(np.eye(1, 3)).images[0] == 0


def test_what_is_not_ours_is_neither_replaced_nor_removed(manifold: Manifold, saved: Path, tmp_path: Path) -> None:
    """Names that look like ours, and folders with a manifest of something else."""
    folds, page = tmp_path / "folds", tmp_path / "page"
    for folder, names in ((folds, ["fold-1.npy", "fold-2.npy"]), (page, ["manifest.json", "page-1.json"])):
        folder.mkdir()
        for name in names:
            (folder / name).write_text("{}")
        with raises("occupied", InvalidInputError):
            manifold.save(folder)
        assert sorted(file.name for file in folder.iterdir()) == names
    beside = [saved / name for name in ("notes-1.json", "fold-7.npy", "notes-2024.txt")]
    for file in beside:
        file.write_text("mine")
    manifold.save(saved)
    assert [file.read_text() for file in beside] == ["mine"] * 3
    with store.writing(tmp_path / "other", "index") as writer:
        writer.write(1, {}, {"a": np.arange(3)})
    with raises("occupied", InvalidInputError):
        manifold.save(tmp_path / "other")


def test_an_interrupt_at_any_point_leaves_the_old_or_the_new(saved: Path, collection: Collection) -> None:
    other = Manifold(k=3).fit(collection.vectors, collection.image_of)
    for at in range(1000):
        try:
            with faulty(at, "interrupt"):
                other.save(saved)
        except KeyboardInterrupt:
            assert Manifold.load(saved).k in (3, 10)
        else:
            break
    assert at > 40
    assert Manifold.load(saved).k == 3


def test_one_region_can_be_saved(tmp_path: Path) -> None:
    with pytest.warns(match="k is"):
        manifold = Manifold().fit(np.eye(1, 4))
    manifold.save(tmp_path / "one")
    assert Manifold.load(tmp_path / "one").search(np.eye(1, 4)).images.tolist() == [0]


def test_an_array_whose_name_makes_no_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with (
        store.writing(tmp_path / "saved", "thing") as writer,
        pytest.raises(ValueError, match="'one-two' is no name for an array"),
    ):
        writer.write(1, {}, {"one-two": np.zeros(3)})
    assert not (tmp_path / "saved" / "manifest.json").exists()
