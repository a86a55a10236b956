from pathlib import Path

import pytest

from manifind.index import Index
from tests.index.small import save_photos, small_extractor
from tests.index.upkeep.fresh import PARAMETERS, Counting


@pytest.fixture
def extractor() -> Counting:
    small = small_extractor()
    return Counting(small.backbone, small.whitening)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_photos(tmp_path / "photos", 8)


@pytest.fixture
def made(folder: Path, tmp_path: Path, extractor: Counting) -> Index:
    return Index.create(tmp_path / "i.manifind", folder, extractor=extractor, **PARAMETERS)
