from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from manifind.errors import DamagedError, InvalidInputError
from manifind.features import Moments, RegionExtractor, Whitening, load_extractor, shipped_moments, whitening_of

Rows = npt.NDArray[np.float32]
DoubleRows = npt.NDArray[np.float64]


@pytest.fixture
def rows() -> Rows:
    rng = np.random.default_rng(0)
    return np.asarray(rng.standard_normal((500, 6)) @ rng.standard_normal((6, 6)) + 3, np.float32)


def test_moments_are_those_that_numpy_gives(rows: Rows) -> None:
    moments = Moments.of(rows)
    assert moments.count == 500
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments.covariance, np.cov(rows.T.astype(np.float64), bias=True), rtol=1e-5)


@pytest.mark.parametrize(("weight", "share"), [(500, 0.5), (1500, 0.1), (1e-6, 1.0)])
def test_a_mixture_weighs_by_the_squares_of_numbers(rows: Rows, weight: float, share: float) -> None:
    own, other = Moments.of(rows), Moments.of(rows[::-1] ** 2)
    mixed = own.mixed_with(other, weight)
    np.testing.assert_allclose(mixed.mean, share * own.mean + (1 - share) * other.mean, rtol=1e-6)
    np.testing.assert_allclose(mixed.covariance, share * own.covariance + (1 - share) * other.covariance, rtol=1e-6)


def test_few_rows_whiten_as_many_others_would_and_many_as_they_would_alone() -> None:
    rng = np.random.default_rng(1)
    scales = np.array([1.0, 2, 3, 4, 5, 6])
    prior = Moments.of(rng.standard_normal((5000, 6)) * scales)
    few, many = (rng.standard_normal((count, 6)) * scales[::-1] for count in (4, 400_000))

    def evenness(given: DoubleRows, like: DoubleRows) -> float:
        """How unlike the deviations of whitened rows are, 0 for the same."""
        learnt = whitening_of(Moments.of(given).mixed_with(prior, 1000), 6)
        return float(((like - learnt.mean) @ learnt.project).std(axis=0).std())

    assert evenness(few, rng.standard_normal((5000, 6)) * scales) < 0.05
    assert evenness(many, rng.standard_normal((5000, 6)) * scales[::-1]) < 0.05
    assert evenness(many, rng.standard_normal((5000, 6)) * scales) > 0.5


def test_what_is_saved_is_read_back_to_half_precision(rows: Rows, tmp_path: Path) -> None:
    moments = Moments.of(rows, "gem 3")
    moments.save(tmp_path / "m.npz")
    again = Moments.load(tmp_path / "m.npz")
    assert (again.count, again.pooling) == (500, "gem 3")
    np.testing.assert_allclose(again.mean, moments.mean, rtol=1e-6)
    scale = np.sqrt(np.outer(np.diag(moments.covariance), np.diag(moments.covariance)))
    assert np.abs((again.covariance - moments.covariance) / scale).max() < 1e-3
    np.testing.assert_array_equal(again.covariance, again.covariance.T)
    (tmp_path / "m.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(DamagedError, match="does not hold saved moments"):
        Moments.load(tmp_path / "m.npz")
    with pytest.raises(FileNotFoundError):
        Moments.load(tmp_path / "none.npz")


def test_moments_that_do_not_go_together_are_refused(rows: Rows) -> None:
    with pytest.raises(InvalidInputError, match="same network and pooling"):
        Moments.of(rows).mixed_with(Moments.of(rows[:, :4]))
    with pytest.raises(InvalidInputError, match="pooled by gem 3"):
        Moments.of(rows, "mac").mixed_with(Moments.of(rows, "gem 3"))
    with pytest.raises(InvalidInputError, match="finite"):
        Moments(1, np.zeros(2), np.full((2, 2), np.nan))
    with pytest.raises(InvalidInputError, match="shape"):
        Moments(1, np.zeros(2), np.zeros((3, 3)))


class TestShipped:
    def test_they_are_of_the_network_that_comes_along(self) -> None:
        extractor = load_extractor(whitening=None)
        moments = shipped_moments(extractor)
        assert moments is not None
        assert moments.mean.shape == (1280,)
        assert moments.pooling == extractor.pooled_by
        assert moments.count > 20_000
        variances = np.linalg.eigvalsh(moments.covariance)
        assert variances[0] > 0  # rounding has left it a covariance

    @pytest.mark.parametrize("other", [{"pooling": "mac"}, {"pooling": "spoc"}, {"p": 4.0}])
    def test_a_whitening_learnt_for_one_pooling_is_not_applied_to_another(self, other: dict[str, Any]) -> None:
        extractor = load_extractor(**other)
        assert extractor.whitening is None
        assert shipped_moments(extractor) is None
        own = load_extractor().whitening
        assert own is not None
        learnt = Whitening(own.mean, own.project, "gem 3")
        with pytest.raises(InvalidInputError, match="pooled by gem 3"):
            RegionExtractor(extractor.backbone, learnt, **other)


def test_how_a_whitening_was_pooled_is_saved_with_it(rows: Rows, tmp_path: Path) -> None:
    whitening_of(Moments.of(rows, "mac"), 3).save(tmp_path / "w.npz")
    assert Whitening.load(tmp_path / "w.npz").pooling == "mac"
