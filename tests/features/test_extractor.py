import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from manifind.errors import InvalidInputError
from manifind.features import (
    Backbone,
    BackboneSpec,
    OnnxBackbone,
    RegionExtractor,
    Whitening,
    load_backbone,
    load_extractor,
    region_grid,
)
from manifind.features.backbone import available_cores
from manifind.features.extractor import resized
from manifind.features.grid import rescale_boxes

Photo = npt.NDArray[np.uint8]


class Averages:
    """A network of no depth: the mean colour of each cell of 8 pixels, in three channels."""

    def __init__(self, **changes: Any) -> None:
        given: dict[str, Any] = {"name": "averages", "channels": 3, "stride": 8, "long_side": 96, "smallest_side": 32}
        self.spec = BackboneSpec(**given | changes)

    def features(self, photo: Photo) -> npt.NDArray[np.float32]:
        height, width = photo.shape[0] // 8, photo.shape[1] // 8
        cells = photo[: height * 8, : width * 8].reshape(height, 8, width, 8, 3)
        return np.asarray(cells.mean(axis=(1, 3)).transpose(2, 0, 1), np.float32)


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return load_backbone(threads=1)


@pytest.fixture(scope="module")
def extractor() -> RegionExtractor:
    return load_extractor(threads=1)


def scene(height: int, width: int, seed: int = 0) -> Photo:
    """Overlapping discs of plain colours: edges at any size, and the same scene at any resolution."""
    rng = np.random.default_rng(seed)
    y, x = (np.mgrid[:height, :width] + 0.5) / np.array([height, width])[:, None, None]
    photo = np.empty((height, width, 3), np.uint8)
    photo[:] = rng.integers(0, 256, 3)
    for _ in range(60):
        at, radius = rng.random(2), rng.uniform(0.02, 0.2)
        photo[(y - at[0]) ** 2 + ((x - at[1]) * width / height) ** 2 < radius**2] = rng.integers(0, 256, 3)
    return photo


def test_photos_extracted_side_by_side_are_extracted_the_same() -> None:
    photos = [scene(200 + 20 * i, 300, seed=i) for i in range(4)]
    together = load_extractor(threads=2, scales=(1.0, 0.5))
    alone, threads = together.for_threads()
    assert alone.fingerprint() == together.fingerprint()
    assert threads == available_cores()
    with ThreadPoolExecutor(4) as pool:
        side_by_side = list(pool.map(alone.extract, photos))
    for photo, regions in zip(photos, side_by_side, strict=True):
        expected = together.extract(photo)
        np.testing.assert_allclose(regions.vectors, expected.vectors, atol=1e-4)
        np.testing.assert_array_equal(regions.boxes, expected.boxes)
    own = RegionExtractor(Averages())
    assert own.for_threads() == (own, 1)


def test_regions_are_unit_vectors_with_boxes_of_the_photo(extractor: RegionExtractor) -> None:
    photo = scene(300, 420)
    regions = extractor.extract(photo)
    assert regions.vectors.shape == (len(regions.boxes), 512)
    assert regions.vectors.dtype == regions.boxes.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(regions.vectors, axis=1), 1, atol=1e-5)
    assert regions.boxes[0].tolist() == [0, 0, 420, 300]
    assert (regions.boxes >= 0).all()
    assert (regions.boxes[:, 2:] <= [420, 300]).all()
    assert (regions.boxes[:, :2] < regions.boxes[:, 2:]).all()


def test_descriptors_follow_their_definition_step_by_step(extractor: RegionExtractor) -> None:
    photo = scene(224, 300)
    features = extractor.backbone.features(photo).astype(np.float64)
    rows = []
    for x0, y0, x1, y1 in region_grid(7, 10).tolist():
        pooled = np.cbrt((features[:, y0:y1, x0:x1] ** 3).mean(axis=(1, 2)))
        assert extractor.whitening is not None
        row = (pooled / np.linalg.norm(pooled) - extractor.whitening.mean) @ extractor.whitening.project
        rows.append(row / np.linalg.norm(row))
    np.testing.assert_allclose(extractor.extract(photo).vectors, rows, atol=1e-4)


