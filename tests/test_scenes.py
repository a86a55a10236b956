"""The scenes are what their truth says, and come from what is installed."""

import io
import json
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from manifind import InvalidInputError, MissingExtraError
from manifind.demo import cutouts, scenes
from manifind.demo.cutouts import BEHIND, GROUND, OBJECTS, photograph
from manifind.demo.scenes import HIDDEN, SIZES, Scenes, make_scenes
from manifind.evaluation import read_truth
from tests.errors import raises

FEW = 45


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    with pytest.MonkeyPatch.context() as offline:

        def refuse(*args: Any, **kwargs: Any) -> None:
            raise AssertionError("the network was asked")

        offline.setattr(socket.socket, "connect", refuse)
        offline.setattr(socket, "getaddrinfo", refuse)
        photograph.cache_clear()
        return make_scenes(tmp_path_factory.mktemp("scenes"), scenes=FEW)


def pixels(file: Path) -> npt.NDArray[np.float64]:
    with Image.open(file) as photo:
        return np.asarray(photo.convert("RGB"), np.float64)


def test_every_scene_and_every_query_is_a_photo_of_the_size_that_the_truth_says(made: Scenes) -> None:
    assert sorted(file.name for file in made.folder.iterdir()) == [scene.file for scene in made.truth]
    for scene in made.truth:
        assert pixels(made.folder / scene.file).shape == (scene.height, scene.width, 3)
    assert sorted(file.name for file in made.queries_folder.iterdir()) == sorted(query.file for query in made.queries)


def test_each_object_is_planted_equally_often_and_a_fifth_of_the_scenes_is_empty(made: Scenes) -> None:
    shown = [scene.shows for scene in made.truth]
    assert {name: shown.count(name) for name in shown if name} == {one.name: 3 for one in OBJECTS}
    assert shown.count(None) == FEW // 5
    assert all(scene.box is None and scene.size == 0 for scene in made.truth if scene.shows is None)


def test_each_object_has_two_queries_outside_the_collection(made: Scenes) -> None:
    assert [query.shows for query in made.queries] == [one.name for one in OBJECTS for _ in range(2)]
    assert made.queries_folder not in made.folder.parents
    assert made.folder not in made.queries_folder.parents


def test_boxes_lie_within_their_photos_and_around_their_objects(made: Scenes) -> None:
    for scene in made.truth:
        if scene.box is not None:
            x0, y0, x1, y1 = scene.box
            assert 0 <= x0 < x1 <= scene.width
            assert 0 <= y0 < y1 <= scene.height
            assert scene.size <= 1.05 * (x1 - x0) * (y1 - y0) / (scene.width * scene.height)
    for query in made.queries:
        height, width, _ = pixels(made.queries_folder / query.file).shape
        x0, y0, x1, y1 = query.box
        assert 0 <= x0 < x1 <= width
        assert 0 <= y0 < y1 <= height


def test_sizes_spread_from_two_to_forty_percent_and_half_of_the_objects_are_partly_hidden(made: Scenes) -> None:
    shown = [scene for scene in made.truth if scene.shows]
    sizes = np.array([scene.size for scene in shown])
    assert 0.98 * SIZES[0] < sizes.min() < 0.04
    assert 0.2 < sizes.max() < 1.02 * SIZES[1]
    assert 0.05 < np.median(sizes) < 0.12
    hidden = 1 - np.array([scene.visible for scene in shown])
    assert 0.3 < (hidden > 0).mean() < 0.7
    assert HIDDEN[0] - 0.03 < hidden[hidden > 0].min()
    assert hidden.max() < HIDDEN[1] + 0.03


