"""Photos under an evaluation: sizes and boxes of objects from where they lie."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from manifind import Index, InvalidInput
from manifind.cli import main
from manifind.describe import Describer, load_describer
from manifind.evaluate import Protocol, QueryPhoto, Task, average_precision
from manifind.evaluate.cache import Cache
from manifind.evaluate.photos import Photos, described_photo
from tests.index.conftest import index, photos
from tests.index.small import small_describer, small_photo

__all__ = ["index", "photos"]
BOXES = {"first": "20,30,148,158", "second": "180,20,308,148"}


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
    photos = Photos(instre, load_describer(), Cache(None))
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
    photos = Photos(instre, load_describer(), Cache(None))
    with pytest.raises(InvalidInput, match=r"001\.txt is no list of boxes"):
        photos.with_sizes(protocol(("INSTRE-S1/01a_book/9.jpg", [0])), dict.fromkeys(photos.names, (200.0, 100.0)))


def test_a_folder_without_photos_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no photos"):
        Photos(tmp_path, load_describer(), Cache(None))


def test_the_global_descriptor_of_a_photo_is_whitened_on_its_own() -> None:
    """The regions are those that an index has; the whole is their sum before whitening, then whitened: Sec. 5.1."""
    describer, pixels = small_describer(), small_photo(3)
    seen = described_photo(describer, pixels)
    np.testing.assert_allclose(seen.vectors, describer.describe(pixels).vectors, atol=1e-6)
    assert describer.whitening is not None
    total = describer.unwhitened(pixels).astype(np.float64).sum(axis=0)
    centred = (total / np.linalg.norm(total) - describer.whitening.mean) @ describer.whitening.project
    np.testing.assert_allclose(seen.whole, centred / np.linalg.norm(centred), atol=1e-5)


def test_index_evaluate_and_whiten_take_the_same_words_for_how_photos_are_described(
    photos: Path, tmp_path: Path
) -> None:
    """A whitening learnt with some words serves an evaluation with the same; descriptors have its dimensions."""
    pairs = [f"{photos}/{kind}-{i}.png,{photos}/{kind}-{i + 1}.png" for kind in ("first", "second") for i in range(3)]
    (tmp_path / "pairs.csv").write_text("\n".join(pairs))
    (tmp_path / "things.csv").write_text("query,positives\nfirst-0.png,first-1.png;first-2.png\n")
    words = ["--pooling", "mac", "--scales", "1,0.5", "--long-side", "256"]

    def run(*given: object) -> Any:
        return CliRunner().invoke(main, [str(word) for word in given], catch_exceptions=False)

    learnt = run("whiten", tmp_path / "pairs.csv", "-o", tmp_path / "w.npz", "--dimension", 3, *words)
    assert learnt.exit_code == 0, learnt.output
    asked = ["evaluate", photos, "--truth", tmp_path / "things.csv", "--method", "nearest", "--no-cache", "--json"]
    found = run(*asked, "--whiten", tmp_path / "w.npz", *words)
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["results"][0]["mAP_mean"] > 0
    assert "passed over broken.jpg" in found.stderr
    made = run("index", photos, "-o", tmp_path / "m.manifind", "--whiten", tmp_path / "w.npz", *words[:4])
    assert made.exit_code == 0, made.output
    settings = Index.open(tmp_path / "m.manifind").describer.settings
    assert (settings["pooling"], list(settings["zooms"])) == ("mac", [1.0, 0.5])
    learning = run(*asked, "--whiten", "learn")
    assert learning.exit_code == 2
    assert "make one with manifind index" in learning.stderr


# -- an index ----------------------------------------------------------------------------------------------------------


def test_an_index_is_evaluated_with_the_descriptors_that_it_has(
    index: Index, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = tmp_path / "things.csv"
    rows = [f'{kind}-0.png,"{box}",{";".join(f"{kind}-{i}.png" for i in (1, 2, 3))}' for kind, box in BOXES.items()]
    truth.write_text("query,box,positives\n" + "\n".join(rows) + "\n")
    described = list[Any]()
    usual = Describer.unwhitened

    def counted(self: Describer, photo: Any) -> Any:
        described.append(photo)
        return usual(self, photo)

    monkeypatch.setattr(Describer, "unwhitened", counted)
    methods = ("--method", "regional-diffusion:k=20,query_k=20", "--method", "index")
    words = [index.path, "--truth", truth, *methods, "--no-cache", "--json"]
    result = CliRunner().invoke(main, ["evaluate", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert len(described) == 2  # the queries alone; the index describes them by itself
    assert "passed over broken.jpg" in result.stderr
    assert found["data"][0]["passed_over"][0].startswith("broken.jpg: ")
    assert found["data"][0]["images"] == 12
    assert found["data"][0]["ms_describing"] > 0
    table = CliRunner().invoke(main, ["evaluate", *map(str, words[:-1])], catch_exceptions=False).stdout.splitlines()
    assert table[0].endswith("with describing")
    alone, _, described_too = map(float, table[1].split()[-3:])
    assert described_too > alone
    del described[2:]
    assert "2 are passed over" in found["data"][0]["own_photos"]
    diffused, searched = found["results"]
    assert diffused["average_precisions"] == searched["average_precisions"]
    precisions, recalls = [], []
    for (kind, box), measured in zip(BOXES.items(), diffused["average_precisions"], strict=True):
        hits = index.search(photos / f"{kind}-0.png", [float(x) for x in box.split(",")], top=None)
        assert hits.likely is not None
        above = [hit.key.startswith(kind) for hit in hits[: hits.likely] if hit.key != f"{kind}-0.png"]
        precisions.append(100 * np.mean(above))
        recalls.append(100 * sum(above) / 3)
        keys = [hit.key for hit in hits if hit.key != f"{kind}-0.png"]
        right = [key.startswith(kind) for key in keys]
        assert measured == pytest.approx(100 * average_precision(range(len(keys)), np.flatnonzero(right)), abs=1e-3)
    assert searched["line_precision"] == pytest.approx(np.mean(precisions))
    assert searched["line_recall"] == pytest.approx(np.mean(recalls))
    assert "line_precision" not in diffused
