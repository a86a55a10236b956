"""A closer look: all features of a photo's file, where those that an index keeps verify nothing."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from manifind.errors import MissingExtra
from manifind.geometry.features import Features, empty
from manifind.geometry.verification import TEXTURE
from manifind.index import Index
from manifind.index.asking import closer
from manifind.index.asking import features as asked_of
from manifind.index.asking import points as asked_why
from manifind.index.asking.answer import Answer
from manifind.index.asking.closer import AT_ONCE, MOST, closer_answer, file_as_it_was
from manifind.index.asking.features import (
    CLOSELY,
    SMOOTH,
    Sought,
    Whole,
    close_features,
    photo_features,
    query_features,
    sought_in,
)
from manifind.index.asking.looking import Checked, looked_at, surest_of
from manifind.index.asking.verified import VerifiedAnswer
from manifind.index.state.generation import Generation
from tests.described import PLAINLY
from tests.index.conftest import AT, BOX, Pixels, crowded, scene, texture

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
    return Index.create(path, photos, **PLAINLY, k=20, query_k=20)


def state_of(index: Index) -> Generation:
    assert isinstance(index.state, Generation)
    return index.state


@pytest.fixture
def first_sight(index: Index, query: Pixels) -> VerifiedAnswer:
    """What kept features say of the four photos: that none is verified."""
    answer = index.search(query, BOX, top=None, verify=0)
    return VerifiedAnswer(answer, looked_at(state_of(index), range(4), [sought_in(query, BOX)]), part=True)


def verified(answer: Answer) -> set[str]:
    return {hit.key for hit in answer if hit.verified}


# -- what is seen ------------------------------------------------------------------------------------------------------


def test_all_features_are_more_than_those_that_are_kept_and_lie_at_the_same_places(photos: Path, query: Pixels) -> None:
    asked = query_features(query, BOX)
    everything = close_features(Whole(photos / "small-0.png", 768, 576), asked)
    assert everything is not None
    few = photo_features(crowded(0, 1))
    assert len(few) == 500 < len(everything)
    assert (everything.width, everything.height) == (768, 576)
    apart = np.linalg.norm(few.points[:, None] - everything.points[None], axis=2).min(axis=1)
    assert np.median(apart) < 1
    assert close_features(Whole(photos / "small-0.png", 576, 768), asked) is None  # turned since
    assert close_features(Whole(photos / "missing.png", 768, 576), asked) is None


def test_a_small_photo_is_enlarged_up_to_twice_its_size(
    tmp_path: Path, query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, asked = [], query_features(query, BOX)

    def seen(pixels: Pixels, *, long_side: int, **_: object) -> Features:
        assert long_side == CLOSELY  # what is larger is reduced to that
        sizes.append(pixels.shape[1::-1])
        return empty("sift", 128, *pixels.shape[1::-1])

    monkeypatch.setattr(asked_of, "extract", seen)
    for width, height in ((400, 300), (768, 576), (1152, 100)):
        Image.new("RGB", (width, height)).save(tmp_path / "even.png")
        found = close_features(Whole(tmp_path / "even.png", width, height), asked)
        assert found is not None
        assert (found.width, found.height) == (width, height)
    assert sizes == [(800, 600), (CLOSELY, 864), (CLOSELY, 100)]


def test_a_small_thing_in_a_crowded_photo_is_verified_on_a_closer_look_alone(
    query: Pixels, first_sight: VerifiedAnswer
) -> None:
    assert not first_sight.found
    assert [check.verified for check in first_sight.looked_at.values()] == [False] * 4
    answer = closer_answer(first_sight, [sought_in(query, BOX)])
    assert answer.found
    assert verified(answer) == SMALL == {hit.key for hit in answer[:2]}
    assert all(check.closely for check in answer.looked_at.values())
    box = next(hit.box for hit in answer if hit.key == "small-0.png")
    assert box is not None
    np.testing.assert_allclose(box, (*AT, AT[0] + 80, AT[1] + 80), atol=8)
    # What had a closer look does not get another.
    assert closer_answer(answer, [sought_in(query, BOX)]) is answer


@pytest.mark.parametrize("top", [None, 1])
@pytest.mark.parametrize("method", ["regional", "match"])
@pytest.mark.parametrize("refine", ["verified", "none"])
def test_a_search_has_a_closer_look(index: Index, query: Pixels, refine: str, method: str, top: int | None) -> None:
    answer = index.search(query, BOX, top=top, refine=refine, method=method, verify=4)
    assert isinstance(answer, VerifiedAnswer)
    assert verified(answer) <= SMALL
    assert len(verified(answer)) == answer.verified == (top or 2)


def test_what_geometry_sees_does_not_depend_on_how_many_hits_are_wanted(index: Index, query: Pixels) -> None:
    few, all_of_them = (index.search(query, BOX, top=top) for top in (2, None))
    assert isinstance(few, VerifiedAnswer)
    assert isinstance(all_of_them, VerifiedAnswer)
    assert few.looked_at == all_of_them.looked_at
    assert [hit.key for hit in few] == [hit.key for hit in all_of_them[:2]]


def test_a_view_without_texture_does_not_keep_another_from_a_closer_look(index: Index, query: Pixels) -> None:
    even = np.full((200, 300, 3), 90, np.uint8)
    for views in ([(even, None), (query, BOX)], [(query, BOX), (even, None)]):
        (image, box), (other, part) = views
        assert verified(index.search(image, box, also=[(other, part)], top=None)) == SMALL


# -- who gets one ------------------------------------------------------------------------------------------------------


class Ranked:
    """As much of an answer as `closer_answer` asks for: many photos in rank order, and what geometry says of some."""

    def __init__(self, known: Mapping[int, Checked], own: set[int], now: Generation, photos: int = 50) -> None:
        self.ranking, self.looked_at, self.own = list(range(photos)), dict(known), own
        self.search: Any = type("Search", (), {"generation": now})
        self.seen: list[int] = []

    def knowing(self, more: Mapping[int, Checked]) -> "Ranked":
        self.seen = list(more)
        return self


@pytest.fixture
def many(index: Index) -> Generation:
    return replace(state_of(index), catalogue=range(50))  # type: ignore[arg-type]


def seen_of(ranked: Ranked, views: Sequence[Sought]) -> list[int]:
    closer_answer(ranked, views)  # type: ignore[arg-type]
    return ranked.seen


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize(
    ("right", "looked"),
    [
        ((), AT_ONCE),
        ((0,), AT_ONCE),
        ((0, 3), 2 * AT_ONCE),
        ((0, 3, AT_ONCE + 1), 2 * AT_ONCE),
        (range(50), MOST),
    ],
)
def test_others_get_a_closer_look_where_it_pays_however_many_threads_there_are(
    monkeypatch: pytest.MonkeyPatch, many: Generation, threads: int, right: Sequence[int], looked: int
) -> None:
    monkeypatch.setattr(closer, "thread_count", lambda: threads)
    monkeypatch.setattr(closer, "file_as_it_was", lambda _now, photo: photo)
    monkeypatch.setattr(closer, "surest_of", lambda _, files, **__: [Checked(file in right) for file in files])
    known = {image: Checked(False) for image in range(50)}
    assert seen_of(Ranked(known, set(), many), []) == list(range(looked))
    # Those in which points match already come first; the query's own, and what is settled, get no closer look.
    known |= {
        39: Checked(False, 4, perhaps=BOX),
        49: Checked(False, 9, perhaps=BOX),
        2: Checked(True),
        3: Checked(None),
        4: Checked(False, closely=True),
    }
    known |= {30: Checked(False, agreeing=3), 20: Checked(False, agreeing=3), 10: Checked(False, agreeing=2)}
    seen = seen_of(Ranked(known, {1}, many), [])
    assert seen[:6] == [39, 20, 30, 0, 5, 6]
    assert not {1, 2, 3, 4, 49} & set(seen)


def test_frames_of_films_take_no_photos_place(monkeypatch: pytest.MonkeyPatch, many: Generation) -> None:
    monkeypatch.setattr(closer, "file_as_it_was", lambda _now, photo: None if photo < 30 else photo)
    monkeypatch.setattr(closer, "surest_of", lambda _, files, **__: [Checked(False) for _ in files])
    known = {image: Checked(False) for image in range(50)}
    assert seen_of(Ranked(known, set(), many), []) == list(range(30, 30 + AT_ONCE))


def test_a_file_that_is_no_longer_as_it_was_gets_none(photos: Path, index: Index) -> None:
    now = state_of(index)
    photo = now.catalogue[0]
    assert file_as_it_was(now, photo) == Whole(photos / photo.key, 768, 576)
    for other in (
        replace(photo, bytes=photo.bytes + 1),
        replace(photo, key="gone.png"),
        replace(photo, key="film.mp4#00:12.4"),
        replace(photo, key="../outside.png"),
    ):
        assert file_as_it_was(now, other) is None
    outside = photos.parent / "outside.png"
    (photos / photo.key).rename(outside)
    (photos / photo.key).symlink_to(outside)
    try:
        assert file_as_it_was(now, photo) is None
    finally:
        outside.replace(photos / photo.key)
    assert file_as_it_was(now, photo) is not None


def test_a_file_that_cannot_be_read_takes_nothing_back(
    tmp_path: Path, query: Pixels, first_sight: VerifiedAnswer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.png").write_bytes(b"\x89PNG broken")
    monkeypatch.setattr(closer, "file_as_it_was", lambda *_: Whole(tmp_path / "broken.png", 768, 576))
    assert closer_answer(first_sight, [sought_in(query, BOX)]) is first_sight


def test_an_index_without_features_has_no_closer_look(
    index: Index, query: Pixels, first_sight: VerifiedAnswer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = replace(first_sight.search, generation=replace(state_of(index), local=None))
    monkeypatch.setattr(first_sight, "search", bare)
    assert closer_answer(first_sight, [sought_in(query, BOX)]) is first_sight


def test_no_photo_is_begun_after_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, query: Pixels, first_sight: VerifiedAnswer
) -> None:
    monkeypatch.setattr(closer, "thread_count", lambda: 1)
    views = [sought_in(query, BOX)]
    assert closer_answer(first_sight, views, until=time.monotonic() - 1) is first_sight
    moments: list[float] = []

    def slowly(views: Sequence[Sought], files: Sequence[Whole], *, until: float) -> list[Checked]:
        moments.append(until)
        if len(moments) > 2:
            raise TimeoutError
        return surest_of(views, files, until=until)

    monkeypatch.setattr(closer, "surest_of", slowly)
    later = time.monotonic() + 600
    answer = closer_answer(first_sight, views, until=later)
    assert sum(check.closely for check in answer.looked_at.values()) == 2
    assert moments == [later] * 3


# -- why ---------------------------------------------------------------------------------------------------------------


def test_why_shows_the_points_of_a_closer_look(index: Index, query: Pixels, monkeypatch: pytest.MonkeyPatch) -> None:
    points = index.matching_points(query, "small-1.png", BOX)
    assert points.verified
    assert ((points.photo >= AT) & (points.photo <= np.array(AT) + 80)).all()
    assert index.matching_points(query, "none-1.png", BOX).verified is False

    def missing(*_: object) -> None:
        raise MissingExtra("no core")

    monkeypatch.setattr(asked_why, "all_features", missing)
    assert index.matching_points(query, "small-1.png", BOX).verified is False


# -- smooth things -----------------------------------------------------------------------------------------------------


def smooth(photo: Pixels, contrast: float) -> Pixels:
    """The same in hardly any contrast."""
    return np.round(110 + (photo.astype(np.float64) - 128) * contrast).astype(np.uint8)


def test_something_smooth_is_looked_for_by_faint_points_in_files_too(
    tmp_path: Path, query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(smooth(scene(3, 1, (100, 50)), 0.14)).save(tmp_path / "smooth.png")
    file, pale = Whole(tmp_path / "smooth.png", 320, 240), smooth(query, 0.3)
    asked = query_features(pale, BOX)
    everything = close_features(file, asked)
    assert everything is not None
    assert asked.faint
    assert everything.faint
    (found,) = surest_of([(asked, BOX)], [file])
    assert found.verified
    assert found.box is not None
    np.testing.assert_allclose(found.box, (100, 50, 228, 178), atol=8)
    monkeypatch.setattr(asked_of, "SMOOTH", 0)
    plain = query_features(pale, BOX)
    assert not plain.faint
    (missed,) = surest_of([(plain, BOX)], [file])
    assert missed.verified is False


def test_something_even_has_no_faint_points_and_something_clear_needs_none() -> None:
    assert len(query_features(np.full((200, 200, 3), 90, np.uint8), None)) < TEXTURE
    clear = query_features(texture(3, 300, 400, grain=8), None)
    assert (len(clear) > SMOOTH, clear.faint) == (True, False)
