import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifind import kernels
from manifind.geometry import Features, PackedFeatures, VerificationConfig, pack
from manifind.geometry.matching import ImageFeatures, code_similarities, estimate_transforms, match_descriptors


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


def codes(numbers: np.random.Generator, count: int) -> npt.NDArray[np.uint8]:
    """Return codes, of which some are equal, one is empty, and one has the largest product that there can be."""
    rows = (127 * numbers.beta(1, 3, (count, 128))).astype(np.uint8)
    rows[::5] = rows[:1]
    rows[1::17] = 0
    rows[2::19] = 127
    return rows


@pytest.mark.skipif(not kernels.features_compiled(), reason="the extension was not compiled")
@pytest.mark.parametrize("level", ["avx512", "avx2", "portable"])
def test_the_extension_finds_the_matches_of_numpy_on_every_instruction_set(level: str) -> None:
    from manifind.kernels.cpu.native import features

    if level not in features.levels():
        pytest.skip(f"this machine does not run {level}")
    before, numbers = features.level(), np.random.default_rng(0)
    features.use_level(level)
    try:
        for m, n in [(0, 5), (5, 0), (1, 1), (1, 7), (16, 4), (17, 9), (40, 300), (301, 222)]:
            query, image = codes(numbers, m), codes(numbers, n)
            image[: min(m, n) // 2] = query[: min(m, n) // 2]
            for ratio in (0.8, 0.94, 1.0):
                expected = match_descriptors(code_similarities(query, image), max_ratio=ratio)
                np.testing.assert_array_equal(kernels.match_codes(query, image, ratio), expected)
    finally:
        features.use_level(before)


def test_similarities_are_the_cosines_of_the_codes() -> None:
    numbers = np.random.default_rng(1)
    query, image = (numbers.integers(1, 128, (count, 128)).astype(np.uint8) for count in (7, 9))
    unit_rows = [rows / np.linalg.norm(rows.astype(float), axis=1)[:, None] for rows in (query, image)]
    np.testing.assert_allclose(code_similarities(query, image), unit_rows[1] @ unit_rows[0].T, atol=1e-6)


def made(numbers: np.random.Generator, count: int) -> Features:
    descriptors = numbers.beta(1, 3, (count, 128)).astype(np.float32)
    descriptors /= np.linalg.norm(descriptors, axis=1, keepdims=True)
    places = numbers.uniform(0, 400, (count, 2)).astype(np.float32)
    scales, turns = (numbers.uniform(1, 6, count).astype(np.float32) for _ in range(2))
    return Features(places, scales, turns, descriptors, 400, 400, "sift")


@pytest.mark.skipif(not kernels.features_compiled(), reason="the extension was not compiled")
def test_the_extension_estimates_the_transforms_that_numpy_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, config = np.random.default_rng(2), VerificationConfig()
    query = made(numbers, 120)
    shown, other = query[numbers.permutation(120)[:80]], made(numbers, 90)
    images: list[ImageFeatures] = [shown, other, other[:0]]
    images += [PackedFeatures(pack(shown), 400, 400), PackedFeatures(pack(other), 800, 600)]
    results = []
    for compiled in (True, False):
        monkeypatch.setattr("manifind.geometry.matching.features_compiled", lambda compiled=compiled: compiled)
        monkeypatch.setattr("manifind.geometry.ransac.features_compiled", lambda compiled=compiled: compiled)
        box = (0.0, 0.0, 400.0, 400.0)
        found = estimate_transforms(
            query, images, box, (6.0, 0.01), max_ratio=config.max_ratio, min_inliers=4, config=config.ransac
        )
        results.append(found)
    for native, plain in zip(*results, strict=True):
        assert (native is None) == (plain is None)
        if native is not None and plain is not None:
            np.testing.assert_allclose(native.transform, plain.transform, atol=1e-3)
            np.testing.assert_array_equal(native.matches, plain.matches)
            np.testing.assert_array_equal(native.cosines, plain.cosines)
            assert native.distinct == plain.distinct
    assert [one is not None and one.distinct >= 70 for one in results[0]] == [True, False, False, True, False]


@pytest.mark.skipif(not kernels.features_compiled(), reason="the extension was not compiled")
def test_the_boundary_refuses_features_that_do_not_fit() -> None:
    from manifind.geometry.packing import packed_tables

    query = made(np.random.default_rng(3), 5)
    rows, frames, config = query.codes, query.frames, VerificationConfig().ransac.fields(3)
    bad: list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32] | None]] = [
        (rows, None),  # packed features have 38 bytes
        (rows[:, :64].copy(), frames),
        (rows, frames[:4]),
        (np.full_like(rows, 128), frames),
    ]
    for some, where in bad:
        with pytest.raises(ValueError, match=r"packed features|codes|frames"):
            kernels.match_images(
                rows, frames, [(some, where, 9, 9)], packed_tables("sift"),
                max_ratio=0.9, box=(0, 0, 9, 9), tolerances=(1, 1), config=config,
            )  # fmt: skip
