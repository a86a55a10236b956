"""Verification at full resolution: all features of an image's file, where the stored ones verify nothing."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from manifind.errors import MissingExtraError
from manifind.geometry import VerificationConfig
from manifind.geometry.extraction import resized_size
from manifind.geometry.features import Features, no_features
from manifind.index import Index, SearchConfig, SearchResult, Stage, Verification
from manifind.index.config import FullResolutionConfig, LocalQueryConfig
from manifind.index.search import explain, image_features, pipeline, verification
from manifind.index.search.image_features import (
    ImageFile,
    extract_full_resolution,
    unchanged_file,
)
from manifind.index.search.query import Deadline, QueryFeatures, extract_query_features
from manifind.index.search.results import Order
from manifind.index.search.verification import full_resolution_candidates, verify_images, verify_sources
from manifind.index.storage.local_features import COARSE_FEATURES, extract_image_features
from manifind.index.storage.snapshot import Snapshot
from tests.extraction_options import PLAINLY
from tests.index.conftest import AT, BOX, Pixels, crowded, scene, texture
from tests.index.searching import knowing, looked_closer, ranked

LIMITS = FullResolutionConfig()
SMALL = {"small-0.png", "small-1.png"}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("crowded")
    for i in range(2):
        Image.fromarray(crowded(i, 1)).save(root / f"small-{i}.png")
        Image.fromarray(crowded(10 + i, None)).save(root / f"none-{i}.png")
    return root


@pytest.fixture(scope="module")
def index(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    path = tmp_path_factory.mktemp("made") / "photos.manifind"
    return Index.create(path, photos, **PLAINLY, k=20, query_k=20, local_features=COARSE_FEATURES)


def state_of(index: Index) -> Snapshot:
    assert isinstance(index.state, Snapshot)
    return index.state


@pytest.fixture
def first_sight(index: Index, query: Pixels) -> SearchResult:
    """What stored features say of the four photos: that none is verified."""
    known = verify_images(state_of(index), range(4), [extract_query_features(query, BOX)])
    return knowing(ranked(index, query, BOX), known, is_part=True)


def verified(result: SearchResult) -> set[str]:
    return {hit.key for hit in result if hit.verified}


# -- what is seen ------------------------------------------------------------------------------------------------------


def test_all_features_are_more_than_the_stored_ones_and_lie_at_the_same_places(photos: Path, query: Pixels) -> None:
    asked = extract_query_features(query, BOX).features
    everything = extract_full_resolution(ImageFile(photos / "small-0.png", 768, 576), asked)
    assert everything is not None
    few = extract_image_features(crowded(0, 1), COARSE_FEATURES)
    assert len(few) == 500 < len(everything)
    assert (everything.width, everything.height) == (768, 576)
    apart = np.linalg.norm(few.keypoints[:, None] - everything.keypoints[None], axis=2).min(axis=1)
    assert np.median(apart) < 1
    assert extract_full_resolution(ImageFile(photos / "small-0.png", 576, 768), asked) is None  # turned since
    assert extract_full_resolution(ImageFile(photos / "missing.png", 768, 576), asked) is None


def test_a_file_that_is_a_larger_photo_by_now_is_not_decoded(
    tmp_path: Path, query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = extract_query_features(query, BOX).features
    decoded: list[object] = []
    load = PngImageFile.load

    def record(image: PngImageFile) -> object:
        decoded.append(image)
        return load(image)

    monkeypatch.setattr(PngImageFile, "load", record)
    Image.new("RGB", (800, 600)).save(tmp_path / "a.png")
    assert extract_full_resolution(ImageFile(tmp_path / "a.png", 400, 300), asked) is None
    assert decoded == []
    assert extract_full_resolution(ImageFile(tmp_path / "a.png", 800, 600), asked) is not None
    assert decoded


def test_a_small_photo_is_enlarged_up_to_twice_its_size(
    tmp_path: Path, query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, asked = [], extract_query_features(query, BOX).features

    def seen(pixels: Pixels, *, long_side: int, max_enlargement: float, **_: object) -> Features:
        height, width = pixels.shape[:2]
        sizes.append(resized_size(width, height, long_side, max_enlargement))
        return no_features("sift", 128, width, height)

    monkeypatch.setattr(image_features, "extract", seen)
    for width, height in ((400, 300), (768, 576), (1152, 100)):
        Image.new("RGB", (width, height)).save(tmp_path / "even.png")
        found = extract_full_resolution(ImageFile(tmp_path / "even.png", width, height), asked)
        assert found is not None
        assert (found.width, found.height) == (width, height)
    assert sizes == [(800, 600), (LIMITS.long_side, 864), (LIMITS.long_side, 100)]


@pytest.mark.parametrize(("stored", "low_contrast", "read"), [(1152, False, 0), (1152, True, 2), (768, False, 2)])
def test_files_are_read_for_low_contrast_queries_or_coarse_stored_features_alone(
    index: Index, query: Pixels, first_sight: SearchResult, stored: int, low_contrast: bool, read: int
) -> None:
    view = extract_query_features(query, BOX)
    views = [view._replace(features=replace(view.features, low_contrast=low_contrast))]
    snapshot = state_of(index)
    assert snapshot.local is not None
    assert snapshot.local.keeping == COARSE_FEATURES
    local = replace(snapshot.local, keeping=replace(COARSE_FEATURES, long_side=stored))
    candidates = full_resolution_candidates(
        replace(snapshot, local=local), [0, 1], first_sight.verifications, views, SearchConfig()
    )
    assert len(list(candidates)) == read


def test_a_small_thing_in_a_crowded_photo_is_verified_at_full_resolution_alone(
    query: Pixels, first_sight: SearchResult
) -> None:
    views = [extract_query_features(query, BOX)]
    assert not first_sight.has_verified
    assert [one.verified for one in first_sight.verifications.values()] == [False] * 4
    result, _, unchecked = looked_closer(first_sight, views)
    assert not unchecked
    assert result.has_verified
    assert verified(result) == SMALL == {hit.key for hit in result[:2]}
    assert all(one.full_resolution for one in result.verifications.values())
    box = next(hit.box for hit in result if hit.key == "small-0.png")
    assert box is not None
    np.testing.assert_allclose(box, (*AT, AT[0] + 80, AT[1] + 80), atol=8)
    # What was verified at full resolution is not verified again.
    assert looked_closer(result, views)[1:] == ({}, ())


@pytest.mark.parametrize("top", [None, 1])
@pytest.mark.parametrize("method", ["regional", "match"])
@pytest.mark.parametrize("expand", [True, False])
def test_a_search_verifies_at_full_resolution(
    index: Index, query: Pixels, expand: bool, method: str, top: int | None
) -> None:
    result = index.search(query, BOX, top=top, expand=expand, method=method, verify=4)
    assert result.stage != Stage.RETRIEVED
    assert result.complete
    assert verified(result) <= SMALL
    assert len(verified(result)) == result.n_verified == (top or 2)


def test_what_is_verified_does_not_depend_on_how_many_hits_are_wanted(index: Index, query: Pixels) -> None:
    few, all_of_them = (index.search(query, BOX, top=top) for top in (2, None))
    assert few.verifications == all_of_them.verifications
    assert [hit.key for hit in few] == [hit.key for hit in all_of_them[:2]]


def test_a_view_without_texture_does_not_keep_another_from_full_resolution(index: Index, query: Pixels) -> None:
    even = np.full((200, 300, 3), 90, np.uint8)
    for views in ([(even, None), (query, BOX)], [(query, BOX), (even, None)]):
        (image, box), (other, part) = views
        assert verified(index.search(image, box, positives=[(other, part)], top=None)) == SMALL


# -- who gets one ------------------------------------------------------------------------------------------------------


@pytest.fixture
def many(first_sight: SearchResult) -> SearchResult:
    """Fifty images, by numbers that no catalogue has."""
    images = np.arange(50, dtype=np.int32)
    retrieval = first_sight.retrieval
    snapshot = replace(retrieval.snapshot, catalogue=range(50))  # type: ignore[arg-type]
    order = Order(images, np.linspace(1, 0.1, 50, dtype=np.float32))
    return replace(first_sight, retrieval=replace(retrieval, snapshot=snapshot), order=order, by_score=order)


def chosen(many: SearchResult, known: Mapping[int, Verification], own: Sequence[int] = ()) -> list[int]:
    """The images that are verified at full resolution, in that order."""
    view = QueryFeatures(no_features("sift", 128, 9, 9), None)
    result = replace(many, verifications=known, own=frozenset(own))
    return list(looked_closer(result, [view])[1])


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize(
    ("right", "looked"),
    [
        ((), LIMITS.batch_size),
        ((0,), LIMITS.batch_size),
        ((0, 3), 2 * LIMITS.batch_size),
        ((0, 3, LIMITS.batch_size + 1), 2 * LIMITS.batch_size),
        (range(50), LIMITS.max_images),
    ],
)
def test_others_are_verified_where_it_pays_however_many_threads_there_are(
    monkeypatch: pytest.MonkeyPatch, many: SearchResult, threads: int, right: Sequence[int], looked: int
) -> None:
    def says(_: object, __: int, files: Sequence[Any], *___: object, **____: object) -> list[Verification]:
        return [Verification(file in right, full_resolution=True) for file in files]

    monkeypatch.setattr(pipeline, "thread_count", lambda: threads)
    monkeypatch.setattr(verification, "unchanged_file", lambda _snapshot, image: image)
    monkeypatch.setattr(pipeline, "verify_view", says)
    monkeypatch.setattr(
        SearchResult, "with_verifications", lambda self, known, *_, **__: replace(self, verifications=known)
    )
    known = {image: Verification(False) for image in range(50)}
    assert chosen(many, known) == list(range(looked))
    # Weak matches come first; the query's own, and what is settled, are not verified at full resolution.
    known |= {
        39: Verification(False, 4, weak_match_box=BOX),
        49: Verification(False, 9, weak_match_box=BOX),
        2: Verification(True),
        3: Verification(None),
        4: Verification(False, full_resolution=True),
    }
    known |= {30: Verification(False, consensus=3), 20: Verification(False, consensus=3)}
    known |= {10: Verification(False, consensus=2)}
    seen = chosen(many, known, own=[1])
    assert seen[:6] == [39, 20, 30, 0, 5, 6]
    assert not {1, 2, 3, 4, 49} & set(seen)


def test_a_search_gives_the_querys_own_image_no_full_resolution(
    index: Index, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = index.find(photos / "small-0.png")
    assert record is not None
    given: list[Sequence[int]] = []

    def noted(_: object, ranking: Sequence[int], *__: object) -> Iterator[Any]:
        given.append(ranking)
        return iter(())

    monkeypatch.setattr(pipeline, "full_resolution_candidates", noted)
    result = index.search(photos / "small-0.png", (*AT, AT[0] + 80, AT[1] + 80), top=None)
    assert given
    assert all(sorted([*ranking, record.number]) == sorted(result.images.tolist()) for ranking in given)


def test_frames_of_films_take_no_images_place(monkeypatch: pytest.MonkeyPatch, many: SearchResult) -> None:
    monkeypatch.setattr(verification, "unchanged_file", lambda _snapshot, image: None if image < 30 else image)
    says = Verification(False, full_resolution=True)
    monkeypatch.setattr(pipeline, "verify_view", lambda _, __, files, *___, **____: [says for _ in files])
    monkeypatch.setattr(
        SearchResult, "with_verifications", lambda self, known, *_, **__: replace(self, verifications=known)
    )
    known = {image: Verification(False) for image in range(50)}
    assert chosen(many, known) == list(range(30, 30 + LIMITS.batch_size))


def test_a_file_that_is_no_longer_as_it_was_gets_none(photos: Path, index: Index) -> None:
    snapshot = state_of(index)
    photo = snapshot.catalogue[0]
    assert unchanged_file(snapshot, photo) == ImageFile(photos / photo.key, 768, 576)
    for other in (
        replace(photo, bytes=photo.bytes + 1),
        replace(photo, key="gone.png"),
        replace(photo, key="film.mp4#00:12.4"),
        replace(photo, key="../outside.png"),
    ):
        assert unchanged_file(snapshot, other) is None
    outside = photos.parent / "outside.png"
    (photos / photo.key).rename(outside)
    (photos / photo.key).symlink_to(outside)
    try:
        assert unchanged_file(snapshot, photo) is None
    finally:
        outside.replace(photos / photo.key)
    assert unchanged_file(snapshot, photo) is not None


def test_a_file_that_cannot_be_read_takes_nothing_back(
    tmp_path: Path, query: Pixels, first_sight: SearchResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.png").write_bytes(b"\x89PNG broken")
    monkeypatch.setattr(verification, "unchanged_file", lambda *_: ImageFile(tmp_path / "broken.png", 768, 576))
    result, new, _ = looked_closer(first_sight, [extract_query_features(query, BOX)])
    assert new == {}
    assert result.verifications == first_sight.verifications


def test_an_index_without_features_has_no_full_resolution(
    index: Index, query: Pixels, first_sight: SearchResult
) -> None:
    bare = replace(state_of(index), local=None)
    result = replace(first_sight, retrieval=replace(first_sight.retrieval, snapshot=bare))
    assert looked_closer(result, [extract_query_features(query, BOX)]) == (result, {}, ())


def test_no_image_is_begun_after_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, query: Pixels, first_sight: SearchResult
) -> None:
    monkeypatch.setattr(pipeline, "thread_count", lambda: 1)
    views = [extract_query_features(query, BOX)]
    _, new, unchecked = looked_closer(first_sight, views, Deadline(time.monotonic() - 1))
    assert (new, sorted(unchecked)) == ({}, [0, 1, 2, 3])
    clock = iter(range(3))

    class Until(Deadline):
        has_passed = property(lambda _: next(clock) == 2)

    result, new, left = looked_closer(first_sight, views, Until())
    assert left == unchecked[2:]
    assert (
        {image for image, one in result.verifications.items() if one.full_resolution} == set(unchecked[:2]) == set(new)
    )


# -- why ---------------------------------------------------------------------------------------------------------------


def test_why_shows_the_points_at_full_resolution(index: Index, query: Pixels, monkeypatch: pytest.MonkeyPatch) -> None:
    points = index.matching_points(query, "small-1.png", BOX)
    assert points.verified
    assert ((points.photo >= AT) & (points.photo <= np.array(AT) + 80)).all()
    assert index.matching_points(query, "none-1.png", BOX).verified is False

    def missing(*_: object) -> None:
        raise MissingExtraError("no core")

    monkeypatch.setattr(explain, "extract_full_resolution", missing)
    assert index.matching_points(query, "small-1.png", BOX).verified is False


# -- low texture ------------------------------------------------------------------------------------------------------


def smooth(photo: Pixels, contrast: float) -> Pixels:
    """The same in hardly any contrast."""
    return np.round(110 + (photo.astype(np.float64) - 128) * contrast).astype(np.uint8)


def test_something_smooth_is_looked_for_by_low_contrast_keypoints_in_files_too(tmp_path: Path, query: Pixels) -> None:
    Image.fromarray(smooth(scene(3, 1, (100, 50)), 0.14)).save(tmp_path / "smooth.png")
    file, pale = ImageFile(tmp_path / "smooth.png", 320, 240), smooth(query, 0.3)
    asked = extract_query_features(pale, BOX)
    everything = extract_full_resolution(file, asked.features)
    assert everything is not None
    assert asked.features.low_contrast
    assert everything.low_contrast
    (found,) = verify_sources([asked], [file])
    assert found.verified
    assert found.box is not None
    np.testing.assert_allclose(found.box, (100, 50, 228, 178), atol=8)
    never = SearchConfig(local_query=LocalQueryConfig(low_texture_keypoints=0))
    plain = extract_query_features(pale, BOX, config=never)
    assert not plain.features.low_contrast
    (missed,) = verify_sources([plain], [file], never)
    assert missed.verified is False


def test_something_even_has_no_keypoints_of_low_contrast_and_something_clear_needs_none() -> None:
    even = extract_query_features(np.full((200, 200, 3), 90, np.uint8), None).features
    assert len(even) < VerificationConfig().min_query_keypoints
    clear = extract_query_features(texture(3, 300, 400, grain=8), None).features
    assert (len(clear) > LocalQueryConfig().low_texture_keypoints, clear.low_contrast) == (True, False)
