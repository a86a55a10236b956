"""What changed in the folder changes in the index, and nothing else is done again."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manifind import InvalidInputError
from manifind.index import Changes, Index
from manifind.index.build import gather
from manifind.index.storage.catalogue import SkipReason
from tests.index.small import save_photo
from tests.index.upkeep.fresh import Counting


def test_a_second_run_does_only_what_changed(made: Index, folder: Path, extractor: Counting) -> None:
    extractor.extracted = 0
    generation = made.generation
    assert made.sync() == Changes(extracted=0, kept=8, moved=0, removed=0, skipped=0)
    assert made.generation == generation
    (folder / "1.png").rename(folder / "9.png")
    (folder / "2.png").touch()
    (folder / "3.png").unlink()
    save_photo(folder / "4.png", 44)
    save_photo(folder / "5-new.png", 55)
    assert made.sync() == Changes(extracted=2, kept=5, moved=1, removed=1, skipped=0)
    assert extractor.extracted == 2
    assert made.generation == generation + 1


def test_a_photo_that_cannot_be_read_any_more_is_named_apart_from_one_that_is_gone(made: Index, folder: Path) -> None:
    (folder / "1.png").write_bytes((folder / "1.png").read_bytes()[:60])
    (folder / "2.png").unlink()
    changes = made.sync()
    assert (changes.removed, changes.unreadable, changes.kept) == (1, ("1.png",), 6)
    assert made.sync().unreadable == ()  # it is news once
    save_photo(folder / "1.png", 1)
    assert made.sync().extracted == 1


def test_a_touched_photo_costs_a_catalogue_and_no_array(made: Index, folder: Path) -> None:
    arrays = {file.name for file in made.path.glob("*.npy")}
    (folder / "2.png").touch()
    made.sync()
    assert {file.name for file in made.path.glob("*.npy")} == arrays
    assert made.generation == 2
    assert Index.open(made.path, extractor=made.extractor, verify=True).check() == []


def test_the_clock_going_back_hides_no_change(made: Index, folder: Path) -> None:
    save_photo(folder / "4.png", 44)
    os.utime(folder / "4.png", ns=(0, 0))
    assert made.sync().extracted == 1


def test_a_change_that_keeps_the_size_of_a_file_is_seen(made: Index, folder: Path) -> None:
    for seed in (44, 45):
        save_photo(folder / "4.png", seed)
        os.truncate(folder / "4.png", 20_000)  # zeros behind a photo do not matter
        assert made.sync().extracted == 1


def test_what_was_removed_by_hand_stays_removed_until_it_is_added(made: Index, folder: Path) -> None:
    assert made.remove(["3.png"]) == Changes(extracted=0, kept=7, moved=0, removed=1, skipped=1)
    made.sync()
    assert made.catalogue.of_key("3.png") is None
    assert [(one.key, one.code) for one in made.catalogue.skipped] == [("3.png", SkipReason.REMOVED)]
    made.add([folder / "3.png"])
    assert made.catalogue.of_key("3.png") is not None
    assert made.catalogue.skipped == []


def test_photos_are_added_by_path_folder_or_key(made: Index, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in (21, 22, 23, 24):
        save_photo(folder / ("below" if seed < 23 else "") / f"{seed}.png", seed)
    monkeypatch.chdir(folder.parent)
    assert made.add(["below", "photos/23.png", folder / "24.png"]).extracted == 4
    assert [one.key for one in made.catalogue.images][:4] == ["0.png", "1.png", "2.png", "23.png"]
    assert made.catalogue.of_key("below/21.png") is not None


def test_what_cannot_be_added_or_removed_is_named(made: Index, tmp_path: Path, folder: Path) -> None:
    save_photo(tmp_path / "elsewhere.png", 1)
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    wrongs: list[tuple[Callable[[], object], str]] = [
        (lambda: made.add([tmp_path / "elsewhere.png"]), "not below root"),
        (lambda: made.add([folder / "nowhere.png"]), "does not exist"),
        (lambda: made.add("3.png"), "give a list"),
        (lambda: made.remove("3.png"), "give a list"),
        (lambda: made.remove(["7.png", "70.png"]), r"1 of the keys are not in the index, '70\.png' first"),
        (lambda: made.remove([f"{i}.png" for i in range(8)]), "remove its folder instead"),
    ]
    for wrong, words in wrongs:
        with pytest.raises(InvalidInputError, match=words):
            wrong()
    assert made.generation == 1
    assert made.add([folder / "broken.png"]).skipped == 1
    assert len(made) == 8


def test_photos_that_are_all_gone_are_taken_for_a_disk_that_is_not_there(made: Index, folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    with pytest.raises(InvalidInputError, match="not there"):
        made.sync()
    folder.mkdir()
    with pytest.raises(InvalidInputError, match="stays as it was"):
        made.sync()
    assert len(Index.open(made.path, extractor=made.extractor)) == 8
    # It can follow the folder, without extracting anything again.
    assert vars(made.sync(folder.with_name("elsewhere")))["kept"] == 8
    assert made.root == folder.with_name("elsewhere")


def test_a_photo_that_vanishes_between_listing_and_reading_is_passed_over(made: Index, folder: Path) -> None:
    save_photo(folder / "soon-gone.png", 70)

    def vanish(stage: str, done: int, total: int) -> None:
        if stage == "files" and done == total:
            (folder / "soon-gone.png").unlink()

    changes = made.sync(progress=vanish)
    assert (changes.extracted, changes.skipped) == (0, 1)
    assert made.catalogue.skipped[0].reason == "no such file"
    assert made.sync().skipped == 0


def test_paths_are_taken_for_what_they_lead_to(made: Index, folder: Path, tmp_path: Path) -> None:
    save_photo(folder / "sub" / "a.png", 71)
    save_photo(folder / "b.png", 72)
    save_photo(folder / ".hidden.png", 73)
    save_photo(tmp_path / "out.png", 74)
    made.add([folder / "sub" / ".." / "b.png", "sub/a.png"])
    assert {"b.png", "sub/a.png"} <= {one.key for one in made.catalogue.images}
    with pytest.raises(InvalidInputError, match="not below root"):
        made.add([folder / ".." / "out.png"])
    with pytest.raises(InvalidInputError, match="hidden"):
        made.add([folder / ".hidden.png"])


def test_a_photo_replaced_while_others_were_extracted_is_left_for_the_next_run(made: Index, folder: Path) -> None:
    save_photo(folder / "new.png", 80)

    def replaced(stage: str, done: int, total: int) -> None:
        if stage == "files" and done == total:
            save_photo(folder / "new.png", 81)
            os.utime(folder / "new.png", ns=(5, 5))

    assert made.sync(progress=replaced).extracted == 0
    assert "changed while" in made.catalogue.skipped[0].reason
    assert made.sync().extracted == 1


def test_photos_of_a_folder_that_cannot_be_listed_stay(
    made: Index, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (21, 22):
        save_photo(folder / "below" / f"{seed}.png", seed)
    made.sync()
    real = os.scandir

    def scandir(path: Any) -> Any:
        if Path(os.fsdecode(path)).name == "below":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    changes = made.sync()
    monkeypatch.undo()
    assert changes.removed == 0
    assert made.catalogue.of_key("below/21.png") is not None


def test_copies_and_broken_photos_are_not_read_again_while_they_are_the_same(
    made: Index, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(folder / "1.png", folder / "copy.png")
    (folder / "broken.png").write_bytes((folder / "2.png").read_bytes()[:200])
    made.sync()
    before = made.catalogue.skipped
    assert [(one.key, one.reason) for one in before] == [
        ("broken.png", "truncated"),
        ("copy.png", "the same content as 1.png"),
    ]
    read: list[str] = []
    for name in ("content_hash", "extract_ahead"):
        real = getattr(gather, name)

        def noted(what: Any, *others: Any, real: Any = real, **named: Any) -> Any:
            what = list(what) if not isinstance(what, Path) else what
            read.extend([what.name] if isinstance(what, Path) else [one.key for one in what])
            return real(what, *others, **named)

        monkeypatch.setattr(gather, name, noted)
    made.sync()
    assert read == []
    assert made.catalogue.skipped == before
    # The original goes, and its copy is a photo; the broken one is replaced by a whole one.
    (folder / "1.png").unlink()
    save_photo(folder / "broken.png", 90)
    changes = made.sync()
    assert (changes.extracted, changes.moved, changes.skipped) == (1, 1, 0)
    assert made.catalogue.of_key("copy.png") is not None
