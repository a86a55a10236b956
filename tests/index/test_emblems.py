"""Emblems drawn from nothing in photos full of texture: a search finds every one of them."""

import numpy as np
import pytest
from PIL import Image

from manifind.index import Index
from tests.extraction_options import PLAINLY
from tests.geometry.test_emblems import EACH, EMBLEMS, PHOTOS, emblem, photo


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    root = tmp_path_factory.mktemp("emblems")
    photos = root / "photos"
    photos.mkdir()
    for number in range(PHOTOS):
        Image.fromarray(photo(number)).save(photos / f"{number:02d}.png")
    return Index.create(root / "photos.manifind", photos, **PLAINLY)


def test_a_search_verifies_all_photos_of_every_emblem_and_has_them_first(index: Index) -> None:
    for number in range(EMBLEMS):
        right = {f"{i:02d}.png" for i in range(number, EMBLEMS * EACH, EMBLEMS)}
        answer = index.search(np.asarray(emblem(number)), top=PHOTOS)
        assert right == {hit.key for hit in answer[:EACH]} == {hit.key for hit in answer if hit.verified}
