"""Light, shadow and the camera: what makes things that were pasted together one photo."""

import io

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter


def tinted(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Return the picture in slightly other colours."""
    return lit(picture, rng.uniform(0.85, 1.15) * rng.uniform(0.85, 1.15, 3), 1.0)


def photographed(picture: Image.Image, rng: np.random.Generator) -> bytes:
    """Return the picture as a camera would take it: some light, some lens, some film; as a JPEG file."""
    seen = lit(picture, np.exp(rng.uniform(-0.4, 0.4)) * rng.uniform(0.85, 1.15, 3), np.exp(rng.uniform(-0.4, 0.4)))
    blurred = seen.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.5)))
    noise = rng.normal(scale=rng.uniform(0, 8), size=(picture.height, picture.width, 1))
    noisy = np.clip(np.asarray(blurred) + noise, 0, 255).round().astype(np.uint8)
    return as_jpeg(Image.fromarray(noisy), int(rng.integers(50, 93)))


def lit(picture: Image.Image, gain: npt.ArrayLike, gamma: float) -> Image.Image:
    """Return the picture under other light: each channel to the power of `gamma`, times its gain."""
    gains = np.broadcast_to(gain, 3)
    levels = np.arange(256) / 255
    table = [np.clip(255 * factor * levels**gamma, 0, 255).round().astype(int).tolist() for factor in gains]
    return picture.point([level for channel in table for level in channel])


def shade(picture: Image.Image, rng: np.random.Generator, mask: Image.Image, reach: float) -> None:
    """Darken the picture beside what the mask covers, as far as `reach`."""
    moved = Image.new("L", picture.size)
    moved.paste(mask, (round(rng.uniform(-reach, reach)), round(rng.uniform(0, reach))))
    shadow = moved.filter(ImageFilter.GaussianBlur(reach / 2)).point([level // 2 for level in range(256)])
    picture.paste((0, 0, 0), (0, 0), shadow)


def filled(size: tuple[int, int], outline: npt.NDArray[np.floating]) -> Image.Image:
    """Return the inside of an outline as a mask with a soft edge."""
    mask = Image.new("L", size)
    ImageDraw.Draw(mask).polygon([(float(x), float(y)) for x, y in outline], fill=255)
    return mask.filter(ImageFilter.GaussianBlur(1))


def as_jpeg(picture: Image.Image, quality: int) -> bytes:
    """Return the picture as a JPEG file."""
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()
