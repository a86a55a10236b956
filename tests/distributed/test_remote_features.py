"""Local features lie beside the rows of a published collection, which verifies as the index does."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from manifind.errors import DamagedError
from manifind.features import RegionExtractor
from manifind.index import Index
from manifind.index.search.results import Hit
from manifind.remote.publish import publish
from manifind.remote.row_format import pack_features, unpack_features
from manifind.remote.store import Store, StoreUnavailableError
from tests.distributed.conftest import SCHEMES
from tests.distributed.test_collection import opened
from tests.errors import raises
from tests.index.conftest import scene

BOX = (40.0, 60.0, 168.0, 188.0)
"""Of the thing in `scene` where it is laid by default."""


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    """Eight photos, of which four show one thing at different places."""
    folder = tmp_path / "scenes"
    folder.mkdir()
    for i in range(8):
        pixels = scene(i, 1, (20 + 50 * i, 30 + 20 * i)) if i < 4 else scene(i, 2)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return folder


@pytest.fixture
def verifying(scenes: Path, extractor: RegionExtractor) -> Index:
    return Index.create(scenes.with_name("scenes.manifind"), scenes, extractor=extractor, k=20, query_k=20)


def said(hit: Hit) -> object:
    return hit.key, hit.verified, hit.outline, hit.inliers, hit.box, hit.other_outlines, hit.is_match


@pytest.mark.parametrize("address", SCHEMES, indirect=True)
def test_a_collection_verifies_and_outlines_as_the_index_does_without_any_file(
    store: Store, address: str, verifying: Index, extractor: RegionExtractor, scenes: Path
) -> None:
    publish(verifying, store, grace=0)
    query = scene(99, 1)
    right = verifying.search(query, BOX)
    assert sum(hit.verified is True for hit in right) == 4
    joins = verifying.search(query, BOX, expand=True)
    joined = verifying.matching_points("0.png", "1.png", (20, 30, 148, 158))
    assert joined.inliers > 5
    for file in scenes.iterdir():
        file.unlink()
    far = opened(store, address, extractor, shortlist=1000)
    found = far.search(query, BOX)
    expanded = far.search(query, BOX, expand=True)
    assert [said(hit) for hit in found] == [said(hit) for hit in right]
    assert found.n_matches == right.n_matches
    assert [said(hit) for hit in expanded] == [said(hit) for hit in joins]
    assert far.matching_points("0.png", "1.png", (20, 30, 148, 158)).inliers == joined.inliers


@pytest.mark.parametrize("address", ["folder"], indirect=True)
def test_features_are_handed_out_by_key_and_go_with_their_photo(
    store: Store, address: str, verifying: Index, extractor: RegionExtractor
) -> None:
    publish(verifying, store, grace=0)
    far = opened(store, address, extractor)
    assert far.state.local is not None
    assert verifying.state.local is not None
    record = far.find("3.png")
    mine = verifying.find("3.png")
    assert record is not None
    assert mine is not None
    kept = far.state.local.of_photo(record)
    np.testing.assert_array_equal(kept.rows, verifying.state.local.of_photo(mine).rows)
    answer = far.search(scene(99, 1), BOX, verify=0)
    verifying.remove(["2.png"])
    publish(verifying, store, grace=0)
    later = opened(store, address, extractor)
    assert "2.png" not in [hit.key for hit in later.search(scene(99, 1), BOX)]
    gone = next(hit.image for hit in answer if hit.key == "2.png")
    local = answer.retrieval.snapshot.local
    assert local is not None
    with raises("superseded", StoreUnavailableError):
        local.of_photos([answer.retrieval.snapshot.catalogue[gone]])


@pytest.mark.parametrize("address", ["folder"], indirect=True)
def test_features_that_an_index_gets_later_are_published_then(
    store: Store, address: str, scenes: Path, extractor: RegionExtractor
) -> None:
    plain = Index.create(
        scenes.with_name("plain.manifind"), scenes, extractor=extractor, local_features=False, k=20, query_k=20
    )
    publish(plain, store, grace=0)
    far = opened(store, address, extractor)
    assert far.state.local is None
    assert {hit.verified for hit in far.search(scene(99, 1), BOX)} == {None}
    plain.sync(local_features=True)
    assert publish(plain, store, grace=0).changed == len(plain)
    far.reload()
    assert sum(hit.verified is True for hit in far.search(scene(99, 1), BOX)) == 4


def test_features_that_were_cut_short_are_damaged() -> None:
    rows = np.arange(3 * 38, dtype=np.uint8).reshape(3, 38)
    packed = pack_features(rows)
    np.testing.assert_array_equal(unpack_features(packed), rows)
    assert unpack_features(pack_features(rows[:0])).shape == (0, 38)
    for damaged in (packed[:-1], packed[3:], b""):
        with raises("packed-row", DamagedError):
            unpack_features(damaged)
