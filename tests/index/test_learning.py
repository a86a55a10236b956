"""A whitening learnt while the photos are extracted: once, on disk, taken up again."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from manifind.features import Moments, RegionExtractor, learn_pca, whitening_of
from manifind.gmm import compact
from manifind.index import Index
from manifind.index.build import builder as creating
from manifind.index.build import learning
from manifind.index.config import WhiteningConfig
from manifind.index.storage.build_config import WhiteningTraining
from manifind.index.storage.manifest import LEARNT, WhiteningOrigin
from tests.index.small import SmallBackbone, save_photo, save_photos, small_extractor, small_photo

PARAMETERS: dict[str, Any] = {"k": 12, "query_k": 10}
PHOTOS = 40


class CountingBackbone(SmallBackbone):
    """Counts the photos that it sees, and stops when it has seen enough."""

    def __init__(self, most: int = 10**9) -> None:
        super().__init__()
        self.seen, self.most = 0, most

    def features(self, photo: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        self.seen += 1
        if self.seen > self.most:
            raise KeyboardInterrupt
        return super().features(photo)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return save_photos(tmp_path / "photos", PHOTOS, digits=2)


@pytest.fixture
def prior() -> Moments:
    bare = small_extractor(whitened=False)
    return Moments.of((bare.extract_unwhitened(small_photo(1000 + i)) for i in range(30)), bare.pooled_by)


def create(
    monkeypatch: pytest.MonkeyPatch,
    path: Path,
    photos: Path,
    backbone: SmallBackbone,
    wanted: WhiteningTraining,
    **more: Any,
) -> Index:
    """Make an index by the default way, with a small network in place of the one that comes along."""
    bare = RegionExtractor(backbone, scales=(1, 0.5))
    origin = WhiteningOrigin(LEARNT, 0)
    monkeypatch.setattr(creating, "make_extractor", lambda *_, **__: (bare, origin, wanted))
    return Index.create(path, photos, **PARAMETERS, **more)


def raw_rows() -> npt.NDArray[np.float32]:
    bare = RegionExtractor(SmallBackbone(), scales=(1, 0.5))
    return np.concatenate([bare.extract_unwhitened(small_photo(i)) for i in range(PHOTOS)])


def test_the_whitening_is_that_of_the_mixed_moments(
    photos: Path, tmp_path: Path, prior: Moments, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = CountingBackbone()
    made = create(monkeypatch, tmp_path / "i.manifind", photos, backbone, WhiteningTraining(prior, 300, 8))
    assert backbone.seen == 2 * PHOTOS  # each photo once, at two scales
    rows = raw_rows().astype(np.float64)
    default = WhiteningConfig().default
    own = default.own * len(rows) ** 2 / (len(rows) ** 2 + 300**2)
    mean = own * rows.mean(axis=0) + (1 - own) * prior.mean
    covariance = own * np.cov(rows.T, bias=True) + (1 - own) * prior.covariance
    expected = whitening_of(Moments(1, mean, covariance), 8, power=default.power).apply(rows.astype(np.float32))
    # Signs and half precision apart, similarities are what the two have in common.
    stored = np.asarray(made.manifold.vectors_, np.float32)
    np.testing.assert_allclose(stored @ stored.T, expected @ expected.T, atol=0.02)
    facts = made.info()["whitening"]
    assert (facts["from"], facts["photos"], facts["prior"]) == ("learnt", PHOTOS, 300)
    assert 1 < facts["spread"] <= 8


def test_without_a_prior_it_is_pca_of_the_photos_alone(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = create(monkeypatch, tmp_path / "i.manifind", photos, SmallBackbone(), WhiteningTraining(dimension=8))
    rows = raw_rows()
    expected = learn_pca(rows, dimension=8).apply(rows)
    stored = np.asarray(made.manifold.vectors_, np.float32)
    np.testing.assert_allclose(stored @ stored.T, expected @ expected.T, atol=0.02)


def test_what_an_interrupted_run_extracted_is_not_extracted_again(
    photos: Path, tmp_path: Path, prior: Moments, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = WhiteningTraining(prior, 300, 8)
    with pytest.raises(KeyboardInterrupt):
        create(monkeypatch, tmp_path / "i.manifind", photos, CountingBackbone(most=50), wanted)
    backbone = CountingBackbone()
    made = create(monkeypatch, tmp_path / "i.manifind", photos, backbone, wanted)
    assert backbone.seen == 2 * PHOTOS - 50
    whole = create(monkeypatch, tmp_path / "whole.manifind", photos, SmallBackbone(), wanted)
    np.testing.assert_allclose(made.manifold.vectors_, whole.manifold.vectors_, atol=2e-3)


def test_a_run_interrupted_while_it_whitens_is_taken_up(
    photos: Path, tmp_path: Path, prior: Moments, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = WhiteningTraining(prior, 300, 8)
    monkeypatch.setattr(learning, "PHOTOS", 3)

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "whitening" and PHOTOS // 2 <= done < PHOTOS:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create(monkeypatch, tmp_path / "i.manifind", photos, SmallBackbone(), wanted, progress=stop)
    backbone = CountingBackbone()
    made = create(monkeypatch, tmp_path / "i.manifind", photos, backbone, wanted)
    assert backbone.seen == 0
    assert len(made) == PHOTOS


def test_means_are_taken_of_whitened_vectors(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = create(
        monkeypatch,
        tmp_path / "i.manifind",
        photos,
        SmallBackbone(),
        WhiteningTraining(dimension=8),
        regions_per_image=3,
    )
    rows = raw_rows()
    whitening = made.extractor.whitening
    assert whitening is not None
    means = compact(whitening.apply(rows), np.arange(len(rows)) // (len(rows) // PHOTOS), regions_per_image=3)
    np.testing.assert_allclose(made.manifold.vectors_, means.vectors, atol=5e-3)


def test_photos_that_come_later_use_what_was_learnt_until_it_is_learnt_anew(
    photos: Path, tmp_path: Path, prior: Moments, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = create(monkeypatch, tmp_path / "i.manifind", photos, SmallBackbone(), WhiteningTraining(prior, 300, 8))
    before = made.extractor.fingerprint()["sha256"]
    save_photo(photos / "new.png", 77)
    assert made.sync().extracted == 1
    assert made.extractor.fingerprint()["sha256"] == before
    monkeypatch.setattr("manifind.index.storage.build_config.shipped_moments", lambda _: prior)
    made.retrain_whitening()
    assert made.extractor.fingerprint()["sha256"] != before
    facts = made.info()["whitening"]
    assert (facts["photos"], facts["prior"]) == (PHOTOS + 1, 300)


def test_spread_counts_the_directions_that_are_in_use() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((20_000, 16)).astype(np.float32)
    rows[:, 10:] = 0
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert learning.spread(rows) == pytest.approx(10, rel=0.01)
    assert learning.spread(rows[:1]) == pytest.approx(1)
