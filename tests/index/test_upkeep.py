"""An index that follows its photos, against one made afresh; readers beside a writer."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from manifind import Damaged, InvalidInput
from manifind.describe import Describer
from manifind.graph import Built
from manifind.index import Estimate, Index, estimate, gather
from manifind.index import index as index_module
from manifind.index.catalogue import REMOVED
from manifind.index.health import health
from manifind.index.kept import KEEPING
from manifind.index.manifest import FORMAT, KIND
from manifind.manifold import Manifold
from manifind.storage import store
from tests.collections_of_regions import unit
from tests.index.small import save_photo, save_photos, small_describer

PARAMETERS: dict[str, Any] = {"k": 15, "query_k": 12, "alpha": 0.99}


class Counting(Describer):
    """Counts the photos that it describes."""

    described = 0

    def describe(self, *arguments: Any, **keywords: Any) -> Any:
        self.described += 1
        return super().describe(*arguments, **keywords)


@pytest.fixture
def describer() -> Counting:
    small = small_describer()
    return Counting(small.backbone, small.whitening)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_photos(tmp_path / "photos", 8)


@pytest.fixture
def made(folder: Path, tmp_path: Path, describer: Counting) -> Index:
    return Index.create(tmp_path / "i.manifind", folder, describer=describer, **PARAMETERS)


def assert_as_fresh(made: Index, fresh: Index) -> None:
    """The same photos, and up to ties the same graph: the same answers."""
    assert [one.key for one in made.catalogue.images] == [one.key for one in fresh.catalogue.images]
    np.testing.assert_array_equal(made.manifold.vectors_, fresh.manifold.vectors_)
    np.testing.assert_array_equal(made.boxes, fresh.boxes)
    a, b = made.manifold.neighbours_, fresh.manifold.neighbours_
    np.testing.assert_allclose(a.similarities, b.similarities, atol=1e-6)
    X = made.manifold.vectors_.astype(np.float64)
    for i in np.flatnonzero((np.sort(a.ids) != np.sort(b.ids)).any(axis=1)):
        # Other neighbours only where the last are equally similar.
        differ = np.setxor1d(a.ids[i], b.ids[i])
        np.testing.assert_allclose(X[differ] @ X[i], a.similarities[i, -1], atol=1e-6)
    np.testing.assert_allclose(made.manifold.weights_, fresh.manifold.weights_, atol=1e-5)
    np.testing.assert_allclose(made.manifold.global_vectors_, fresh.manifold.global_vectors_, atol=1e-6)
    if np.array_equal(np.sort(a.ids), np.sort(b.ids)):
        for key in [one.key for one in made.catalogue.images][:2]:
            found, expected = ({hit.key: hit.score for hit in one.search(key, top=None)} for one in (made, fresh))
            assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)  # rounding, a hundredfold at α = 0.99


class Upkeep(RuleBasedStateMachine):
    """A folder that changes at random, and an index that follows by whatever call fits."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.base = Path(self.temporary.name)
        self.folder = self.base / "photos"
        self.describer = small_describer()
        self.seeds = iter(range(100, 10_000))
        self.made: Index | None = None
        self.behind = False

    def teardown(self) -> None:
        self.temporary.cleanup()

    @initialize(count=st.integers(1, 6), k=st.integers(2, 40))
    def start(self, count: int, k: int) -> None:
        self.parameters = {"k": k, "query_k": 10}
        for seed in range(count):
            save_photo(self.folder / f"{seed}.png", seed)
        self.made = Index.create(
            self.base / "i.manifind",
            self.folder,
            describer=self.describer,
            **self.parameters,  # type: ignore[arg-type]
        )

    @property
    def keys(self) -> list[str]:
        return sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*.png"))

    @rule(count=st.integers(1, 3), below=st.sampled_from(["", "a/", "z/"]))
    def add(self, count: int, below: str) -> None:
        assert self.made is not None
        paths = []
        for _ in range(count):
            seed = next(self.seeds)
            paths.append(self.folder / f"{below}{seed % 7}-{seed}.png")
            save_photo(paths[-1], seed)
        if self.behind:
            return
        assert self.made.add(paths).described == count

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        assert self.made is not None
        known = [one.key for one in self.made.catalogue.images]
        if len(known) < 2:
            return
        gone = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=len(known) - 1, unique=True))
        if set(self.keys) <= set(gone):
            return  # the index would have photos, and its folder none
        self.made.remove(gone)
        for key in gone:
            (self.folder / key).unlink(missing_ok=True)

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        save_photo(self.folder / data.draw(st.sampled_from(self.keys)), next(self.seeds))
        self.behind = True

    @rule(data=st.data(), below=st.sampled_from(["", "a/", "m/"]))
    def move(self, data: st.DataObject, below: str) -> None:
        source = self.folder / data.draw(st.sampled_from(self.keys))
        target = self.folder / f"{below}moved-{next(self.seeds)}.png"
        target.parent.mkdir(exist_ok=True)
        source.rename(target)
        self.behind = True

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if len(self.keys) > 1:
            (self.folder / data.draw(st.sampled_from(self.keys))).unlink()
            self.behind = True

    @precondition(lambda self: self.behind)
    @rule()
    def sync(self) -> None:
        assert self.made is not None
        self.made.sync()
        self.behind = False

    @rule()
    def reopen(self) -> None:
        assert self.made is not None
        path = self.made.path
        self.made.close()
        self.made = Index.open(path, describer=self.describer, verify=True)

    @invariant()
    def as_fresh(self) -> None:
        if self.made is None or self.behind:
            return
        fresh = Index.create(
            self.base / "fresh.manifind",
            self.folder,
            describer=self.describer,
            **self.parameters,  # type: ignore[arg-type]
        )
        try:
            assert_as_fresh(self.made, fresh)
            assert [problem for problem in self.made.check() if problem.damage] == []
        finally:
            for file in (self.base / "fresh.manifind").iterdir():
                file.unlink()
            (self.base / "fresh.manifind").rmdir()


