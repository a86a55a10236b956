"""Checks of the arguments of a search against the fitted collection."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.checks import unit_vectors
from manifind.errors import InvalidInputError
from manifind.groups import aggregate_one
from manifind.manifold.fitted import Fitted
from manifind.manifold.subgraph import Places, shortlists
from manifind.types import FloatArray


def queries(fitted: Fitted, given: Sequence[npt.ArrayLike], names: Sequence[str]) -> list[FloatArray]:
    """Return the regions of each query, unit rows of the collection's dimension."""
    dimension = fitted.vectors.shape[1]
    return [unit_vectors(query, name, dimension=dimension) for query, name in zip(given, names, strict=True)]


def negatives(fitted: Fitted, given: Sequence[npt.ArrayLike | None] | None, count: int) -> list[FloatArray | None]:
    """Return for each of `count` queries the regions of its negatives, or None."""
    if given is None:
        return [None] * count
    if len(given) != count:
        raise InvalidInputError(
            f"negatives has {len(given)} entries for {count} queries; give one for each, or None.", code="wrong-length"
        )
    dimension = fitted.vectors.shape[1]
    return [
        None if regions is None else unit_vectors(regions, f"negatives[{i}]", dimension=dimension)
        for i, regions in enumerate(given)
    ]


def places(
    fitted: Fitted, shortlist: Any, regions: Sequence[FloatArray], global_vectors: Sequence[npt.ArrayLike] | None
) -> Sequence[Places] | Places | None:
    """Return which images to diffuse on, as `shortlists` does for queries of these regions.

    The queries' global descriptors are checked where they are given, and made of their regions where they are not.
    """
    checked = None if global_vectors is None else _globals(fitted, global_vectors, len(regions))
    return shortlists(
        shortlist,
        len(regions),
        fitted.layout.images,
        lambda: fitted.global_rows,
        lambda: _sums(fitted, regions) if checked is None else checked,
    )


def _globals(fitted: Fitted, given: Sequence[npt.ArrayLike], count: int) -> FloatArray:
    if len(given) != count:
        raise InvalidInputError(
            f"global_vectors has {len(given)} entries for {count} queries; give one for each.", code="wrong-length"
        )
    dimension = fitted.global_vectors.shape[1]
    return np.concatenate(
        [unit_vectors(np.asarray(vector)[None], "global_vector", dimension=dimension) for vector in given]
    )


def _sums(fitted: Fitted, regions: Sequence[FloatArray]) -> FloatArray:
    own, of_regions = fitted.global_vectors.shape[1], fitted.vectors.shape[1]
    if own != of_regions:
        raise InvalidInputError(
            f"global_vector is missing: the collection's have {own} dimensions, not the {of_regions} of regions; "
            "give the query's too.",
            code="missing-argument",
        )
    return np.concatenate([aggregate_one(query) for query in regions])
