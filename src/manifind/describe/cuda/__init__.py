"""Describing photos on a GPU: many photos of any sizes at once, in half precision.

A photo is decoded on the processor, in the thread that wants its description, and goes to the GPU as it is. There it is
resized, seen by the network at every zoom, pooled and whitened, together with the photos that other threads brought
meanwhile. All of these lie one after the other as rows of cells, whatever their sizes: nothing is padded, and a new
size costs nothing.

Descriptors are those of the processor but for rounding: every region keeps a cosine above 0.999 with what onnxruntime
gives, and above 0.9999 unless it shows nothing but sky. So a describer on the GPU has the fingerprint of the one on the
processor, and an index takes descriptions of both.

Nothing of torch is imported before `on_gpu` is called.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from manifind.describe.describer import Describer
from manifind.errors import InvalidInput

if TYPE_CHECKING:
    from manifind.describe.cuda.describer import CudaDescriber


def on_gpu(describer: Describer, beside: Callable[..., Sequence[Any]] | None = None) -> "CudaDescriber":
    """Return a describer that gives the same on the GPU; `InvalidInput` says why this one cannot.

    `beside` makes something more of photos while they are on the GPU. It is called with the pixels of several photos,
    (rows, 3), one photo after the other, and with their sizes, (photos, 2), and returns what it made of each.
    """
    if type(describer) is not Describer:
        raise InvalidInput("it is a describer of somebody's own kind")
    from manifind.describe.cuda.describer import CudaDescriber

    return CudaDescriber.of(describer, beside=beside)
