"""Films that tests make, of frames that they know."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from manifind.errors import UnreadableImageError
from manifind.io import video as films


def program() -> str:
    """Where ffmpeg is; the test is skipped where it is not."""
    try:
        return films._program()
    except UnreadableImageError:
        pytest.skip("there is no ffmpeg: install it, or pip install 'manifind[video]'")


def film(path: Path, frames: Sequence[npt.NDArray[np.uint8]], *, fps: int = 10, codec: str = "mpeg4") -> Path:
    """Write a film of these frames, all of one size."""
    height, width, _ = frames[0].shape
    command = [program(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{width}x{height}", "-r", str(fps), "-i", "-", "-c:v", codec, "-q:v", "2", "-pix_fmt", "yuv420p"]
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([*command, str(path)], input=b"".join(map(bytes, frames)), check=True)  # noqa: S603
    return path


def shades(count: int) -> list[npt.NDArray[np.uint8]]:
    """Even frames, each a little lighter than the one before: what a frame is can be told from its shade."""
    return [np.full((48, 64, 3), 20 + 2 * i, np.uint8) for i in range(count)]