Upkeep.TestCase.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
TestUpkeep = Upkeep.TestCase


def test_a_second_run_does_only_what_changed(made: Index, folder: Path, describer: Counting) -> None:
    describer.described = 0
    generation = made.generation
    assert vars(made.sync()) == {
        "described": 0,
        "kept": 8,
        "moved": 0,
        "removed": 0,
        "skipped": 0,
        "unreadable": (),
        "supplemented": 0,
    }
    assert made.generation == generation
    (folder / "1.png").rename(folder / "9.png")
    (folder / "2.png").touch()
    (folder / "3.png").unlink()
    save_photo(folder / "4.png", 44)
    save_photo(folder / "5-new.png", 55)
    assert vars(made.sync()) == {
        "described": 2,
        "kept": 5,
        "moved": 1,
        "removed": 1,
        "skipped": 0,
        "unreadable": (),
        "supplemented": 0,
    }
    assert describer.described == 2
    assert made.generation == generation + 1


def test_a_photo_that_cannot_be_read_any_more_is_named_apart_from_one_that_is_gone(made: Index, folder: Path) -> None:
    (folder / "1.png").write_bytes((folder / "1.png").read_bytes()[:60])
    (folder / "2.png").unlink()
    changes = made.sync()
    assert (changes.removed, changes.unreadable, changes.kept) == (1, ("1.png",), 6)
    assert made.sync().unreadable == ()  # it is news once
    save_photo(folder / "1.png", 1)
    assert made.sync().described == 1


def test_a_touched_photo_costs_a_catalogue_and_no_array(made: Index, folder: Path) -> None:
    arrays = {file.name for file in made.path.glob("*.npy")}
    (folder / "2.png").touch()
    made.sync()
    assert {file.name for file in made.path.glob("*.npy")} == arrays
    assert made.generation == 2
    assert Index.open(made.path, describer=made.describer, verify=True).check() == []


def test_the_clock_going_back_hides_no_change(made: Index, folder: Path) -> None:
    save_photo(folder / "4.png", 44)
    os.utime(folder / "4.png", ns=(0, 0))
    assert made.sync().described == 1


def test_what_was_removed_by_hand_stays_removed_until_it_is_added(made: Index, folder: Path) -> None:
    assert vars(made.remove(["3.png"])) == {
        "described": 0,
        "kept": 7,
        "moved": 0,
        "removed": 1,
        "skipped": 1,
        "unreadable": (),
        "supplemented": 0,
    }
    made.sync()
    assert made.catalogue.of_key("3.png") is None
    assert [(one.key, one.reason) for one in made.catalogue.skipped] == [("3.png", REMOVED)]
    made.add([folder / "3.png"])
    assert made.catalogue.of_key("3.png") is not None
    assert made.catalogue.skipped == []


