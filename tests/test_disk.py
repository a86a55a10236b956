"""What stands in the way of a writer: links, second names, a system without a call, headers of every kind."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifind.errors import DamagedError, InvalidInputError
from manifind.storage import disk, store
from manifind.storage.arrays import NotAnArrayError, read_array
from tests.errors import raises
from tests.faults import faulty

TEXT = b"somebody else's"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder with a file, both somebody else's."""
    (tmp_path / "theirs" / "below").mkdir(parents=True)
    (tmp_path / "theirs" / "file").write_bytes(TEXT)
    (tmp_path / "theirs" / "below" / "file").write_bytes(TEXT)
    return tmp_path / "theirs"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with store.writing(tmp_path / "saved", "thing") as writer:
        writer.write(1, {}, {"a": np.arange(3)})
    return tmp_path / "saved"


def untouched(theirs: Path) -> bool:
    files = [theirs / "file", theirs / "below" / "file"]
    return all(file.read_bytes() == TEXT for file in files) and len(list(theirs.rglob("*"))) == 3


def linked(file: Path, to: Path) -> None:
    file.unlink(missing_ok=True)
    file.symlink_to(to)


def second_name(file: Path, to: Path) -> None:
    file.unlink(missing_ok=True)
    os.link(to, file)


def write_again(saved: Path) -> None:
    with store.writing(saved, "thing") as writer:
        writer.write(1, {}, {"a": np.arange(4)})


@pytest.mark.parametrize("lead", [linked, second_name])
@pytest.mark.parametrize("name", ["manifest.json.draft", "a-2.npy", "manifest-2.json", "a-1.npy", "manifest-1.json"])
def test_a_file_of_ours_that_leads_elsewhere_is_replaced_and_not_followed(
    saved: Path, theirs: Path, name: str, lead: Callable[[Path, Path], None]
) -> None:
    lead(saved / name, theirs / "file")
    write_again(saved)
    assert untouched(theirs)
    assert store.read(saved, "thing", 1).arrays["a"].tolist() == [0, 1, 2, 3]
    assert not [file.name for file in saved.iterdir() if file.is_symlink()]


@pytest.mark.parametrize("lead", [linked, second_name])
def test_a_lock_that_leads_elsewhere_is_refused(saved: Path, theirs: Path, lead: Callable[[Path, Path], None]) -> None:
    lead(saved / ".lock", theirs / "file")
    with pytest.raises(InvalidInputError):
        write_again(saved)
    assert untouched(theirs)


def test_a_lock_that_is_a_pipe_is_refused(saved: Path) -> None:
    (saved / ".lock").unlink()
    os.mkfifo(saved / ".lock")
    with raises("not-a-file", InvalidInputError):
        write_again(saved)


def test_a_folder_of_ours_that_is_a_link_is_neither_filled_nor_emptied(saved: Path, theirs: Path) -> None:
    linked(saved / ".part", theirs)
    for work in (disk.remove_folder, disk.make_own_folder):
        with raises("link", InvalidInputError):
            work(saved / ".part")
    (saved / ".part").unlink()
    (saved / ".part" / "below").mkdir(parents=True)
    linked(saved / ".part" / "link", theirs)
    linked(saved / ".part" / "below" / "link", theirs / "file")
    disk.remove_folder(saved / ".part")
    assert not (saved / ".part").exists()
    assert untouched(theirs)


def test_a_manifest_that_is_a_link_is_replaced(saved: Path, theirs: Path) -> None:
    (theirs / "file").write_bytes((saved / "manifest.json").read_bytes())
    linked(saved / "manifest.json", theirs / "file")
    before = (theirs / "file").read_bytes()
    write_again(saved)
    assert (theirs / "file").read_bytes() == before
    assert not (saved / "manifest.json").is_symlink()


def test_an_appended_file_is_never_one_that_leads_elsewhere(tmp_path: Path, theirs: Path) -> None:
    linked(tmp_path / "a", theirs / "file")
    second_name(tmp_path / "b", theirs / "file")
    with pytest.raises(OSError, match="symbolic"):
        disk.open_append(tmp_path / "a")
    with raises("not-a-file", InvalidInputError):
        disk.open_append(tmp_path / "b")
    assert untouched(theirs)


def test_a_folder_named_like_a_file_of_ours_stops_nothing(saved: Path) -> None:
    (saved / "a-7.npy").mkdir()
    write_again(saved)
    assert store.read(saved, "thing", 1).arrays["a"].tolist() == [0, 1, 2, 3]


# -- what is left over ------------------------------------------------------------------------------------------------


