"""Where the photos of an index are described: on the GPU where one does the work, if it can, else on the processor."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from manifind.describe import Describer
from manifind.describe.cuda import on_gpu
from manifind.errors import InvalidInput
from manifind.kernels import CPU, CUDA, backend

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
def describing(describer: Describer, photos: int, device: str = CPU) -> Iterator[Describer]:
    """Give the same describer where a device describes so many photos; the log says where that is and why.

    What the GPU describes is what the processor describes but for rounding (`manifind.describe.cuda`), and has the same
    fingerprint: an index may have photos of both.
    """
    if not photos or device == CPU or backend(device).name != CUDA:
        yield describer
        return
    if photos < FEWEST:
        log.info("photos are described on the processor: %d are too few to start the GPU for", photos)
        yield describer
        return
    try:
        made = on_gpu(describer)
    except InvalidInput as reason:
        log.info("photos are described on the processor, because %s", reason)
        yield describer
        return
    log.info("photos are described on the GPU")
    try:
        yield made
    finally:
        made.close()
