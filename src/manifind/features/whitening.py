"""Whitening: vectors of a network -> fewer dimensions in which none speaks for another.

Neighbouring responses of a network go together, and few patterns dominate every similarity. A mean and a projection,
learnt once from photos that are not the collection's, undo that; descriptors have unit norm afterwards.

- `learn_pca` needs nothing but vectors: principal directions, each divided by its standard deviation (Jégou, Chum,
  ECCV 2012).
- `learn_supervised` also knows which vectors show the same thing: what differs between matching vectors is made even
  first, then the directions that tell all others apart are kept (Mikolajczyk, Matas, ICCV 2007; as used by Radenović,
  Tolias, Chum, ECCV 2016).
"""

import hashlib
import os
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.checks import check_float, check_int
from manifind.errors import DamagedError, InvalidInputError, MissingFileError
from manifind.features.moments import BLOCK, DIMENSION, Moments, rows_of
from manifind.types import FloatArray

DoubleArray = npt.NDArray[np.float64]

FLAT = 1e-10
"""Directions whose variance is below this share of the largest one hold rounding only: they cannot be whitened."""

ONE_PHOTO = 64
"""Vectors up to which they are taken for one photo's, whitened between two runs of the network."""


@dataclass(frozen=True, eq=False)
class Whitening:
    """A learnt mean and projection."""

    mean: FloatArray
    """(D,)"""
    project: FloatArray
    """(D, d), the directions that matter most first."""
    pooling: str = ""
    """The pooling of the training vectors, `RegionExtractor.pooled_by`; empty where it is unknown."""

    def __post_init__(self) -> None:
        mean, project = np.asarray(self.mean), np.asarray(self.project)
        if mean.ndim != 1 or project.ndim != 2 or len(mean) != len(project) or 0 in project.shape:
            raise InvalidInputError(
                f"the whitening's mean has shape {mean.shape} and its projection {project.shape}; give (D,) and (D, d)."
            )
        if mean.dtype.kind != "f" or project.dtype.kind != "f":
            raise InvalidInputError(
                f"the whitening has dtypes {mean.dtype} and {project.dtype}; give floating-point arrays."
            )
        if not (np.isfinite(mean).all() and np.isfinite(project).all()):
            raise InvalidInputError("the whitening has NaN or infinite entries; learn it again from finite vectors.")
        object.__setattr__(self, "mean", np.ascontiguousarray(mean, dtype=np.float32))
        object.__setattr__(self, "project", np.ascontiguousarray(project, dtype=np.float32))

    @property
    def sha256(self) -> str:
        """What identifies the whitening: a checksum of its numbers."""
        digest = hashlib.sha256(repr(self.project.shape).encode())
        for array in (self.mean, self.project):
            digest.update(array.astype("<f4", copy=False).tobytes())
        return digest.hexdigest()

    def apply(self, vectors: npt.ArrayLike) -> FloatArray:
        """Return ``unit((vectors − mean) @ project)``: (n, D) -> (n, d) float32."""
        given = np.asarray(vectors)
        if given.ndim != 2 or given.shape[1] != len(self.mean) or given.dtype.kind != "f":
            raise InvalidInputError(
                f"vectors has shape {given.shape} and dtype {given.dtype} but the whitening was learnt on "
                f"{len(self.mean)} dimensions; give floating-point vectors (n, {len(self.mean)}) of the same network."
            )
        centred = given.astype(np.float32, copy=False) - self.mean
        if len(centred) > ONE_PHOTO:
            return unit_rows(centred @ self.project)
        # For a product this small BLAS wakes threads that then fight with the network's over the cores.
        return unit_rows(np.einsum("ij,jk->ik", centred, self.project))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whitening to `path`, an ``.npz`` file without pickles."""
        with Path(path).open("wb") as stream:
            np.savez(stream, mean=self.mean, project=self.project, pooling=np.array(self.pooling))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Whitening":
        """Read what `save` wrote; arrays of half precision are welcome."""
        path = Path(path)
        if not path.is_file():
            raise MissingFileError(f"{path} does not exist; give the path of a saved whitening.")
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
                pooling = str(arrays["pooling"]) if "pooling" in arrays else ""
                return cls(arrays["mean"], arrays["project"], pooling)
        except (KeyError, OSError, ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
            raise DamagedError(f"{path} is not a saved whitening ({error}); learn or copy it again.") from error


def unit_rows(vectors: npt.NDArray[np.floating[Any]]) -> FloatArray:
    """Return the rows at unit norm in float32; one of zeros, where no channel responds, gets all entries equal."""
    rows = np.array(vectors, np.float32)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    silent = norms == 0
    rows[silent] = 1
    norms[silent] = rows.shape[1] ** 0.5
    rows /= norms[:, None]
    return rows


def learn_pca(vectors: npt.ArrayLike | Iterable[npt.ArrayLike], *, dimension: int | None = None) -> Whitening:
    """Learn PCA whitening: uncorrelated directions of equal variance, the `dimension` strongest kept.

    Parameters
    ----------
    vectors : (n, D) array, or blocks of rows
        Descriptors as they come out of pooling, at unit norm: of independent photos, some thousands at least. An array
        may be memory-mapped; blocks are taken one at a time. Memory is O(D²).
    dimension : int, optional
        Dimensions to keep; 768 by default, or all where the vectors have fewer.
    """
    return whitening_of(Moments.of(vectors), dimension)


def whitening_of(moments: Moments, dimension: int | None = None, *, power: float = 0.5) -> Whitening:
    """Return PCA whitening from moments: the strongest directions, each divided by its variance to a power.

    768 directions are kept unless `dimension` says otherwise, or all where there are fewer. A power of 0.5 divides by
    the standard deviation: all directions vary alike. Lower powers leave strong directions stronger than weak ones.
    """
    power = check_float(power, "power", above=0)
    dimension = _checked_dimension(dimension, len(moments.mean))
    variances, directions = _principal(moments.covariance, dimension)
    if variances[-1] <= FLAT * variances[0]:
        rank = int((variances > FLAT * variances[0]).sum())
        raise InvalidInputError(
            f"vectors vary in {rank} directions only, fewer than dimension={dimension}; "
            f"give more vectors or dimension={max(rank, 1)}."
        )
    project = (directions / variances**power).astype(np.float32)
    return Whitening(moments.mean.astype(np.float32), project, moments.pooling)


def learn_supervised(
    vectors: npt.ArrayLike, pairs: npt.ArrayLike, *, dimension: int | None = None, shrinkage: float = 0.0
) -> Whitening:
    """Learn a discriminative projection from pairs of vectors that show the same thing.

    The inverse square root of the matching pairs' covariance makes their differences alike in every direction; in that
    space the `dimension` principal directions of all vectors are kept. Pairs of any two vectors hardly ever match, so
    the covariance of all vectors stands for that of the pairs that do not.

    Parameters
    ----------
    vectors : (n, D) array
        Descriptors as they come out of pooling, at unit norm; may be memory-mapped.
    pairs : (m, 2) whole numbers
        Rows of `vectors` that match; more than D pairs unless `shrinkage` is set.
    dimension : int, optional
        Dimensions to keep; 768 by default, or all where the vectors have fewer.
    shrinkage : float
        From 0 to below 1: the share of the matching covariance that is replaced by its mean variance in every
        direction. With fewer pairs than dimensions, 0.1 is a sensible start.
    """
    rows = rows_of(vectors, "vectors")
    dimension = _checked_dimension(dimension, rows.shape[1])
    shrinkage = 0.0 if shrinkage == 0 else check_float(shrinkage, "shrinkage", above=0, below=1)
    pairs = _pairs(pairs, len(rows))
    moments = Moments.of(rows)

    within = np.zeros((rows.shape[1], rows.shape[1]))
    for at in range(0, len(pairs), BLOCK):
        first, second = pairs[at : at + BLOCK].T
        differences = rows[first].astype(np.float64) - rows[second]
        within += differences.T @ differences
    within /= len(pairs)
    within *= 1 - shrinkage
    within[np.diag_indices_from(within)] += shrinkage / (1 - shrinkage) * np.trace(within) / len(within)
    from scipy import linalg  # a search never learns, and need not wait for the import

    variances, directions = linalg.eigh(within)
    if variances[0] <= FLAT * variances[-1]:
        raise InvalidInputError(
            f"pairs ({len(pairs)} of them) differ in fewer than the {rows.shape[1]} directions of the vectors; "
            "give more different pairs or shrinkage=0.1."
        )
    even = directions / np.sqrt(variances) @ directions.T

    _, directions = _principal(even @ moments.covariance @ even, dimension)
    return Whitening(moments.mean.astype(np.float32), (even @ directions).astype(np.float32))


def _checked_dimension(dimension: int | None, d: int) -> int:
    """Return how many of d dimensions to keep."""
    dimensions = min(DIMENSION, d) if dimension is None else check_int(dimension, "dimension")
    if dimensions > d:
        raise InvalidInputError(f"dimension is {dimension} but vectors has {d}; keep at most {d}.")
    return dimensions


def _principal(covariance: DoubleArray, dimension: int) -> tuple[DoubleArray, DoubleArray]:
    """Return the largest variances, descending, and their directions in columns, the largest entry of each positive."""
    d = len(covariance)
    from scipy import linalg

    variances, directions = linalg.eigh(covariance, subset_by_index=[d - dimension, d - 1])
    variances, directions = variances[::-1], directions[:, ::-1]
    largest = np.abs(directions).argmax(axis=0)
    return variances, directions * np.sign(directions[largest, np.arange(dimension)])


def _pairs(pairs: npt.ArrayLike, n: int) -> npt.NDArray[np.integer[Any]]:
    given = np.asarray(pairs)
    if given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu" or len(given) == 0:
        raise InvalidInputError(f"pairs has shape {given.shape} and dtype {given.dtype}; give (m, 2) rows of vectors.")
    if given.min() < 0 or given.max() >= n:
        raise InvalidInputError(f"pairs runs from {given.min()} to {given.max()} but vectors has rows 0 to {n - 1}.")
    return given
