"""Photos under an evaluation: sizes and boxes of objects from where they lie."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from manifind import Index
from manifind.cli.extraction_options import extractor_of, settings_of
from manifind.evaluation import Protocol, QueryPhoto, Task
from manifind.evaluation import command as evaluation
from manifind.evaluation.cache import Cache, code_checksum
from manifind.evaluation.photos import Photos, regional_and_global
from manifind.features import load_extractor
from tests.commands import run
from tests.errors import raises
from tests.index.conftest import photos
from tests.index.small import small_extractor, small_photo

__all__ = ["photos"]


@pytest.fixture
def instre(tmp_path: Path) -> Path:
    """Photos of 200 × 100 with their boxes beside them, as INSTRE has them: x, y, width, height."""
    for name, boxes in {
        "INSTRE-S1/01a_book/001": "20 10 40 50",
        "INSTRE-S1/01b_cup/001": "0 0 200 100",
        "INSTRE-M/01/001": "10 10 20 50\n100 50 100 50",
    }.items():
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((100, 200, 3), np.uint8)).save(path)
        path.with_suffix(".txt").write_text(boxes + "\n")
    return tmp_path


def protocol(*queries: tuple[str, list[int]]) -> Protocol:
    images = ("INSTRE-S1/01a_book/001.jpg", "INSTRE-S1/01b_cup/001.jpg", "INSTRE-M/01/001.jpg")
    asked = tuple(QueryPhoto(str(i), image) for i, (image, _) in enumerate(queries))
    positives = tuple(np.array(wanted) for _, wanted in queries)
    return Protocol("INSTRE", images, asked, (Task("INSTRE", positives, tuple(np.empty(0, int) for _ in queries)),))


def test_instre_has_the_boxes_of_objects_beside_its_photos(instre: Path) -> None:
    photos = Photos(instre, load_extractor(), Cache(None))
    sizes = dict.fromkeys(photos.names, (200.0, 100.0))
    found = photos.with_sizes(
        protocol(("INSTRE-S1/01a_book/9.jpg", [0, 2]), ("INSTRE-S1/01b_cup/9.jpg", [1, 2]), ("INSTRE-M/01/9.jpg", [2])),
        sizes,
    )
    np.testing.assert_allclose(found.relative_sizes(0, [0, 2]), [0.1, 0.05])
    np.testing.assert_allclose(found.relative_sizes(1, [1, 2]), [1, 0.25])
    # A query for both objects: the box around both.
    np.testing.assert_allclose(found.relative_sizes(2, [2]), [190 * 90 / 20_000])


def test_a_text_that_is_no_boxes_is_refused(instre: Path) -> None:
    (instre / "INSTRE-S1/01a_book/001.txt").write_text("a book\n")
    photos = Photos(instre, load_extractor(), Cache(None))
    with raises("box-file"):
        photos.with_sizes(protocol(("INSTRE-S1/01a_book/9.jpg", [0])), dict.fromkeys(photos.names, (200.0, 100.0)))


def test_a_folder_without_photos_is_refused(tmp_path: Path) -> None:
    with raises("no-photos"):
        Photos(tmp_path, load_extractor(), Cache(None))


def test_the_global_descriptor_of_a_photo_is_whitened_on_its_own() -> None:
    """The regions are those that an index has; the whole is their sum before whitening, then whitened: Sec. 5.1."""
    extractor, pixels = small_extractor(), small_photo(3)
    assert extractor.whitening is not None
    regions, whole = regional_and_global(extractor.extract_unwhitened(pixels), extractor.whitening)
    np.testing.assert_allclose(regions, extractor.extract(pixels).vectors, atol=1e-6)
    total = extractor.extract_unwhitened(pixels).astype(np.float64).sum(axis=0)
    centred = (total / np.linalg.norm(total) - extractor.whitening.mean) @ extractor.whitening.project
    np.testing.assert_allclose(whole, centred / np.linalg.norm(centred), atol=1e-5)


def test_index_evaluate_and_whiten_take_the_same_words_for_how_photos_are_extracted(
    photos: Path, tmp_path: Path
) -> None:
    """A whitening learnt with some words serves an evaluation with the same; descriptors have its dimensions."""
    pairs = [f"{photos}/{kind}-{i}.png,{photos}/{kind}-{i + 1}.png" for kind in ("first", "second") for i in range(3)]
    (tmp_path / "pairs.csv").write_text("\n".join(pairs))
    (tmp_path / "things.csv").write_text("query,positives\nfirst-0.png,first-1.png;first-2.png\n")
    words = ["--pooling", "mac", "--scales", "1,0.5", "--long-side", "256"]

    learnt = run("whiten", tmp_path / "pairs.csv", "-o", tmp_path / "w.npz", "--dimension", 3, *words)
    assert learnt.exit_code == 0, learnt.output
    asked = ["evaluate", photos, "--truth", tmp_path / "things.csv", "--method", "nearest", "--no-cache", "--json"]
    found = run(*asked, "--whiten", tmp_path / "w.npz", *words)
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["results"][0]["mAP_mean"] > 0
    assert "skipped broken.jpg" in found.stderr
    made = run(
        "index", photos, "-o", tmp_path / "m.manifind", "--whiten", tmp_path / "w.npz", *words[:2], "--scales", "1,0.5"
    )
    assert made.exit_code == 0, made.output
    settings = Index.open(tmp_path / "m.manifind").extractor.settings
    assert (settings["pooling"], list(settings["scales"])) == ("mac", [1.0, 0.5])


@pytest.mark.parametrize("words", [(), ("--whiten", "shipped", "--scales", "1")])
def test_a_folder_is_extracted_as_an_index_of_it_would_be(photos: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    """The whitening that is learnt from the photos on the way is the one that an index learns."""
    truth = tmp_path / "things.csv"
    truth.write_text("query,positives\nfirst-0.png,first-1.png;first-2.png\n")
    made = run("index", photos, "-o", tmp_path / "m.manifind", *words)
    assert made.exit_code == 0, made.output
    asked = evaluation.Request(photos, [truth], methods=["nearest"])
    given = dict(zip(words[::2], words[1::2], strict=True))
    scales = given.get("--scales")
    settings = settings_of(scales=None if scales is None else (float(scales),))
    found = evaluation.run(asked, partial(extractor_of, None, given.get("--whiten"), **settings))
    with Index.open(tmp_path / "m.manifind") as index:
        names = [one.key for one in index.catalogue.images]
        regional = found.comparison.data[0].images.regional
        assert regional is not None
        assert found.comparison.data[0].images.names == tuple(names)
        similar = np.einsum("ij,ij->i", regional.vectors, np.asarray(index.manifold.vectors_, np.float32))
        np.testing.assert_allclose(similar, 1, atol=2e-3)


def test_what_is_kept_is_known_by_the_code_that_made_it(tmp_path: Path) -> None:
    """One letter of one module is another code; a file beside the rooms is not."""
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "one.py").write_text("a = 1\n")
    (tmp_path / "two.py").write_text("b = 1\n")
    rooms = ("room", "two.py")
    code_checksum.cache_clear()
    before = code_checksum(*rooms, root=tmp_path)
    for change, differs in (("three.py", False), ("room/notes.txt", False), ("two.py", True), ("room/one.py", True)):
        (tmp_path / change).write_text("b = 2\n")
        code_checksum.cache_clear()
        after = code_checksum(*rooms, root=tmp_path)
        assert (after != before) is differs
        before = after
