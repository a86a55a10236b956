"""The whitening that verified photos of the collection choose."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from manifind.errors import DamagedError
from manifind.features import Moments, Whitening, whitening_of
from manifind.features.whitening import unit_rows
from manifind.geometry import PackedFeatures
from manifind.index import Index
from manifind.index.build.whitening_choice import (
    PhotoSample,
    VerifiedPart,
    find_verified_parts,
    halve_photos,
    judge,
    region_differences,
)
from manifind.index.config import RANKINGS, WhiteningCandidate, WhiteningConfig
from manifind.index.maintenance.info import describe_choice
from manifind.index.storage.build_config import WhiteningTraining
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.local_features import keep
from manifind.index.storage.manifest import WhiteningChoice
from tests.geometry.photographs import photograph, turned, warped
from tests.index.small import SmallBackbone, small_extractor
from tests.index.test_learning import create

SIZE = 100
NO_FEATURES = PackedFeatures(np.empty((0, 38), np.uint8), SIZE, SIZE)


def sample_of(vectors: npt.NDArray[np.float32], local: list[PackedFeatures] | None = None) -> PhotoSample:
    """Return photos of four quarters each: (photos, 4, D)."""
    quarters = np.array([[0, 0, 50, 50], [50, 0, 100, 50], [0, 50, 50, 100], [50, 50, 100, 100]], np.float32)
    photos = [ImageRecord(i, f"{i}.jpg", f"{i:064}", 1, 1, SIZE, SIZE) for i in range(len(vectors))]
    return PhotoSample(
        photos,
        vectors.reshape(-1, vectors.shape[2]),
        np.tile(quarters, (len(vectors), 1)),
        np.arange(len(vectors) + 1) * 4,
        local or [NO_FEATURES] * len(vectors),
        0.8,
    )


def part(x0: float, y0: float, x1: float, y1: float) -> npt.NDArray[np.float64]:
    return np.array([x0, y0, x1, y1], np.float64)


@pytest.fixture
def pairs_in_nuisance(rng: np.random.Generator) -> tuple[PhotoSample, list[VerifiedPart]]:
    """Photos of which each two share an object in their first quarters: it speaks in the first four dimensions, and
    everything else, much louder, in the others."""
    vectors = np.concatenate([0.3 * rng.standard_normal((40, 4, 4)), 3 * rng.standard_normal((40, 4, 8))], axis=2)
    vectors[1::2, 0, :4] = vectors[::2, 0, :4]
    first = part(5, 5, 45, 45)
    pairs = [VerifiedPart(i, first, i ^ 1, first) for i in range(40)]
    return sample_of(vectors.astype(np.float32)), pairs


def test_the_judge_prefers_what_finds_the_other_photo(
    pairs_in_nuisance: tuple[PhotoSample, list[VerifiedPart]],
) -> None:
    sample, pairs = pairs_in_nuisance
    of_object, rest, everything = WhiteningCandidate(power=0.1), WhiteningCandidate(power=0.2), WhiteningCandidate()
    eye = np.eye(12, dtype=np.float32)
    dimensions = {of_object: slice(4), rest: slice(4, 12), everything: slice(12)}
    found = judge(
        sample,
        pairs,
        list(dimensions),
        lambda candidate, _: Whitening(np.zeros(12, np.float32), eye[:, dimensions[candidate]]),
        WhiteningConfig(query_regions=1),
    )
    for ranking in RANKINGS:
        assert found[rest.name][ranking] < 25  # by chance alone about 11
        assert found[rest.name][ranking] + 5 < found[of_object.name][ranking]
        assert found[everything.name][ranking] < found[of_object.name][ranking]
    assert found[of_object.name]["match"] > 80
    assert found[everything.name]["match"] < 60


def test_diffusion_decides_against_direct_comparison() -> None:
    """Views of an object on an arc, where neighbours alone look alike, or all a little alike among much noise."""
    rng = np.random.default_rng(0)
    objects, views, others = 6, 10, 140
    photos, shown = objects * views + others, objects * views
    arc, cloud = np.zeros((photos, 2 * objects + 24)), rng.standard_normal((photos, 24))
    angles = np.radians(30) * np.arange(views)
    arc[shown:] = rng.standard_normal((others, arc.shape[1]))
    cloud /= np.linalg.norm(cloud, axis=1, keepdims=True)
    for number in range(objects):
        rows = slice(number * views, (number + 1) * views)
        arc[rows, 2 * number : 2 * number + 2] = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        cloud[rows, number] += 0.7
    vectors = np.concatenate([unit_rows(arc), unit_rows(cloud)], axis=1)
    sample = PhotoSample(
        [ImageRecord(i, f"{i}.jpg", f"{i:064}", 1, 1, SIZE, SIZE) for i in range(photos)],
        vectors,
        np.tile(part(0, 0, SIZE, SIZE).astype(np.float32), (photos, 1)),
        np.arange(photos + 1),
        [],
        0.8,
    )
    here = part(10, 10, 60, 60)
    pairs = [
        VerifiedPart(start + end, here, start + other, here)
        for start in range(0, shown, views)
        for end in (0, views - 1)
        for other in range(views)
        if other != end
    ]
    on_arc, in_cloud = WhiteningCandidate(own=1), WhiteningCandidate()
    eye = np.eye(vectors.shape[1], dtype=np.float32)
    split = arc.shape[1]

    def learn(candidate: WhiteningCandidate, _: object) -> Whitening:
        return Whitening(np.zeros(len(eye), np.float32), eye[:, :split] if candidate is on_arc else eye[:, split:])

    found = judge(sample, pairs, [on_arc, in_cloud], learn, WhiteningConfig(query_regions=1))
    arcs, clouds = found[on_arc.name], found[in_cloud.name]
    assert arcs["plain"] + 10 < clouds["plain"]
    assert arcs["match"] + 10 < clouds["match"]
    assert arcs["regional"] > clouds["regional"] + 25
    direct, whole = replace(WhiteningConfig(), weights=(1, 1, 0)), WhiteningConfig()
    assert direct.score(arcs) < direct.score(clouds)
    assert whole.score(arcs) > whole.score(clouds)


def test_no_candidate_is_judged_by_what_it_learnt_from(
    pairs_in_nuisance: tuple[PhotoSample, list[VerifiedPart]],
) -> None:
    sample, pairs = pairs_in_nuisance
    learnt: list[set[int]] = []

    def learn(candidate: WhiteningCandidate, learnt_from: Sequence[VerifiedPart]) -> Whitening:
        learnt.append({photo for pair in learnt_from for photo in (pair.photo, pair.other)})
        return Whitening(np.zeros(12, np.float32), np.eye(12, dtype=np.float32))

    judge(sample, pairs, [WhiteningCandidate(differences=0.5)], learn, WhiteningConfig(query_regions=1))
    assert len(learnt) == 2
    assert not learnt[0] & learnt[1]
    assert learnt[0] | learnt[1] == set(range(40))
    assert all(one ^ 1 in photos for photos in learnt for one in photos)


def test_photos_that_hang_together_are_in_one_half_as_far_as_that_goes() -> None:
    here = part(0, 0, 9, 9)

    def joined(*photos: tuple[int, int]) -> npt.NDArray[np.bool_]:
        return halve_photos([VerifiedPart(one, here, other, here) for one, other in photos], 8)

    # Photos of a thing lie apart by their numbers.
    apart = joined((0, 4), (4, 6), (1, 5), (3, 5))
    assert apart[0] == apart[4] == apart[6] != apart[1]
    assert apart[1] == apart[3] == apart[5]
    # All photos show one thing.
    assert joined(*((i, i + 1) for i in range(7))).tolist() == [False] * 4 + [True] * 4


def test_differences_are_those_of_the_regions_that_fit_the_parts(
    pairs_in_nuisance: tuple[PhotoSample, list[VerifiedPart]],
) -> None:
    sample, _ = pairs_in_nuisance
    pairs = [VerifiedPart(2, part(60, 5, 95, 45), 7, part(5, 60, 45, 95))]
    expected = sample.vectors[2 * 4 + 1] - sample.vectors[7 * 4 + 2]
    np.testing.assert_array_equal(region_differences(sample, pairs), expected[None])
    assert region_differences(sample, []).shape == (0, 12)


def test_a_whitening_that_learns_from_differences_finds_what_the_prior_does_not(
    pairs_in_nuisance: tuple[PhotoSample, list[VerifiedPart]],
) -> None:
    sample, pairs = pairs_in_nuisance
    own = Moments.of(sample.vectors)
    training = WhiteningTraining(Moments(1000, np.zeros(12), np.eye(12)), weight=1, dimension=12)
    prior, learnt = WhiteningCandidate(), WhiteningCandidate(differences=0.999)
    found = judge(
        sample,
        pairs,
        [prior, learnt],
        lambda candidate, pairs: training.candidate(own, candidate, region_differences(sample, pairs)),
        WhiteningConfig(query_regions=1),
    )
    assert all(found[learnt.name][ranking] > found[prior.name][ranking] for ranking in RANKINGS)
    assert found[learnt.name]["match"] > found[prior.name]["match"] + 10


def test_a_candidate_is_whitening_by_the_mixture_that_it_names(rng: np.random.Generator) -> None:
    rows, others = (rng.standard_normal((400, 6)) * np.arange(1, 7) for _ in range(2))
    own, prior = Moments.of(rows), Moments.of(others[:, ::-1])
    differences = rng.standard_normal((300, 6))
    training = WhiteningTraining(prior, weight=400, dimension=6)
    share = 0.5 * 0.6  # as many regions as the prior's weight: half of what the candidate may take at most
    mixed = share * own.covariance + (1 - share) * prior.covariance
    within = differences.T @ differences
    mixed = 0.75 * mixed + 0.25 * within * np.trace(mixed) / np.trace(within)
    mean = share * own.mean + (1 - share) * prior.mean
    variances, directions = np.linalg.eigh(mixed)
    expected = (rows - mean) @ (directions / variances**0.3)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    candidate = WhiteningCandidate(own=0.6, differences=0.25, power=0.3)
    made = training.candidate(own, candidate, differences.astype(np.float32)).apply(rows)
    np.testing.assert_allclose(made @ made.T, expected @ expected.T, atol=1e-4)


def test_verified_parts_lie_where_the_object_was_planted() -> None:
    coffee = photograph("coffee.png")[:, 100:500]
    behind = photograph("gravel.png"), photograph("brick.png")
    shifts = (0.0, 0.0), (240.0, 120.0)
    photos = [
        warped(coffee, turned(0, 0.5, (0, 0), shift), (600, 450), back)
        for shift, back in zip(shifts, behind, strict=True)
    ]
    photos.append(photograph("moon.png"))
    local = [keep(photo) for photo in photos]
    found = find_verified_parts(sample_of(np.zeros((3, 4, 2), np.float32), local), [0], [[1, 2]])
    assert [(one.photo, one.other) for one in found] == [(0, 1)]
    np.testing.assert_array_less(found[0].part, [200, 200, 202, 202])
    np.testing.assert_allclose(found[0].other_part - found[0].part, [240, 120, 240, 120], atol=6)


class TestInAnIndex:
    """Photos of which each two share a part, with local features that say so."""

    @pytest.fixture
    def photos(self, tmp_path: Path) -> Path:
        folder = tmp_path / "photos"
        folder.mkdir()
        names = "coffee.png", "chelsea.png", "astronaut.png", "rocket.jpg", "motorcycle_left.png", "camera.png"
        for number, name in enumerate(names):
            pixels = photograph(name)
            for at in range(2):
                shifted = pixels[40 * at : 40 * at + 260, 60 * at : 60 * at + 320]
                Image.fromarray(shifted).save(folder / f"{number}-{at}.png")
        return folder

    @pytest.fixture
    def training(self) -> WhiteningTraining:
        bare = small_extractor(whitened=False)
        rng = np.random.default_rng(5)
        seen = [bare.extract_unwhitened(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)) for _ in range(20)]
        config = replace(WhiteningConfig(), min_photos=2, min_pairs_of_differences=6, proposing_dimension=6)
        return WhiteningTraining(Moments.of(seen, bare.pooled_by), 50, 8, config)

    def make(self, monkeypatch: pytest.MonkeyPatch, path: Path, photos: Path, **more: Any) -> Index:
        return create(monkeypatch, path, photos, SmallBackbone(), local_features=True, **more)

    def test_the_choice_is_reported_and_the_same_again(
        self, photos: Path, tmp_path: Path, training: WhiteningTraining, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[tuple[str, int, int]] = []
        made, again = (
            self.make(monkeypatch, tmp_path / name, photos, wanted=training, progress=lambda *step: told.append(step))
            for name in ("a.manifind", "b.manifind")
        )
        # Comparing photos takes longest after their extraction: it is told photo by photo, and what comes last too.
        learning = [(done, total) for stage, done, total in told[: len(told) // 2] if stage == "learning"]
        assert sorted(done for done, _ in learning[1:]) == [done for done, _ in learning[1:]]
        assert len({done for done, _ in learning}) > len(made) // 2
        assert told[-1] == ("writing", 1, 1)
        choice = made.info()["whitening"]["choice"]
        assert choice["pairs"] >= 6
        assert set(choice["scores"]) == {one.name for one in training.config.candidates}
        assert choice["rankings"].keys() == choice["scores"].keys()
        assert all(set(precisions) == set(RANKINGS) for precisions in choice["rankings"].values())
        best = max(choice["scores"].values())
        assert choice["scores"][choice["chosen"]] >= best - training.config.min_gain
        assert f"is {choice['chosen']}" in made.info()["whitening"]["words"]
        assert again.info()["whitening"]["choice"] == choice
        np.testing.assert_array_equal(again.manifold.vectors_, made.manifold.vectors_)
        assert Index.open(made.path, extractor=made.extractor).info()["whitening"]["choice"] == choice

    def test_few_pairs_teach_no_differences(
        self, photos: Path, tmp_path: Path, training: WhiteningTraining, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        few = replace(training, config=replace(training.config, min_pairs_of_differences=1000))
        choice = self.make(monkeypatch, tmp_path / "i.manifind", photos, wanted=few).info()["whitening"]["choice"]
        assert set(choice["scores"]) == {one.name for one in few.config.candidates if not one.differences}

    def test_too_few_pairs_leave_the_default(
        self, photos: Path, tmp_path: Path, training: WhiteningTraining, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        few = replace(training, config=replace(training.config, min_photos=20))
        made = self.make(monkeypatch, tmp_path / "i.manifind", photos, wanted=few)
        choice = made.info()["whitening"]["choice"]
        assert (choice["chosen"], choice["scores"]) == (few.config.default.name, {})
        assert "too few to choose" in made.info()["whitening"]["words"]
        rows = np.concatenate(
            [made.extractor.with_whitening(None).extract_unwhitened(made.pixels(i.key)) for i in made.catalogue.images]
        )
        expected = few.whitening(Moments.of(rows)).apply(rows)
        stored = np.asarray(made.manifold.vectors_, np.float32)
        np.testing.assert_allclose(stored @ stored.T, expected @ expected.T, atol=0.03)


def test_a_lower_power_leaves_strong_directions_stronger(rng: np.random.Generator) -> None:
    moments = Moments.of(rng.standard_normal((500, 5)) * [5, 4, 3, 2, 1])
    deviations = {power: _deviations(moments, power) for power in (0.5, 0.25)}
    np.testing.assert_allclose(deviations[0.5], 1, rtol=1e-4)
    np.testing.assert_allclose(
        deviations[0.25], np.sort(np.linalg.eigvalsh(moments.covariance))[::-1] ** 0.25, rtol=1e-4
    )


def _deviations(moments: Moments, power: float) -> npt.NDArray[np.float64]:
    project = whitening_of(moments, 5, power=power).project.astype(np.float64)
    return np.asarray(np.sqrt(np.diag(project.T @ moments.covariance @ project)))


def test_a_choice_is_kept_in_the_manifest() -> None:
    choice = WhiteningChoice("own 0.25", 12, {"own 0.25": 50.0, "own 0.5": 40.5})
    assert WhiteningChoice.of(choice.fields) == choice
    assert choice.fields.keys() == {"chosen", "pairs", "scores"}  # as older indexes have it
    rankings = {"own 0.25": {"plain": 52.0, "regional": 48.0}, "own 0.5": {"plain": 40.0, "regional": 41.0}}
    judged = replace(choice, rankings=rankings)
    assert WhiteningChoice.of(json.loads(json.dumps(judged.fields))) == judged
    assert "own 0.5: 40.5 (plain 40.0, regional 41.0)" in describe_choice(judged)
    for damaged in ({"own 0.25": 50.0}, {"own 0.25": {"plain": 101.0}}, [50.0]):
        with pytest.raises(DamagedError):
            WhiteningChoice.of({**judged.fields, "rankings": damaged})
