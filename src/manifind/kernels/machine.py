"""Which instructions, libraries and threads the kernels run on."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import scipy

from manifind.kernels.cpu.native import core, features
from manifind.kernels.threads import thread_count


def compiled() -> bool:
    """Whether the compiled core is there."""
    return core is not None


def features_compiled() -> bool:
    """Whether the compiled extension for local features is there."""
    return features is not None


def machine() -> dict[str, Any]:
    """Return the instructions, libraries and threads that the kernels use, for people to read."""
    from threadpoolctl import threadpool_info

    return {
        "threads": thread_count(),
        "core": "compiled" if compiled() else "not compiled: NumPy, SciPy and faiss serve, several times slower",
        "features": "compiled"
        if features_compiled()
        else "not compiled: NumPy, faiss and OpenCV serve, slower; "
        "a GPU finds one in four of OpenCV's features, so extract photos and queries on one of the two",
        "instructions": core.level() if compiled() else None,
        "could_run": core.levels() if compiled() else [],
        "blas": sorted({f"{pool['internal_api']} {pool.get('version')}" for pool in threadpool_info()}),
        "faiss": _installed("faiss-cpu"),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