def test_a_photo_and_its_resized_twin_have_nearly_the_same_regions(extractor: RegionExtractor) -> None:
    large = scene(1152, 1536)
    twin = np.asarray(Image.fromarray(large).resize((1024, 768), Image.Resampling.BOX))
    first, second = extractor.extract(large), extractor.extract(twin)
    similarities = (first.vectors * second.vectors).sum(axis=1)
    other = extractor.extract(scene(768, 1024, seed=5))
    assert similarities.min() > 0.98
    assert (first.vectors @ other.vectors.T).max() < 0.95
    np.testing.assert_allclose(first.boxes, second.boxes * 1.5, rtol=1e-5)


def test_a_part_is_most_like_the_region_it_was_cut_from(extractor: RegionExtractor) -> None:
    photo = scene(576, 768)
    regions = extractor.extract(photo)
    for at in (1, 2, 5):
        x0, y0, x1, y1 = regions.boxes[at].astype(int)
        part = extractor.extract(photo[y0:y1, x0:x1]).vectors[0]
        assert (regions.vectors @ part).argmax() == at


@given(st.integers(1, 4000), st.integers(1, 4000))
def test_the_network_sees_no_more_than_the_long_side_and_no_less_than_a_cell(height: int, width: int) -> None:
    extractor = RegionExtractor(Averages())
    seen = extractor.seen_size(height, width)
    assert max(seen) <= 96
    assert min(seen) >= 8
    if max(height, width) <= 96 and min(height, width) >= 32:
        assert seen == (height, width)
    if max(height, width) > 96:
        assert max(seen) == 96
    if max(height, width) <= 3 * min(height, width) and max(height, width) <= 96:
        assert min(seen) >= 32
    assert len(extractor.extract(np.zeros((height % 200 + 1, width % 200 + 1, 3), np.uint8)).vectors) > 0


def test_small_photos_are_enlarged_as_asked() -> None:
    assert RegionExtractor(Averages()).seen_size(20, 25) == (32, 40)
    assert RegionExtractor(Averages(), smallest_side=48).seen_size(20, 25) == (48, 60)
    assert RegionExtractor(Averages(), smallest_side=0).seen_size(20, 25) == (20, 25)
    assert RegionExtractor(Averages(), long_side=40).seen_size(20, 80) == (10, 40)


def test_a_part_can_be_seen_at_the_size_it_has_in_the_whole() -> None:
    extractor = RegionExtractor(Averages())
    assert extractor.seen_size(300, 400, scale=0.25) == (75, 100)
    assert extractor.extract(scene(300, 400), scale=0.25).boxes[0].tolist() == [0, 0, 400, 300]
    with pytest.raises(InvalidInputError, match="scale is 0; give a finite number above 0"):
        extractor.extract(scene(30, 40), scale=0)


def test_resizing_keeps_a_photo_that_has_the_size_and_even_colours() -> None:
    photo = np.full((40, 60, 3), [10, 128, 250], np.uint8)
    assert resized(photo, 40, 60) is photo
    assert (resized(photo, 21, 33) == [10, 128, 250]).all()


@pytest.mark.parametrize("pooling", ["mac", "gem", "spoc", "crow"])
def test_a_black_photo_has_descriptors_too(pooling: str) -> None:
    regions = RegionExtractor(Averages(), pooling=pooling).extract(np.zeros((64, 64, 3), np.uint8))
    np.testing.assert_allclose(np.linalg.norm(regions.vectors, axis=1), 1, atol=1e-6)


def test_scales_and_overlap_set_the_regions() -> None:
    photo = scene(72, 96)
    assert len(RegionExtractor(Averages(), grid_levels=0).extract(photo).vectors) == 1
    assert len(RegionExtractor(Averages(), grid_levels=2).extract(photo).vectors) == 9
    assert len(RegionExtractor(Averages(), overlap=0.8).extract(photo).vectors) > 21


