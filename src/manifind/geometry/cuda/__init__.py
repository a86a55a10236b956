"""Local features on a GPU: those of many photos of any sizes at once.

Features are those of the processor but for rounding, so that an index may keep features of both: nearly all points are
the same to a hundredth of a pixel, and their descriptors keep a cosine above 0.99.

Nothing of torch is imported before `on_gpu` is called.
"""

from typing import TYPE_CHECKING

from manifind.errors import InvalidInputError

if TYPE_CHECKING:
    from manifind.geometry.cuda.sift import Finder

ON_GPU = ("sift",)
"""The kinds of local feature that a GPU finds."""


def on_gpu(kind: str, most: int, long_side: int | None = None, max_enlargement: float = 1.0) -> "Finder":
    """Return what finds local features on a GPU, as `extract` does; `InvalidInputError` says why it cannot."""
    if kind not in ON_GPU:
        raise InvalidInputError(f"kind {kind} is none of {', '.join(ON_GPU)}")
    from manifind.geometry.cuda.sift import Finder

    return Finder(most, long_side, max_enlargement)
