"""Where photos of an index are described and their local features found: on the GPU if it can, or on the processor."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from manifind.describe import Describer
from manifind.describe.cuda import on_gpu
from manifind.errors import InvalidInput
from manifind.geometry.cuda import on_gpu as features_on_gpu
from manifind.index.state.kept import Keeping
from manifind.kernels import CPU, CUDA, backend

if TYPE_CHECKING:
    from manifind.geometry.cuda.sift import Finder

log = logging.getLogger("manifind.device")

ON_GPU = "mobilenet_v2"
FEWEST = 64
"""Photos from which starting the GPU, which takes seconds, is worth it."""


def network_for(usual: str, photos: int, device: str = CPU) -> str:
    """Return the network that describes so many photos on a device where nobody asked for one; the usual, on the CPU.

    On a GPU it is the one in half precision, which takes no longer there than whole numbers would.
    """
    on_a_gpu = photos >= FEWEST and device != CPU and backend(device).name == CUDA
    return ON_GPU if on_a_gpu else usual


@contextmanager
def describing(
    describer: Describer, photos: int, device: str = CPU, keeping: Keeping | None = None
) -> Iterator[Describer]:
    """Give the same describer where a device describes so many photos; the log says where that is and why.

    What the GPU describes is what the processor describes but for rounding (`manifind.describe.cuda`), and has the same
    fingerprint: an index may have photos of both. The same holds for local features, which a describer on the GPU makes
    beside the regions if some are kept (`manifind.geometry.cuda`).
    """
    if not photos or device == CPU or backend(device).name != CUDA:
        yield describer
        return
    if photos < FEWEST:
        log.info("photos are described on the processor: %d are too few to start the GPU for", photos)
        yield describer
        return
    try:
        made = on_gpu(describer, finder(keeping))
    except InvalidInput as reason:
        log.info("photos are described on the processor, because %s", reason)
        yield describer
        return
    log.info("photos are described%s on the GPU", " and their local features found" if made.beside else "")
    try:
        yield made
    finally:
        made.close()


def finder(keeping: Keeping | None) -> "Finder | None":
    """Return what finds local features on the GPU; None where none are kept or where it cannot, which the log says."""
    if keeping is None:
        return None
    try:
        return features_on_gpu(keeping.kind, keeping.most)
    except InvalidInput as reason:
        log.info("local features are found on the processor, because %s", reason)
        return None
