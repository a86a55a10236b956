from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from tests.collections_of_regions import Collection, make

settings.register_profile("manifind", deadline=None, max_examples=60, print_blob=True)
settings.load_profile("manifind")


@pytest.fixture
def collection() -> Collection:
    """Forty images or so on a few clusters."""
    return make("clusters", images=40, most_regions=6, d=12, seed=7, queries=5)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).resolve().parents[1]
