from pathlib import Path

import pytest

from manifind.index import Index
from tests.index.small import save_photos, small_describer
from tests.index.upkeep.fresh import PARAMETERS, Counting


@pytest.fixture
def describer() -> Counting:
    small = small_describer()
    return Counting(small.backbone, small.whitening)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_photos(tmp_path / "photos", 8)


@pytest.fixture
def made(folder: Path, tmp_path: Path, describer: Counting) -> Index:
    return Index.create(tmp_path / "i.manifind", folder, describer=describer, **PARAMETERS)
