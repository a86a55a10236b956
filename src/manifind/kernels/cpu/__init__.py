"""The processor's backend: the compiled core, or NumPy, SciPy and faiss where there is none.

`make` is the one place that asks which of the two it is.
"""

from manifind.kernels.backend import Backend
from manifind.kernels.cpu.core import core


def make() -> Backend:
    """Return the backend that this install has."""
    if core is None:
        from manifind.kernels.cpu import portable

        return portable.make()
    from manifind.kernels.cpu import compiled

    return compiled.make()
