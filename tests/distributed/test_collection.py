"""A published collection answers as the index does on the same shortlist."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from manifind.cli import main
from manifind.errors import InvalidInputError
from manifind.features import RegionExtractor
from manifind.index import METHODS, Index
from manifind.index.config import RetrievalConfig
from manifind.index.search.confidence import unrelated_similarity
from manifind.remote import collection as collection_room
from manifind.remote.collection import StoredCollection
from manifind.remote.publish import publish
from manifind.remote.row_format import photo_number
from manifind.remote.store import Address, Store, StoreUnavailableError, store_at
from tests.distributed.conftest import SCHEMES, save_photo
from tests.errors import raises

SHORTLIST = 15


class Stopped(Exception):
    pass


class Stopping:
    """A store whose publisher is killed after so many calls that change it."""

    def __init__(self, store: Store, after: int) -> None:
        self._store, self._left = store, after

    def __getattr__(self, name: str) -> object:
        if name in ("put", "remove", "write", "erase"):
            self._left -= 1
            if self._left < 0:
                raise Stopped
        return getattr(self._store, name)


@pytest.fixture
def far(store: Store, address: str, index: Index, extractor: RegionExtractor) -> Index:
    """The index, published and opened; one connection for both, since some stores allow no second."""
    publish(index, store, grace=0)
    return opened(store, address, extractor)


def opened(store: Store, address: str, extractor: RegionExtractor, shortlist: int = SHORTLIST) -> Index:
    return Index(
        address,
        StoredCollection.open(Address.parse(address), store, RetrievalConfig(remote_photos=shortlist)),
        extractor,
    )


def truncated(index: Index, state: StoredCollection, query: np.ndarray, top: int) -> tuple[list[str], np.ndarray]:
    """Rank by the manifold of the index on the photos that the collection would choose."""
    ((photos, _),) = state.shortlists([query])
    number = {photo_number(one.key): one.number for one in index.catalogue.images}
    ranking = index.manifold.search(query, top=top, shortlist=np.array([number[int(one)] for one in photos]))
    return [index.catalogue[int(image)].key for image in ranking.images], ranking.scores


@pytest.mark.parametrize("address", SCHEMES, indirect=True)
def test_the_ranking_is_the_truncated_one_of_the_index(far: Index, index: Index, photos: Path) -> None:
    for name in ("003.png", "011.png", "026.png"):
        answer = far.search(photos / name, (0, 0, 32, 48), top=SHORTLIST, verify=0)
        assert isinstance(far.state, StoredCollection)
        keys, scores = truncated(index, far.state, answer.retrieval.query.vectors, SHORTLIST)
        assert [hit.key for hit in answer] == keys
        np.testing.assert_allclose(answer.scores, scores, rtol=2e-5)
        # How similar regions are by chance is that of all photos: those of a shortlist resemble each other.
        assert unrelated_similarity(answer.retrieval.snapshot) == unrelated_similarity(index.state)


@pytest.mark.parametrize("address", ["folder"], indirect=True)
@pytest.mark.parametrize("method", METHODS)
def test_a_shortlist_of_all_photos_gives_the_index_own_answer(
    store: Store, address: str, index: Index, extractor: RegionExtractor, photos: Path, method: str
) -> None:
    publish(index, store, grace=0)
    whole = opened(store, address, extractor, shortlist=1000)
    mine, its = (one.search(photos / "007.png", (0, 0, 32, 48), method=method) for one in (whole, index))
    assert [hit.key for hit in mine] == [hit.key for hit in its]
    np.testing.assert_allclose(mine.scores, its.scores, rtol=1e-4)
    assert mine.n_matches == its.n_matches
    assert [(hit.box, hit.duplicates) for hit in mine] == [(hit.box, hit.duplicates) for hit in its]
    if method == "regional":
        assert [whole.explain(hit).keys for hit in mine] == [index.explain(hit).keys for hit in its]


def test_what_is_asked_of_an_index_is_answered(far: Index, index: Index, photos: Path) -> None:
    assert len(far) == len(index)
    facts = far.info()
    assert facts["photos"] == len(index)
    assert facts["store"]["shortlist"] == SHORTLIST
    json.dumps(facts)
    by_key = far.search("003.png", top=3)
    assert [hit.key for hit in by_key] == [hit.key for hit in far.search(photos / "003.png", top=3)]
    assert by_key[0].key == "003.png"
    assert far.find("000.png") is not None
    assert far.photo("copy.png").width == far.photo("000.png").width
    assert {one.key for one in far.catalogue.images} == {one.key for one in index.catalogue.images}
    with raises("unknown-key", InvalidInputError):
        far.photo("no such photo")


def test_what_only_an_index_on_disk_can_do_is_refused(far: Index) -> None:
    for work in (far.check, lambda: far.manifold):
        with raises("remote-collection", InvalidInputError):
            work()


def test_what_was_added_and_removed_is_published_by_the_difference(
    far: Index, store: Store, index: Index, photos: Path
) -> None:
    assert publish(index, store, grace=0).generation == 1, "nothing has changed"
    save_photo(photos / "new.png", 112)
    index.add([photos / "new.png"])
    index.remove(["005.png"])
    sent = publish(index, store, grace=0)
    assert (sent.generation, sent.added, sent.removed) == (2, 1, 1)
    assert sent.added + sent.changed + sent.unchanged == len(index)
    far.reload()
    assert far.generation == 2
    assert far.find("new.png") is not None
    assert far.find("005.png") is None
    assert isinstance(far.state, StoredCollection)
    answer = far.search(photos / "012.png", (0, 0, 32, 48), top=SHORTLIST, verify=0)
    keys, scores = truncated(index, far.state, answer.retrieval.query.vectors, SHORTLIST)
    assert [hit.key for hit in answer] == keys
    np.testing.assert_allclose(answer.scores, scores, rtol=2e-5)
    versions = list(store.versions())
    assert sum(len(one.numbers) for one in versions) == len(index), "rows of the old generation are gone"


def test_photos_are_added_and_removed_through_a_collection_by_way_of_its_index(
    far: Index, index: Index, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manifind.remote.publish.time.sleep", lambda _: None)
    save_photo(photos / "new.png", 112)
    assert far.add([photos / "new.png"]).extracted == 1
    assert far.remove(["005.png"]).removed == 1
    assert far.generation == 3
    assert far.find("new.png") is not None
    assert far.find("005.png") is None
    index.reload()
    assert {one.key for one in index.catalogue.images} == {one.key for one in far.catalogue.images}
    (photos / "007.png").unlink()
    assert far.sync().removed == 1
    assert far.find("007.png") is None

    index.close()
    moved = index.path.rename(index.path.with_name("moved.manifind"))
    with raises("source-missing", InvalidInputError):
        far.remove(["008.png"])
    (photos.parent / "others").mkdir()
    save_photo(photos.parent / "others" / "1.png", 1)
    Index.create(index.path, photos.parent / "others", extractor=far.extractor, k=20, query_k=20)
    with raises("source-changed", InvalidInputError):
        far.sync()
    assert Index.open(moved, extractor=far.extractor).find("008.png") is not None


@pytest.mark.parametrize("address", ["folder", "milvus-lite"], indirect=True)
def test_a_publisher_killed_at_any_call_leaves_the_old_generation_or_the_new(
    far: Index, store: Store, index: Index, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manifind.remote.publish.MAX_UPLOAD_BYTES", 9_000)
    before = [hit.key for hit in far.search(photos / "003.png", top=5)]
    index.remove(["003.png", "008.png"])
    number = 0
    while True:
        try:
            sent = publish(index, Stopping(store, number), grace=0)  # type: ignore[arg-type]
        except Stopped:
            newest = far.state.newest()  # type: ignore[union-attr]
            assert newest.number in (1, 2)
            if newest.number == 1:
                assert [hit.key for hit in far.search(photos / "003.png", top=5)] == before
            number += 3 if number else 1
        else:
            break
    assert number > 3
    assert sent.generation in (2, 3)
    far.reload()
    assert "003.png" not in [hit.key for hit in far.search(photos / "003.png", top=SHORTLIST)]
    assert sum(len(one.numbers) for one in store.versions()) == len(index)
    assert [name for name in store.names() if not name.endswith(f"-{far.generation}")] == []


@pytest.mark.parametrize("address", ["folder"], indirect=True)
def test_rows_that_an_interrupted_run_sent_are_not_sent_again(
    store: Store, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manifind.remote.publish.MAX_UPLOAD_BYTES", 9_000)
    with pytest.raises(Stopped):
        publish(index, Stopping(store, 12), grace=0)  # type: ignore[arg-type]
    written = sum(len(one.numbers) for one in store.versions())
    assert 0 < written < len(index)
    sent = publish(index, store, grace=0)
    assert sent.resumed == written
    assert sent.added == len(index)


@pytest.mark.parametrize("address", ["folder"], indirect=True)
def test_a_search_that_outlives_its_generation_is_made_again(
    far: Index, store: Store, index: Index, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection_room, "GRACE_SECONDS", -1.0)  # every search takes longer than that
    monkeypatch.setattr(collection_room, "LEASE_SECONDS", 1000.0)
    nearest = store.nearest
    once: list[bool] = []

    def overtaken(*asked: object) -> object:
        found = nearest(*asked)  # type: ignore[arg-type]
        if not once:
            once.append(True)
            index.remove(["003.png"])
            publish(index, store, grace=0)
        return found

    monkeypatch.setattr(store, "nearest", overtaken)
    answer = far.search(photos / "003.png", top=SHORTLIST)
    assert answer.generation == 2
    assert "003.png" not in [hit.key for hit in answer]
    assert len(answer) == SHORTLIST


@pytest.mark.parametrize("address", ["folder"], indirect=True)
def test_a_collection_that_has_lost_rows_says_so(
    store: Store, address: str, index: Index, extractor: RegionExtractor, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(index, store, grace=0)
    monkeypatch.setattr(store, "fetch", lambda numbers: [None] * len(numbers))
    with raises("lost-rows", StoreUnavailableError):
        opened(store, address, extractor).search(photos / "003.png")


def test_the_commands_take_an_address(index: Index, photos: Path, tmp_path: Path, extractor: RegionExtractor) -> None:
    address = f"folder://{tmp_path}/by/command"
    run = CliRunner()
    made = run.invoke(main, ["publish", str(index.path), address, "--json"])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["added"] == len(index)
    shown = run.invoke(main, ["info", address, "--json"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["photos"] == len(index)
    missing = run.invoke(main, ["info", f"folder://{tmp_path}/by/nobody"])
    assert missing.exit_code == 2
    assert "manifind publish INDEX" in missing.stderr


@pytest.mark.parametrize("address", ["folder"], indirect=True)
def test_an_extractor_of_another_kind_is_refused(store: Store, address: str, index: Index) -> None:
    publish(index, store, grace=0)
    other = RegionExtractor(index.extractor.backbone, scales=(1.0, 0.5)).with_whitening(index.extractor.whitening)
    with pytest.raises(InvalidInputError, match="cannot be compared"):
        opened(store, address, other)


def test_two_collections_of_one_folder_do_not_meet(index: Index, tmp_path: Path) -> None:
    one, two = (store_at(Address.parse(f"folder://{tmp_path}/both/{name}")) for name in ("one", "two"))
    publish(index, one, grace=0)
    assert two.names() == []
