"""`Index`: photos in, photos out."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from manifind import Damaged, InvalidInput
from manifind.describe import Describer, Unreadable, load_describer, read_photo
from manifind.index import METHODS, Index, whole_box
from manifind.index.asking import query as module
from manifind.index.making.journal import Journal
from manifind.index.state.recipe import Learning
from tests.index.conftest import scene, texture

THING = (20, 30, 148, 158)
"""Where the first thing is in first-0.png."""


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
    both = index.search(photos / "first-0.png", THING, also=[("second-0.png", (180, 20, 308, 148))], top=8)
    assert {hit.key.split("-")[0] for hit in both} == {"first", "second"}


def test_an_exif_rotated_twin_has_the_same_descriptors(tmp_path: Path) -> None:
    upright, turned = tmp_path / "upright.tif", tmp_path / "turned.tif"
    image = Image.fromarray(scene(1, 1))
    image.save(upright)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    image.transpose(Image.Transpose.ROTATE_90).save(turned, exif=exif)
    describer = load_describer()
    a, b = (describer.describe(read_photo(file).pixels) for file in (upright, turned))
    np.testing.assert_array_equal(a.vectors, b.vectors)
    np.testing.assert_array_equal(a.boxes, b.boxes)


def test_what_is_no_photo_is_listed_with_the_reason(index: Index) -> None:
    skipped = {one.key: one.reason for one in index.catalogue.skipped}
    assert "broken.jpg" in skipped
    assert len(index) == 12


def test_info_counts(index: Index) -> None:
    facts = index.info()
    assert facts["photos"] == 12
    assert facts["regions"] == len(index.boxes)
    assert facts["manifold"]["k"] == 20
    assert {"key": "broken.jpg", "reason": facts["skipped"][0]["reason"], "same_as": None} in facts["skipped"]


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
    with pytest.raises(InvalidInput, match="follows no chain"):
        index.explain(index.search("first-0.png", method="plain")[0])


# -- keeping up -------------------------------------------------------------------------------------------------------


class Counting(Describer):
    """Counts the photos that it describes, and can be interrupted."""

    described = 0
    stop_at: int | None = None

    def describe(self, *arguments: Any, **keywords: Any) -> Any:
        if self.stop_at is not None and self.described >= self.stop_at:
            raise KeyboardInterrupt
        self.described += 1
        return super().describe(*arguments, **keywords)


@pytest.fixture
def counting() -> Counting:
    shipped = load_describer()
    return Counting(shipped.backbone, shipped.whitening)


def test_an_interrupted_run_goes_on_where_it_stopped(
    photos: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, counting: Counting
) -> None:
    whole = tmp_path_factory.mktemp("whole") / "i.manifind"
    index = Index.create(whole, photos, describer=load_describer(), k=20, query_k=20)
    counting.stop_at = 5
    with pytest.raises(KeyboardInterrupt):
        Index.create(tmp_path / "i.manifind", photos, describer=counting, k=20, query_k=20)
    with pytest.raises(InvalidInput, match=r"5 of 1. photos described; run manifind index .* to go on"):
        Index.open(tmp_path / "i.manifind")
    counting.stop_at = None
    made = Index.create(tmp_path / "i.manifind", photos, describer=counting, k=20, query_k=20)
    assert counting.described == 12
    assert [p.name for p in tmp_path.iterdir()] == ["i.manifind"]
    a, b = made.search("first-1.png"), index.search("first-1.png")
    assert [(hit.key, hit.score) for hit in a] == [(hit.key, hit.score) for hit in b]


def test_sync_describes_only_what_is_new(photos: Path, tmp_path: Path, counting: Counting) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(photos, folder)
    made = Index.create(tmp_path / "i.manifind", folder, describer=counting, k=20, query_k=20)
    reader = Index.open(made.path, describer=counting)
    before = [(hit.key, hit.score) for hit in reader.search("second-3.png")]

    (folder / "first-0.png").unlink()
    (folder / "first-1.png").rename(folder / "more" / "moved.png")
    (folder / "second-0.png").touch()
    Image.fromarray(scene(30, 1)).save(folder / "new.png")
    Image.fromarray(scene(31, 2)).save(folder / "second-1.png")
    shutil.copy(folder / "second-2.png", folder / "third-copy.png")
    counting.described = 0
    changes = made.sync()
    assert counting.described == 2
    assert (changes.described, changes.kept, changes.moved, changes.removed) == (2, 9, 1, 1)
    assert (changes.skipped, changes.unreadable, changes.supplemented) == (2, (), 0)
    keys = [image.key for image in made.catalogue.images]
    assert "first-0.png" not in keys
    assert "more/moved.png" in keys
    assert {one.key: one.reason for one in made.catalogue.skipped}[
        "third-copy.png"
    ] == "the same content as second-2.png"
    fresh = Index.create(tmp_path / "fresh.manifind", folder, describer=counting, k=20, query_k=20)
    for query in ("new.png", "second-1.png"):
        a, b = made.search(query), fresh.search(query)
        assert [hit.key for hit in a] == [hit.key for hit in b]
        np.testing.assert_allclose([hit.score for hit in a], [hit.score for hit in b], rtol=1e-5)
    # A reader keeps the generation that it opened.
    shutil.copy(photos / "second-3.png", folder / "second-3.png")
    assert [(hit.key, hit.score) for hit in reader.search("second-3.png")] == before


def test_a_whitening_can_be_learnt_from_the_photos(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Twelve photos have no more to teach.
    monkeypatch.setattr("manifind.index.making.describing.Learning", lambda: Learning(dimension=32))
    seen: list[tuple[str, int, int]] = []
    made = Index.create(tmp_path / "i.manifind", photos, whiten="learn", k=20, progress=lambda *at: seen.append(at))
    assert made.manifold.vectors_.shape[1] == 32
    assert ("whitening", 13, 13) in seen or ("whitening", 12, 12) in seen
    again = Index.open(made.path)
    assert again.search("first-0.png", THING, top=1)[0].key.startswith("first")
    bare = Index.create(tmp_path / "bare.manifind", photos, whiten="none", k=20)
    assert bare.manifold.vectors_.shape[1] == 1280
    assert Index.open(bare.path).search("first-0.png", top=1)


def test_boxes_of_a_large_photo_are_in_its_own_pixels(tmp_path: Path, photos: Path) -> None:
    """A JPEG of more than four times the size that the network sees is decoded reduced."""
    (tmp_path / "large").mkdir()
    small = Image.open(photos / "first-0.png")
    small.resize((3840, 2880)).save(tmp_path / "large" / "a.jpg", quality=95)
    small.save(tmp_path / "large" / "b.png")
    made = Index.create(tmp_path / "i.manifind", tmp_path / "large")
    first, end = made.manifold.layout_.starts[:2]
    assert made.catalogue[0].width == 3840
    np.testing.assert_allclose(made.boxes[first:end].max(axis=0), [3840 / 2, 2880 / 2, 3840, 2880], rtol=0.6)
    assert made.boxes[first:end, 2].max() == 3840
    assert made.boxes[first:end, 3].max() == 2880


def test_a_photo_edited_in_place_is_described_again(photos: Path, tmp_path: Path, counting: Counting) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(photos, folder)
    made = Index.create(tmp_path / "i.manifind", folder, describer=counting, k=20)
    generation, size = made.generation, (folder / "first-0.png").stat().st_size
    assert made.sync().described == 0
    assert made.generation == generation
    Image.fromarray(texture(9, 240, 320)).save(folder / "first-0.png")
    with (folder / "first-0.png").open("ab") as stream:  # of the same size, if it can be
        stream.write(bytes(max(0, size - stream.tell())))
    assert made.sync().described == 1


def test_hits_and_readers_keep_their_generation(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(photos, folder)
    made = Index.create(tmp_path / "i.manifind", folder, k=20)
    reader = Index.open(made.path)
    hits = made.search("second-3.png")
    for file in folder.glob("first-*.png"):
        file.unlink()
    made.sync()
    assert len(made) == 8
    assert made.explain(hits[-1]).key == hits[-1].key
    assert len(reader) == 12
    reader.reload()
    assert len(reader) == 8


def test_two_writers_do_not_mix(photos: Path, tmp_path: Path, counting: Counting) -> None:
    refused = []

    def meanwhile(stage: str, done: int, total: int) -> None:
        if stage == "photos" and done == 3:
            with pytest.raises(InvalidInput, match="being written by process") as error:
                Index.create(tmp_path / "i.manifind", photos)
            refused.append(error)

    made = Index.create(tmp_path / "i.manifind", photos, describer=counting, k=20, progress=meanwhile)
    assert refused
    assert len(made) == 12


def test_a_folder_of_somebody_elses_is_not_touched(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("mine")
    with pytest.raises(InvalidInput, match="is not a saved index"):
        Index.create(tmp_path / "thesis", photos)
    assert [file.name for file in (tmp_path / "thesis").iterdir()] == ["chapter.txt"]


def test_a_journal_cut_off_in_the_middle_of_a_photo_goes_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [rng.random((n, 3)).astype(np.float16).astype(np.float32) for n in (4, 5, 6)]
    with Journal(tmp_path / "j", "print", 3) as journal:
        for i, vectors in enumerate(rows[:2]):
            journal.append(f"photo {i}", 10, 20, vectors, np.zeros((len(vectors), 4), np.float32))
    for name, extra in (("vectors.f16", b"12345"), ("boxes.f32", b"1"), ("photos.jsonl", b'["photo 2", 10')):
        with (tmp_path / "j" / name).open("ab") as stream:
            stream.write(extra)
    with Journal(tmp_path / "j", "print", 3) as journal:
        assert len(journal) == 2
        journal.append("photo 2", 10, 20, rows[2], np.ones((6, 4), np.float32))
        half, boxes = journal.arrays()
        np.testing.assert_array_equal(half, np.concatenate(rows))
        assert boxes[:9].sum() == 0
        assert boxes[9:].sum() == 24
    # Pages that a power cut left blank, behind a line that says they are there.
    with (tmp_path / "j" / "vectors.f16").open("r+b") as stream:
        stream.seek(4 * 3 * 2)
        stream.write(bytes(30))
    with Journal(tmp_path / "j", "print", 3) as journal:
        assert len(journal) == 1
    with Journal(tmp_path / "j", "another print", 3) as journal:
        assert len(journal) == 0


def test_the_chain_starts_where_the_query_is(index: Index, photos: Path) -> None:
    chain = index.explain(index.search(photos / "first-0.png", THING)[0])
    x0, y0, x1, y1 = chain.links[0].source.box
    assert THING[0] <= x0 < x1 <= THING[2]
    assert THING[1] <= y0 < y1 <= THING[3]


# -- bad input --------------------------------------------------------------------------------------------------------


def test_another_backbone_is_refused(index: Index) -> None:
    other = load_describer(scales=2)
    with pytest.raises(InvalidInput, match="scales differ"):
        Index.open(index.path, describer=other)


def test_what_cannot_be_indexed_or_opened_is_named(index: Index, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="no photos"):
        Index.create(tmp_path / "x.manifind", tmp_path / "empty")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    with pytest.raises(InvalidInput, match=r"no photo that can be read \(a.jpg"):
        Index.create(tmp_path / "x.manifind", tmp_path / "bad")
    with pytest.raises(InvalidInput, match="not a folder"):
        Index.create(tmp_path / "x.manifind", tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="is an index already"):
        Index.create(index.path, photos)
    with pytest.raises(FileNotFoundError):
        Index.open(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="is a folder of photos"):
        Index.open(photos)
    assert not (tmp_path / "x.manifind").exists()


def test_a_damaged_catalogue_is_noticed(index: Index, tmp_path: Path) -> None:
    copy = tmp_path / "copy.manifind"
    shutil.copytree(index.path, copy)
    (file,) = copy.glob("images-*.sqlite")
    content = bytearray(file.read_bytes())
    content[0] ^= 255
    file.write_bytes(content)
    with pytest.raises(Damaged):
        Index.open(copy)
    with pytest.raises(Damaged, match="checksum"):
        Index.open(copy, verify=True)


def test_a_query_that_cannot_be_used_is_named(index: Index, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="neither a file nor a key"):
        index.search("nowhere.jpg")
    (tmp_path / "text.jpg").write_text("hello")
    with pytest.raises(Unreadable):
        index.search(tmp_path / "text.jpg")
    with pytest.raises(InvalidInput, match="'regional', 'global', 'match', 'plain'"):
        index.search("first-0.png", method="magic")
    with pytest.raises(InvalidInput, match="not in the collection"):
        index.photo("nowhere.jpg")


@pytest.mark.parametrize(
    ("box", "what"),
    [
        ((0, 0, 10), "four numbers"),
        ((0, 0, float("nan"), 10), "four numbers"),
        ((10, 10, 10, 20), "no part of the 320 × 240 photo"),
        ((30, 10, 20, 20), "x0 < x1"),
        ((400, 0, 500, 100), "no part"),
        ((-50, -50, -1, -1), "no part"),
    ],
)
def test_a_box_that_cannot_be_used_is_named(index: Index, box: Any, what: str) -> None:
    with pytest.raises(InvalidInput, match=what):
        index.search("first-0.png", box)


def test_a_box_is_cut_to_the_photo_in_whole_pixels() -> None:
    assert whole_box(None, 320, 240) == (0, 0, 320, 240)
    assert whole_box((-5, 10.2, 1000, 20.1), 320, 240) == (0, 10, 320, 21)


def test_tiny_and_narrow_queries_work(index: Index) -> None:
    for pixels in (texture(5, 1, 1), texture(5, 3, 200), texture(5, 2000, 20)):
        assert index.search(pixels, top=1)


def test_a_large_collection_is_searched_by_shortlist(
    index: Index, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHORTLIST", 5)
    hits = index.search(photos / "first-0.png", THING, top=None)
    assert len(hits) == 5
    assert index.explain(hits[0]).keys[-1] == hits[0].key
