"""The processor's backend: the compiled core, or NumPy, SciPy and faiss where there is none.

`make` is the one place that asks which of the two it is.
"""

from manifind.kernels.api import Backend
from manifind.kernels.cpu.native import core


def make() -> Backend:
    """Return the backend that this install has."""
    if core is None:
        from manifind.kernels.cpu import numpy_backend

        return numpy_backend.make()
    from manifind.kernels.cpu import native_backend

    return native_backend.make()
