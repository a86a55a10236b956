"""Scenes made of real photographs, where the truth is known: for the demo, tests and benchmarks.

A dozen objects are cut out of photographs and planted in cluttered scenes: small and large, turned, in perspective,
half hidden, under other light, through other lenses. Every scene says which object it shows, where, how large and how
much of it is to be seen; some show none. For each object there are queries, photos of its own outside the collection.

The photographs are those that come inside scikit-image and scikit-learn (``pip install 'manifind[demo]'``): they are
read from the installed packages, under the licences that those name, and neither downloaded nor redistributed.
Backgrounds and clutter are cut from the same photographs, always beside the objects.

>>> scenes = make_scenes("scenes")
>>> scenes.truth[0].file, scenes.truth[0].shows, scenes.truth[0].box
>>> scenes.queries[0].file, scenes.queries[0].shows, scenes.queries[0].box
"""

import io
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

from manifind.checks import whole_number
from manifind.errors import MissingExtra
from manifind.types import Progress

Box = tuple[int, int, int, int]
"""x0, y0, x1, y1 in pixels."""
Points = npt.NDArray[np.float64]
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
class Cutout:
    """Something with an outline in a photograph."""

    name: str
    photo: str
    outline: tuple[tuple[float, float], ...]
    """Corners in pixels of the photograph."""

    @property
    def box(self) -> Box:
        """The box around it."""
        x, y = zip(*self.outline, strict=True)
        return math.floor(min(x)), math.floor(min(y)), math.ceil(max(x)), math.ceil(max(y))


class Background(NamedTuple):
    """A part of a photograph that has none of the objects."""

    photo: str
    box: Box


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


def _circle(x0: float, y0: float, x1: float, y1: float) -> tuple[tuple[float, float], ...]:
    """Return the outline of the ellipse in a box."""
    turns = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    around = np.stack([(x0 + x1 + (x1 - x0) * np.cos(turns)) / 2, (y0 + y1 + (y1 - y0) * np.sin(turns)) / 2], axis=1)
    return tuple((float(x), float(y)) for x, y in around)


def _rectangle(x0: float, y0: float, x1: float, y1: float) -> tuple[tuple[float, float], ...]:
    return (x0, y0), (x1, y0), (x1, y1), (x0, y1)


