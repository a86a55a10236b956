"""A photo -> its local descriptors: RootSIFT, by OpenCV."""

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInputError
from manifind.geometry.sift import import_opencv, opencv_features
from manifind.io.image import Photo, Source, read_photo
from manifind.types import Box, FloatArray


def local_descriptors(
    photo: Source | npt.NDArray[np.uint8], box: Box | None = None, *, long_side: int = 1024, most: int = 2500
) -> FloatArray:
    """Return the RootSIFT descriptors (m, 128) of a photo, or of the part of it within a box; m may be zero.

    SIFT (Lowe, IJCV 2004), each descriptor at unit sum and then by its root (Arandjelović, Zisserman, CVPR 2012).

    Parameters
    ----------
    photo : path, bytes, binary file, or (h, w, 3) uint8 pixels
    box : (x0, y0, x1, y1), optional
        In pixels of the photo in full; descriptors centred within it are returned.
    long_side : int
        A larger photo is reduced to this before anything is detected.
    most : int
        Descriptors at most: those of the strongest contrast, within the box if there is one.
    """
    cv2 = import_opencv()
    decoded = _pixels(photo, long_side)
    height, width = decoded.pixels.shape[:2]
    scale = min(1.0, long_side / max(height, width))
    grey = cv2.cvtColor(decoded.pixels, cv2.COLOR_RGB2GRAY)
    if scale < 1:
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    points, _, _, roots, strength = opencv_features(grey)
    if box is not None:
        x0, y0, x1, y1 = _within(box, decoded)
        across, down = decoded.width / grey.shape[1], decoded.height / grey.shape[0]
        at = points * (across, down)
        inside = (at >= (x0, y0)).all(axis=1) & (at < (x1, y1)).all(axis=1)
        roots, strength = roots[inside], strength[inside]
    return roots[np.sort(np.argsort(-strength, kind="stable")[:most])]


def _pixels(photo: Source | npt.NDArray[np.uint8], long_side: int) -> Photo:
    if not isinstance(photo, np.ndarray):
        return read_photo(photo, long_side=long_side)
    if photo.ndim != 3 or photo.shape[2] != 3 or photo.dtype != np.uint8 or 0 in photo.shape:
        raise InvalidInputError(
            f"photo has shape {photo.shape} and dtype {photo.dtype}; give (height, width, 3) uint8 pixels, or a file.",
            code="photo-array",
        )
    return Photo(np.ascontiguousarray(photo), photo.shape[1], photo.shape[0])


def _within(box: Box, photo: Photo) -> Box:
    try:
        x0, y0, x1, y1 = (float(side) for side in box)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"box is {box!r}; give (x0, y0, x1, y1) in pixels.", code="box-numbers") from error
    if not (x0 < x1 and y0 < y1 and x0 < photo.width and y0 < photo.height and x1 > 0 and y1 > 0):
        raise InvalidInputError(
            f"box is {box!r}, empty or outside the photo of {photo.width} by {photo.height} pixels; "
            "give x0 < x1 and y0 < y1 inside it.",
            code="box-outside",
        )
    return x0, y0, x1, y1
