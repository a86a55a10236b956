import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifind.geometry.matching import match_descriptors


def unit(numbers: np.random.Generator, count: int) -> npt.NDArray[np.float32]:
    rows = numbers.normal(size=(count, 8))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def literal(query: npt.NDArray[np.float32], photo: npt.NDArray[np.float32], ratio: float) -> set[tuple[int, int]]:
    """Mutual nearest neighbours by distance, nearer by the ratio than any other feature of the query."""
    apart = np.linalg.norm(query[:, None].astype(float) - photo[None], axis=2)
    pairs = set()
    for j in range(len(photo)):
        i = int(apart[:, j].argmin())
        others = np.delete(apart[:, j], i)
        second = others.min() if len(others) else 2.0
        if apart[i].argmin() == j and apart[i, j] < ratio * second:
            pairs.add((i, j))
    return pairs


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.5, 0.99), st.integers(0, 9))
def test_pairs_are_those_of_the_definition(m: int, n: int, ratio: float, seed: int) -> None:
    numbers = np.random.default_rng(seed)
    query, photo = unit(numbers, m), unit(numbers, n)
    photo[: min(m, n) // 2] = query[: min(m, n) // 2]
    assert {(int(i), int(j)) for i, j in match_descriptors(photo @ query.T, max_ratio=ratio)} == literal(
        query, photo, ratio
    )


@pytest.mark.parametrize(("m", "n"), [(0, 5), (5, 0), (0, 0)])
def test_nothing_matches_nothing(m: int, n: int) -> None:
    numbers = np.random.default_rng(0)
    assert match_descriptors(unit(numbers, n) @ unit(numbers, m).T, max_ratio=0.9).shape == (0, 2)


def test_an_object_that_is_there_twice_keeps_its_matches() -> None:
    numbers = np.random.default_rng(0)
    query = unit(numbers, 30)
    photo = np.concatenate([query, query])
    assert len(match_descriptors(photo @ query.T, max_ratio=0.9)) >= 30
