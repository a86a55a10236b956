"""Scenes made of real photographs, where the truth is known: for the demo, tests and benchmarks.

A dozen objects are cut out of photographs and planted in cluttered scenes: small and large, turned, in perspective,
half hidden, under other light, through other lenses. Every scene says which object it shows, where, how large and how
much of it is to be seen; some show none. For each object there are queries, photos of its own outside the collection.

The photographs are those that come inside scikit-image and scikit-learn (`manifind.demo.cutouts`).

>>> scenes = make_scenes("scenes")
>>> scenes.truth[0].file, scenes.truth[0].shows, scenes.truth[0].box
>>> scenes.queries[0].file, scenes.queries[0].shows, scenes.queries[0].box
"""

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from manifind.checks import check_int
from manifind.demo.cutouts import (
    BEHIND,
    GROUND,
    OBJECTS,
    Background,
    Box,
    Cutout,
    Points,
    apply_camera,
    area,
    box_corners,
    draw_shadow,
    encode_jpeg,
    fill_outline,
    homography,
    photograph,
    project,
    random_tint,
    random_view,
)
from manifind.types import Progress

Mask = npt.NDArray[np.float64]
"""How much of each pixel something covers, (height, width) from 0 to 1."""

TRUTH = "truth.json"
FRAMES = ((640, 480), (480, 640))
"""Width and height of a scene."""
SIZES = (0.02, 0.4)
"""Least and largest part of a scene's area that an object takes, hidden parts included; all scales alike."""
ENLARGED = 2.0
"""How much larger than in its photograph an object may become: what is cut small is not planted large."""
TURN = 45.0
"""Most degrees that an object is turned, either way."""
TILT = 0.1
"""Most that a corner of an object moves in perspective, in parts of its sides."""
HIDDEN = (0.15, 0.5)
"""Least and largest part of an object that is hidden behind something, in every second scene."""
BLOWN_UP = 2.0
"""How much larger than in its photograph a background becomes at most."""
CLUTTER = (6, 14)
"""Fewest and most things that lie around."""
EMPTY = 0.2
"""Part of the scenes that show no object."""


@dataclass(frozen=True)
class Scene:
    """The truth about a scene."""

    file: str
    """Its name in the folder of scenes."""
    width: int
    height: int
    shows: str | None = None
    """The object in it."""
    box: Box | None = None
    """Around all of the object, hidden parts included."""
    size: float = 0.0
    """Part of the scene's area that the object takes, hidden parts included."""
    visible: float = 0.0
    """Part of the object that is not hidden."""


@dataclass(frozen=True)
class Query:
    """A photo of an object that is not in the collection, and where the object is in it."""

    file: str
    """Its name in the folder of queries."""
    shows: str
    box: Box


@dataclass(frozen=True)
class Scenes:
    """A collection of scenes in a folder, with queries and the truth."""

    folder: Path
    """The scenes' own; the queries and the truth are beside it."""
    queries_folder: Path
    truth: tuple[Scene, ...]
    queries: tuple[Query, ...]


def make_scenes(
    folder: str | os.PathLike[str],
    *,
    scenes: int = 300,
    seed: int = 0,
    progress: Progress | None = None,
) -> Scenes:
    """Write scenes, queries and the truth about them below a folder.

    The same seed gives the same files, byte for byte, with the same versions of Pillow and NumPy; fewer scenes are the
    first of more.

    Parameters
    ----------
    folder
        Made where it is not there. Scenes go to ``photos/`` in it, queries to ``queries/``, the truth to
        ``truth.json``, which ``manifind evaluate --truth`` reads. Scenes that an earlier call left there are replaced
        or removed.
    scenes : int
        How many. A fifth of them show no object, the others one each, all objects equally often.
    seed : int
        Of the random numbers.
    progress : callable, optional
        Called with how many scenes are made, and how many there will be.
    """
    count = check_int(scenes, "scenes")
    check_int(seed, "seed", least=0)
    root = Path(folder)
    photos, queries = root / "photos", root / "queries"
    for needed in (photos, queries):
        needed.mkdir(parents=True, exist_ok=True)
    truth = []
    for number in range(count):
        jpeg, scene = _scene(number, seed)
        (photos / scene.file).write_bytes(jpeg)
        truth.append(scene)
        if progress is not None:
            progress(number + 1, count)
    for beyond in set(photos.glob("scene-*.jpg")) - {photos / scene.file for scene in truth}:
        beyond.unlink()
    written = []
    for picture, query in _queries(seed):
        (queries / query.file).write_bytes(encode_jpeg(picture, 92))
        written.append(query)
    collection = Scenes(photos, queries, tuple(truth), tuple(written))
    name = f"planted scenes, seed {seed}"
    stored = {
        "name": name,
        "scenes": [asdict(scene) for scene in truth],
        "queries": [_query_truth(query, collection) for query in written],
    }
    (root / TRUTH).write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    return collection


