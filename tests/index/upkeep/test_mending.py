"""Relearning, interruption, damage and repair."""

from pathlib import Path

import pytest

from manifind import Damaged, InvalidInput
from manifind.describe import Describer
from manifind.index import Index
from manifind.index import index as index_module
from tests.index.small import save_photo
from tests.index.upkeep.fresh import PARAMETERS, Counting, assert_as_fresh


def test_a_whitening_is_learnt_again_when_asked_and_recommended_when_wise(
    folder: Path, tmp_path: Path, describer: Counting
) -> None:
    made = Index.create(tmp_path / "i.manifind", folder, describer=describer, **PARAMETERS)
    before = made.describer.fingerprint()["whitening"]
    made.relearn()
    facts = made.info()["whitening"]
    assert (facts["from"], facts["photos"]) == ("learnt", 8)
    assert "--relearn" not in facts["words"]
    assert made.describer.fingerprint()["whitening"] != before
    assert Index.open(made.path, describer=made.describer).search("1.png", top=1)[0].key == "1.png"
    again = made.describer.fingerprint()["whitening"]
    for seed in range(40, 50):
        save_photo(folder / f"{seed}.png", seed)
    made.sync()  # what comes is described with what was learnt
    assert made.describer.fingerprint()["whitening"] == again
    assert "learning it again would be wise" in made.info()["whitening"]["words"]


def test_a_making_that_was_interrupted_goes_on_to_what_one_that_was_not_comes_to(
    folder: Path, tmp_path: Path, describer: Counting
) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "photos" and done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Index.create(tmp_path / "i.manifind", folder, describer=describer, progress=interrupt, **PARAMETERS)
    describer.described = 0
    made = Index.create(tmp_path / "i.manifind", folder, describer=describer, **PARAMETERS)
    assert describer.described == 3
    assert not (made.path / ".part").exists()
    assert_as_fresh(made, Index.create(tmp_path / "whole.manifind", folder, describer=describer, **PARAMETERS))


def test_an_interrupted_run_keeps_what_it_described_across_other_changes(
    made: Index, folder: Path, describer: Counting
) -> None:
    for seed in range(60, 66):
        save_photo(folder / "more" / f"{seed}.png", seed)

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "photos" and done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.sync(progress=interrupt)
    made.remove(["2.png"])
    describer.described = 0
    assert made.sync().described == 6
    assert describer.described == 2
    assert not (made.path / ".part").exists()


def test_an_interrupted_relearning_goes_on_where_it_stopped(made: Index) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "photos" and done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.relearn(progress=interrupt)
    seen: list[tuple[str, int, int]] = []
    changes = made.relearn(progress=lambda *at: seen.append(at))
    assert (changes.described, changes.kept, changes.moved) == (8, 0, 0)
    assert ("photos", 0, 3) in seen


def test_the_maker_of_an_index_can_open_and_repair_it_after_relearning(made: Index, describer: Counting) -> None:
    reader = Index.open(made.path, describer=describer)
    made.relearn()
    reader.reload()
    again = Index.open(made.path, describer=describer)
    assert [hit.key for hit in reader.search("1.png")] == [hit.key for hit in again.search("1.png")]
    next(made.path.glob("S_data-*.npy")).write_bytes(b"")
    assert "built anew" in Index.repair(made.path, describer=describer)
    next(made.path.glob("whitening_mean-*.npy")).write_bytes(b"")
    assert Index.repair(made.path, describer=describer) == (
        "the whitening was learnt and 8 photos were described again"
    )


def test_repairing_with_another_describer_is_refused(made: Index, describer: Counting) -> None:
    next(made.path.glob("S_data-*.npy")).write_bytes(b"")
    other = Describer(describer.backbone, describer.whitening, long_side=32)
    with pytest.raises(InvalidInput, match="give the describer that made it"):
        Index.repair(made.path, describer=other)


def test_an_index_that_lost_its_manifest_is_not_made_over(made: Index, folder: Path, describer: Counting) -> None:
    (made.path / "manifest.json").unlink()
    with pytest.raises(InvalidInput, match="--repair puts it back"):
        Index.create(made.path, folder, describer=describer)
    assert Index.repair(made.path, describer=describer) == "the manifest was put back from its copy"
    assert Index.open(made.path, describer=describer).info()["manifold"]["k"] == 15


def test_a_writer_does_not_sign_for_damage(made: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files larger than those that are looked at whenever they are opened."""
    monkeypatch.setattr("manifind.storage.store.SMALL", 0)
    for name in ("vectors", "neighbour_similarities", "S_indices"):
        file = next(made.path.glob(f"{name}-*.npy"))
        whole = file.read_bytes()
        altered = bytearray(whole)
        altered[-1] ^= 64
        file.write_bytes(altered)
        opened = Index.open(made.path, describer=made.describer)
        with pytest.raises(Damaged, match=f"{name}.*--repair"):
            opened.remove(["1.png"])
        if name == "S_indices":
            with pytest.raises(Damaged, match="S_indices"):
                opened.info()
        file.write_bytes(whole)
    made.remove(["1.png"])


def test_an_index_of_another_format_says_what_to_do(made: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "FORMAT", 3)
    monkeypatch.setattr("manifind.index.state.generation.FORMAT", 3)
    with pytest.raises(Damaged, match="format 2 and this manifind reads format 3; make it again"):
        Index.open(made.path)
    monkeypatch.setattr("manifind.index.state.generation.FORMAT", 1)
    with pytest.raises(Damaged, match="install a newer manifind"):
        Index.open(made.path)
