"""Relearning, interruption, damage and repair."""

from pathlib import Path

import pytest

from manifind import DamagedError, InvalidInputError
from manifind.features import RegionExtractor
from manifind.index import Index
from tests.index.small import save_photo
from tests.index.upkeep.fresh import PARAMETERS, Counting, assert_as_fresh


def test_a_whitening_is_learnt_again_when_asked_and_recommended_when_wise(
    folder: Path, tmp_path: Path, extractor: Counting
) -> None:
    made = Index.create(tmp_path / "i.manifind", folder, extractor=extractor, **PARAMETERS)
    before = made.extractor.fingerprint()["whitening"]
    made.retrain_whitening()
    facts = made.info()["whitening"]
    assert (facts["from"], facts["photos"]) == ("learnt", 8)
    assert "--retrain-whitening" not in facts["words"]
    assert made.extractor.fingerprint()["whitening"] != before
    assert Index.open(made.path, extractor=made.extractor).search("1.png", top=1)[0].key == "1.png"
    again = made.extractor.fingerprint()["whitening"]
    for seed in range(40, 50):
        save_photo(folder / f"{seed}.png", seed)
    made.sync()  # what comes is extracted with what was learnt
    assert made.extractor.fingerprint()["whitening"] == again
    assert "learning it again would be wise" in made.info()["whitening"]["words"]


def test_a_making_that_was_interrupted_goes_on_to_what_one_that_was_not_comes_to(
    folder: Path, tmp_path: Path, extractor: Counting
) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "photos" and done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Index.create(tmp_path / "i.manifind", folder, extractor=extractor, progress=interrupt, **PARAMETERS)
    extractor.extracted = 0
    made = Index.create(tmp_path / "i.manifind", folder, extractor=extractor, **PARAMETERS)
    assert extractor.extracted == 3
    assert not (made.path / ".part").exists()
    assert_as_fresh(made, Index.create(tmp_path / "whole.manifind", folder, extractor=extractor, **PARAMETERS))


def test_an_interrupted_run_keeps_what_it_extracted_across_other_changes(
    made: Index, folder: Path, extractor: Counting
) -> None:
    for seed in range(60, 66):
        save_photo(folder / "more" / f"{seed}.png", seed)

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "photos" and done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.sync(progress=interrupt)
    made.remove(["2.png"])
    extractor.extracted = 0
    assert made.sync().extracted == 6
    assert extractor.extracted == 2
    assert not (made.path / ".part").exists()


def test_an_interrupted_relearning_goes_on_where_it_stopped(made: Index) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "photos" and done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.retrain_whitening(progress=interrupt)
    seen: list[tuple[str, int, int]] = []
    changes = made.retrain_whitening(progress=lambda *at: seen.append(at))
    assert (changes.extracted, changes.kept, changes.moved) == (8, 0, 0)
    assert ("photos", 0, 3) in seen


def test_the_maker_of_an_index_can_open_and_repair_it_after_relearning(made: Index, extractor: Counting) -> None:
    reader = Index.open(made.path, extractor=extractor)
    made.retrain_whitening()
    reader.reload()
    again = Index.open(made.path, extractor=extractor)
    assert [hit.key for hit in reader.search("1.png")] == [hit.key for hit in again.search("1.png")]
    next(made.path.glob("S_data-*.npy")).write_bytes(b"")
    assert "built anew" in Index.repair(made.path, extractor=extractor)
    next(made.path.glob("whitening_mean-*.npy")).write_bytes(b"")
    assert Index.repair(made.path, extractor=extractor) == (
        "the whitening was learnt and 8 photos were extracted again"
    )


def test_repairing_with_another_extractor_is_refused(made: Index, extractor: Counting) -> None:
    next(made.path.glob("S_data-*.npy")).write_bytes(b"")
    other = RegionExtractor(extractor.backbone, extractor.whitening, long_side=32)
    with pytest.raises(InvalidInputError, match="give the extractor that made it"):
        Index.repair(made.path, extractor=other)


def test_an_index_that_lost_its_manifest_is_not_made_over(made: Index, folder: Path, extractor: Counting) -> None:
    (made.path / "manifest.json").unlink()
    with pytest.raises(InvalidInputError, match="--repair puts it back"):
        Index.create(made.path, folder, extractor=extractor)
    assert Index.repair(made.path, extractor=extractor) == "the manifest was put back from its copy"
    assert Index.open(made.path, extractor=extractor).info()["manifold"]["k"] == 15


def test_a_writer_does_not_sign_for_damage(made: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files larger than those that are looked at whenever they are opened."""
    monkeypatch.setattr("manifind.storage.store.SMALL", 0)
    for name in ("vectors", "neighbour_similarities", "S_indices"):
        file = next(made.path.glob(f"{name}-*.npy"))
        whole = file.read_bytes()
        altered = bytearray(whole)
        altered[-1] ^= 64
        file.write_bytes(altered)
        opened = Index.open(made.path, extractor=made.extractor)
        with pytest.raises(DamagedError, match=f"{name}.*--repair"):
            opened.remove(["1.png"])
        if name == "S_indices":
            with pytest.raises(DamagedError, match="S_indices"):
                opened.info()
        file.write_bytes(whole)
    made.remove(["1.png"])


def test_an_index_of_another_format_says_what_to_do(made: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifind.index.storage.manifest.FORMAT", 4)
    monkeypatch.setattr("manifind.index.storage.manifest.OLDEST_FORMAT", 4)
    with pytest.raises(DamagedError, match="format 3 and this manifind reads format 4; make it again"):
        Index.open(made.path)
    monkeypatch.setattr("manifind.index.storage.manifest.FORMAT", 2)
    monkeypatch.setattr("manifind.index.storage.manifest.OLDEST_FORMAT", 2)
    with pytest.raises(DamagedError, match="install a newer manifind"):
        Index.open(made.path)
