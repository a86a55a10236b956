"""Region extraction on a GPU: many photos of any sizes at once, in half precision.

A photo is decoded on the processor, in the thread that asks for its regions, and goes to the GPU as it is. The GPU
resizes it, runs the network at every scale, pools and whitens, together with the photos of other threads. All photos
lie one after the other as rows of cells, whatever their sizes: nothing is padded, and a new size costs nothing.

Descriptors are those of the processor but for rounding: every region keeps a cosine above 0.999 with what onnxruntime
gives, and above 0.9999 unless it shows nothing but sky. So the extractor has the same fingerprint on the GPU and on the
processor, and an index takes descriptors of both.

Nothing of torch is imported before `on_gpu` is called.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from manifind.errors import InvalidInputError
from manifind.features.extractor import RegionExtractor

if TYPE_CHECKING:
    from manifind.features.cuda.extractor import CudaExtractor


def on_gpu(extractor: RegionExtractor, extract_local: Callable[..., Sequence[Any]] | None = None) -> "CudaExtractor":
    """Return an extractor with the same results on the GPU; raise `InvalidInputError` with the reason where it cannot.

    `extract_local` extracts local features of photos while they are on the GPU. It is called with the pixels of several
    photos, (rows, 3), one photo after the other, and with their sizes, (photos, 2), and returns the features of each.
    """
    if type(extractor) is not RegionExtractor:
        raise InvalidInputError("the extractor is a custom class")
    from manifind.features.cuda.extractor import CudaExtractor

    return CudaExtractor.of(extractor, extract_local=extract_local)