def test_without_whitening_descriptors_are_the_pooled_responses() -> None:
    photo = np.zeros((32, 64, 3), np.uint8)
    photo[:, :32], photo[:, 32:] = [0, 30, 40], [60, 0, 80]
    extractor = RegionExtractor(Averages(), pooling="mac", grid_levels=1, overlap=0.0)
    np.testing.assert_allclose(
        extractor.extract(photo).vectors,
        np.array([[60, 30, 80], [0, 30, 40], [60, 0, 80]]) / [[104.403], [50], [100]],
        atol=1e-4,
    )
    np.testing.assert_array_equal(extractor.extract_unwhitened(photo), extractor.extract(photo).vectors)


def test_the_fingerprint_changes_with_whatever_descriptors_depend_on() -> None:
    whitening = Whitening(np.zeros(3, np.float32), np.eye(3, dtype=np.float32))
    variants = [
        RegionExtractor(Averages()),
        RegionExtractor(Averages(), whitening),
        RegionExtractor(Averages(), Whitening(whitening.mean, 2 * whitening.project)),
        RegionExtractor(Averages(), Whitening(whitening.mean, whitening.project[:, :2])),
        RegionExtractor(Averages(), p=4),
        RegionExtractor(Averages(), pooling="mac"),
        RegionExtractor(Averages(), grid_levels=2),
        RegionExtractor(Averages(), overlap=0.5),
        RegionExtractor(Averages(), long_side=64),
        RegionExtractor(Averages(), smallest_side=8),
        RegionExtractor(Averages(sha256="1" * 64)),
        RegionExtractor(Averages(mean=(1, 2, 3))),
        RegionExtractor(Averages(colour_order="bgr")),
    ]
    prints = [variant.fingerprint() for variant in variants]
    assert len({each["sha256"] for each in prints}) == len(variants)
    assert all(json.loads(json.dumps(each)) == each for each in prints)


def test_the_fingerprint_does_not_change_with_what_descriptors_do_not_depend_on(backbone: OnnxBackbone) -> None:
    same = RegionExtractor(Averages(name="renamed")), RegionExtractor(Averages(long_side=200), long_side=96)
    assert {each.fingerprint()["sha256"] for each in same} == {RegionExtractor(Averages()).fingerprint()["sha256"]}
    mac = RegionExtractor(backbone, pooling="mac").fingerprint()
    assert mac == RegionExtractor(load_backbone(threads=2), pooling="mac", p=5).fingerprint()


def test_settings_that_cannot_be_are_refused_in_one_sentence(backbone: OnnxBackbone) -> None:
    narrow = Whitening(np.zeros(4, np.float32), np.eye(4, dtype=np.float32))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"whitening": narrow}, "the whitening takes 4 dimensions but backbone mobilenet_v2 gives 1280"),
        ({"pooling": "max"}, "pooling is 'max'; choose one of"),
        ({"p": 0}, "p is 0"),
        ({"grid_levels": 1.5}, "grid_levels is 1.5"),
        ({"overlap": 2}, "overlap is 2"),
        ({"long_side": 16}, "long_side is 16; give a whole number of at least 32"),
        ({"smallest_side": -1}, "smallest_side is -1"),
    ]
    for settings, named in wrong:
        with pytest.raises(InvalidInputError, match=f"^{named}[^\n]*\\.$"):
            RegionExtractor(backbone, **settings)


def test_what_is_not_a_photo_is_refused(extractor: RegionExtractor) -> None:
    for wrong in (np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), "photo.jpg"):
        with pytest.raises(InvalidInputError, match="give an RGB array"):
            extractor.extract(wrong)  # type: ignore[arg-type]


def test_a_network_that_overflows_is_reported() -> None:
    class Broken(Averages):
        def features(self, photo: Photo) -> npt.NDArray[np.float32]:
            return super().features(photo) * np.float32(np.nan)

    with pytest.raises(InvalidInputError, match="backbone averages gave NaN or infinite responses"):
        RegionExtractor(Broken()).extract(scene(64, 64))