# fmt: off
OBJECTS = (
    Cutout("astronaut", "astronaut.png", (
        (153, 70), (160, 56), (178, 44), (194, 30), (212, 20), (232, 15), (250, 20), (270, 28), (288, 40), (297, 60),
        (300, 85), (296, 110), (286, 125), (274, 136), (266, 137), (262, 160), (256, 172), (275, 185), (290, 205),
        (302, 228), (304, 245), (298, 265), (285, 278), (262, 288), (240, 296), (215, 295), (180, 282), (150, 265),
        (130, 240), (115, 215), (113, 188), (124, 178), (132, 160), (150, 150), (172, 147), (182, 148), (181, 132),
        (172, 120), (160, 110), (154, 95),
    )),
    Cutout("shuttle", "astronaut.png", (
        (412, 1), (424, 1), (432, 14), (437, 40), (440, 55), (445, 40), (452, 60), (455, 80), (455, 200), (458, 235),
        (460, 262), (450, 275), (470, 280), (440, 284), (370, 284), (366, 278), (367, 262), (385, 228), (358, 228),
        (355, 220), (358, 205), (375, 190), (379, 180), (378, 110), (382, 100), (381, 60), (388, 42), (394, 60),
        (397, 40), (403, 12),
    )),
    Cutout("cameraman", "camera.png", (
        (160, 105), (165, 95), (178, 78), (195, 66), (215, 64), (235, 74), (252, 88), (266, 103), (271, 118),
        (266, 132), (258, 138), (262, 142), (300, 140), (324, 139), (325, 155), (320, 162), (330, 172), (332, 185),
        (328, 200), (320, 215), (308, 228), (308, 246), (300, 250), (304, 275), (290, 285), (270, 298), (248, 312),
        (225, 305), (207, 294), (190, 318), (180, 330), (28, 330), (2, 330), (2, 258), (10, 248), (25, 225), (35, 200),
        (55, 175), (62, 155), (80, 138), (110, 126), (130, 124), (145, 110),
    )),
    Cutout("cat", "chelsea.png", (
        (40, 1), (395, 1), (385, 20), (370, 50), (357, 75), (360, 100), (362, 125), (358, 150), (345, 185), (330, 205),
        (312, 225), (313, 260), (300, 272), (270, 280), (230, 280), (190, 275), (150, 262), (115, 240), (80, 215),
        (60, 190), (42, 160), (38, 130), (33, 90), (35, 40),
    )),
    Cutout("cup", "coffee.png", (
        (77, 215), (82, 180), (95, 145), (120, 112), (150, 86), (176, 76), (190, 50), (215, 32), (250, 21), (285, 17),
        (320, 21), (355, 34), (385, 55), (398, 68), (412, 66), (424, 74), (420, 90), (416, 106), (440, 125), (462, 155),
        (476, 190), (480, 230), (474, 262), (460, 295), (435, 328), (400, 358), (355, 380), (300, 390), (245, 384),
        (195, 366), (150, 338), (115, 305), (92, 270), (80, 240),
    )),
    Cutout("pagoda", "china.jpg", (
        (195, 30), (213, 30), (215, 46), (218, 58), (235, 75), (262, 95), (280, 105), (318, 115), (319, 128),
        (296, 140), (294, 158), (310, 165), (330, 172), (328, 180), (318, 185), (320, 210), (328, 228), (325, 238),
        (350, 250), (352, 258), (340, 268), (341, 300), (349, 312), (345, 322), (372, 335), (368, 345), (330, 368),
        (285, 388), (240, 390), (205, 380), (175, 362), (160, 345), (150, 332), (130, 328), (80, 335), (72, 330),
        (75, 310), (80, 300), (82, 275), (64, 265), (64, 258), (75, 250), (95, 243), (96, 228), (100, 222), (98, 188),
        (84, 180), (85, 172), (100, 165), (118, 158), (120, 140), (100, 130), (96, 120), (98, 105), (120, 100),
        (150, 95), (180, 75), (192, 60), (194, 46),
    )),
    Cutout("dahlia", "flower.jpg", _circle(171, 87, 445, 359)),
    Cutout("rocket", "rocket.jpg", (
        (311, 155), (315, 135), (322, 127), (329, 135), (333, 155), (334, 178), (337, 185), (336, 340), (345, 355),
        (357, 363), (358, 385), (355, 406), (375, 406), (378, 426), (268, 426), (268, 406), (285, 404), (288, 366),
        (300, 352), (308, 340), (308, 185), (311, 178),
    )),
    Cutout("motorcycle", "motorcycle_left.png", (
        (92, 205), (94, 200), (118, 200), (140, 195), (140, 165), (150, 150), (165, 148), (180, 158), (245, 168),
        (265, 175), (290, 190), (340, 186), (356, 192), (390, 172), (358, 168), (385, 140), (332, 138), (332, 125),
        (370, 112), (400, 125), (420, 120), (450, 140), (470, 120), (490, 115), (500, 100), (490, 80), (505, 76),
        (545, 95), (535, 106), (548, 125), (560, 120), (575, 115), (585, 125), (582, 140), (562, 145), (558, 170),
        (545, 185), (553, 195), (545, 210), (560, 235), (578, 258), (600, 265), (625, 280), (644, 300), (642, 310),
        (665, 340), (682, 375), (684, 410), (675, 435), (650, 452), (625, 450), (595, 435), (565, 405), (540, 370),
        (520, 330), (505, 330), (508, 300), (520, 280), (510, 250), (480, 235), (470, 245), (478, 260), (480, 300),
        (470, 345), (445, 372), (420, 380), (350, 370), (340, 385), (340, 430), (322, 432), (330, 380), (320, 370),
        (280, 365), (260, 385), (225, 400), (190, 398), (155, 380), (132, 345), (122, 300), (130, 265), (150, 240),
        (140, 235), (110, 250), (100, 240),
    )),
    Cutout("coins", "coins.png", _rectangle(6, 6, 376, 294)),
    Cutout("page", "page.png", _rectangle(2, 2, 382, 189)),
    Cutout("retina", "retina.jpg", _circle(32, 8, 1396, 1404)),
)
"""What is planted."""

