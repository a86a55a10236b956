"""The compiled core, if it is there.

`core` is the extension module, or None where the install found no compiler: NumPy, SciPy and faiss serve then, and a
line of the log says so once. ``MANIFIND_CORE`` may be ``off``, or the file of another build of the core.
"""

import importlib
import importlib.util
import logging
import os
from typing import Any


def _loaded() -> Any:
    wanted = os.environ.get("MANIFIND_CORE")
    if wanted == "off":
        raise ImportError("MANIFIND_CORE is off")
    if not wanted:
        return importlib.import_module("manifind.kernels._core")
    spec = importlib.util.spec_from_file_location("_core", wanted)
    if spec is None or spec.loader is None:
        raise ImportError(f"MANIFIND_CORE, {wanted}, is no extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


core: Any = None
try:
    core = _loaded()
except ImportError as reason:
    logging.getLogger("manifind").info(
        "the compiled core is not there (%s); NumPy, SciPy and faiss serve, several times slower", reason
    )
