"""Collections made up by a formula, where the truth is known: for the first figure, examples and tests.

`bananas` is a set of points in the plane, as in Figure 1 of the paper. `planted_objects` is a collection of region
descriptors with objects hidden in clutter, whose difficulty is the one the paper is about: an object covers a few
regions of an image, and its far views have nothing in common but the views between them.

The clutter, the noise and the length of the curves in `planted_objects` were chosen by looking at what the methods make
of them, so that plain search, global and regional diffusion come out in the paper's order and well apart. It shows how
they differ, not how well they do on photographs; with other settings global diffusion falls behind plain search.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manifind.checks import check_float, check_int
from manifind.errors import InvalidInputError
from manifind.types import FloatArray, IntArray

Points = npt.NDArray[np.float64]
"""Places in the plane, (n, 2)."""


class Crescent(NamedTuple):
    """A half circle of radius one, open to the bottom or to the top."""

    centre: tuple[float, float]
    up: int
    """1 for an arch, −1 for a bowl."""

    def at(self, turn: npt.ArrayLike) -> Points:
        """Return the places at these fractions of the way along it, (n, 2)."""
        angle = np.pi * np.asarray(turn, np.float64)
        x, y = self.centre
        return np.stack([x + self.up * np.cos(angle), y + self.up * np.sin(angle)], axis=-1)


CRESCENTS = (
    Crescent((0.0, 0.0), 1),
    Crescent((1.0, 0.5), -1),
    Crescent((0.0, -1.75), 1),
    Crescent((1.0, -1.25), -1),
)
"""Two pairs, each hooked into the other, one pair above the other: a gap of at least a half between any two."""


@dataclass(frozen=True)
class Bananas:
    """Points on crescents in the plane."""

    points: Points
    """(n, 2)."""
    crescent_of: IntArray
    """The crescent that each point belongs to, (n,) ascending."""
    queries: Points
    """One on each crescent, none of them among the points, (crescents, 2)."""


def bananas(points: int = 600, *, noise: float = 0.075, seed: int = 0) -> Bananas:
    """Scatter points around four interleaved crescents, the two-dimensional data of the paper's Figure 1.

    Parameters
    ----------
    points : int
        How many in all, shared out evenly.
    noise : float
        Standard deviation of their distance from the crescent, whose radius is one.
    seed : int
        Of the random numbers; the same one gives the same points.
    """
    check_int(points, "points", least=len(CRESCENTS))
    check_float(noise, "noise", above=0)
    rng = np.random.default_rng(check_int(seed, "seed", least=0))
    crescent_of = np.arange(points) * len(CRESCENTS) // points
    scattered = []
    for number, crescent in enumerate(CRESCENTS):
        count = int(np.count_nonzero(crescent_of == number))
        turn = (np.arange(count) + rng.uniform(0, 1, count)) / count  # at random but evenly
        scattered.append(crescent.at(turn) + noise * rng.normal(size=(count, 2)))
    queries = np.stack([crescent.at(0.3) for crescent in CRESCENTS])
    return Bananas(np.concatenate(scattered), crescent_of.astype(np.int32), queries)


REGIONS = 21
"""Regions of an image, as many as the paper's grid has on average."""
LARGEST = 12
"""Regions of an image that an object covers at most; the least is one."""
THEMES = 300
"""Kinds of background that images share: sky, brick, foliage."""
THEMES_OF_AN_IMAGE = 7
SHARED = 0.5
"""Share of the background that is of some theme; the rest is like nothing else."""
LENGTH = 8
"""Length of an object's curve of appearances: at distance 1 views still resemble each other, at 2 hardly."""
NOISE = 0.5
"""Length of the random vector that is added to a region's view of length one."""


@dataclass(frozen=True)
class Planted:
    """A collection of region descriptors with objects planted in it, queries for them, and the truth."""

    vectors: FloatArray
    """Unit rows, (n, d): `REGIONS` for each image."""
    image_of: IntArray
    """(n,) ascending, from 0."""
    queries: list[FloatArray]
    """The regions (m, d) of each query."""
    positives: list[IntArray]
    """For each query, the images that show its object, ascending."""
    sizes: list[IntArray]
    """For each query, how many regions its object covers in each of the positives, 1 to `LARGEST`."""