BEHIND = (
    Background("astronaut.png", (0, 0, 108, 300)),
    Background("astronaut.png", (0, 300, 512, 512)),
    Background("camera.png", (335, 0, 512, 360)),
    Background("china.jpg", (375, 0, 640, 427)),
    Background("flower.jpg", (0, 0, 168, 427)),
    Background("flower.jpg", (475, 0, 640, 427)),
    Background("hubble_deep_field.jpg", (0, 0, 1000, 872)),
    Background("ihc.png", (0, 0, 512, 512)),
    Background("motorcycle_left.png", (0, 0, 90, 500)),
    Background("motorcycle_left.png", (0, 0, 741, 74)),
    Background("motorcycle_right.png", (632, 0, 741, 500)),
    Background("rocket.jpg", (0, 0, 266, 427)),
    Background("rocket.jpg", (382, 0, 640, 427)),
)
"""What scenes are set before."""
GROUND = (
    Background("brick.png", (0, 0, 512, 512)),
    Background("coffee.png", (484, 0, 600, 400)),
    Background("grass.png", (0, 0, 512, 512)),
    Background("gravel.png", (0, 0, 512, 512)),
    Background("moon.png", (0, 0, 512, 512)),
    Background("text.png", (0, 0, 448, 172)),
)
"""What scenes stand on."""
# fmt: on


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
        ``truth.json``. Scenes that an earlier call left there are replaced or removed.
    scenes : int
        How many. A fifth of them show no object, the others one each, all objects equally often.
    seed : int
        Of the random numbers.
    progress : callable, optional
        Called with how many scenes are made, and how many there will be.
    """
    count = whole_number(scenes, "scenes")
    whole_number(seed, "seed", least=0)
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
    asked = []
    for picture, query in _queries(seed):
        (queries / query.file).write_bytes(_jpeg(picture, 92))
        asked.append(query)
    made = Scenes(photos, queries, tuple(truth), tuple(asked))
    said = {"seed": seed, "scenes": [asdict(one) for one in truth], "queries": [asdict(one) for one in asked]}
    (root / TRUTH).write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    return made


# -- one scene --------------------------------------------------------------------------------------------------------


def _scene(number: int, seed: int) -> tuple[bytes, Scene]:
    rng = np.random.default_rng([seed, 0, number])
    frame = FRAMES[int(rng.integers(len(FRAMES)))]
    picture = _setting(rng, frame)
    for _ in range(rng.integers(CLUTTER[0], CLUTTER[1] + 1)):
        _lay(picture, rng, _something(rng, frame))
    file = f"scene-{number:04d}.jpg"
    shown = _object_of(number)
    if shown is None:
        return _photographed(picture, rng), Scene(file, *frame)

    planted = _plant(picture, rng, shown, _size(rng, shown, frame), turn=TURN, tilt=TILT)
    cover = planted
    if rng.random() < 0.5:
        thing = _in_front(rng, planted)
        _lay(picture, rng, thing)
        cover = planted * (1 - np.asarray(_filled(frame, thing.outline), np.float64) / 255)
    return _photographed(picture, rng), Scene(
        file,
        *frame,
        shown.name,
        _box(planted),
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
    for number, shown in enumerate(OBJECTS):
        photo = _photograph(shown.photo)
        scale = min(1, max(FRAMES[0]) / max(photo.size))
        x0, y0, x1, y1 = (round(scale * corner) for corner in shown.box)
        small = photo.resize((round(scale * photo.width), round(scale * photo.height)), Image.Resampling.LANCZOS)
        yield small, Query(f"{shown.name}-1.jpg", shown.name, (x0, y0, x1, y1))

        rng = np.random.default_rng([seed, 1, number])
        frame = FRAMES[int(rng.integers(len(FRAMES)))]
        picture = _setting(rng, frame)
        planted = _plant(picture, rng, shown, min(0.2, _largest(shown, frame)), turn=15, tilt=0.025)
        yield picture, Query(f"{shown.name}-2.jpg", shown.name, _box(planted))


def _setting(rng: np.random.Generator, frame: tuple[int, int]) -> Image.Image:
    """Return a place without things in it: what is behind, and the ground below."""
    width, height = frame
    picture = _part(rng, BEHIND, frame)
    horizon = round(height * rng.uniform(0.2, 0.8))
    picture.paste(_part(rng, GROUND, (width, height - horizon)), (0, horizon))
    return picture


def _part(rng: np.random.Generator, choices: Sequence[Background], size: tuple[int, int]) -> Image.Image:
    """Return a part of one of the backgrounds at this size, in slightly other colours, perhaps mirrored.

    Where the background is so small that it would have to be blown up, it is continued in the mirror.
    """
    background = choices[int(rng.integers(len(choices)))]
    x0, y0, x1, y1 = background.box
    scale = max(1 / BLOWN_UP, min((x1 - x0) / size[0], (y1 - y0) / size[1]) * rng.uniform(0.7, 1))
    needed = [max(1, round(scale * side)) for side in size]
    columns, rows = (
        _mirrored(length, extent, rng.uniform()) for length, extent in zip(needed, (x1 - x0, y1 - y0), strict=True)
    )
    if rng.random() < 0.5:
        columns = columns[::-1]
    part = np.asarray(_photograph(background.photo))[y0:y1, x0:x1][rows[:, None], columns]
    return _tinted(Image.fromarray(part).resize(size, Image.Resampling.BICUBIC), rng)


def _mirrored(length: int, extent: int, place: float) -> npt.NDArray[np.intp]:
    """Return `length` places in a row that run over an extent from somewhere, to and fro where it is too short."""
    start = round(place * max(0, extent - length))
    there = (start + np.arange(length)) % (2 * extent)
    return np.where(there < extent, there, 2 * extent - 1 - there)


class Thing(NamedTuple):
    """Something to lay into a scene: its texture, which covers the box from `at`, and its outline in the scene."""

    texture: Image.Image
    at: tuple[int, int]
    outline: Points


def _something(rng: np.random.Generator, frame: tuple[int, int]) -> Thing:
    """Cut a thing out of a background and put it anywhere."""
    centre = rng.uniform(0, frame)
    sides = rng.uniform(0.05, 0.2, 2) * min(frame)
    corners = int(rng.integers(4, 8))
    turns = np.sort(rng.uniform(0, 1, corners) * 0.7 + np.arange(corners)) * 2 * np.pi / corners
    return _cut(rng, centre + sides * np.stack([np.cos(turns), np.sin(turns)], axis=1))


def _in_front(rng: np.random.Generator, planted: Mask) -> Thing:
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
    return _cut(rng, np.array([d * along + w * across for d, w in corners]))


def _cut(rng: np.random.Generator, outline: Points) -> Thing:
    low, high = np.floor(outline.min(axis=0)).astype(int), np.ceil(outline.max(axis=0)).astype(int)
    texture = _part(rng, BEHIND + GROUND, (int(high[0] - low[0]), int(high[1] - low[1])))
    return Thing(texture, (int(low[0]), int(low[1])), outline)


def _lay(picture: Image.Image, rng: np.random.Generator, thing: Thing) -> None:
    """Lay a thing into the picture, with its shadow."""
    reach = 0.1 * math.sqrt(_area(thing.outline))
    low = np.floor(thing.outline.min(axis=0) - 3 * reach - 3).astype(int)
    high = np.ceil(thing.outline.max(axis=0) + 3 * reach + 3).astype(int)
    around = (int(low[0]), int(low[1]), int(high[0]), int(high[1]))
    spot = picture.crop(around)
    mask = _filled(spot.size, thing.outline - low)
    _shade(spot, rng, mask, reach)
    layer = Image.new("RGB", spot.size)
    layer.paste(thing.texture, (thing.at[0] - around[0], thing.at[1] - around[1]))
    spot.paste(layer, (0, 0), mask)
    picture.paste(spot, around[:2])


def _plant(
    picture: Image.Image, rng: np.random.Generator, shown: Cutout, size: float, *, turn: float, tilt: float
) -> Mask:
    """Paste an object into the picture at a size, with its shadow, and return what it covers."""
    photo, mask = _cutout(shown)
    sides, frame = np.array(photo.size, np.float64), np.array(picture.size, np.float64)
    corners = _view(rng, sides, turn, tilt)
    outline = _through(_homography(_corners(sides), corners), np.array(shown.outline) - shown.box[:2])
    scale = math.sqrt(size * frame.prod() / _area(outline))
    scale = min(scale, float((0.98 * frame / np.ptp(outline, axis=0)).min()))
    room = frame - scale * np.ptp(outline, axis=0)
    corners = scale * (corners - outline.min(axis=0)) + rng.uniform(0, room)

    # Shrinking is done beforehand, where it is smooth; what is left is to turn and to tilt.
    shrunk = min(1.0, scale)
    small = max(2, round(shrunk * photo.width)), max(2, round(shrunk * photo.height))
    onto = _homography(corners, _corners(np.array(small, np.float64)))
    layer, cover = (
        one.resize(small, Image.Resampling.LANCZOS).transform(
            picture.size, Image.Transform.PERSPECTIVE, tuple(onto.ravel()[:8]), Image.Resampling.BICUBIC
        )
        for one in (photo, mask)
    )
    _shade(picture, rng, cover, 0.1 * math.sqrt(size * frame.prod()))
    picture.paste(_tinted(layer, rng), (0, 0), cover)
    return np.asarray(cover, np.float64) / 255


def _size(rng: np.random.Generator, shown: Cutout, frame: tuple[int, int]) -> float:
    """Draw the part of the frame that an object takes, as many between 2 and 4 % as between 20 and 40 %."""
    return float(np.exp(rng.uniform(math.log(SIZES[0]), math.log(_largest(shown, frame)))))


def _largest(shown: Cutout, frame: tuple[int, int]) -> float:
    return min(SIZES[1], ENLARGED**2 * _area(np.array(shown.outline)) / (frame[0] * frame[1]))


# -- geometry ---------------------------------------------------------------------------------------------------------


def _view(rng: np.random.Generator, sides: Points, turn: float, tilt: float) -> Points:
    """Return where the corners of a box come to lie when it is turned and seen from the side."""
    angle = math.radians(rng.uniform(-turn, turn))
    turned = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    return np.asarray((_corners(sides) + tilt * sides * rng.uniform(-1, 1, (4, 2))) @ turned)


def _corners(sides: Points) -> Points:
    return np.asarray(sides * np.array([(0, 0), (1, 0), (1, 1), (0, 1)]))


def _homography(source: Points, target: Points) -> Points:
    """Return the (3, 3) projective map that takes four points to four others; its last entry is 1."""
    rows, values = [], []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    return np.append(np.linalg.solve(np.array(rows), np.array(values)), 1).reshape(3, 3)


def _through(onto: Points, points: Points) -> Points:
    mapped = np.column_stack([points, np.ones(len(points))]) @ onto.T
    return np.asarray(mapped[:, :2] / mapped[:, 2:])


def _area(outline: Points) -> float:
    x, y = outline.T
    return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)


def _box(cover: Mask) -> Box:
    """Return the box around what is covered by half or more."""
    rows, columns = np.nonzero(cover >= 0.5)
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


# -- light and pixels -------------------------------------------------------------------------------------------------


def _tinted(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Return the picture in slightly other colours."""
    return _lit(picture, rng.uniform(0.85, 1.15) * rng.uniform(0.85, 1.15, 3), 1.0)


