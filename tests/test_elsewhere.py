"""The paths that other systems take, taken here by pretending: what Linux alone has is hidden, and its lack refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIFE = """
import gc, json, os, sys
from pathlib import Path

import numpy as np

from manifind import Index, Manifold
from manifind.errors import InvalidInputError
from manifind.storage import disk, store
from tests import elsewhere
from tests.index.small import save_photo, small_extractor

refusals = elsewhere.pretend()
assert "manifind.kernels.threads" in sys.modules  # imported on Linux; the test below imports it elsewhere
os.chdir(sys.argv[1])
photos, path = Path("photos"), Path("photos.manifind")
for seed in range(12):
    save_photo(photos / "below" / f"{seed}.png", seed)
extractor = small_extractor()
index = Index.create(path, photos, extractor=extractor, k=20, query_k=10)
first = [hit.key for hit in index.search(photos / "below/0.png", top=3)]
save_photo(photos / "more.png", 15)
index.sync()
index.remove(["below/3.png"])
seen = [hit.key for hit in index.search(photos / "below/0.png", top=20)]
with disk.lock(path / ".lock", path):
    try:
        index.add([photos / "below" / "3.png"])
    except InvalidInputError as error:
        refused = str(error)
index.close()
del index
gc.collect()
again = Index.open(path, extractor=extractor)
again.add([photos / "below" / "3.png"])  # whatever was held open before is removed now
again.close()
del again
gc.collect()
with store.writing(path, "index"):
    pass
listed = json.loads((path / "manifest.json").read_text())
named = {one["file"] for one in listed["files"].values()} | {f"manifest-{listed['generation']}.json"}
strays = sorted({file.name for file in path.iterdir() if "-" in file.name} - named)
again = Index.open(path, extractor=extractor)
problems = [str(problem) for problem in again.check()]
manifold = Manifold(k=5).fit(np.eye(8, dtype=np.float32))
manifold.save("some.manifold")
Path("link").symlink_to(photos)
try:
    disk.remove_folder(Path("link"))
except InvalidInputError as error:
    link = str(error)
Path("to.json").symlink_to(path / "manifest.json")
try:
    os.close(disk.open_append(Path("to.json")))
except InvalidInputError as error:
    file_link = str(error)
Path("tree/below/far").mkdir(parents=True)
Path("tree/below/far/file").write_text("x")
disk.remove_folder(Path("tree"))
print(json.dumps({
    "first": first, "seen": seen, "photos": again.info()["photos"], "problems": problems, "refused": refused,
    "refusals": len(refusals), "strays": strays, "link": link,
    "file_link": file_link, "tree": Path("tree").exists(), "loaded": len(Manifold.load("some.manifold").vectors_),
}))
"""

IMPORTED = """
import sys
from tests import elsewhere
elsewhere.pretend()
sys.modules["manifind.kernels._core"] = sys.modules["manifind.kernels._features"] = None  # no compiler either
import importlib, os
from manifind import kernels
from manifind.cli import COMMANDS
from manifind.features.backbone import available_cores
from manifind.kernels.threads import thread_count
from manifind.serve.run import _max_open_files, limited_protocol
from manifind.serve.resources import Settings
for name in COMMANDS:
    importlib.import_module(f"manifind.cli.{name}")
assert not kernels.compiled() and not kernels.features_compiled()
assert thread_count() == available_cores() == os.cpu_count()
assert _max_open_files() > 10**6
limited_protocol(Settings())
print("imported")
"""


def ran(program: str, *words: str, repository: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "COLUMNS")}
    environment["PYTHONPATH"] = os.pathsep.join([str(repository), environment.get("PYTHONPATH", "")])
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, *words], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="what is pretended elsewhere is so there")
def test_an_index_lives_where_folders_cannot_be_flushed_and_open_files_cannot_be_removed(
    tmp_path: Path, repository: Path
) -> None:
    told = json.loads(ran(LIFE, str(tmp_path), repository=repository))
    assert told["first"][0] == "below/0.png"
    assert "more.png" in told["seen"]
    assert "below/3.png" not in told["seen"]
    assert told["photos"] == 13
    assert told["problems"] == []
    assert "is being written by process" in told["refused"]
    assert told["refusals"] > 0
    assert told["strays"] == []
    assert told["link"].startswith("link is a link")
    assert told["file_link"].startswith("to.json is a link")
    assert not told["tree"]
    assert told["loaded"] == 8


@pytest.mark.skipif(sys.platform != "linux", reason="what is pretended elsewhere is so there")
def test_every_room_can_be_imported_where_the_system_has_less(repository: Path) -> None:
    assert ran(IMPORTED, repository=repository).strip() == "imported"
