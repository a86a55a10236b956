"""What scenes are made of: objects and backgrounds in photographs that come inside scikit-image and scikit-learn.

The photographs are read from the installed packages (``pip install 'manifind[demo]'``), under the licences that those
name, and neither downloaded nor redistributed. Backgrounds lie beside the objects, never on them.
"""

import io
import math
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

from manifind.errors import MissingExtraError

Box = tuple[int, int, int, int]
"""x0, y0, x1, y1 in pixels."""


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


@cache
def photograph(name: str) -> Image.Image:
    """Read a photograph that came with a package."""
    package, folder = ("sklearn", "datasets/images") if name in ("china.jpg", "flower.jpg") else ("skimage", "data")
    spec = find_spec(package)
    path = None if spec is None or spec.origin is None else Path(spec.origin).parent / folder / name
    if path is None or not path.is_file():
        raise MissingExtraError(f"the photograph {name} comes with {package}; pip install 'manifind[demo]'")
    with Image.open(path) as photo:
        return photo.convert("RGB")


Points = npt.NDArray[np.float64]


def random_view(rng: np.random.Generator, sides: Points, turn: float, tilt: float) -> Points:
    """Return where the corners of a box come to lie when it is turned and seen from the side."""
    angle = math.radians(rng.uniform(-turn, turn))
    turned = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    return np.asarray((box_corners(sides) + tilt * sides * rng.uniform(-1, 1, (4, 2))) @ turned)


def box_corners(sides: Points) -> Points:
    """Return the corners of a box of these sides, clockwise from the upper left one."""
    return np.asarray(sides * np.array([(0, 0), (1, 0), (1, 1), (0, 1)]))


def homography(source: Points, target: Points) -> Points:
    """Return the (3, 3) projective map that takes four points to four others; its last entry is 1."""
    rows, values = [], []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    return np.append(np.linalg.solve(np.array(rows), np.array(values)), 1).reshape(3, 3)


def project(homography: Points, points: Points) -> Points:
    """Return the points after a homography."""
    mapped = np.column_stack([points, np.ones(len(points))]) @ homography.T
    return np.asarray(mapped[:, :2] / mapped[:, 2:])


def area(outline: Points) -> float:
    """Return the area within an outline."""
    x, y = outline.T
    return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)


def random_tint(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Return the picture in slightly other colours."""
    return apply_gain(picture, rng.uniform(0.85, 1.15) * rng.uniform(0.85, 1.15, 3), 1.0)


def apply_camera(picture: Image.Image, rng: np.random.Generator) -> bytes:
    """Return the picture as a camera would take it: some light, some lens, some film; as a JPEG file."""
    gain = np.exp(rng.uniform(-0.4, 0.4)) * rng.uniform(0.85, 1.15, 3)
    blurred = apply_gain(picture, gain, np.exp(rng.uniform(-0.4, 0.4)))
    blurred = blurred.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.5)))
    noise = rng.normal(scale=rng.uniform(0, 8), size=(picture.height, picture.width, 1))
    noisy = np.clip(np.asarray(blurred) + noise, 0, 255).round().astype(np.uint8)
    return encode_jpeg(Image.fromarray(noisy), int(rng.integers(50, 93)))


def apply_gain(picture: Image.Image, gain: npt.ArrayLike, gamma: float) -> Image.Image:
    """Return the picture under other light: each channel to the power of `gamma`, times its gain."""
    gains = np.broadcast_to(gain, 3)
    levels = np.arange(256) / 255
    table = [np.clip(255 * factor * levels**gamma, 0, 255).round().astype(int).tolist() for factor in gains]
    return picture.point([level for channel in table for level in channel])


def draw_shadow(picture: Image.Image, rng: np.random.Generator, mask: Image.Image, reach: float) -> None:
    """Darken the picture beside what the mask covers, as far as `reach`."""
    moved = Image.new("L", picture.size)
    moved.paste(mask, (round(rng.uniform(-reach, reach)), round(rng.uniform(0, reach))))
    shadow = moved.filter(ImageFilter.GaussianBlur(reach / 2)).point([level // 2 for level in range(256)])
    picture.paste((0, 0, 0), (0, 0), shadow)


def fill_outline(size: tuple[int, int], outline: npt.NDArray[np.floating]) -> Image.Image:
    """Return the inside of an outline as a mask with a soft edge."""
    mask = Image.new("L", size)
    ImageDraw.Draw(mask).polygon([(float(x), float(y)) for x, y in outline], fill=255)
    return mask.filter(ImageFilter.GaussianBlur(1))


def encode_jpeg(picture: Image.Image, quality: int) -> bytes:
    """Return the picture as a JPEG file."""
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()