def planted_objects(
    images: int = 1000,
    *,
    objects: int = 10,
    views: int = 80,
    queries: int = 5,
    d: int = 128,
    seed: int = 0,
) -> Planted:
    """Make a collection where small objects hide in clutter and each is a manifold.

    An image starts as `REGIONS` regions of background, half of them of a few themes that other images have too, so
    that whole images resemble each other for the wrong reason. An object is a smooth curve on the sphere: neighbouring
    views are similar, far ones unrelated. Planted in an image it takes over 1 to `LARGEST` of the regions; each still
    sees some of the background, the more the smaller the object. No image shows two objects.

    Parameters
    ----------
    images : int
        Images in all; those without an object are distractors.
    objects, views : int
        Objects, and images that show each, at views drawn evenly along its curve.
    queries : int
        Queries for each object: four regions that show it at a view of their own, without background.
    d : int
        Dimensions of the descriptors.
    seed : int
        Of the random numbers; the same one gives the same collection.
    """
    for name, value in [("images", images), ("objects", objects), ("views", views), ("queries", queries), ("d", d)]:
        check_int(value, name)
    if objects * views > images:
        raise InvalidInputError(
            f"images is {images}, too few for {objects} objects in {views} each; give at least {objects * views}.",
            code="too-few-images",
        )
    rng = np.random.default_rng(check_int(seed, "seed", least=0))
    regions = _background(rng, images, d)
    shown_in = np.sort(rng.permutation(images)[: objects * views].reshape(objects, views), axis=1).astype(np.int32)
    sizes = rng.integers(1, LARGEST + 1, shown_in.shape, dtype=np.int32)
    query_regions = []
    for places, covered in zip(shown_in, sizes, strict=True):
        waypoints = _directions(rng, (LENGTH + 1, d))
        for image, size, view in zip(places, covered, _views(rng, waypoints, views), strict=True):
            regions_taken = rng.choice(REGIONS, size, replace=False)
            background = rng.uniform(0.1, 0.7 - 0.03 * size, (size, 1))
            mixed = (1 - background) * view + background * regions[image, regions_taken]
            regions[image, regions_taken] = _unit(mixed + NOISE * _directions(rng, (size, d)))
        query_regions += [_unit(view + NOISE * _directions(rng, (4, d))) for view in _views(rng, waypoints, queries)]
    return Planted(
        vectors=regions.reshape(-1, d).astype(np.float32),
        image_of=np.repeat(np.arange(images, dtype=np.int32), REGIONS),
        queries=[query.astype(np.float32) for query in query_regions],
        positives=[places for places in shown_in for _ in range(queries)],
        sizes=[covered for covered in sizes for _ in range(queries)],
    )


def _background(rng: np.random.Generator, images: int, d: int) -> npt.NDArray[np.float64]:
    """Return regions (images, REGIONS, d) of a few themes in each image, and some of none."""
    themes = _directions(rng, (THEMES, d))
    theme_of = rng.integers(0, THEMES, (images, THEMES_OF_AN_IMAGE))
    drawn = np.take_along_axis(theme_of, rng.integers(0, THEMES_OF_AN_IMAGE, (images, REGIONS)), axis=1)
    shared = rng.random((images, REGIONS, 1)) < SHARED
    return _unit(shared * themes[drawn] + 0.8 * _directions(rng, (images, REGIONS, d)))


def _views(rng: np.random.Generator, waypoints: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    """Draw appearances (count, d) along the curve that passes near one waypoint after the other."""
    place = rng.uniform(0, len(waypoints) - 1, (count, 1))
    nearness = np.exp(-2 * (place - np.arange(len(waypoints))) ** 2)
    return _unit(nearness @ waypoints)


def _directions(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    return _unit(rng.normal(size=shape))


def _unit(rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))