def test_photos_are_added_by_path_folder_or_key(made: Index, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in (21, 22, 23, 24):
        save_photo(folder / ("below" if seed < 23 else "") / f"{seed}.png", seed)
    monkeypatch.chdir(folder.parent)
    assert made.add(["below", "photos/23.png", folder / "24.png"]).described == 4
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
        with pytest.raises(InvalidInput, match=words):
            wrong()
    assert made.generation == 1
    assert made.add([folder / "broken.png"]).skipped == 1
    assert len(made) == 8


def test_photos_that_are_all_gone_are_taken_for_a_disk_that_is_not_there(made: Index, folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    with pytest.raises(InvalidInput, match="not there"):
        made.sync()
    folder.mkdir()
    with pytest.raises(InvalidInput, match="stays as it was"):
        made.sync()
    assert len(Index.open(made.path, describer=made.describer)) == 8
    # It can follow the folder, without describing anything again.
    assert vars(made.sync(folder.with_name("elsewhere")))["kept"] == 8
    assert made.root == folder.with_name("elsewhere")


def test_a_photo_that_vanishes_between_listing_and_reading_is_passed_over(
    made: Index, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_photo(folder / "soon-gone.png", 70)

    def vanish(stage: str, done: int, total: int) -> None:
        if stage == "files" and done == total:
            (folder / "soon-gone.png").unlink()

    changes = made.sync(progress=vanish)
    assert (changes.described, changes.skipped) == (0, 1)
    assert made.catalogue.skipped[0].reason == "no such file"
    assert made.sync().skipped == 0


def test_a_second_writer_is_told_who_holds_the_index(made: Index) -> None:
    other = Index.open(made.path, describer=made.describer)
    seen = []

    def meanwhile(*_: Any) -> None:
        with pytest.raises(InvalidInput, match=f"being written by process {os.getpid()}"):
            other.remove(["1.png"])
        seen.append(True)

    made.sync(progress=meanwhile)
    assert seen
    other.remove(["1.png"])  # and nobody has to remove the lock


def test_a_writer_starts_from_what_others_wrote(made: Index, folder: Path) -> None:
    late = Index.open(made.path, describer=made.describer)
    made.remove(["1.png"])
    late.remove(["2.png"])
    assert {one.key for one in late.catalogue.images} == {"0.png", *(f"{i}.png" for i in range(3, 8))}


def test_a_dead_writers_lock_needs_nobody(made: Index) -> None:
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom manifind.storage import store\n"
        "with store.writing(Path(sys.argv[1]), 'index'):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    died = subprocess.run([sys.executable, "-c", program, made.path], check=False)  # noqa: S603
    assert died.returncode == -9
    made.remove(["1.png"])


def test_a_closed_index_says_so(made: Index) -> None:
    with Index.open(made.path, describer=made.describer) as opened:
        assert opened.search("1.png", top=1)
    with pytest.raises(InvalidInput, match="was closed"):
        opened.search("1.png")


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A folder where flushing costs nothing, if there is one."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder)


def test_readers_search_without_pause_while_a_writer_adds_and_removes(
    folder: Path, quick: Path, describer: Describer
) -> None:
    made = Index.create(quick / "i.manifind", folder, describer=describer, **PARAMETERS)
    for seed in (30, 31, 32):
        save_photo(folder / "more" / f"{seed}.png", seed)
    query = made.photo("0.png").pixels
    stop, failed = threading.Event(), []
    answers: list[tuple[int, tuple[tuple[str, float], ...]]] = []

    def read() -> None:
        try:
            reader = Index.open(made.path, describer=describer)
            while not stop.is_set():
                reader.reload()
                hits = reader.search(query, top=None)
                answers.append((reader.generation, tuple((hit.key, round(hit.score, 5)) for hit in hits)))
        except BaseException as error:
            failed.append(error)
            raise

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    truth = {made.generation: tuple((hit.key, round(hit.score, 5)) for hit in made.search(query, top=None))}
    keys = ["more/30.png", "more/31.png", "more/32.png"]
    try:
        for turn in range(200):
            if turn % 2:
                made.remove(keys[: 1 + turn % 3])
            else:
                made.add([folder / "more"])
            truth[made.generation] = tuple((hit.key, round(hit.score, 5)) for hit in made.search(query, top=None))
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert not failed
    assert len(truth) > 150
    assert len({generation for generation, _ in answers}) > 10
    assert all(answer == truth[generation] for generation, answer in answers)


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


def test_means_stand_for_the_regions_of_a_photo(folder: Path, tmp_path: Path, describer: Counting) -> None:
    whole = Index.create(tmp_path / "whole.manifind", folder, describer=describer, **PARAMETERS)
    few = Index.create(tmp_path / "few.manifind", folder, describer=describer, means=5, **PARAMETERS)
    assert len(few.boxes) <= 5 * 8 < len(whole.boxes)
    assert few.info()["means"] == 5
    known = {tuple(box) for box in whole.boxes.tolist()}
    assert all(tuple(box) in known for box in few.boxes.tolist())
    save_photo(folder / "more.png", 13)
    few.add([folder / "more.png"])
    fresh = Index.create(tmp_path / "fresh.manifind", folder, describer=describer, means=5, **PARAMETERS)
    assert_as_fresh(few, fresh)
    assert len(few.search("3.png", top=None)) == 9
    assert few.check() == []


def test_what_is_said_of_the_graph_follows_it(
    folder: Path, tmp_path: Path, describer: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if it had been found by descent: what was measured then is carried along, not measured or made up anew.
    rough = Built("nn-descent", 0.99, 0.75, 300)
    monkeypatch.setattr("manifind.manifold.estimator.measured", lambda *_, **__: rough)
    made = Index.create(tmp_path / "i.manifind", folder, describer=describer, **PARAMETERS)
    monkeypatch.undo()
    assert made.manifold.graph_ == rough
    (folder / "1.png").rename(folder / "1b.png")  # no region changes
    made.sync()
    assert made.manifold.graph_ == Index.open(made.path, describer=made.describer).manifold.graph_ == rough
    made.remove(["2.png"])
    assert made.manifold.graph_ == rough._replace(updated=True)
    assert made.info()["graph"]["recall"] == 0.75
    assert "75.0 % of the true ones" in made.info()["graph"]["words"]
    assert "before it last changed" in made.info()["graph"]["words"]
    generation = made.generation
    made.sync()
    assert made.generation == generation  # nothing changed since


def test_an_index_from_before_graphs_were_spoken_of_opens_and_is_exact(made: Index) -> None:
    manifest = store.read_manifest(made.path, KIND, FORMAT)
    fields = {name: said for name, said in manifest["fields"].items() if name != "built"}
    fields["manifold"] = {**fields["manifold"], "graph": "exact"}
    with store.writing(made.path, KIND) as writer:
        writer.write(FORMAT, fields, {}, keep=manifest["files"])
    old = Index.open(made.path, describer=made.describer)
    assert old.manifold.graph_ == Built("exact", 1.0, 1.0, 0)
    generation = old.generation
    old.sync()
    assert old.generation == generation
    old.remove([old.catalogue.images[0].key])
    assert old.info()["graph"]["method"] == "exact"
    assert old.check() == []


def test_half_precision_moves_scores_by_little(made: Index, tmp_path: Path) -> None:
    manifold = made.manifold
    assert manifold.vectors_.dtype == np.float16
    image_of = np.repeat(manifold.layout_.images, manifold.layout_.counts)
    described = [made.describer.describe(made.photo(one.key).pixels).vectors for one in made.catalogue.images]
    single = Manifold(**made.info()["manifold"]).fit(np.concatenate(described), image_of)
    for query in described:
        a, b = manifold.search(query), single.search(query)
        # In so small a graph a single list that ends in another region moves a score by some per mille.
        np.testing.assert_allclose(
            a.scores[np.argsort(a.images)], b.scores[np.argsort(b.images)], atol=2e-2 * b.scores.max()
        )


def test_a_long_build_is_announced_and_one_that_cannot_fit_is_refused(
    folder: Path, tmp_path: Path, describer: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced: list[Estimate] = []
    monkeypatch.setattr(estimate, "LONG", 5)
    made = Index.create(tmp_path / "i.manifind", folder, describer=describer, announce=announced.append, **PARAMETERS)
    (told,) = announced
    # So small a photo has fewer local features than are kept of one at most.
    spare = 8 * KEEPING.bytes - made.info()["bytes_by_part"]["local features"]
    assert told.photos == 8
    assert told.regions == pytest.approx(len(made.boxes), rel=0.3)
    assert 0 < told.seconds < 60
    assert told.finished == pytest.approx(made.info()["bytes"] + spare, rel=0.4)
    assert "8 photos to describe" in str(told)
    with pytest.raises(InvalidInput, match=r"memory is 1\.0 MiB, and a graph of .* regions needs 5\d\d MiB"):
        Index.create(tmp_path / "small.manifind", folder, describer=describer, memory=2**20, **PARAMETERS)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match="are needed for") as full:
        Index.create(tmp_path / "full.manifind", folder, describer=describer, **PARAMETERS)
    assert full.value.errno == 28


def test_health_is_told_in_words(made: Index) -> None:
    facts = made.info()
    figures = facts["health"]
    degrees = np.diff(made.manifold.S_.indptr)
    assert figures["isolated_regions"] == (degrees == 0).sum()
    assert figures["mean_mutual_degree"] == pytest.approx(degrees.mean())
    assert 0 < figures["largest_component"] <= facts["regions"]
    assert any("mutual neighbours on average" in sentence for sentence in figures["words"])
    assert facts["bytes"] == sum(facts["bytes_by_part"].values())
    assert facts["bytes"] == sum(
        file.stat().st_size for file in made.path.iterdir() if file.suffix in (".npy", ".sqlite")
    )
    json.dumps(facts)


def test_a_graph_in_pieces_and_its_hubs_are_seen() -> None:
    """Spokes that share nothing but their hub, which can return the favour to one of them only; and two pairs."""
    hub, spokes = np.eye(50)[0], np.eye(50)[0] + np.eye(50)[1:41] * np.linspace(0.8, 1.2, 40)[:, None]
    pairs = np.eye(50)[[42, 42, 44, 44]] + 0.1 * np.eye(50)[[43, 45, 46, 47]]
    manifold = Manifold(k=1).fit(unit(np.concatenate([[hub], spokes, pairs])))
    seen = health(manifold.S_, manifold.neighbours_)
    assert (seen.hubs, seen.most_listed) == (1, 40)
    assert (seen.largest_component, seen.components) == (2, 3)
    assert seen.isolated_regions == 39
    words = " ".join(seen.words())
    assert "in 3 pieces" in words
    assert "1 regions are hubs" in words
    assert "A larger k" in words


def test_opening_reads_nothing_and_takes_no_memory(tmp_path: Path) -> None:
    """From 2,000 to 200,000 regions, on sparse files: what is touched is what is read."""
    program = """
import sys
from manifind.index import Index
def private():
    fields = dict(line.split(":") for line in open("/proc/self/status") if ":" in line)
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssFile"))
Index.open(sys.argv[1])
before = private()
opened = Index.open(sys.argv[2])
assert len(opened.boxes) == int(sys.argv[3])
print(private() - before)
"""
    grown = [_sparse_index(tmp_path / f"{photos}.manifind", photos) for photos in (100, 10_000)]
    small = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, grown[0], grown[0], "2000"], check=True, capture_output=True, text=True
    )
    large = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, grown[0], grown[1], "200000"], check=True, capture_output=True, text=True
    )
    small_memory, large_memory = int(small.stdout), int(large.stdout)
    size = sum(file.stat().st_size for file in grown[1].glob("*.npy"))
    assert size > 200e6
    # Files up to a mebibyte are read, the others mapped.
    read = sum(file.stat().st_size for file in grown[1].glob("*.npy") if file.stat().st_size <= store.SMALL)
    assert 1024 * large_memory < 0.02 * size + read
    assert 1024 * (large_memory - small_memory - 2048) < read


