import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image
from sklearn.datasets import load_sample_image

from manifind import Index
from tests.docs.blocks import Notebook, blocks_of

RENAMED = {"scene-0035.jpg": "d.jpg", "scene-0000.jpg": "a.jpg", "scene-0001.jpg": "b.jpg", "scene-0002.jpg": "c.jpg"}
"""Photos that the pages call by other names; d.jpg has the pagoda."""


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@pytest.fixture(scope="session")
def tutorial(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Notebook]:
    """The tutorial on photos, gone through from an empty folder."""
    folder = tmp_path_factory.mktemp("tutorial")
    notebook = Notebook()
    with inside(folder):
        for block in blocks_of(repository / "docs" / "tutorial-photos.md"):
            notebook.take(block)
    return folder, notebook


@pytest.fixture(scope="session")
def collection(tutorial: tuple[Path, Notebook], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the other pages suppose: photos/, photos.manifind, shot.jpg with a pagoda in 40,60,220,310, and lists."""
    folder = tmp_path_factory.mktemp("pages") / "collection"
    shutil.copytree(tutorial[0] / "photos", folder / "photos")
    shutil.copytree(tutorial[0] / "photos.manifind", folder / "photos.manifind")
    (folder / "photos" / "torn.jpg").unlink()
    for before, after in {**RENAMED, "new.jpg": "found.jpg"}.items():
        (folder / "photos" / before).rename(folder / "photos" / after)
    Index.open(folder / "photos.manifind").sync(folder / "photos")
    pagoda = Image.fromarray(load_sample_image("china.jpg")).crop((64, 30, 372, 390)).resize((180, 250))
    shot = Image.new("RGB", (260, 340), (120, 140, 170))
    shot.paste(pagoda, (40, 60))
    shot.save(folder / "shot.jpg", quality=95)
    (folder / "boxes.csv").write_text('photo,box,name\nshot.jpg,"40,60,220,310",roof\na.jpg,,whole\n')
    positives = ["scene-0005.jpg", "scene-0020.jpg", "d.jpg", "found.jpg"]
    truth = [{"image": str(folder / "shot.jpg"), "box": [40, 60, 220, 310], "positives": positives}]
    (folder / "truth.json").write_text(json.dumps({"name": "pagoda", "queries": truth}))
    return folder


@pytest.fixture
def copied(collection: Path, tmp_path: Path) -> Callable[[], Path]:
    """Make a folder of one's own with all that the pages suppose."""

    def make() -> Path:
        shutil.copytree(collection, tmp_path / "page")
        Index.open(tmp_path / "page" / "photos.manifind").sync(tmp_path / "page" / "photos")
        return tmp_path / "page"

    return make
