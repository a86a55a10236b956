"""Mean and covariance of vectors before whitening: what a whitening is made of.

A large collection knows its own statistics best; a small one has too few regions to tell 1,280 directions apart. So its
moments are mixed with those of many other photos, which come with the network: those of n regions of the collection
have the share n² / (n² + n₀²). Both count the same for a collection of n₀ regions, and trust in the own ones grows
faster than their number: see `PRIOR`.
"""

import itertools
import os
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from manifind.checks import check_float
from manifind.errors import DamagedError, InvalidInputError, MissingFileError

DoubleArray = npt.NDArray[np.float64]

PRIOR = 5_000
"""Regions of a collection whose moments count as much as those that come with the network.

On parts of Holidays the best shares of the own moments were about 0.1 for 70 photos (1,500 regions), 0.3 for 200, and
all for the 1,156 of the whole (docs/descriptors.md).
"""

DIMENSION = 768
"""Default number of dimensions of a whitening: on Holidays regional diffusion finds 93.2 with 768 and 91.9
with 512 (docs/descriptors.md)."""

BLOCK = 8192
"""Vectors that are read at a time."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and covariance of so many vectors."""

    count: float
    mean: DoubleArray
    """(D,)"""
    covariance: DoubleArray
    """(D, D)"""
    pooling: str = ""
    """The pooling of the vectors, `RegionExtractor.pooled_by`; empty where it is unknown."""

    def __post_init__(self) -> None:
        d = len(self.mean)
        if self.mean.shape != (d,) or self.covariance.shape != (d, d) or d == 0:
            raise InvalidInputError(
                f"the moments have a mean of shape {self.mean.shape} and a covariance of {self.covariance.shape}; "
                "give (D,) and (D, D)."
            )
        if not (np.isfinite(self.mean).all() and np.isfinite(self.covariance).all()):
            raise InvalidInputError("the moments have NaN or infinite entries; take them from finite vectors.")
        check_float(self.count, "the moments' count", above=0)

    @classmethod
    def of(cls, vectors: npt.ArrayLike | Iterable[npt.ArrayLike], pooling: str = "") -> Self:
        """Return the moments of rows: of one array, which may be memory-mapped, or of blocks that pass by."""
        blocks = _blocks(vectors)
        first = next(blocks, np.empty((0, 0)))
        around = centre(first)
        return cls.of_sums(Sums.of(itertools.chain([first], blocks), around), around, pooling)

    @classmethod
    def of_sums(cls, sums: "Sums", around: DoubleArray, pooling: str = "") -> Self:
        """Return the moments of rows whose sums were taken around a point."""
        if sums.count < 2:
            raise InvalidInputError(f"vectors has {sums.count} rows; give at least two, some thousands at best.")
        offset = sums.total / sums.count
        return cls(sums.count, around + offset, sums.squares / sums.count - np.outer(offset, offset), pooling)

    def mixed_with(self, prior: "Moments", weight: float = PRIOR, *, max_share: float = 1.0) -> "Moments":
        """Return these moments shrunk towards others, which count as much as `weight` vectors would.

        However many vectors there are, these moments get `max_share` at most.
        """
        if len(prior.mean) != len(self.mean) or (prior.pooling and self.pooling and prior.pooling != self.pooling):
            raise InvalidInputError(
                f"moments of {len(prior.mean)} dimensions pooled by {prior.pooling or 'an unknown method'} do not go "
                f"with {len(self.mean)} dimensions pooled by {self.pooling or 'an unknown method'}; take them from "
                "the same network and pooling."
            )
        share = max_share * self.count**2 / (self.count**2 + check_float(weight, "weight", above=0) ** 2)
        return Moments(
            self.count + weight,
            share * self.mean + (1 - share) * prior.mean,
            share * self.covariance + (1 - share) * prior.covariance,
            self.pooling or prior.pooling,
        )

    def with_differences(self, differences: npt.NDArray[Any], share: float) -> "Moments":
        """Return these moments with a share of the covariance from differences of vectors that show the same thing.

        Directions in which such vectors differ matter less then, as in discriminative whitening (`learn_supervised`).
        The differences (m, D) are scaled: their variance over all directions becomes that of these moments.
        """
        rows = rows_of(differences, "differences").astype(np.float64)
        within = rows.T @ rows
        within *= np.trace(self.covariance) / np.trace(within)
        return replace(self, covariance=(1 - share) * self.covariance + share * within)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the moments to `path`, an ``.npz`` file: correlations in half precision, one triangle of them."""
        deviations = np.sqrt(np.diag(self.covariance))
        correlations = self.covariance / np.outer(deviations, deviations)
        with Path(path).open("wb") as stream:
            np.savez(
                stream,
                count=np.float64(self.count),
                mean=self.mean.astype(np.float32),
                deviations=deviations.astype(np.float32),
                correlations=correlations[np.triu_indices(len(deviations), 1)].astype(np.float16),
                pooling=np.array(self.pooling),
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        path = Path(path)
        if not path.is_file():
            raise MissingFileError(f"{path} does not exist; give the path of saved moments.")
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
                deviations = arrays["deviations"].astype(np.float64)
                correlations = np.eye(len(deviations))
                upper = np.triu_indices(len(deviations), 1)
                correlations[upper] = arrays["correlations"]
                correlations.T[upper] = correlations[upper]
                covariance = correlations * np.outer(deviations, deviations)
                mean = arrays["mean"].astype(np.float64)
                return cls(float(arrays["count"]), mean, covariance, str(arrays["pooling"]))
        except (KeyError, OSError, ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
            raise DamagedError(f"{path} does not hold saved moments ({error}); make or copy it again.") from error


@dataclass(frozen=True, eq=False)
class Sums:
    """What moments are made of: the sums of parts of a collection, taken around the same point, add up."""

    count: int
    total: DoubleArray
    """(D,): of the rows."""
    squares: DoubleArray
    """(D, D): of their products with themselves."""

    @classmethod
    def of(cls, blocks: Iterable[npt.NDArray[Any]], around: DoubleArray) -> Self:
        """Add up rows that pass by in blocks."""
        d = len(around)
        count, total, squares = 0, np.zeros(d), np.zeros((d, d))
        for block in blocks:
            if block.shape[1] != d:
                raise InvalidInputError(
                    f"vectors has blocks of {d} and of {block.shape[1]} dimensions; extract all with one network."
                )
            rows = block.astype(np.float64) - around
            count += len(rows)
            total += rows.sum(axis=0)
            squares += rows.T @ rows
        return cls(count, total, squares)

    def plus(self, others: "Sums") -> "Sums":
        """Return the sums of both."""
        return Sums(self.count + others.count, self.total + others.total, self.squares + others.squares)


def centre(rows: npt.NDArray[Any]) -> DoubleArray:
    """Return the point to take sums around: the mean of some of the rows.

    Far from the origin the squares of rows would drown their differences.
    """
    mean: DoubleArray = rows.mean(axis=0, dtype=np.float64) if len(rows) else np.empty(0)
    return mean


def _blocks(vectors: npt.ArrayLike | Iterable[npt.ArrayLike]) -> Iterator[npt.NDArray[Any]]:
    """Yield rows a block at a time, from one array or from what already comes in blocks."""
    if isinstance(vectors, np.ndarray) or not isinstance(vectors, Iterable):
        rows = rows_of(vectors, "vectors")
        for at in range(0, len(rows), BLOCK):
            yield _finite(rows[at : at + BLOCK])
        return
    for block in vectors:
        yield _finite(rows_of(block, "a block of vectors"))


def rows_of(vectors: object, name: str) -> npt.NDArray[Any]:
    """Return vectors as a 2-D array of floating-point rows."""
    rows = np.asarray(vectors)
    if rows.ndim != 2 or 0 in rows.shape or rows.dtype.kind != "f":
        raise InvalidInputError(
            f"{name} has shape {rows.shape} and dtype {rows.dtype}; give a 2-D array of floating-point vectors."
        )
    return rows


def _finite(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not np.isfinite(rows).all():
        raise InvalidInputError("vectors has NaN or infinite entries; remove these rows or extract them again.")
    return rows