def _sparse_index(path: Path, photos: int) -> Path:
    """An index of the right shape whose arrays are holes."""
    from manifind.index.catalogue import Catalogue, ImageRecord
    from manifind.index.generation import CATALOGUE
    from manifind.index.manifest import FORMAT, KIND, WhiteningOrigin
    from manifind.index.recipe import Recipe
    from manifind.storage import store

    each, d, k = 20, 512, 20
    n = photos * each
    shapes: dict[str, tuple[tuple[int, ...], Any]] = {
        "vectors": ((n, d), np.float16),
        "neighbour_ids": ((n, k), np.int32),
        "neighbour_similarities": ((n, k), np.float32),
        "S_data": ((n * k,), np.float32),
        "S_indices": ((n * k,), np.int32),
        "S_indptr": ((n + 1,), np.int32),
        "degrees": ((n,), np.float32),
        "weights": ((n,), np.float32),
        "global_vectors": ((photos, d), np.float32),
        "boxes": ((n, 4), np.float32),
    }
    records = [ImageRecord(i, f"{i}.jpg", f"{i}", 1, 1, 4, 3) for i in range(photos)]
    recipe = Recipe(path.parent, small_describer(), {"k": k}, None, None, WhiteningOrigin("none"))
    fields = recipe.manifest.fields
    with store.writing(path, KIND) as writer:
        arrays: dict[str, Any] = {"images": np.arange(photos, dtype=np.int32), "starts": np.arange(0, n + 1, each)}
        writer.write(FORMAT, fields, arrays, {CATALOGUE: Catalogue.of(records, []).to_bytes()})
        listed = store.read_manifest(path, KIND, FORMAT)["files"]
        for name, (shape, kind) in shapes.items():
            file = path / f"{name}-1.npy"
            hole = np.lib.format.open_memmap(file, "w+", kind, shape)
            if name == "S_indptr":
                hole[-1] = n * k
            del hole
            digest = store.digest(file) if file.stat().st_size <= store.SMALL else "never looked at"
            listed[f"{name}.npy"] = {"file": file.name, "bytes": file.stat().st_size, "sha256": digest}
        kept = dict(listed)
        writer.write(FORMAT, fields, {}, {}, keep=kept)
    return path


