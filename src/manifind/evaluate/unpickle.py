"""Reading ``gnd_*.pkl`` without running what is in it.

A pickle is a program. This reader knows lists, dictionaries, strings, numbers and NumPy's plain arrays, and refuses
everything else by name before anything is called.
"""

import io
import pickle
from pathlib import Path
from typing import Any

from manifind.errors import InvalidInput


def _latin1(text: str, _encoding: str = "latin1") -> bytes:
    """Return bytes as old protocols write them; the encoding named in the file is not looked up."""
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """Return no bytes: called with a number, Python's own would take as much memory as a file likes."""
    return b""


OWN = {("_codecs", "encode"): _latin1, ("__builtin__", "bytes"): _no_bytes, ("builtins", "bytes"): _no_bytes}
"""What old protocols write bytes with, done by functions that can do nothing else."""
ALLOWED = frozenset(
    {
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "scalar"),
        ("numpy._core.numeric", "_frombuffer"),
    }
)
"""What NumPy's arrays and numbers are pickled with; before NumPy 2 under ``numpy.core``."""
LARGEST = 2**28
"""Bytes of a ground truth at most; those that are published have less than a megabyte."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in OWN:
            return OWN[module, name]
        module = "numpy._core" + module.removeprefix("numpy.core") if module.startswith("numpy.core.") else module
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)

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
