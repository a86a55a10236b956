"""Whether two devices find the same local features."""

from typing import Any

import numpy as np

from manifind.geometry import Features
from tests.geometry.photographs import Pixels


def features_of(found: Any, number: int, photo: Pixels) -> Features:
    """Return the features of one of the photos whose features were found together on a device."""
    own = found.of == number
    points, scales, angles, descriptors = (tensor[own].cpu().numpy() for tensor in found[1:])
    return Features(points, scales, angles, descriptors, photo.shape[1], photo.shape[0], "sift")


def agree(here: Features, there: Features, *, share: float = 0.98) -> None:
    """Nearly every feature of one is the other's, at the same place, as large, turned alike, and described alike."""
    assert (here.width, here.height, here.kind) == (there.width, there.height, there.kind)
    for one, other in ((here, there), (there, here)):
        apart = np.linalg.norm(one.keypoints[:, None] - other.keypoints, axis=2)
        turned = np.abs(np.angle(np.exp(1j * (one.orientations[:, None] - other.orientations))))
        same = (apart < 0.05) & (np.abs(np.log2(one.scales[:, None] / other.scales)) < 0.02) & (turned < 0.02)
        both = same.any(axis=1)
        assert both.mean() >= share
        nearest = same.argmax(axis=1)[both]
        assert np.einsum("ij,ij->i", one.descriptors[both], other.descriptors[nearest]).min() > 0.99
