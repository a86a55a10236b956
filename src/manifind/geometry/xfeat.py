"""XFeat, by onnxruntime: small learnt features, quick on any processor; they do not keep when the object is turned.

Potje et al., "XFeat: Accelerated Features for Lightweight Image Matching" (CVPR 2024). The network comes with manifind.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.geometry.features import Choose, Detected
from manifind.types import FloatArray

DIMENSION = 64
STRIDE = 32
"""Height and width of what the network takes are whole multiples of this."""
CELL = 8
"""Pixels across and down for which the network gives one descriptor and one reliability."""
FAINTEST = 0.05
"""The least score of a point."""
NETWORK = Path(__file__).with_name("networks") / "xfeat.onnx"


def detect(grey: npt.NDArray[np.uint8], choose: Choose) -> Detected:
    """Return points (m, 2), scales of one, angles of zero and descriptors (m, 64) of the features that were chosen."""
    height, width = grey.shape
    below, beside = -height % STRIDE, -width % STRIDE
    photo = np.pad(grey, ((0, below), (0, beside)), mode="edge").astype(np.float32)[None, None]
    descriptors, scores, reliability = session(NETWORK).run(None, {"photo": photo})
    rows, columns = np.nonzero(scores[0, 0, :height, :width] > FAINTEST)
    points = np.stack([columns, rows], axis=1).astype(np.float32)
    strengths = scores[0, 0, rows, columns] * sample(reliability[0], points, CELL)[:, 0]
    points = points[choose(points, strengths.astype(np.float32))]
    described = sample(descriptors[0], points, CELL)
    described /= np.maximum(np.linalg.norm(described, axis=1, keepdims=True), 1e-12)
    ones, zeros = np.ones(len(points), np.float32), np.zeros(len(points), np.float32)
    return points, ones, zeros, described


def sample(channels: FloatArray, points: FloatArray, stride: int) -> FloatArray:
    """Return the values of a (c, h, w) map at points of the photo, (m, c), between its cells by their distance."""
    height, width = channels.shape[1:]
    at = (points + 0.5) / stride - 0.5
    x, y = np.clip(at[:, 0], 0, width - 1), np.clip(at[:, 1], 0, height - 1)
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    right, bottom = np.minimum(left + 1, width - 1), np.minimum(top + 1, height - 1)
    across, down = (x - left).astype(np.float32)[:, None], (y - top).astype(np.float32)[:, None]
    cells = np.ascontiguousarray(channels.transpose(1, 2, 0))
    above = cells[top, left] * (1 - across) + cells[top, right] * across
    under = cells[bottom, left] * (1 - across) + cells[bottom, right] * across
    values: FloatArray = above * (1 - down) + under * down
    return values


@cache
def session(network: Path) -> Any:
    """Return a network ready to run, loaded at its first use."""
    from manifind.networks import load_session

    return load_session(network, 1)
