import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifind.errors import InvalidInputError
from manifind.features import POOLINGS, pool, region_grid
from manifind.features.pooling import box_sums, integral_image

Array = npt.NDArray[np.float64]


def by_slices(features: npt.NDArray[np.float32], boxes: list[list[int]], pooled: Callable[[Array], Array]) -> Array:
    """Pool each box cut out of the map, at unit norm."""
    rows = np.stack([pooled(features[:, y0:y1, x0:x1].astype(np.float64)) for x0, y0, x1, y1 in boxes])
    return unit(rows)


def unit(rows: npt.NDArray[np.floating]) -> Array:
    norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms > 0, norms, 1))


def crow(cut: Array) -> Array:
    """Kalantidis et al., sections 3.2 to 3.4, with a = b = 2."""
    place = cut.sum(axis=0)
    place = np.sqrt(place / np.linalg.norm(place)) if place.any() else place
    often = (cut > 0).mean(axis=(1, 2))
    rarity = np.log((1e-6 + often).sum() / (1e-6 + often))
    return np.asarray((cut * place).sum(axis=(1, 2)) * rarity)


LITERAL: dict[str, Callable[[Array], Array]] = {
    "mac": lambda cut: np.asarray(cut.max(axis=(1, 2))),
    "gem": lambda cut: np.cbrt((cut**3).mean(axis=(1, 2))),
    "spoc": lambda cut: np.asarray(cut.mean(axis=(1, 2))),
    "crow": crow,
    "signed-gem": lambda cut: np.cbrt((cut**3).mean(axis=(1, 2))),
}


@st.composite
def maps_and_boxes(draw: st.DrawFn) -> tuple[npt.NDArray[np.float32], list[list[int]]]:
    """Maps as after a rectifier, with silent channels and places, and any boxes on them."""
    channels, height, width = draw(st.tuples(st.integers(1, 6), st.integers(1, 12), st.integers(1, 12)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    silent = draw(st.sampled_from([0.0, 0.5, 0.95]))
    scale = draw(st.sampled_from([1e-3, 1.0, 1e4]))
    features = np.maximum(rng.normal(0.5, 1, (channels, height, width)), 0) * scale
    features *= rng.random(features.shape) >= silent
    boxes = []
    for _ in range(draw(st.integers(1, 8))):
        x0, y0 = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
        boxes.append([x0, y0, draw(st.integers(x0 + 1, width)), draw(st.integers(y0 + 1, height))])
    return features.astype(np.float32), boxes


@pytest.mark.parametrize("method", POOLINGS)
@given(drawn=maps_and_boxes())
def test_pooling_equals_pooling_each_box_cut_out(
    method: str, drawn: tuple[npt.NDArray[np.float32], list[list[int]]]
) -> None:
    features, boxes = drawn
    pooled = pool(features, boxes, method)
    assert pooled.dtype == np.float32
    # Roots of sums: an error of 1e-15 in a sum that should be nothing is one of 1e-5 in its cube root.
    np.testing.assert_allclose(unit(pooled), by_slices(features, boxes, LITERAL[method]), atol=2e-5)


@given(drawn=maps_and_boxes(), p=st.floats(0.5, 12))
def test_gem_equals_pooling_each_box_cut_out_for_any_exponent(
    drawn: tuple[npt.NDArray[np.float32], list[list[int]]], p: float
) -> None:
    features, boxes = drawn
    scale = float(features.max()) or 1.0
    expected = by_slices(features, boxes, lambda cut: np.asarray(((cut / scale) ** p).mean(axis=(1, 2)) ** (1 / p)))
    np.testing.assert_allclose(unit(pool(features, boxes, "gem", p=p)), expected, atol=2e-3)


@given(drawn=maps_and_boxes())
def test_sums_from_the_integral_image_equal_sums_of_slices(
    drawn: tuple[npt.NDArray[np.float32], list[list[int]]],
) -> None:
    features, boxes = drawn
    sums = box_sums(integral_image(features.transpose(1, 2, 0)), np.array(boxes))
    expected = [features[:, y0:y1, x0:x1].sum(axis=(1, 2), dtype=np.float64) for x0, y0, x1, y1 in boxes]
    np.testing.assert_allclose(sums, expected, rtol=1e-12, atol=1e-12 * float(features.sum()))


def test_gem_lies_between_the_mean_and_the_maximum_as_its_exponent_grows(rng: np.random.Generator) -> None:
    features = rng.random((5, 9, 12)).astype(np.float32)
    boxes = region_grid(9, 12)
    rising = [pool(features, boxes, "gem", p=p) for p in (1, 2, 3, 10, 200)]
    assert all((after >= before - 1e-6).all() for before, after in itertools.pairwise(rising))
    np.testing.assert_allclose(rising[0], pool(features, boxes, "spoc"), rtol=1e-5)
    np.testing.assert_allclose(rising[-1], pool(features, boxes, "mac"), rtol=0.03)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 5.0])
def test_a_signed_mean_of_what_is_turned_around_is_turned_around(p: float, rng: np.random.Generator) -> None:
    """It agrees with the mean at p = 1, with GeM where nothing is negative, and is odd."""
    features = rng.normal(size=(4, 6, 7)).astype(np.float32)
    boxes = [[0, 0, 7, 6], [2, 1, 5, 6]]
    made = pool(features, boxes, "signed-gem", p=p)
    np.testing.assert_allclose(pool(-features, boxes, "signed-gem", p=p), -made, atol=1e-6)
    np.testing.assert_allclose(
        pool(np.abs(features), boxes, "signed-gem", p=p), pool(np.abs(features), boxes, "gem", p=p), rtol=1e-4
    )
    if p == 1:
        np.testing.assert_allclose(made, pool(features, boxes, "spoc"), atol=1e-6)


def test_a_silent_map_gives_silent_vectors() -> None:
    for method in POOLINGS:
        assert not pool(np.zeros((4, 3, 5), np.float32), region_grid(3, 5), method).any()


def test_a_channel_that_responds_elsewhere_is_silent_in_a_box_without_response() -> None:
    features = np.zeros((2, 8, 8), np.float32)
    features[0] = 1
    features[1, :4] = np.float32(1 / 3)
    assert pool(features, [[0, 4, 8, 8], [3, 5, 6, 7]], "gem")[:, 1].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("features", "boxes", "method", "named"),
    [
        (np.ones((3, 4), np.float32), [[0, 0, 1, 1]], "gem", "features has shape"),
        (np.ones((3, 4, 4), np.float32), [[0, 0, 5, 1]], "gem", r"box 0 is \[0, 0, 5, 1\]"),
        (np.ones((3, 4, 4), np.float32), [[0, 0, 1, 1], [2, 2, 2, 3]], "mac", "box 1 is"),
        (np.ones((3, 4, 4), np.float32), [[0.0, 0.0, 1.0, 1.0]], "gem", "boxes has shape"),
        (np.ones((3, 4, 4), np.float32), [[0, 0, 1, 1]], "max", "pooling is 'max'"),
    ],
)
def test_what_cannot_be_pooled_is_refused_in_one_sentence(
    features: npt.NDArray[np.float32], boxes: list[list[int]], method: str, named: str
) -> None:
    with pytest.raises(InvalidInputError, match=rf"^{named}[^\n]*\.$"):
        pool(features, boxes, method)