def _query_truth(query: Query, collection: Scenes) -> dict[str, Any]:
    """Return a query as ``manifind evaluate`` reads it: its photo by the path from the scenes, and what shows it."""
    return {
        "name": Path(query.file).stem,
        "image": f"../{collection.queries_folder.name}/{query.file}",
        "box": query.box,
        "positives": [
            {"image": scene.file, "box": scene.box, "photo": (scene.width, scene.height)}
            for scene in collection.truth
            if scene.shows == query.shows
        ],
    }


# -- one scene --------------------------------------------------------------------------------------------------------


def _scene(number: int, seed: int) -> tuple[bytes, Scene]:
    rng = np.random.default_rng([seed, 0, number])
    frame = FRAMES[int(rng.integers(len(FRAMES)))]
    picture = _background(rng, frame)
    for _ in range(rng.integers(CLUTTER[0], CLUTTER[1] + 1)):
        _paste(picture, rng, _random_thing(rng, frame))
    file = f"scene-{number:04d}.jpg"
    cutout = _object_of(number)
    if cutout is None:
        return apply_camera(picture, rng), Scene(file, *frame)

    planted = _plant(picture, rng, cutout, _random_size(rng, cutout, frame), turn=TURN, tilt=TILT)
    cover = planted
    if rng.random() < 0.5:
        thing = _occluder(rng, planted)
        _paste(picture, rng, thing)
        cover = planted * (1 - np.asarray(fill_outline(frame, thing.outline), np.float64) / 255)
    return apply_camera(picture, rng), Scene(
        file,
        *frame,
        cutout.name,
        _bounding_box(planted),
        round(float(planted.mean()), 4),
        round(float(cover.sum() / planted.sum()), 4),
    )


def _object_of(number: int) -> Cutout | None:
    """Return the object of a scene: each in turn, then the scenes without any."""
    cycle = round(len(OBJECTS) / (1 - EMPTY))
    place = number % cycle
    return OBJECTS[place] if place < len(OBJECTS) else None


def _queries(seed: int) -> Iterator[tuple[Image.Image, Query]]:
    """Make the queries: the photograph that an object was cut from, and a plain view of it elsewhere."""
    for number, cutout in enumerate(OBJECTS):
        photo = photograph(cutout.photo)
        scale = min(1, max(FRAMES[0]) / max(photo.size))
        x0, y0, x1, y1 = (round(scale * corner) for corner in cutout.box)
        small = photo.resize((round(scale * photo.width), round(scale * photo.height)), Image.Resampling.LANCZOS)
        yield small, Query(f"{cutout.name}-1.jpg", cutout.name, (x0, y0, x1, y1))

        rng = np.random.default_rng([seed, 1, number])
        frame = FRAMES[int(rng.integers(len(FRAMES)))]
        picture = _background(rng, frame)
        planted = _plant(picture, rng, cutout, min(0.2, _max_size(cutout, frame)), turn=15, tilt=0.025)
        yield picture, Query(f"{cutout.name}-2.jpg", cutout.name, _bounding_box(planted))


def _background(rng: np.random.Generator, frame: tuple[int, int]) -> Image.Image:
    """Return a place without things in it: what is behind, and the ground below."""
    width, height = frame
    picture = _crop_background(rng, BEHIND, frame)
    horizon = round(height * rng.uniform(0.2, 0.8))
    picture.paste(_crop_background(rng, GROUND, (width, height - horizon)), (0, horizon))
    return picture


def _crop_background(rng: np.random.Generator, choices: Sequence[Background], size: tuple[int, int]) -> Image.Image:
    """Return a part of one of the backgrounds at this size, in slightly other colours, perhaps mirrored.

    Where the background is so small that it would have to be blown up, it is continued in the mirror.
    """
    background = choices[int(rng.integers(len(choices)))]
    x0, y0, x1, y1 = background.box
    scale = max(1 / BLOWN_UP, min((x1 - x0) / size[0], (y1 - y0) / size[1]) * rng.uniform(0.7, 1))
    needed = [max(1, round(scale * side)) for side in size]
    columns, rows = (
        _mirror_places(length, extent, rng.uniform()) for length, extent in zip(needed, (x1 - x0, y1 - y0), strict=True)
    )
    if rng.random() < 0.5:
        columns = columns[::-1]
    part = np.asarray(photograph(background.photo))[y0:y1, x0:x1][rows[:, None], columns]
    return random_tint(Image.fromarray(part).resize(size, Image.Resampling.BICUBIC), rng)


def _mirror_places(length: int, extent: int, place: float) -> npt.NDArray[np.intp]:
    """Return `length` places in a row that run over an extent from somewhere, to and fro where it is too short."""
    start = round(place * max(0, extent - length))
    there = (start + np.arange(length)) % (2 * extent)
    return np.where(there < extent, there, 2 * extent - 1 - there)


class Thing(NamedTuple):
    """Something to lay into a scene: its texture, which covers the box from `at`, and its outline in the scene."""

    texture: Image.Image
    at: tuple[int, int]
    outline: Points


