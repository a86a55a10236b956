"""Damage of every kind: seen, named, never a crash, and repaired."""

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifind import DamagedError, InvalidInputError
from manifind.index import Index
from manifind.index.maintenance.check import Remedy, check
from manifind.index.storage.catalogue import Catalogue, ImageRecord, SkippedRecord, SkipReason
from manifind.storage import store
from tests.attack.index import STATEMENTS
from tests.index.signing import MANIFEST, resigned
from tests.index.small import save_photo, small_extractor, small_index

EXTRACTOR = small_extractor()
Answer = dict[str, float]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("whole")
    return small_index(base, 8, extractor=EXTRACTOR).path


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another index with as many photos of the same size, so that files have the same length."""
    base = tmp_path_factory.mktemp("other")
    return small_index(base, 8, first=50, extractor=EXTRACTOR).path


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy.manifind"))


def answer(path: Path) -> Answer:
    return {hit.key: hit.score for hit in Index.open(path, extractor=EXTRACTOR).search("0.png", top=None)}


def arrays_and_catalogue(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir() if file.suffix in (".npy", ".sqlite"))


def truncated(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def extended(file: Path) -> None:
    with file.open("ab") as stream:
        stream.write(b"more")


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) * 3 // 4] ^= 4
    file.write_bytes(content)


def missing(file: Path) -> None:
    file.unlink()


def holding_objects(file: Path) -> None:
    """An array of objects, which only unpickling could read; the pickle would write a file."""
    with file.open("wb") as stream:
        np.save(stream, np.array([_Trap(file.parent / "trap")], dtype=object), allow_pickle=True)


class _Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_whole_index_has_no_problems(whole: Path) -> None:
    assert check(whole) == []


def test_an_index_of_one_region_a_photo_has_no_problems(tmp_path: Path) -> None:
    assert small_index(tmp_path, 8, extractor=EXTRACTOR, regions_per_image=1).check() == []


@pytest.mark.parametrize("damage", [truncated, extended, flipped, missing, holding_objects])
def test_every_damaged_file_is_named_and_repaired(
    copy: Path, whole: Path, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    expected = answer(whole)
    for name in arrays_and_catalogue(whole):
        shutil.rmtree(copy)
        shutil.copytree(whole, copy)
        damage(copy / name)
        (problem,) = check(copy)
        assert problem.what == name
        assert problem.is_damage
        with pytest.raises(DamagedError, match=name):
            Index.open(copy, extractor=EXTRACTOR, verify=True)
        with pytest.raises(DamagedError, match=name):  # these files are small, and looked at whenever they are opened
            Index.open(copy, extractor=EXTRACTOR)
        said = Index.repair(copy, extractor=EXTRACTOR)
        assert ("8 photos were extracted again" in said) == (problem.remedy is Remedy.EXTRACT)
        assert check(copy) == []
        assert answer(copy) == pytest.approx(expected, abs=1e-6)
        assert not (copy / "trap").exists()


def test_every_file_of_another_index_is_seen(copy: Path, whole: Path, other: Path) -> None:
    for name in arrays_and_catalogue(whole):
        if (whole / name).read_bytes() == (other / name).read_bytes():
            continue  # the same whitening, the same boxes
        shutil.copy(other / name, copy / name)
        assert [problem.what for problem in check(copy)] == [name]
        shutil.copy(whole / name, copy / name)


@pytest.mark.parametrize("name", ["../../outside-1.npy", "/etc/passwd", "..", "vectors.npy", None, 7])
def test_a_manifest_that_leads_out_of_its_folder_is_refused(copy: Path, name: Any) -> None:
    resigned(copy, lambda manifest: manifest["files"]["vectors.npy"].update(file=name))
    with pytest.raises(DamagedError, match="which is no file of a saved index"):
        Index.open(copy, extractor=EXTRACTOR)
    assert check(copy)[0].what == MANIFEST


def test_a_manifest_of_a_newer_format_says_so(copy: Path) -> None:
    resigned(copy, lambda manifest: manifest.update(version=99))
    with pytest.raises(DamagedError, match=r"format 99 .* install a newer manifind"):
        Index.open(copy, extractor=EXTRACTOR)


def test_a_lost_manifest_is_made_up_for_by_its_copy(copy: Path, whole: Path) -> None:
    (copy / MANIFEST).write_text("{")
    (problem,) = check(copy)
    assert (problem.what, problem.remedy) == (MANIFEST, Remedy.REBUILD_GRAPH)
    Index.repair(copy, extractor=EXTRACTOR)
    assert answer(copy) == pytest.approx(answer(whole), abs=1e-6)
    assert Index.open(copy, extractor=EXTRACTOR).info()["manifold"]["k"] == 15
    for file in copy.glob("manifest*"):
        file.write_text("{")
    assert check(copy)[0].remedy is Remedy.REBUILD_INDEX
    with pytest.raises(InvalidInputError, match="is not a saved index"):
        Index.repair(copy, extractor=EXTRACTOR)


def rewritten(path: Path, **changed: Callable[[Any], Any]) -> None:
    """Change arrays and sign for them: what is wrong now is wrong with a right checksum."""

    def change(manifest: dict[str, Any]) -> None:
        for name, edit in changed.items():
            listed = manifest["files"][f"{name}.npy"]
            array = np.load(path / listed["file"])
            np.save(path / listed["file"], edit(array))
            file = path / listed["file"]
            listed.update(bytes=file.stat().st_size, sha256=store.digest(file))

    resigned(path, change)


def with_entry(at: Any, value: Any) -> Callable[[Any], Any]:
    def edit(array: Any) -> Any:
        array[at] = value
        return array

    return edit


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"S_data": with_entry(3, 0.9)}, "S"),
        ({"S_data": with_entry(3, -0.1)}, "S_data"),
        ({"neighbour_ids": with_entry((5, 2), 10**6)}, "neighbour_ids"),
        ({"neighbour_ids": with_entry((5, 2), 5)}, "neighbour_ids"),
        ({"neighbour_similarities": with_entry((5, 0), -1)}, "neighbour_similarities"),
        ({"vectors": with_entry((4, 0), 3)}, "vectors"),
        ({"vectors": with_entry((4, 0), np.nan)}, "vectors"),
        ({"weights": with_entry(7, 9)}, "weights"),
        ({"degrees": with_entry(7, -1)}, "degrees"),
        ({"boxes": with_entry((3, 2), 1e6)}, "boxes"),
    ],
)
def test_what_cannot_be_is_seen_behind_right_checksums(
    copy: Path, whole: Path, changed: dict[str, Callable[[Any], Any]], what: str
) -> None:
    rewritten(copy, **changed)
    assert what in {problem.what for problem in check(copy)}
    Index.open(copy, extractor=EXTRACTOR)
    Index.repair(copy, extractor=EXTRACTOR)
    assert check(copy) == []
    assert answer(copy) == pytest.approx(answer(whole), abs=1e-6)


@pytest.mark.parametrize(
    "changed",
    [
        {"S_indices": with_entry(3, 10**6)},
        {"S_indices": with_entry(3, -5)},
        {"S_indptr": with_entry(1, 10**6)},
        {"starts": with_entry(1, 10**6)},
        {"starts": with_entry(-1, 3)},
    ],
)
def test_ids_that_lead_nowhere_are_an_error_before_compiled_code_follows_them(
    copy: Path, changed: dict[str, Callable[[Any], Any]]
) -> None:
    rewritten(copy, **changed)
    opened = Index.open(copy, extractor=EXTRACTOR)
    with pytest.raises(DamagedError, match=next(iter(changed))):
        opened.search("0.png")
    assert check(copy)[0].remedy is Remedy.EXTRACT


def test_descriptors_that_are_no_numbers_are_damage_to_a_search(copy: Path) -> None:
    rewritten(copy, vectors=with_entry((4, 0), np.nan))
    with pytest.raises(DamagedError):
        Index.open(copy, extractor=EXTRACTOR).search("0.png", (3, 4, 40, 40))


def test_ids_that_are_overwritten_while_they_are_searched_are_seen(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifind.storage.store.SMALL", 64)  # so that all arrays are mapped
    opened = Index.open(copy, extractor=EXTRACTOR)
    assert opened.search("0.png")
    (file,) = copy.glob("S_indices-*.npy")
    with file.open("r+b") as stream:
        stream.seek(-40, os.SEEK_END)
        stream.write(b"\x7f" * 40)
    with pytest.raises(DamagedError, match="S_indices"):
        opened.search("1.png")


@pytest.mark.parametrize(
    "changed",
    [
        {"vectors": lambda array: array[:-1]},
        {"vectors": lambda array: array.astype(np.float64)},
        {"S_indptr": lambda array: array[:-1]},
        {"neighbour_ids": lambda array: array[:, :3]},
        {"boxes": lambda array: array[:, :3]},
        {"starts": lambda array: array[:-1]},
        {"boxes": lambda array: array.astype(np.float64)},
        {"boxes": lambda array: array.T},
        {"images": lambda array: array + 1},
        {"images": lambda array: array * 2},
        {"images": lambda array: array[:0], "starts": lambda array: array[:1]},
        {"global_vectors": lambda array: array[:, :-1]},
        {"whitening_mean": lambda array: array[:-1]},
        {"whitening_mean": lambda array: array.astype(np.float64)},
        {"whitening_project": lambda array: array[:, :-1]},
        {"degrees": lambda array: array[0]},
        {"vectors": lambda array: array[0, 0]},
        {"neighbour_ids": lambda array: array.astype(np.int64)},
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(copy: Path, changed: dict[str, Callable[[Any], Any]]) -> None:
    rewritten(copy, **changed)
    with pytest.raises(DamagedError, match=r"copy\.manifind"):
        Index.open(copy, extractor=EXTRACTOR)
    assert check(copy)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_catalogue_with_anything_else_in_it_is_damage(copy: Path, statement: str) -> None:
    """Tables, views and triggers of somebody's own, and rows that are none, behind right checksums."""
    (file,) = copy.glob("images-*.sqlite")
    connection = sqlite3.connect(file)
    connection.executescript(statement)
    connection.close()
    resigned(
        copy,
        lambda manifest: manifest["files"]["images.sqlite"].update(
            bytes=file.stat().st_size, sha256=store.digest(file)
        ),
    )
    started = time.process_time()
    try:
        opened = Index.open(copy, extractor=EXTRACTOR)
        list(opened.search("0.png", top=None))
        opened.info()
        seen = False
    except (DamagedError, InvalidInputError):
        seen = True
    assert time.process_time() - started < 10
    harmless = statement.startswith("INSERT INTO skipped SELECT") or "key = '" in statement
    assert seen != harmless


