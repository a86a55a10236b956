"""Photos under an evaluation: sizes and boxes of objects from where they lie."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from manifind import InvalidInput
from manifind.describe import load_describer
from manifind.evaluate import Protocol, QueryPhoto, Task
from manifind.evaluate.cache import Cache
from manifind.evaluate.photos import Photos


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
