"""Region scores → a ranking of images: pooling (eq. 13, 14) and sorting."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.diffusion import Seed
from manifind.errors import InvalidInputError
from manifind.groups import Layout
from manifind.types import FloatArray, IntArray, Vectors


@dataclass(frozen=True, eq=False)
class Ranking:
    """Images by descending score, with what the search took. It unpacks: ``images, scores = ranking``."""

    images: IntArray
    """Image numbers, best first; equal scores by ascending number."""
    scores: FloatArray
    """Their pooled scores, on the scale of f as defined by eq. 4."""
    iterations: int = 0
    """Products with S that the solver spent."""
    residual: float = 0.0
    """Relative residual ‖(1 − α)y − (I − αS)f‖ / ‖(1 − α)y‖ that it reached; NaN where the solver does not know."""
    converged: bool = field(default=True, repr=False)
    """Whether that is within `tol`; at the paper's 20 iterations of conjugate gradient it is usually not, and the
    order of the best images is nevertheless final."""
    reached: int | None = None
    """Regions that were solved for one by one where that is not all of them: ``solver="local"``, whose residual is that
    of these regions and, beyond them, of parts of the graph as a whole."""
    seed: Seed | None = field(default=None, repr=False)
    """What the query put on the graph: y, by region of the collection. None where it was not put there by a seed."""
    _region_scores: Callable[[], FloatArray] | None = field(default=None, repr=False)

    @cached_property
    def regions(self) -> FloatArray:
        """The score of each region of the collection, (n,): f, zero outside the shortlist.

        A ranking out of a batch solves for it when it is first asked for, so that a batch does not hold n scores for
        each of its queries.
        """
        if self._region_scores is None:
            raise AttributeError("this ranking was made without region scores.")
        return self._region_scores()

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.images)

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        """Unpack: ``images, scores = ranking``."""
        return iter((self.images, self.scores))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what solves for region scores; scores of regions that were asked for already are kept."""
        return {**self.__dict__, "_region_scores": None}


MIN_FLOAT32_LAMBDA = 1.0
"""The least λ for which products of regions are taken in float32. The system is always solved in float64."""
CACHE_BYTES = 2**21
"""Bytes of regions that are weighed at a time: they stay in the cache of a core."""


def gmp_weights(vectors: Vectors, layout: Layout, gmp_lambda: float = 1.0, *, memory: int = CACHE_BYTES) -> FloatArray:
    """Return the weight of each region in generalised max pooling: w = (ΦΦᵀ + λI)^−1 1 for each image (eq. 14).

    Regions that resemble many others of their image weigh less, so that an object's score does not depend on how many
    of the overlapping regions happen to show it.
    """
    weights = np.empty(len(vectors), np.float32)
    d = vectors.shape[1]
    # Products of unit vectors in float32 are off by some 1e-7, which the inverse makes up to 1 / λ times as much.
    precision = np.float32 if gmp_lambda >= MIN_FLOAT32_LAMBDA else np.float64
    for _, table in layout.equal_counts(lambda m: 12 * m * d + 24 * m * m, min(memory, CACHE_BYTES)):
        m = table.shape[1]
        phi: npt.NDArray[np.floating[Any]] = vectors[table].astype(precision, copy=False)
        system = (phi @ phi.transpose(0, 2, 1)).astype(np.float64, copy=False) + gmp_lambda * np.eye(m)
        try:
            weights[table] = np.linalg.solve(system, np.ones((len(table), m, 1)))[..., 0]
        except np.linalg.LinAlgError as error:
            raise InvalidInputError(
                f"gmp_lambda is {gmp_lambda:g}, too small for images with equal regions; give 1e-6 or more."
            ) from error
    return weights


def _sum_weights(vectors: Vectors, layout: Layout, gmp_lambda: float, *, memory: int = CACHE_BYTES) -> FloatArray:  # noqa: ARG001
    return np.ones(len(vectors), np.float32)


POOLINGS: dict[str, Callable[..., FloatArray]] = {"gmp": gmp_weights, "sum": _sum_weights}
"""How region scores become an image's: what each region weighs in the sum of eq. 13, by name of the pooling."""


def pooling_weights(
    pooling: str, vectors: Vectors, layout: Layout, gmp_lambda: float = 1.0, *, memory: int = CACHE_BYTES
) -> FloatArray:
    """Return what each region weighs in the score of its image.

    Where no image has more than one region there is nothing to pool, and the score of an image is that of its region.
    """
    if len(layout.images) == len(vectors):
        return np.ones(len(vectors), np.float32)
    return POOLINGS[pooling](vectors, layout, gmp_lambda, memory=memory)