def _photographed(picture: Image.Image, rng: np.random.Generator) -> bytes:
    """Return the picture as a camera would take it: some light, some lens, some film; as a JPEG file."""
    lit = _lit(picture, np.exp(rng.uniform(-0.4, 0.4)) * rng.uniform(0.85, 1.15, 3), np.exp(rng.uniform(-0.4, 0.4)))
    blurred = lit.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.5)))
    noise = rng.normal(scale=rng.uniform(0, 8), size=(picture.height, picture.width, 1))
    noisy = np.clip(np.asarray(blurred) + noise, 0, 255).round().astype(np.uint8)
    return _jpeg(Image.fromarray(noisy), int(rng.integers(50, 93)))


def _lit(picture: Image.Image, gain: npt.ArrayLike, gamma: float) -> Image.Image:
    gains = np.broadcast_to(gain, 3)
    levels = np.arange(256) / 255
    table = [np.clip(255 * factor * levels**gamma, 0, 255).round().astype(int).tolist() for factor in gains]
    return picture.point([level for channel in table for level in channel])


def _shade(picture: Image.Image, rng: np.random.Generator, mask: Image.Image, reach: float) -> None:
    """Darken the picture beside what the mask covers, as far as `reach`."""
    moved = Image.new("L", picture.size)
    moved.paste(mask, (round(rng.uniform(-reach, reach)), round(rng.uniform(0, reach))))
    shadow = moved.filter(ImageFilter.GaussianBlur(reach / 2)).point([level // 2 for level in range(256)])
    picture.paste((0, 0, 0), (0, 0), shadow)


def _filled(size: tuple[int, int], outline: npt.NDArray[np.floating]) -> Image.Image:
    """Return the inside of an outline as a mask with a soft edge."""
    mask = Image.new("L", size)
    ImageDraw.Draw(mask).polygon([(float(x), float(y)) for x, y in outline], fill=255)
    return mask.filter(ImageFilter.GaussianBlur(1))


@cache
def _cutout(shown: Cutout) -> tuple[Image.Image, Image.Image]:
    """Return the box around an object in its photograph, and the mask of the object in it."""
    photo = _photograph(shown.photo).crop(shown.box)
    return photo, _filled(photo.size, np.array(shown.outline) - shown.box[:2])


@cache
def _photograph(name: str) -> Image.Image:
    """Read a photograph that came with a package."""
    package, folder = ("sklearn", "datasets/images") if name in ("china.jpg", "flower.jpg") else ("skimage", "data")
    found = find_spec(package)
    path = None if found is None or found.origin is None else Path(found.origin).parent / folder / name
    if path is None or not path.is_file():
        raise MissingExtra(f"the photograph {name} comes with {package}; pip install 'manifind[demo]'")
    with Image.open(path) as photo:
        return photo.convert("RGB")


def _jpeg(picture: Image.Image, quality: int) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()
