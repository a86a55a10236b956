import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests.collections_of_regions import Collection, make

# Neither a limit of time nor the check that examples are made quickly: a machine may be busy.
settings.register_profile(
    "manifind", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60, print_blob=True
)
# A change is judged by the same examples as the one before it; new ones are drawn wherever else the tests are run.
settings.register_profile("repeatable", settings.get_profile("manifind"), derandomize=True, database=None)
settings.load_profile("repeatable" if os.environ.get("CI") else "manifind")

MARK = "MANIFIND_STARTED_BY_TESTS"
"""Processes inherit it, and have it still when whoever started them has ended."""


def _started_by_us() -> dict[int, str]:
    """Return the commands of processes that tests started, where a system tells (Linux)."""
    found = {}
    for one in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={os.getpid()}\0".encode() in (one / "environ").read_bytes():
                found[int(one.name)] = (one / "cmdline").read_text().replace("\0", " ")
        except OSError:  # it has ended, or is another's
            continue
    return {pid: command for pid, command in found.items() if "multiprocessing.resource_tracker" not in command}


INTEGRATION_FILES = {"test_benchmarks.py", "test_attack.py", "test_release.py"}
"""Smoke runs of benchmarks, the attack sweep, a release: `scripts/test` runs these files in a second stage."""


LONG_FILES = (
    "test_workers.py",
    "test_milvus.py",
    "test_crash.py",
    "test_benchmarks.py",
    "test_collection.py",
    "test_guide.py",
    "test_blocks.py",
    "test_demo.py",
    "test_cuda.py",
    "test_cuda_features.py",
    "test_cuda_extractor.py",
    "test_nn_descent.py",
    "test_update.py",
    "test_pipeline.py",
    "test_full_resolution.py",
    "test_index_command.py",
    "test_emblems.py",
    "test_bad_files.py",
    "test_decode_workers.py",
    "test_search_command.py",
    "test_partial_index.py",
)
"""Files of tests that take more than ten seconds, the longest first: they run before all others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put `LONG_FILES` first; mark what belongs to the second stage: `INTEGRATION_FILES`, and tests in a browser."""
    order = {name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))
    for item in items:
        if item.path.name in INTEGRATION_FILES or {"browser", "page"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    """Every process that a test starts ends, so that no later one meets it."""
    os.environ[MARK] = str(os.getpid())
    yield
    until = time.monotonic() + 60
    while (left := _started_by_us()) and time.monotonic() < until:
        time.sleep(0.1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


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