def test_what_a_killed_cleanup_left_is_removed_by_the_next_writer(saved: Path) -> None:
    """Whatever the next writer does, and if it writes nothing."""
    before = {name: (saved / name).read_bytes() for name in ("a-1.npy", "manifest-1.json")}
    write_again(saved)
    for name, content in before.items():
        (saved / name).write_bytes(content)
    (saved / "a-3.npy").write_bytes(b"never finished")
    (saved / "manifest.json.draft").write_bytes(b"{")
    (saved / "notes-1.json").write_bytes(b"{}")
    with store.writing(saved, "thing"):
        pass
    names = {"a-2.npy", "manifest-2.json", "manifest.json", ".lock", "notes-1.json"}
    assert {file.name for file in saved.iterdir()} == names


def test_files_that_only_an_earlier_generation_had_go_too(saved: Path) -> None:
    with store.writing(saved, "thing") as writer:
        writer.write(1, {}, {"b": np.arange(4)})
        assert not list(saved.glob("a-*"))
        (saved / "c-9.npy").write_bytes(b"never finished")
    with store.writing(saved, "thing", ["c.npy"]):
        pass
    assert not list(saved.glob("c-*"))


def test_nothing_is_tidied_where_the_manifest_is_lost_or_an_old_one(saved: Path) -> None:
    old = (saved / "manifest.json").read_bytes()
    write_again(saved)
    (saved / "manifest.json").write_bytes(old)
    with store.writing(saved, "thing"):
        assert (saved / "a-2.npy").exists()
    (saved / "manifest.json").unlink()
    with store.writing(saved, "thing"):
        assert (saved / "a-2.npy").exists()
        assert (saved / "manifest-2.json").exists()


# -- space ------------------------------------------------------------------------------------------------------------


def test_scratch_has_its_space_where_the_system_cannot_reserve_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS."""
    without = {name: getattr(os, name) for name in dir(os) if name != "posix_fallocate"}
    monkeypatch.setattr(disk, "os", SimpleNamespace(**without))
    monkeypatch.setattr(disk, "CHUNK", 1000)
    array = disk.scratch(tmp_path / "x", np.float32, (101, 7))
    array[:] = np.arange(7)
    del array
    assert (tmp_path / "x").stat().st_size == 101 * 7 * 4
    assert (tmp_path / "x").stat().st_blocks * 512 >= 101 * 7 * 4  # no hole
    assert np.fromfile(tmp_path / "x", np.float32).reshape(101, 7)[100].tolist() == list(range(7))


@pytest.mark.parametrize("fallocate", [True, False])
def test_scratch_on_a_full_disk_is_an_error_and_no_bus_error(
    tmp_path: Path, fallocate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fallocate:
        monkeypatch.delattr(os, "posix_fallocate")
    with faulty(1, "ENOSPC"), pytest.raises(OSError, match="No space"):
        disk.scratch(tmp_path / "x", np.float32, (10, 10))


# -- arrays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0,), (3,), (3, 4), (0, 5), (2, 3, 4), (1, 1, 1, 1, 1, 1, 1, 1)])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_, ">f4"])
def test_arrays_come_back_mapped_and_read(tmp_path: Path, shape: tuple[int, ...], kind: Any) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(kind)
    if shape == ():
        np.save(tmp_path / "a.npy", array)
    else:
        disk.write(tmp_path / "a.npy", disk.npy(array))
    for content in (None, (tmp_path / "a.npy").read_bytes()):
        found = read_array(tmp_path / "a.npy", content)
        assert (found.dtype, found.shape) == (array.dtype, shape)
        np.testing.assert_array_equal(found, array)
        assert not found.flags.writeable


def test_numpy_reads_what_we_write(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    disk.write(tmp_path / "a.npy", disk.npy(array.T))
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy", allow_pickle=False), array.T)


def test_every_bit_of_a_header_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file is not compared with its checksum, so that its header must speak for itself."""
    monkeypatch.setattr(store, "SMALL", 10)
    file = tmp_path / "a-1.npy"
    written = disk.write(file, disk.npy(np.arange(300, dtype=np.float32).reshape(100, 3)))
    content = file.read_bytes()
    listed = {"bytes": written.bytes, "sha256": written.sha256}
    seen = 0
    for place in range(128):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            file.write_bytes(changed)
            try:
                found = store.open_file(file, listed, verify=False)
            except DamagedError:
                seen += 1
            else:  # another type of the same size, or another shape of as many
                assert found is not None
                assert found.nbytes == 1200
                assert (found.dtype, found.shape) != (np.dtype(np.float32), (100, 3))
    assert seen > 1000


@given(st.binary(max_size=200), st.integers(0, 130), st.integers(0, 40))
def test_no_header_is_more_than_damage(tmp_path_factory: Any, piece: bytes, at: int, cut: int) -> None:
    whole = b"".join(bytes(part) for part in disk.npy(np.arange(30, dtype=np.int32)))
    content = whole[:at] + piece + whole[at + cut :]
    file = tmp_path_factory.getbasetemp() / f"{secrets.token_hex(4)}.npy"
    file.write_bytes(content)
    for read in (content, None):
        try:
            found = read_array(file, read)
        except NotAnArrayError:
            continue
        assert found.nbytes <= len(content)
    file.unlink()