def test_a_look_up_ends(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifind.index.storage.catalogue.STEPS_AT_A_TIME", 1)
    monkeypatch.setattr("manifind.index.storage.catalogue.STEPS_A_BYTE", 0)
    with pytest.raises(DamagedError, match="interrupted"):
        Index.open(copy, extractor=EXTRACTOR)


def test_all_photos_can_be_listed_within_the_steps(tmp_path: Path) -> None:
    """The fewest bytes a photo, and the most steps."""
    records = [ImageRecord(i, f"{i}", f"{i}", 1, 1, 1, 1) for i in range(20_000)]
    skipped = [SkippedRecord(f"{i}x", SkipReason.REMOVED) for i in range(20_000)]
    (tmp_path / "images-1.sqlite").write_bytes(Catalogue.of(records, skipped).to_bytes())
    opened = Catalogue.open(tmp_path / "images-1.sqlite")
    assert len(opened.images) == len(opened.skipped) == 20_000
    opened.close()


def test_photos_gone_or_changed_are_told_and_are_no_damage(whole: Path, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    shutil.copytree(Path(Index.open(whole).root), photos)
    made = Index.create(tmp_path / "i.manifind", photos, extractor=EXTRACTOR, k=15)
    (photos / "2.png").unlink()
    save_photo(photos / "3.png", 99)
    problems = made.check()
    assert [(one.what, one.wrong) for one in problems] == [
        ("2.png", "the photo is gone"),
        ("3.png", "the photo has changed since"),
    ]
    assert not any(one.is_damage for one in problems)
    assert Index.repair(made.path, extractor=EXTRACTOR) == "nothing is damaged"
    made.sync()
    assert made.check() == []


def test_repairing_needs_the_extractor_that_made_it(copy: Path) -> None:
    truncated(next(copy.glob("S_data-*.npy")))
    with pytest.raises(InvalidInputError, match="custom extractor"):
        Index.repair(copy)


@pytest.mark.parametrize("name", ["S_data", "vectors", "weights"])
def test_a_score_that_no_whole_index_gives_is_an_error(copy: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Large files are not compared with their checksums when an index is opened."""
    assert max(answer(copy).values()) < 1
    monkeypatch.setattr(store, "SMALL", 64)
    (file,) = copy.glob(f"{name}-*.npy")
    array = np.load(file)
    array[..., : len(array) // 2] *= np.array(6e4, array.dtype)
    np.save(file, array)
    with pytest.raises(DamagedError) as error:
        answer(copy)
    assert error.value.code == "impossible-score"
    assert "manifind check" in str(error.value)
    assert any(problem.is_damage for problem in Index.open(copy, extractor=EXTRACTOR).check())
