from collections.abc import Iterator

import pytest

from manifind import kernels
from manifind.kernels.cpu import native_backend
from manifind.kernels.cpu.native import core

LEVELS = core.levels() if kernels.compiled() else []


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    before = core.level()
    core.use_level(request.param)
    yield str(request.param)
    core.use_level(before)


@pytest.fixture(params=[False, True])
def gather(request: pytest.FixtureRequest) -> Iterator[bool]:
    """The way in which one column loads what a row of the matrix asks for."""
    core.use_gather(request.param)
    yield bool(request.param)
    core.use_gather(None)


@pytest.fixture
def everywhere(level: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The core on small graphs too, which are otherwise solved in float64."""
    monkeypatch.setattr(native_backend, "FLOAT64_MAX_REGIONS", 0)
    return level
