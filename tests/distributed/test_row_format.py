import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifind.errors import DamagedError, InvalidInputError
from manifind.remote.row_format import Edges, PackedPhoto, pack, photo_number, unpack
from tests.errors import raises


def photo(seed: int, regions: int, edges_a_region: int, d: int = 6) -> PackedPhoto:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, edges_a_region + 1, regions).astype(np.int32)
    pairs = [rng.choice(40, count, replace=False) for count in counts]  # photos 0 to 9 with four regions each
    flat = np.concatenate([np.empty(0, np.int64), *pairs])
    edges = Edges(counts, flat // 4 + 2**61, (flat % 4).astype(np.int32), rng.random(len(flat), np.float32))
    return PackedPhoto(
        rng.standard_normal((regions, d)).astype(np.float16),
        rng.random((regions, 4), np.float32),
        rng.random(regions, np.float32),
        edges,
        {"key": f"é/{seed}.jpg", "sha256": f"{seed:064x}"},
    )


def by_region(edges: Edges) -> list[dict[tuple[int, int], float]]:
    ends = np.cumsum(edges.counts)
    triples = list(zip(edges.photos.tolist(), edges.regions.tolist(), edges.affinities.tolist(), strict=True))
    return [
        {(p, r): a for p, r, a in triples[end - count : end]}
        for end, count in zip(ends.tolist(), edges.counts.tolist(), strict=True)
    ]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 12)), min_size=1, max_size=6))
def test_what_was_packed_comes_back(sizes: list[tuple[int, int]]) -> None:
    photos = [photo(seed, *size) for seed, size in enumerate(sizes)]
    found = unpack([pack(one) for one in photos])
    np.testing.assert_array_equal(found.vectors, np.concatenate([one.vectors for one in photos]))
    np.testing.assert_array_equal(found.boxes, np.concatenate([one.boxes for one in photos]))
    np.testing.assert_array_equal(found.weights, np.concatenate([one.weights for one in photos]))
    assert found.regions.tolist() == [len(one.boxes) for one in photos]
    assert [found.metadata(place) for place in range(len(photos))] == [one.metadata for one in photos]
    assert by_region(found.edges) == [edges for one in photos for edges in by_region(one.edges)]


def test_edges_of_a_region_ascend_so_that_columns_of_every_shortlist_do() -> None:
    found = unpack([pack(photo(0, 5, 12))]).edges
    at = 0
    for count in found.counts.tolist():
        targets = list(zip(found.photos[at : at + count], found.regions[at : at + count], strict=True))
        assert targets == sorted(targets)
        at += count


@given(st.data())
def test_a_damaged_row_is_refused_or_read_and_never_followed_out_of_it(data: st.DataObject) -> None:
    row = bytearray(pack(photo(3, 4, 6)))
    at = data.draw(st.integers(0, len(row) - 1))
    row[at] ^= data.draw(st.integers(1, 255))
    try:
        found = unpack([bytes(row)])
        found.metadata(0)
    except DamagedError:
        return
    assert len(found.edges.photos) == found.edges.counts.sum() == len(found.edges.affinities)


@pytest.mark.parametrize("cut", [0, 10, 50, 200])
def test_a_row_that_was_cut_short_is_refused(cut: int) -> None:
    with raises("packed-row", DamagedError):
        unpack([pack(photo(3, 4, 6))[:cut]])


def test_a_photo_keeps_its_number_whatever_else_is_in_the_collection() -> None:
    numbers = [photo_number(f"folder/{i}.jpg") for i in range(1000)]
    assert len(set(numbers)) == 1000
    assert all(0 <= number < 2**63 for number in numbers)
    assert photo_number("a.jpg") == photo_number("a.jpg")


def test_a_photo_with_more_neighbours_than_a_row_has_room_for_is_refused() -> None:
    count = 2**16
    edges = Edges(np.array([count], np.int32), np.arange(count), np.zeros(count, np.int32), np.ones(count, np.float32))
    one = np.ones((1, 4), np.float32)
    with raises("row-too-large", InvalidInputError):
        pack(PackedPhoto(one.astype(np.float16), one, one[0, :1], edges, {"sha256": "0" * 64}))
