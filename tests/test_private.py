"""Nothing leaves the machine, and nothing is left on it but the index."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from manifind.kernels import threads
from tests import alone
from tests.index.conftest import scene

INDEX_AND_SEARCH = """
import sys
from manifind.cli import main
for words in (["index", "photos"], ["search", "photos.manifind", "photos/0.png"], ["info", "photos.manifind"]):
    try:
        main(words)
    except SystemExit as ended:
        if ended.code not in (0, None):
            raise
"""

LOOKS_UP = "import socket\ntry: socket.getaddrinfo('phone.home.example', 443)\nexcept OSError: pass\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    (tmp_path / "home").mkdir()
    for i in range(3):
        Image.fromarray(scene(i, 1, (20 + 50 * i, 30))).save(tmp_path / "photos" / f"{i}.png")
    return tmp_path


def python(script: str, folder: Path, *before: str) -> subprocess.CompletedProcess[str]:
    """Run a script in the folder, with a home of its own."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), given.get("PYTHONPATH")]))
    return subprocess.run(  # noqa: S603
        [*before, sys.executable, "-c", script],
        cwd=folder,
        env={**given, "HOME": str(folder / "home"), "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,  # it must end, however busy the machine is
    )


def test_indexing_and_searching_leave_nothing_but_the_index(folder: Path) -> None:
    done = python(INDEX_AND_SEARCH, folder)
    assert done.returncode == 0, done.stderr
    assert list((folder / "home").rglob("*")) == []
    assert sorted(file.name for file in folder.iterdir()) == ["home", "photos", "photos.manifind"]
    assert sorted(file.name for file in (folder / "photos").iterdir()) == ["0.png", "1.png", "2.png"]


@pytest.mark.skipif(not alone.possible(), reason="this machine gives no network namespace of our own")
def test_nobody_is_looked_up(folder: Path) -> None:
    watched = (*alone.UNSHARE, sys.executable, "-m", "tests.alone")
    assert "phone.home.example" in python(LOOKS_UP, folder, *watched).stdout  # or else nothing would be noticed
    done = python(INDEX_AND_SEARCH, folder, *watched)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("looked up:\n")


FORKED_AFTER_A_SEARCH = """
import os, sys
import numpy as np
from manifind import Manifold, kernels
rng = np.random.default_rng(0)
vectors = rng.standard_normal((4000, 32)).astype(np.float32)
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
kernels.set_threads(2)
manifold = Manifold(k=10, query_k=5, knn="exact").fit(vectors, np.arange(4000))
first = manifold.search(vectors[:3], top=5)
import faiss
faiss.knn(vectors[:500], vectors, 5, metric=faiss.METRIC_INNER_PRODUCT)
child = os.fork()
if child == 0:
    faiss.knn(vectors[:500], vectors, 5, metric=faiss.METRIC_INNER_PRODUCT)
    again = manifold.search(vectors[:3], top=5)
    os._exit(0 if np.array_equal(first.images, again.images) and kernels.thread_count() == 1 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_forked_after_a_search_searches_too(folder: Path) -> None:
    done = python(FORKED_AFTER_A_SEARCH, folder)
    assert done.returncode == 0, done.stderr


def test_what_another_library_says_to_the_processes_it_starts_is_not_said_to_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "_chosen", None)
    before = threads.thread_count()
    monkeypatch.setenv("OMP_NUM_THREADS", str(before + 1))
    assert threads.thread_count() == before
