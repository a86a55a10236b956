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
from pathlib import Path
from typing import Any


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
