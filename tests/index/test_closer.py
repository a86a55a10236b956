"""A closer look: all features of a photo's file, where those that an index keeps verify nothing."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from manifind.geometry.features import Features, empty
from manifind.geometry.verification import TEXTURE
from manifind.index import Index
from manifind.index.asking import closer
from manifind.index.asking import features as asked_of
from manifind.index.asking.closer import FIRST, MOST, looked_at_closely
from manifind.index.asking.features import (
    CLOSELY,
    SMOOTH,
    Sought,
    close_features,
    kept_or_file,
    photo_features,
    query_features,
    sought_in,
)
from manifind.index.asking.looking import Checked, looked_at, surest_of
from manifind.index.asking.verified import VerifiedAnswer
from manifind.index.state.generation import Generation
from tests.described import PLAINLY
from tests.index.conftest import AT, BOX, Pixels, crowded, scene, texture


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
def known(index: Index, query: Pixels) -> dict[int, Checked]:
    return looked_at(state_of(index), range(4), [sought_in(query, BOX)])


def test_all_features_are_more_than_those_that_are_kept_and_lie_at_the_same_places(photos: Path, query: Pixels) -> None:
    everything = close_features(photos / "small-0.png", query_features(query, BOX))
    assert everything is not None
    few = photo_features(crowded(0, 1))
    assert len(few) == 500 < len(everything)
    assert (everything.width, everything.height) == (768, 576)
    apart = np.linalg.norm(few.points[:, None] - everything.points[None], axis=2).min(axis=1)
    assert np.median(apart) < 1


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
        found = close_features(tmp_path / "even.png", asked)
        assert found is not None
        assert (found.width, found.height) == (width, height)
    assert sizes == [(800, 600), (CLOSELY, 864), (CLOSELY, 100)]
    assert close_features(tmp_path / "missing.png", asked) is None


def test_a_small_thing_in_a_crowded_photo_is_verified_on_a_closer_look_alone(
    index: Index, query: Pixels, known: dict[int, Checked]
) -> None:
    assert [check.verified for check in known.values()] == [False] * 4
    seen = looked_at_closely(state_of(index), [3, 2, 1, 0], known, [sought_in(query, BOX)])
    said = {state_of(index).catalogue[image].key: check for image, check in seen.items()}
    assert {key: check.verified for key, check in said.items()} == {
        "none-0.png": False,
        "none-1.png": False,
        "small-0.png": True,
        "small-1.png": True,
    }
    assert all(check.closely for check in said.values())
    box = said["small-0.png"].box
    assert box is not None
    np.testing.assert_allclose(box, (*AT, AT[0] + 80, AT[1] + 80), atol=8)
    # What had a closer look does not get another.
    assert looked_at_closely(state_of(index), [3, 2, 1, 0], known | seen, [sought_in(query, BOX)]) == {}


@pytest.mark.parametrize("refine", ["verified", "none"])
def test_a_search_has_a_closer_look(index: Index, query: Pixels, refine: str) -> None:
    answer = index.search(query, BOX, top=None, refine=refine)
    assert isinstance(answer, VerifiedAnswer)
    assert {hit.key for hit in answer if hit.verified} == {"small-0.png", "small-1.png"}
    assert answer.likely == 2


def test_why_shows_the_points_of_a_closer_look(index: Index, query: Pixels) -> None:
    points = index.matching_points(query, "small-1.png", BOX)
    assert points.verified
    assert ((points.photo >= AT) & (points.photo <= np.array(AT) + 80)).all()
    refused = index.matching_points(query, "none-1.png", BOX)
    assert refused.verified is False


def test_files_that_changed_or_cannot_be_read_take_nothing_back(
    photos: Path, index: Index, query: Pixels, known: dict[int, Checked], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, views = state_of(index), [sought_in(query, BOX)]
    doubted = {image: replace(check, perhaps=(1.0, 2.0, 3.0, 4.0)) for image, check in known.items()}
    larger = {image: replace(now.catalogue[image], bytes=now.catalogue[image].bytes + 1) for image in known}
    with monkeypatch.context() as changed:
        changed.setattr(closer, "file_as_it_was", lambda _, photo: closer_file(photos, photo.key, larger))
        assert looked_at_closely(now, [3, 2, 1, 0], doubted, views) == {}
    assert closer.file_as_it_was(now, larger[0]) is None
    assert closer.file_as_it_was(now, replace(now.catalogue[0], key="gone.png")) is None
    assert closer.file_as_it_was(now, now.catalogue[0]) == photos / now.catalogue[0].key


def closer_file(photos: Path, *_: object) -> Path:
    """Return a file that is no photo."""
    broken = photos.parent / "broken.png"
    broken.write_bytes(b"\x89PNG broken")
    return broken


def test_an_index_without_features_has_no_closer_look(index: Index, query: Pixels, known: dict[int, Checked]) -> None:
    bare = replace(state_of(index), local=None)
    assert looked_at_closely(bare, [3, 2, 1, 0], known, [sought_in(query, BOX)]) == {}
    assert isinstance(kept_or_file(bare, bare.catalogue[0]), Path)


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize(
    ("verified", "looked"),
    [
        ((), FIRST),
        ((0,), FIRST),
        ((0, 3), 2 * FIRST),
        ((0, 3, FIRST + 1), 2 * FIRST),
        (range(50), MOST),
    ],
)
def test_others_get_a_closer_look_where_it_pays_however_many_threads_there_are(
    monkeypatch: pytest.MonkeyPatch, index: Index, query: Pixels, threads: int, verified: Sequence[int], looked: int
) -> None:
    monkeypatch.setattr(closer, "thread_count", lambda: threads)
    monkeypatch.setattr(closer, "file_as_it_was", lambda _now, photo: Path(str(photo)))
    monkeypatch.setattr(closer, "surest_of", lambda _, files, **__: [said(int(str(file))) for file in files])

    def said(image: int) -> Checked:
        return Checked(image in verified, closely=True)

    now = replace(state_of(index), catalogue=range(50))  # type: ignore[arg-type]
    known = {image: Checked(False) for image in range(50)}
    assert list(looked_at_closely(now, range(50), known, [sought_in(query, BOX)])) == list(range(looked))
    # Those in which points match already come first; the query's own, and what is settled, get no closer look.
    known |= {40: Checked(False, 4, perhaps=BOX), 2: Checked(True), 3: Checked(None), 4: Checked(False, closely=True)}
    known |= {30: Checked(False, agreeing=3), 20: Checked(False, agreeing=3), 10: Checked(False, agreeing=2)}
    seen = looked_at_closely(now, range(50), known, [sought_in(query, BOX)], own={1})
    assert list(seen)[:6] == [40, 20, 30, 0, 5, 6]
    assert not {1, 2, 3, 4} & set(seen)


def test_no_photo_is_begun_after_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, index: Index, query: Pixels, known: dict[int, Checked]
) -> None:
    monkeypatch.setattr(closer, "thread_count", lambda: 1)
    views = [sought_in(query, BOX)]
    assert looked_at_closely(state_of(index), [3, 2, 1, 0], known, views, until=time.monotonic() - 1) == {}
    moments: list[float | None] = []

    def slowly(views: Sequence[Sought], files: Sequence[Path], *, until: float, **_: object) -> list[Checked]:
        moments.append(until)
        if len(moments) > 2:
            raise TimeoutError
        return surest_of(views, files, closely=True, until=until)

    monkeypatch.setattr(closer, "surest_of", slowly)
    later = time.monotonic() + 600
    seen = looked_at_closely(state_of(index), [3, 2, 1, 0], known, views, until=later)
    assert list(seen) == [3, 2]
    assert moments == [later] * 3


def smooth(photo: Pixels, contrast: float) -> Pixels:
    """The same in hardly any contrast."""
    return np.round(110 + (photo.astype(np.float64) - 128) * contrast).astype(np.uint8)


def test_something_smooth_is_looked_for_by_faint_points_in_files_too(
    tmp_path: Path, query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(smooth(scene(3, 1, (100, 50)), 0.14)).save(tmp_path / "smooth.png")
    pale = smooth(query, 0.3)
    asked = query_features(pale, BOX)
    everything = close_features(tmp_path / "smooth.png", asked)
    assert everything is not None
    assert asked.faint
    assert everything.faint
    (found,) = surest_of([(asked, BOX)], [tmp_path / "smooth.png"], closely=True)
    assert found.verified
    assert found.box is not None
    np.testing.assert_allclose(found.box, (100, 50, 228, 178), atol=8)
    monkeypatch.setattr(asked_of, "SMOOTH", 0)
    plain = query_features(pale, BOX)
    assert not plain.faint
    (missed,) = surest_of([(plain, BOX)], [tmp_path / "smooth.png"], closely=True)
    assert missed.verified is False


def test_something_even_has_no_faint_points_and_something_clear_needs_none(query: Pixels) -> None:
    assert len(query_features(np.full((200, 200, 3), 90, np.uint8), None)) < TEXTURE
    clear = query_features(texture(3, 300, 400, grain=8), None)
    assert (len(clear) > SMOOTH, clear.faint) == (True, False)