def test_an_index_of_another_format_says_what_to_do(made: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "FORMAT", 3)
    monkeypatch.setattr("manifind.index.generation.FORMAT", 3)
    with pytest.raises(Damaged, match="format 2 and this manifind reads format 3; make it again"):
        Index.open(made.path)
    monkeypatch.setattr("manifind.index.generation.FORMAT", 1)
    with pytest.raises(Damaged, match="install a newer manifind"):
        Index.open(made.path)


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


def test_paths_are_taken_for_what_they_lead_to(made: Index, folder: Path, tmp_path: Path) -> None:
    save_photo(folder / "sub" / "a.png", 71)
    save_photo(folder / "b.png", 72)
    save_photo(folder / ".hidden.png", 73)
    save_photo(tmp_path / "out.png", 74)
    made.add([folder / "sub" / ".." / "b.png", "sub/a.png"])
    assert {"b.png", "sub/a.png"} <= {one.key for one in made.catalogue.images}
    with pytest.raises(InvalidInput, match="not below root"):
        made.add([folder / ".." / "out.png"])
    with pytest.raises(InvalidInput, match="hidden"):
        made.add([folder / ".hidden.png"])


def test_a_photo_replaced_while_others_were_described_is_left_for_the_next_run(made: Index, folder: Path) -> None:
    save_photo(folder / "new.png", 80)

    def replaced(stage: str, done: int, total: int) -> None:
        if stage == "files" and done == total:
            save_photo(folder / "new.png", 81)
            os.utime(folder / "new.png", ns=(5, 5))

    assert made.sync(progress=replaced).described == 0
    assert "changed while" in made.catalogue.skipped[0].reason
    assert made.sync().described == 1


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


