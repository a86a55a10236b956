"""What the user gave, checked once at the edge.

Each function takes an argument as given and its name, and returns it in the form that the packages work on, or raises
`InvalidInputError` with one sentence that names the argument, what is wrong with it and the remedy.
"""

import math
import numbers
import os
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInputError, ManifindWarning
from manifind.types import FloatArray, IntArray

UNIT_TOLERANCE = 1e-3
"""Rows whose norm is this near to one are unit rows: storing a unit row in float16 moves its norm by less."""


def check_choice(value: object, choices: Collection[str], name: str) -> str:
    """Return `value` if it is one of `choices`."""
    if isinstance(value, str) and value in choices:
        return value
    raise InvalidInputError(f"{name} is {value!r}; choose one of {', '.join(map(repr, choices))}.")


def check_int(value: object, name: str, *, least: int = 1, most: float = math.inf) -> int:
    """Return `value` as an `int` of at least `least` and at most `most`."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool) and least <= int(value) <= most:
        return int(value)
    limit = "" if most == math.inf else f" and at most {most}"
    raise InvalidInputError(f"{name} is {value!r}; give a whole number of at least {least}{limit}.")


def check_float(value: object, name: str, *, above: float = -math.inf, below: float = math.inf) -> float:
    """Return `value` as a `float` strictly between `above` and `below`."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and above < float(value) < below:
        return float(value)
    if above == -math.inf and below == math.inf:
        remedy = "a finite number"
    elif below == math.inf:
        remedy = f"a finite number above {above:g}"
    else:
        remedy = f"a number strictly between {above:g} and {below:g}"
    raise InvalidInputError(f"{name} is {value!r}; give {remedy}.")


def unit_vectors(vectors: npt.ArrayLike, name: str, *, dimension: int | None = None) -> FloatArray:
    """Return descriptors as a C-contiguous (n, d) float32 array of unit rows.

    The caller's memory is returned as it is where it already has that form. Rows whose norm is off by more than
    `UNIT_TOLERANCE` are normalised in a copy, with a `ManifindWarning`; zero, NaN and infinite rows are refused.
    """
    given = _array(vectors, name)
    if given.dtype.kind != "f":
        raise InvalidInputError(
            f"{name} has dtype {given.dtype}; give floating-point descriptors, float32 at best.", code="wrong-dtype"
        )
    if given.ndim != 2:
        hint = "; one descriptor alone is vectors[None, :]" if given.ndim == 1 else ""
        raise InvalidInputError(
            f"{name} has shape {given.shape}; give a 2-D array (regions, dimensions){hint}.", code="wrong-shape"
        )
    if given.shape[0] == 0 or given.shape[1] == 0:
        raise InvalidInputError(f"{name} is empty, of shape {given.shape}; give at least one descriptor.", code="empty")
    if dimension is not None and given.shape[1] != dimension:
        raise InvalidInputError(
            f"{name} has {given.shape[1]} dimensions but the collection has {dimension}; "
            "extract both with the same network and whitening.",
            code="wrong-dimension",
        )
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(given, dtype=np.float32)
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    wild = ~np.isfinite(norms)
    if wild.any():
        raise InvalidInputError(
            f"{name} has NaN, infinite or overflowing entries in {_count(wild, 'row')}; "
            "remove these rows or extract them again.",
            code="not-finite",
        )
    zero = norms < np.finfo(np.float32).tiny ** 0.5
    if zero.any():
        raise InvalidInputError(
            f"{name} has no direction (all zeros) in {_count(zero, 'row')}; remove these rows: similarity to them "
            "is undefined.",
            code="zero-vector",
        )
    off = np.abs(norms - 1) > UNIT_TOLERANCE
    if off.any():
        worst = norms[np.abs(norms - 1).argmax()]
        warnings.warn(
            f"{name} has {_count(off, 'row')} not of unit norm (the farthest has norm {worst:.4g}); a normalised "
            "copy is used.",
            ManifindWarning,
            stacklevel=3,
        )
        rows = rows / norms[:, None]
    return rows


def image_numbers(image_of: npt.ArrayLike | None, n: int, name: str = "image_of") -> IntArray:
    """Return the image number of each of `n` regions, ascending; None makes each region an image of its own."""
    if image_of is None:
        return np.arange(n, dtype=np.int32)
    given = integers(image_of, name)
    if given.shape != (n,):
        raise InvalidInputError(
            f"{name} has shape {given.shape} but there are {n} regions; give one image number a region, shape ({n},).",
            code="wrong-shape",
        )
    descents = np.flatnonzero(np.diff(given) < 0)
    if len(descents):
        at = int(descents[0])
        raise InvalidInputError(
            f"{name} is not ascending: {given[at]} is followed by {given[at + 1]} at place {at + 1}; "
            "sort the regions by image (order = np.argsort(image_of, kind='stable')).",
            code="not-ascending",
        )
    if given[0] < 0 or given[-1] > np.iinfo(np.int32).max:
        raise InvalidInputError(
            f"{name} runs from {given[0]} to {given[-1]}; give image numbers from 0 that fit in int32.",
            code="out-of-range",
        )
    return given.astype(np.int32, copy=False)


def integers(values: npt.ArrayLike, name: str) -> npt.NDArray[np.signedinteger[Any]]:
    """Return a 1-D array of signed integers."""
    given = _array(values, name)
    if given.size == 0 and given.ndim == 1:
        return np.empty(0, np.int64)
    if given.dtype.kind not in "iu":
        raise InvalidInputError(f"{name} has dtype {given.dtype}; give whole numbers.", code="wrong-dtype")
    if given.ndim != 1:
        raise InvalidInputError(f"{name} has shape {given.shape}; give a 1-D array.", code="wrong-shape")
    return given.astype(np.int64, copy=False) if given.dtype.kind == "u" else given


def _array(values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    if np.ma.isMaskedArray(values):
        raise InvalidInputError(
            f"{name} is a masked array; give the rows that count, without the mask.", code="wrong-type"
        )
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InvalidInputError(
            f"{name} is no array: its rows differ in length; give rows of equal length.", code="wrong-shape"
        ) from error


def sequence_of_queries(queries: object, name: str) -> Sequence[npt.ArrayLike]:
    """Return a list of queries, each the (m, d) regions of one."""
    if isinstance(queries, np.ndarray) and queries.ndim == 2:
        raise InvalidInputError(
            f"{name} is one 2-D array of shape {queries.shape}; give a list with one (m, d) array a query, "
            "[queries] if these are the regions of a single query.",
            code="wrong-type",
        )
    if isinstance(queries, str | bytes) or not isinstance(queries, Sequence | np.ndarray):
        raise InvalidInputError(
            f"{name} is a {type(queries).__name__}; give a list with one (m, d) array a query.", code="wrong-type"
        )
    return list(queries)


def _count(mask: npt.NDArray[np.bool_], noun: str) -> str:
    """Say how many are set and where the first is: ``3 rows, the first at 17``."""
    count = int(mask.sum())
    first = int(mask.argmax())
    return f"{noun} {first}" if count == 1 else f"{count} {noun}s, the first at {first}"


def is_there(path: str | os.PathLike[str]) -> bool:
    """Say whether there is a file or folder; words that none could be called are none."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False