def _random_thing(rng: np.random.Generator, frame: tuple[int, int]) -> Thing:
    """Cut a thing out of a background and put it anywhere."""
    centre = rng.uniform(0, frame)
    sides = rng.uniform(0.05, 0.2, 2) * min(frame)
    corners = int(rng.integers(4, 8))
    turns = np.sort(rng.uniform(0, 1, corners) * 0.7 + np.arange(corners)) * 2 * np.pi / corners
    return _cut_thing(rng, centre + sides * np.stack([np.cos(turns), np.sin(turns)], axis=1))


def _occluder(rng: np.random.Generator, planted: Mask) -> Thing:
    """Cut out a thing that hides a part of what was planted, from one side."""
    rows, columns = np.nonzero(planted > 0.5)
    places = np.stack([columns, rows], axis=1).astype(np.float64)
    angle = rng.uniform(0, 2 * np.pi)
    along = np.array([np.cos(angle), np.sin(angle)])
    across = np.array([-along[1], along[0]])
    depth, width = places @ along, places @ across
    edge = np.quantile(depth, 1 - rng.uniform(*HIDDEN))
    far = depth.max() + 0.1 * np.ptp(depth)
    left, right = width.min() - 0.1 * np.ptp(width), width.max() + 0.1 * np.ptp(width)
    corners = [(edge, left), (edge, right), (far, right), (far, left)]
    return _cut_thing(rng, np.array([d * along + w * across for d, w in corners]))


def _cut_thing(rng: np.random.Generator, outline: Points) -> Thing:
    low, high = np.floor(outline.min(axis=0)).astype(int), np.ceil(outline.max(axis=0)).astype(int)
    texture = _crop_background(rng, BEHIND + GROUND, (int(high[0] - low[0]), int(high[1] - low[1])))
    return Thing(texture, (int(low[0]), int(low[1])), outline)


def _paste(picture: Image.Image, rng: np.random.Generator, thing: Thing) -> None:
    """Lay a thing into the picture, with its shadow."""
    reach = 0.1 * math.sqrt(area(thing.outline))
    low = np.floor(thing.outline.min(axis=0) - 3 * reach - 3).astype(int)
    high = np.ceil(thing.outline.max(axis=0) + 3 * reach + 3).astype(int)
    around = (int(low[0]), int(low[1]), int(high[0]), int(high[1]))
    spot = picture.crop(around)
    mask = fill_outline(spot.size, thing.outline - low)
    draw_shadow(spot, rng, mask, reach)
    layer = Image.new("RGB", spot.size)
    layer.paste(thing.texture, (thing.at[0] - around[0], thing.at[1] - around[1]))
    spot.paste(layer, (0, 0), mask)
    picture.paste(spot, around[:2])


def _plant(
    picture: Image.Image, rng: np.random.Generator, cutout: Cutout, size: float, *, turn: float, tilt: float
) -> Mask:
    """Paste an object into the picture at a size, with its shadow, and return what it covers."""
    photo, mask = _cut_out(cutout)
    sides, frame = np.array(photo.size, np.float64), np.array(picture.size, np.float64)
    corners = random_view(rng, sides, turn, tilt)
    outline = project(homography(box_corners(sides), corners), np.array(cutout.outline) - cutout.box[:2])
    scale = math.sqrt(size * frame.prod() / area(outline))
    scale = min(scale, float((0.98 * frame / np.ptp(outline, axis=0)).min()))
    room = frame - scale * np.ptp(outline, axis=0)
    corners = scale * (corners - outline.min(axis=0)) + rng.uniform(0, room)

    # Shrinking is done beforehand, where it is smooth; what is left is to turn and to tilt.
    shrunk = min(1.0, scale)
    small = max(2, round(shrunk * photo.width)), max(2, round(shrunk * photo.height))
    onto = homography(corners, box_corners(np.array(small, np.float64)))
    layer, cover = (
        image.resize(small, Image.Resampling.LANCZOS).transform(
            picture.size, Image.Transform.PERSPECTIVE, tuple(onto.ravel()[:8]), Image.Resampling.BICUBIC
        )
        for image in (photo, mask)
    )
    draw_shadow(picture, rng, cover, 0.1 * math.sqrt(size * frame.prod()))
    picture.paste(random_tint(layer, rng), (0, 0), cover)
    return np.asarray(cover, np.float64) / 255


def _random_size(rng: np.random.Generator, cutout: Cutout, frame: tuple[int, int]) -> float:
    """Draw the part of the frame that an object takes, as many between 2 and 4 % as between 20 and 40 %."""
    return float(np.exp(rng.uniform(math.log(SIZES[0]), math.log(_max_size(cutout, frame)))))


def _max_size(cutout: Cutout, frame: tuple[int, int]) -> float:
    return min(SIZES[1], ENLARGED**2 * area(np.array(cutout.outline)) / (frame[0] * frame[1]))


@cache
def _cut_out(cutout: Cutout) -> tuple[Image.Image, Image.Image]:
    """Return the box around an object in its photograph, and the mask of the object in it."""
    photo = photograph(cutout.photo).crop(cutout.box)
    return photo, fill_outline(photo.size, np.array(cutout.outline) - cutout.box[:2])


def _bounding_box(cover: Mask) -> Box:
    """Return the box around what is covered by half or more."""
    rows, columns = np.nonzero(cover >= 0.5)
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1