def test_numbers_of_numpy_are_numbers(folder: Path, tmp_path: Path, describer: Counting) -> None:
    made = Index.create(tmp_path / "n.manifind", folder, describer=describer, k=np.int64(9), alpha=np.float32(0.5))
    assert made.info()["manifold"]["k"] == 9


def test_an_index_made_anew_at_the_same_place_is_noticed(made: Index, folder: Path, describer: Counting) -> None:
    reader = Index.open(made.path, describer=describer)
    shutil.rmtree(made.path)
    (folder / "7.png").unlink()
    Index.create(made.path, folder, describer=describer, **PARAMETERS)
    reader.reload()
    assert len(reader) == 7


def test_closing_twice_is_closing(made: Index) -> None:
    assert repr(made) == f"Index({str(made.path)!r}: 8 photos of {made.root}, generation 1)"
    made.close()
    made.close()
    assert repr(made) == f"Index({str(made.path)!r}, closed)"


def test_copies_and_broken_photos_are_not_read_again_while_they_are_the_same(
    made: Index, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(folder / "1.png", folder / "copy.png")
    (folder / "broken.png").write_bytes((folder / "2.png").read_bytes()[:200])
    made.sync()
    before = made.catalogue.skipped
    assert [one.key for one in before] == ["broken.png", "copy.png"]
    read: list[str] = []
    for name in ("content_hash", "describe_ahead"):
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
    assert (changes.described, changes.moved, changes.skipped) == (1, 1, 0)
    assert made.catalogue.of_key("copy.png") is not None
