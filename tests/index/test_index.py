"""`Index`: photos in, photos out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from manifind import InvalidInputError
from manifind.errors import UnreadableImageError
from manifind.features import load_extractor, region_grid
from manifind.index import METHODS, Index, SearchConfig, whole_box
from manifind.index.config import RetrievalConfig
from manifind.index.storage.build_config import WhiteningTraining
from manifind.io import read_photo
from tests.errors import raises
from tests.extraction_options import PLAINLY
from tests.index.conftest import scene, texture

THING = (20, 30, 148, 158)
"""Where the first thing is in first-0.png."""
DAMAGED = "damaged, or of a kind that is not read"


def test_the_photos_with_the_thing_come_first(index: Index, photos: Path) -> None:
    hits = index.search(photos / "first-0.png", THING)
    assert [hit.rank for hit in hits] == list(range(1, 13))
    assert {hit.key for hit in hits[:4]} == {f"first-{i}.png" for i in range(4)}
    found = [hit.score for hit in hits if not hit.verified]
    assert [bool(hit.verified) for hit in hits] == sorted((bool(hit.verified) for hit in hits), reverse=True)
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_thing(method: str, index: Index) -> None:
    hits = index.search("second-1.png", method=method, top=3)
    assert hits[0].key.startswith("second-")
    assert len(hits) == 3
    assert bool(hits[0].regions) == (method == "regional")


def test_shares_say_where_the_thing_is(index: Index, photos: Path) -> None:
    hit = next(hit for hit in index.search(photos / "first-0.png", THING) if hit.key == "first-3.png")
    x0, y0, x1, y1 = 170, 90, 298, 218  # where it is in that photo
    best = hit.regions[0].box
    width, height = min(best[2], x1) - max(best[0], x0), min(best[3], y1) - max(best[1], y0)
    assert width > 0
    assert height > 0
    assert width * height > 0.5 * (best[2] - best[0]) * (best[3] - best[1])
    assert [r.share for r in hit.regions] == sorted((r.share for r in hit.regions), reverse=True)
    assert sum(r.share for r in hit.regions) <= 1 + 1e-6


def test_a_box_is_the_same_as_the_crop_saved(index: Index, photos: Path, tmp_path: Path) -> None:
    Image.open(photos / "first-0.png").crop(THING).save(tmp_path / "crop.png")
    by_box, by_crop = index.search(photos / "first-0.png", THING), index.search(tmp_path / "crop.png")
    assert by_box[0].key == "first-0.png"  # what the box was drawn in
    assert {hit.key: hit.score for hit in by_box} == {hit.key: hit.score for hit in by_crop}


def test_a_photo_may_come_as_path_key_bytes_or_pixels(index: Index, photos: Path) -> None:
    path = photos / "more" / "none-2.png"
    pixels = np.asarray(Image.open(path))
    scores = [
        [hit.score for hit in index.search(given)] for given in (path, "more/none-2.png", path.read_bytes(), pixels)
    ]
    assert scores[0] == scores[1] == scores[2] == scores[3]


def test_several_views_are_one_query(index: Index, photos: Path) -> None:
    both = index.search(photos / "first-0.png", THING, positives=[("second-0.png", (180, 20, 308, 148))], top=8)
    assert {hit.key.split("-")[0] for hit in both} == {"first", "second"}


def test_an_exif_rotated_twin_has_the_same_descriptors(tmp_path: Path) -> None:
    upright, turned = tmp_path / "upright.tif", tmp_path / "turned.tif"
    image = Image.fromarray(scene(1, 1))
    image.save(upright)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    image.transpose(Image.Transpose.ROTATE_90).save(turned, exif=exif)
    extractor = load_extractor()
    a, b = (extractor.extract(read_photo(file).pixels) for file in (upright, turned))
    np.testing.assert_array_equal(a.vectors, b.vectors)
    np.testing.assert_array_equal(a.boxes, b.boxes)


def test_what_is_no_photo_is_listed_with_the_reason(index: Index) -> None:
    assert {one.key: one.reason for one in index.catalogue.skipped} == {
        "broken.jpg": "damaged, or of a kind that is not read"
    }
    assert len(index) == 12


def test_info_counts(index: Index) -> None:
    facts = index.info()
    assert facts["photos"] == 12
    assert facts["regions"] == len(index.boxes)
    assert facts["manifold"]["k"] == 20
    assert facts["skipped"] == [{"key": "broken.jpg", "code": "unreadable", "reason": DAMAGED, "duplicate_of": None}]


def test_a_reopened_index_answers_the_same(index: Index) -> None:
    again = Index.open(index.path, verify=True)
    a, b = index.search("first-1.png"), again.search("first-1.png")
    assert [(hit.key, hit.score) for hit in a] == [(hit.key, hit.score) for hit in b]


# -- why --------------------------------------------------------------------------------------------------------------


def test_a_chain_leads_from_the_query_to_the_photo(index: Index, photos: Path) -> None:
    reached = [hit for hit in index.search(photos / "first-0.png", THING) if hit.score > 0]
    assert len(reached) >= 4
    for hit in reached:
        chain = index.explain(hit)
        assert chain.links[0].source.key is None
        assert chain.links[-1].target.key == hit.key == chain.keys[-1]
        for before, after in zip(chain.links[:-1], chain.links[1:], strict=True):
            assert before.target == after.source
        assert all(0 < link.flow <= 1 and -1 <= link.similarity <= 1.001 for link in chain.links)


def test_plain_similarity_has_no_chain(index: Index) -> None:
    with raises("method-without-chain", InvalidInputError):
        index.explain(index.search("first-0.png", method="plain")[0])


# -- making -----------------------------------------------------------------------------------------------------------


def test_a_whitening_can_be_learnt_from_the_photos(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Twelve photos have no more to teach.
    monkeypatch.setattr(
        "manifind.index.build.extractor_factory.WhiteningTraining", lambda: WhiteningTraining(dimension=32)
    )
    seen: list[tuple[str, int, int]] = []
    quickly: dict[str, Any] = {"scales": (1.0,), "long_side": 160, "local_features": False, "k": 20}
    made = Index.create(
        tmp_path / "i.manifind", photos, whiten="learn", progress=lambda *at: seen.append(at), **quickly
    )
    assert made.manifold.vectors_.shape[1] == 32
    assert ("whitening", 12, 12) in seen
    again = Index.open(made.path)
    assert again.search("first-0.png", THING, top=1)[0].key.startswith("first")
    bare = Index.create(tmp_path / "bare.manifind", photos, whiten="none", **quickly)
    assert bare.manifold.vectors_.shape[1] == 1280
    assert Index.open(bare.path).search("first-0.png", top=1)


def test_boxes_of_a_large_photo_are_in_its_own_pixels(tmp_path: Path, photos: Path) -> None:
    """A JPEG of more than four times the size that the network sees is decoded reduced."""
    (tmp_path / "large").mkdir()
    small = Image.open(photos / "first-0.png")
    small.resize((3840, 2880)).save(tmp_path / "large" / "a.jpg", quality=95)
    small.save(tmp_path / "large" / "b.png")
    made = Index.create(tmp_path / "i.manifind", tmp_path / "large", **PLAINLY)
    assert (made.catalogue[0].width, made.catalogue[0].height) == (3840, 2880)
    # The network sees 768 × 576 of it, in cells of 32: each is 160 pixels wide in the photo.
    own = made.boxes[made.manifold.layout_.place_of == 0]
    np.testing.assert_allclose(own, 160 * region_grid(18, 24))


def test_a_folder_of_somebody_elses_is_not_touched(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match="is not a saved index"):
        Index.create(tmp_path / "thesis", photos)
    assert [file.name for file in (tmp_path / "thesis").iterdir()] == ["chapter.txt"]


def test_the_chain_starts_where_the_query_is(index: Index, photos: Path) -> None:
    chain = index.explain(index.search(photos / "first-0.png", THING)[0])
    x0, y0, x1, y1 = chain.links[0].source.box
    assert THING[0] <= x0 < x1 <= THING[2]
    assert THING[1] <= y0 < y1 <= THING[3]


# -- bad input --------------------------------------------------------------------------------------------------------


def test_another_backbone_is_refused(index: Index) -> None:
    other = load_extractor(grid_levels=2)
    with pytest.raises(InvalidInputError, match="grid_levels differ"):
        Index.open(index.path, extractor=other)


def test_what_cannot_be_indexed_or_opened_is_named(index: Index, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="no photos"):
        Index.create(tmp_path / "x.manifind", tmp_path / "empty")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    with pytest.raises(InvalidInputError, match=r"no photo that can be read \(a.jpg"):
        Index.create(tmp_path / "x.manifind", tmp_path / "bad")
    with pytest.raises(InvalidInputError, match="not a folder"):
        Index.create(tmp_path / "x.manifind", tmp_path / "nowhere")
    with pytest.raises(InvalidInputError, match="is an index already"):
        Index.create(index.path, photos)
    with pytest.raises(FileNotFoundError):
        Index.open(tmp_path / "nowhere")
    with pytest.raises(InvalidInputError, match="is a folder of photos"):
        Index.open(photos)
    assert not (tmp_path / "x.manifind").exists()


def test_a_query_that_cannot_be_used_is_named(index: Index, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="neither a file nor a key"):
        index.search("nowhere.jpg")
    (tmp_path / "text.jpg").write_text("hello")
    with pytest.raises(UnreadableImageError):
        index.search(tmp_path / "text.jpg")
    with pytest.raises(InvalidInputError, match="'regional', 'global', 'match', 'plain'"):
        index.search("first-0.png", method="magic")
    with pytest.raises(InvalidInputError, match="not in the collection"):
        index.photo("nowhere.jpg")


@pytest.mark.parametrize(
    ("box", "code"),
    [
        ((0, 0, 10), "box-numbers"),
        ((0, 0, float("nan"), 10), "box-numbers"),
        ((10, 10, 10, 20), "box-outside"),
        ((30, 10, 20, 20), "box-outside"),
        ((400, 0, 500, 100), "box-outside"),
        ((-50, -50, -1, -1), "box-outside"),
    ],
)
def test_a_box_that_cannot_be_used_is_refused(index: Index, box: Any, code: str) -> None:
    with raises(code, InvalidInputError):
        index.search("first-0.png", box)


def test_the_sentence_about_a_box_names_the_photos_size_and_what_to_give(index: Index) -> None:
    with pytest.raises(InvalidInputError, match=r"no part of the 320 × 240 photo; give x0 < x1 and y0 < y1"):
        index.search("first-0.png", (30, 10, 20, 20))
    with pytest.raises(InvalidInputError, match="four numbers"):
        index.search("first-0.png", (0, 0, 10))


def test_a_box_is_cut_to_the_photo_in_whole_pixels() -> None:
    assert whole_box(None, 320, 240) == (0, 0, 320, 240)
    assert whole_box((-5, 10.2, 1000, 20.1), 320, 240) == (0, 10, 320, 21)


def test_tiny_and_narrow_queries_work(index: Index) -> None:
    for pixels in (texture(5, 1, 1), texture(5, 3, 200), texture(5, 2000, 20)):
        assert index.search(pixels, top=1)


def test_a_large_collection_is_searched_by_shortlist(index: Index, photos: Path) -> None:
    large = Index.open(index.path, config=SearchConfig(retrieval=RetrievalConfig(shortlist_size=5)))
    hits = large.search(photos / "first-0.png", THING, top=None)
    assert len(hits) == 5
    assert large.explain(hits[0]).keys[-1] == hits[0].key