def test_an_object_is_where_the_truth_says_as_large_as_it_says_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant = scenes._plant

    def elsewhere(picture: Image.Image, *args: Any, **kwargs: Any) -> Any:
        return plant(picture.copy(), *args, **kwargs)

    for number in range(2 * len(OBJECTS)):
        photo, scene = scenes._scene(number, 7)
        with monkeypatch.context() as without:
            without.setattr(scenes, "_plant", elsewhere)
            empty, _ = scenes._scene(number, 7)
        if scene.box is None:
            assert photo == empty
            continue
        changed = np.abs(decoded(photo) - decoded(empty)).max(axis=2) > 25
        shadow = round(0.35 * (scene.size * changed.size) ** 0.5) + 16
        x0, y0, x1, y1 = scene.box
        around = np.zeros_like(changed)
        around[max(0, y0 - shadow) : y1 + shadow, max(0, x0 - shadow) : x1 + shadow] = True
        assert not changed[~around].any()
        assert changed[y0:y1, x0:x1].mean() * (y1 - y0) * (x1 - x0) / changed.size > 0.4 * scene.size * scene.visible
        assert changed.mean() < 1.5 * scene.size * scene.visible + 0.01


def decoded(jpeg: bytes) -> npt.NDArray[np.float64]:
    with Image.open(io.BytesIO(jpeg)) as photo:
        return np.asarray(photo, np.float64)


def test_backgrounds_keep_clear_of_the_objects() -> None:
    for background in BEHIND + GROUND:
        x0, y0, x1, y1 = background.box
        for shown in OBJECTS:
            a0, b0, a1, b1 = shown.box
            apart = x1 <= a0 or a1 <= x0 or y1 <= b0 or b1 <= y0
            assert apart or shown.photo != background.photo


def test_boxes_and_outlines_lie_within_their_photographs() -> None:
    for one in (*OBJECTS, *BEHIND, *GROUND):
        width, height = photograph(one.photo).size
        x0, y0, x1, y1 = one.box
        assert 0 <= x0 < x1 <= width
        assert 0 <= y0 < y1 <= height


def test_the_truth_is_written_beside(made: Scenes) -> None:
    said = json.loads((made.folder.parent / "truth.json").read_text())
    assert [one["file"] for one in said["scenes"]] == [scene.file for scene in made.truth]
    for one, scene in zip(said["scenes"], made.truth, strict=True):
        assert (one["shows"], one["size"], one["visible"]) == (scene.shows, scene.size, scene.visible)
        assert one["box"] == (None if scene.box is None else list(scene.box))
    truth = read_truth(made.folder.parent / "truth.json", [scene.file for scene in made.truth])
    assert [(made.folder / query.image).resolve() for query in truth.queries] == [
        made.queries_folder / query.file for query in made.queries
    ]
    assert [query.box for query in truth.queries] == [query.box for query in made.queries]
    for number, query in enumerate(made.queries):
        shows = {i: scene for i, scene in enumerate(made.truth) if scene.shows == query.shows}
        assert truth.tasks[0].positives[number].tolist() == list(shows)
        assert truth.objects[number] == {i: scene.box for i, scene in shows.items()}


def test_the_same_seed_gives_the_same_bytes_and_fewer_scenes_are_the_first_of_more(
    made: Scenes, tmp_path: Path
) -> None:
    again = make_scenes(tmp_path, scenes=4)
    assert again.truth == made.truth[:4]
    for scene in again.truth:
        assert (again.folder / scene.file).read_bytes() == (made.folder / scene.file).read_bytes()
    for query in again.queries:
        assert (again.queries_folder / query.file).read_bytes() == (made.queries_folder / query.file).read_bytes()
    other = make_scenes(tmp_path, scenes=2, seed=1)
    assert other.truth[0] != made.truth[0]
    assert len(list(other.folder.iterdir())) == 2  # those of the call before are gone


def test_progress_is_told_scene_by_scene(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    make_scenes(tmp_path, scenes=2, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]


def test_without_the_packages_the_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutouts, "find_spec", lambda name: None if name == "skimage" else find_spec(name))
    photograph.cache_clear()
    with pytest.raises(MissingExtraError, match=r"pip install 'manifind\[demo\]'"):
        make_scenes(tmp_path, scenes=1)


@pytest.mark.parametrize("given", [{"scenes": 0}, {"scenes": 1.5}, {"seed": -1}])
def test_parameters_that_make_no_scenes_are_refused(given: dict[str, Any], tmp_path: Path) -> None:
    with raises("invalid-input", InvalidInputError) as refused:
        make_scenes(tmp_path, **given)
    assert str(refused.value).startswith(f"{next(iter(given))} is ")
