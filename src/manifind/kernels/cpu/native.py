"""The compiled extensions, if they are there.

`core` searches and diffuses, `features` computes local features. Each is None where the install found no compiler:
NumPy, SciPy, faiss and OpenCV serve then, and a line of the log says so once. ``MANIFIND_CORE`` may be ``off``, or the
folder of another build of both.
"""

import importlib
import importlib.util
import logging
import os
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from manifind.kernels.threads import thread_count


def _load(name: str, substitutes: str) -> Any:
    """Return an extension module, or None."""
    try:
        return _import(name, os.environ.get("MANIFIND_CORE"))
    except ImportError as reason:
        logging.getLogger("manifind").info(
            "the compiled extension %s is not there (%s); %s serve, several times slower", name, reason, substitutes
        )
        return None


def _import(name: str, wanted: str | None) -> Any:
    if wanted == "off":
        raise ImportError("MANIFIND_CORE is off")
    if not wanted:
        return importlib.import_module(f"manifind.kernels.{name}")
    for suffix in EXTENSION_SUFFIXES:
        file = Path(wanted) / f"{name}{suffix}"
        spec = importlib.util.spec_from_file_location(name, file) if file.is_file() else None
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise ImportError(f"MANIFIND_CORE, {wanted}, has no {name}")


core: Any = _load("_core", "NumPy, SciPy and faiss")
features: Any = _load("_features", "NumPy, faiss and OpenCV")


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
