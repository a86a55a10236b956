"""What makes things that were pasted together one photo: perspective, light, shadow and the camera."""

import io
import math

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

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