def test_the_shipped_whitening_is_left_out_or_replaced_if_one_says_so() -> None:
    other = Whitening(np.zeros(1280, np.float32), np.eye(1280, 7, dtype=np.float32))
    given: tuple[Whitening | None, ...] = (None, other)
    assert [load_extractor(threads=1, whitening=one).dimension for one in given] == [1280, 7]
    assert load_extractor(threads=1).dimension == 512


class TestZooms:
    PHOTO = scene(150, 200, seed=3)

    def test_a_region_is_the_mean_of_what_it_is_at_each_zoom(self, backbone: OnnxBackbone) -> None:
        photo = scene(384, 512)
        extracted = RegionExtractor(backbone, scales=(1, 0.5)).extract(photo)
        large, small = backbone.features(photo), backbone.features(resized(photo, 192, 256))
        assert (large.shape[1:], small.shape[1:]) == ((12, 16), (6, 8))
        boxes = region_grid(12, 16)
        even = (boxes % 2 == 0).all(axis=1)  # those that are whole cells of both maps
        assert 5 <= even.sum() < len(boxes)
        for box, vector in zip(boxes[even].tolist(), extracted.vectors[even], strict=True):
            rows = []
            for features, part in ((large, box), (small, [side // 2 for side in box])):
                x0, y0, x1, y1 = part
                pooled = np.cbrt((features[:, y0:y1, x0:x1].astype(np.float64) ** 3).mean(axis=(1, 2)))
                rows.append(pooled / np.linalg.norm(pooled))
            expected = (rows[0] + rows[1]) / np.linalg.norm(rows[0] + rows[1])
            assert expected @ vector > 0.99999

    def test_the_regions_are_those_of_the_first_zoom(self) -> None:
        one, several = RegionExtractor(Averages()), RegionExtractor(Averages(), scales=[1, 0.7, 0.1, 1.5])
        np.testing.assert_array_equal(one.extract(self.PHOTO).boxes, several.extract(self.PHOTO).boxes)

    def test_one_zoom_is_what_descriptions_were(self, backbone: OnnxBackbone) -> None:
        before, after = RegionExtractor(backbone), RegionExtractor(backbone, scales=[1])
        assert before.fingerprint() == after.fingerprint()
        assert "scales" not in before.fingerprint()
        np.testing.assert_array_equal(before.extract(self.PHOTO).vectors, after.extract(self.PHOTO).vectors)

    def test_other_zooms_are_other_descriptions(self, backbone: OnnxBackbone) -> None:
        several = RegionExtractor(backbone, scales=[1, 0.5])
        assert several.fingerprint()["sha256"] != RegionExtractor(backbone).fingerprint()["sha256"]
        again = RegionExtractor(backbone, **json.loads(json.dumps(several.settings)))
        assert again.fingerprint() == several.fingerprint()

    @pytest.mark.parametrize("wrong", [[], 1.0, "1", [0], [-1], [1, float("nan")], [True], [5]])
    def test_zooms_must_be_parts_of_a_size(self, wrong: Any) -> None:
        with pytest.raises(InvalidInputError, match="scales"):
            RegionExtractor(Averages(), scales=wrong)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_a_box_of_another_map_covers_the_same_part(height: int, width: int, down: int, across: int) -> None:
    cells = region_grid(height, width)
    moved = rescale_boxes(cells, (height, width), (down, across))
    assert (moved[:, :2] >= 0).all()
    assert (moved[:, :2] < moved[:, 2:]).all()
    assert (moved[:, 2:] <= [across, down]).all()
    asked = cells * np.array([across / width, down / height] * 2)
    # Half a cell from rounding; one more where a box would have none.
    assert np.abs(moved - asked).max() <= 1.5
    np.testing.assert_array_equal(rescale_boxes(cells, (height, width), (height, width)), cells)
