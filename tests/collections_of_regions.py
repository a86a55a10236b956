"""Small collections for property tests: random directions, clusters, and a ring to walk along."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

FloatArray = npt.NDArray[np.float32]
ROUNDING = 5e-7
"""What products of unit vectors may be off by in single precision, and a little more."""


@dataclass(frozen=True)
class Collection:
    vectors: FloatArray
    image_of: npt.NDArray[np.int32]
    queries: list[FloatArray]

    @property
    def n(self) -> int:
        return len(self.vectors)


def unit(rows: npt.NDArray[np.floating]) -> FloatArray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def make(kind: str, images: int, most_regions: int, d: int, seed: int, queries: int = 2) -> Collection:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, most_regions + 1, images)
    numbers = np.sort(rng.choice(3 * images, images, replace=False))  # with gaps
    image_of = np.repeat(numbers, counts).astype(np.int32)
    n = len(image_of)

    def draw(count: int) -> FloatArray:
        if kind == "random":
            return unit(rng.normal(size=(count, d)))
        if kind == "clusters":
            return unit(centres[rng.integers(0, len(centres), count)] + 0.3 * rng.normal(size=(count, d)))
        angle = rng.uniform(0, 2 * np.pi, count)
        ring = np.zeros((count, d))
        ring[:, 0], ring[:, 1] = np.cos(angle), np.sin(angle)
        return unit(ring + 0.05 * rng.normal(size=(count, d)))

    centres = rng.normal(size=(max(2, n // 6), d))
    vectors = draw(n)
    return Collection(vectors, image_of, [draw(int(rng.integers(1, 5))) for _ in range(queries)])


def told_apart(collection: Collection) -> bool:
    """Whether no region or query has two neighbours whose similarities differ by no more than rounding.

    Who of the two is nearer, a truth in double precision and what is tried in single may see differently; where only
    one of them is among the k nearest, they have other graphs and other answers, and both are right.
    """
    X = collection.vectors.astype(np.float64)
    similarities = np.sort(np.concatenate([X, *collection.queries]) @ X.T, axis=1)
    return bool((np.diff(similarities, axis=1) > ROUNDING).all())


collections = st.builds(
    make,
    kind=st.sampled_from(["random", "clusters", "ring"]),
    images=st.integers(1, 12),
    most_regions=st.integers(1, 5),
    d=st.integers(2, 16),
    seed=st.integers(0, 2**32 - 1),
).filter(told_apart)
