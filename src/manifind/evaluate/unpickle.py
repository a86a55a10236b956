"""Reading ``gnd_*.pkl`` without running what is in it.

A pickle is a program. This reader knows lists, dictionaries, strings, numbers and NumPy's plain arrays, and refuses
everything else by name before anything is called.
"""

import io
import pickle
from pathlib import Path
from typing import Any

from manifind.errors import InvalidInput

ALLOWED = frozenset(
    {
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy.core.multiarray", "scalar"),
        ("numpy._core.multiarray", "scalar"),
        ("_codecs", "encode"),
    }
)
"""What NumPy's arrays and numbers are pickled with; bytes come through `_codecs.encode` in old protocols."""
LARGEST = 2**28
"""Bytes of a ground truth at most; those that are published have less than a megabyte."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)

    def persistent_load(self, _pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to objects outside the file")


def read_pickle(path: Path) -> Any:
    """Return the lists, dictionaries, strings, numbers and arrays of a pickle; `InvalidInput` if it has others."""
    if path.stat().st_size > LARGEST:
        raise InvalidInput(f"{path} has {path.stat().st_size} bytes, more than a ground truth; give a gnd_*.pkl file.")
    try:
        return _Reader(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except Exception as error:  # a damaged pickle may raise anything
        raise InvalidInput(
            f"{path} is not a ground truth that can be read safely: {error}; nothing of it was run. Take it from "
            "where it was published."
        ) from error
