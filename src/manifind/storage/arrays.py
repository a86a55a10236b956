"""Plain arrays in ``.npy`` files, read without trust in what the file says.

NumPy's own reader takes the header for an expression of Python and lets a tokeniser look at it; what that raises on a
damaged header is anybody's guess. Arrays here were written by `manifind.storage.disk.npy`, whose header has one form.
"""

import math
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

MAGIC = b"\x93NUMPY\x01\x00"
LARGEST_HEADER = 1024

HEADER = re.compile(
    rb"\{'descr': '([<>][iuf][248]|\|[biu]1)', 'fortran_order': False, "
    rb"'shape': \(((?:[0-9]{1,18}(?:, [0-9]{1,18}){0,7},?)?)\), \} *\n"
)


class NotAnArrayError(Exception):
    """A file does not hold an array as we write them; the message says in a few words what is wrong."""


def read_array(file: Path, content: bytes | None = None) -> npt.NDArray[Any]:
    """Return the array that a file holds, read only: of `content` where it was read already, else memory-mapped."""
    if content is None:
        with file.open("rb") as stream:
            start = stream.read(len(MAGIC) + 2 + LARGEST_HEADER)
        size = file.stat().st_size
    else:
        start, size = content[: len(MAGIC) + 2 + LARGEST_HEADER], len(content)
    dtype, shape, offset = _header(start)
    count = math.prod(shape)
    if size - offset != dtype.itemsize * count:
        raise NotAnArrayError(f"{size - offset} bytes for an array of {dtype} and shape {shape}")
    if content is None and count:
        return np.asarray(np.memmap(file, dtype, "r", offset, shape))
    return np.frombuffer(content or start, dtype, count, offset).reshape(shape)


def _header(start: bytes) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Return the type and shape that a header tells, and where the numbers begin."""
    if not start.startswith(MAGIC) or len(start) < len(MAGIC) + 2:
        raise NotAnArrayError("it does not begin as one")
    (length,) = struct.unpack_from("<H", start, len(MAGIC))
    offset = len(MAGIC) + 2 + length
    header = HEADER.fullmatch(start[len(MAGIC) + 2 : offset])
    if header is None:
        raise NotAnArrayError("its header is none of ours")
    try:
        dtype = np.dtype(header[1].decode())
    except TypeError as error:
        raise NotAnArrayError(str(error)) from error
    return dtype, tuple(int(side) for side in re.findall(rb"[0-9]+", header[2])), offset
