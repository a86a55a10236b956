"""One contract for all stores."""

import numpy as np
import pytest

from manifind.cli.publish import advice
from manifind.errors import InvalidInputError
from manifind.remote.folder import FolderStore
from manifind.remote.row_format import row_number
from manifind.remote.store import ONE_STEP, Address, Row, Store, Versions, store_at
from manifind.types import FloatArray
from tests.distributed.conftest import SCHEMES

every_store = pytest.mark.parametrize("address", SCHEMES, indirect=True)


def unit(seed: int, count: int, d: int = 8) -> FloatArray:
    rows = np.random.default_rng(seed).standard_normal((count, d)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def row(photo: int, generation: int, *, size: int = 100, pieces: int = 2) -> Row:
    packed = np.random.default_rng([photo, generation]).bytes(size)
    blob = np.random.default_rng([photo, generation, 1]).bytes(50 * (photo % 3))
    return Row(
        row_number(photo, generation), photo, generation, 1000 * generation + photo, unit(photo, pieces), packed, blob
    )


def all_of(store: Store) -> Versions:
    return Versions.concat(list(store.versions()))


@pytest.fixture
def rows(store: Store) -> list[Row]:
    made = [row(photo, 1) for photo in range(30)]
    store.create(8, 30)
    store.upsert(made)
    return made


@every_store
def test_a_store_that_nobody_wrote_to_has_nothing(store: Store) -> None:
    assert store.names() == []
    assert store.read("generation-1") is None
    assert len(all_of(store).numbers) == 0


@every_store
def test_rows_come_back_by_number_in_the_order_asked_for(store: Store, rows: list[Row]) -> None:
    wanted = [rows[7], rows[3], rows[20]]
    fetched = store.fetch(np.array([one.number for one in wanted] + [12345], np.int64))
    assert fetched == [one.packed for one in wanted] + [None]


@every_store
def test_what_lies_beside_rows_comes_back_apart_from_them(store: Store, rows: list[Row]) -> None:
    wanted = [rows[7], rows[3], rows[20]]
    assert [len(one.blob) for one in wanted] == [50, 0, 100]
    fetched = store.fetch_blobs(np.array([one.number for one in wanted] + [12345], np.int64))
    assert fetched == [rows[7].blob, None, rows[20].blob, None]


@pytest.mark.parametrize("address", ["folder"], indirect=True)
def test_a_folder_that_was_written_before_anything_lay_beside_rows_is_read(store: FolderStore, rows: list[Row]) -> None:
    (facts,) = store.folder.glob("facts-*.npy")
    kept = np.load(facts)
    bare = [row._replace(blob=b"") for row in rows]
    ends = np.cumsum([len(row.packed) for row in bare])
    np.save(facts, np.concatenate([kept[:, :4], ends[:, None]], axis=1))
    np.save(
        store.folder / facts.name.replace("facts", "rows"), np.frombuffer(b"".join(row.packed for row in bare), "u1")
    )
    again = FolderStore(store.folder)
    numbers = np.array([row.number for row in rows], np.int64)
    assert again.fetch(numbers) == [row.packed for row in bare]
    assert again.fetch_blobs(numbers) == [None] * len(rows)


@every_store
def test_a_row_longer_than_a_field_comes_back_whole(store: Store, rows: list[Row]) -> None:
    long = row(99, 1, size=150_000)
    store.upsert([long])
    assert store.fetch(np.array([long.number], np.int64)) == [long.packed]


@every_store
def test_the_nearest_rows_are_those_of_brute_force(store: Store, rows: list[Row]) -> None:
    queries = unit(500, 3)
    vectors, of = np.concatenate([one.vectors for one in rows]), np.repeat(np.arange(30), 2)
    for query, found in zip(queries, store.nearest(queries, 9, 1), strict=True):
        similarities = vectors @ query
        best = np.argsort(-similarities)[:9]
        assert found.photos.tolist() == of[best].tolist()
        assert found.numbers.tolist() == [rows[i].number for i in of[best]]
        np.testing.assert_allclose(found.similarities, similarities[best], atol=1e-5)


@every_store
def test_rows_of_a_later_generation_are_not_found(store: Store, rows: list[Row]) -> None:
    later = row(77, 2)
    store.upsert([later])
    (found,) = store.nearest(later.vectors[:1], 62, 1)
    assert later.number not in found.numbers
    (found,) = store.nearest(later.vectors[:1], 5, 2)
    assert found.numbers[0] == later.number


@every_store
def test_what_is_there_can_be_listed_and_asked_for_by_photo(store: Store, rows: list[Row]) -> None:
    store.upsert([row(3, 2), row(4, 2)])
    listed = all_of(store)
    assert {tuple(one) for one in zip(*(column.tolist() for column in listed), strict=True)} == {
        (one.number, one.photo, one.generation, one.digest) for one in [*rows, row(3, 2), row(4, 2)]
    }
    assert sorted(store.of_photos(np.array([3, 5], np.int64), 2).numbers.tolist()) == sorted(
        [rows[3].number, row(3, 2).number, rows[5].number]
    )
    assert sorted(store.of_photos(np.array([3], np.int64), 1).numbers.tolist()) == [rows[3].number]


@every_store
def test_removed_rows_are_neither_found_nor_fetched_nor_listed(store: Store, rows: list[Row]) -> None:
    gone = np.array([one.number for one in rows[:20]], np.int64)
    store.remove(gone)
    store.remove(gone[:1])  # once more
    assert store.fetch(gone) == [None] * 20
    assert store.fetch_blobs(gone) == [None] * 20
    assert sorted(all_of(store).numbers.tolist()) == sorted(one.number for one in rows[20:])
    (found,) = store.nearest(unit(1, 1), 20, 1)
    assert set(found.photos.tolist()) == set(range(20, 30))
    assert store.fetch(np.array([rows[25].number], np.int64)) == [rows[25].packed]
    assert store.fetch_blobs(np.array([rows[25].number], np.int64)) == [rows[25].blob]


@every_store
def test_a_row_that_is_put_twice_is_there_once(store: Store, rows: list[Row]) -> None:
    store.upsert(rows[:5])
    assert len(all_of(store).numbers) == 30
    (found,) = store.nearest(rows[0].vectors[:1], 60, 1)
    assert (found.photos == 0).sum() == 2


@every_store
def test_documents_are_kept_by_name(store: Store) -> None:
    store.create(8, 1)
    contents = {"generation-1": b"{}", "facts-1": bytes(range(256)) * 700, "edge-1": b"x" * ONE_STEP}
    for name, content in contents.items():
        store.write(name, content)
    assert {name: store.read(name) for name in store.names()} == contents
    store.delete(["facts-1", "never"])
    assert store.read("facts-1") is None
    assert sorted(store.names()) == ["edge-1", "generation-1"]


@every_store
def test_another_process_sees_what_was_kept(store: Store, rows: list[Row], address: str) -> None:
    store.write("generation-1", b"one")
    store.close()
    again = store_at(Address.parse(address))
    assert again.read("generation-1") == b"one"
    assert again.fetch(np.array([rows[2].number], np.int64)) == [rows[2].packed]
    again.close()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("folder://", "address-name"),
        ("milvus://host:1/", "address-name"),
        ("milvus://host:1/na-me", "address-name"),
        ("nowhere://host:1/name", "unknown-store"),
        ("milvus://a@b@host:1/name", "address-token"),
        ("milvus://secret@[::1/x", "address"),
        ("qdrant://secret@host:port/x", "address"),
        ("qdrant://host:99999/x", "address"),
        ("milvus://se/secret@host:1/x", "address"),
        ("milvus://se?secret@host:1/x", "address-name"),
        ("milvus://secret@host:1/na-me", "address-name"),
        ("milvus:/secret@host", "address-name"),
        ("http://127.0.0.1:8765/?token=secret", "address-name"),
        ("qdrant://host:port/x?api_key=secret", "address"),
        ("folder:///a%00b/x", "address"),
        ("folder:///a%ffb/x", "address"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused_without_its_token(text: str, code: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        store_at(Address.parse(text))
    assert error.value.code == code
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("number", ["0", "-1", "x", "٣", "9" * 5000])
def test_an_option_that_is_no_number_is_refused(number: str) -> None:
    with pytest.raises(InvalidInputError):
        Address.parse(f"folder:///a/x?shortlist={number}").int_option("shortlist", 1)


def test_a_token_is_never_shown() -> None:
    address = Address.parse("milvus://user%3Asecret@host:19530/name?shortlist=5")
    assert address.token == "user:secret"  # noqa: S105
    assert "secret" not in address.shown
    assert address.shown == "milvus://host:19530/name?shortlist=5"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("milvus://host:1/a", "?rows="),
        ("milvus://host:1/a?shortlist=9", "&rows="),
        ("milvus://host:1/a?rows=/b/a", None),
        ("folder:///b/a", None),
    ],
)
def test_who_keeps_rows_in_milvus_is_told_what_is_quicker(address: str, told: str | None) -> None:
    said = advice(Address.parse(address))
    assert said is None if told is None else told in str(said)
