"""Checks of the arguments of a search against the fitted collection."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.checks import check_int, integers, unit_vectors
from manifind.errors import InvalidInputError
from manifind.groups import aggregate_one
from manifind.manifold.fitted import Fitted
from manifind.manifold.searching import Places
from manifind.types import FloatArray, IntArray


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
    """Return the places of the images to diffuse on: None for all, one array for every query, or one for each.

    `shortlist` says how many to take by the similarity of global descriptors, or which, for all queries alike or for
    each. The queries' global descriptors are checked where they are given, and made of their regions where they are
    not.
    """
    checked = None if global_vectors is None else _globals(fitted, global_vectors, len(regions))
    images = fitted.layout.images
    if shortlist is None:
        return None
    if _one_for_each(shortlist):
        if len(shortlist) != len(regions):
            raise InvalidInputError(
                f"shortlist has {len(shortlist)} lists for {len(regions)} queries; give one for each.",
                code="wrong-length",
            )
        return [image_places(numbers, images, f"shortlist[{i}]") for i, numbers in enumerate(shortlist)]
    if np.ndim(shortlist) == 0:
        size = check_int(shortlist, "shortlist")
        if size >= len(images):
            return None
        return fitted.global_rows.choose_shortlist(_sums(fitted, regions) if checked is None else checked, size)
    return image_places(shortlist, images, "shortlist")


def _one_for_each(shortlist: Any) -> bool:
    return (
        isinstance(shortlist, list | tuple)
        and len(shortlist) > 0
        and all(np.ndim(numbers) == 1 for numbers in shortlist)
    )


def image_places(numbers: npt.ArrayLike, images: IntArray, name: str) -> Places:
    """Return the places of image numbers in a collection's `images`, ascending."""
    wanted = np.unique(integers(numbers, name))
    if not len(wanted):
        raise InvalidInputError(
            f"{name} is empty; give at least one image, or None for the whole collection.", code="empty"
        )
    places = np.searchsorted(images, wanted)
    unknown = wanted[images[np.minimum(places, len(images) - 1)] != wanted]
    if len(unknown):
        raise InvalidInputError(
            f"{name} names {len(unknown)} images that are not in the collection, {unknown[0]} first; "
            "give numbers that occur in image_of.",
            code="unknown-image",
        )
    return places


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
    dimension, of_regions = fitted.global_vectors.shape[1], fitted.vectors.shape[1]
    if dimension != of_regions:
        raise InvalidInputError(
            f"global_vector is missing: the collection's have {dimension} dimensions, not the {of_regions} of regions; "
            "give the query's too.",
            code="missing-argument",
        )
    return np.concatenate([aggregate_one(query) for query in regions])
