"""What takes long to make and is only read: made once for all processes of a run of the tests."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from manifind.index import Index

FOLDER = "MANIFIND_TEST_SHARED"
"""The folder that `scripts/test` gives to both stages."""


def shared_folder(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that `make` filled: in this process, or in another one of the same run."""
    import fcntl  # Windows, which has none, runs the tests of the core alone

    own = factory.getbasetemp()
    base = Path(os.environ.get(FOLDER) or (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own))
    folder, made = base / name, base / f"{name}.made"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            made.touch()
    return folder


def open_copy(made: Path, factory: pytest.TempPathFactory) -> Index:
    """Open a copy of an index, which this process may write to; its photos stay where they are."""
    path = factory.mktemp("made") / made.name
    shutil.copytree(made, path)
    return Index.open(path)
