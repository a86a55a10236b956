"""What is left of an index when its writer dies, or its disk fails, at each point in turn.

Run as a program, with the names of operations and faults and how many points to go on by: it prints, as JSON, how often
the old and the new generation were found. A process of its own, so that it can be forked hundreds of times before any
library has started threads.
"""

import json
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from manifind.describe import Describer
from manifind.errors import Damaged
from manifind.index import Index
from manifind.index.tending import teach
from manifind.index.tending.teaching import Taught
from tests.faults import struck
from tests.index.small import save_photo, small_describer

Answer = tuple[list[tuple[str, float]], int]
"""What a search finds, and a checksum of the local features that are kept: 0 where none are."""
PARAMETERS = {"k": 12, "query_k": 10}


def create(path: Path, photos: Path, describer: Describer, *, geometry: bool = True) -> None:
    Index.create(path, photos, describer=describer, geometry=geometry, **PARAMETERS)  # type: ignore[arg-type]


def add(path: Path, photos: Path, describer: Describer) -> None:
    Index.open(path, describer=describer).add([photos / "new"])


def supplement(path: Path, photos: Path, describer: Describer) -> None:
    Index.open(path, describer=describer).sync(geometry=True)


def remove(path: Path, photos: Path, describer: Describer) -> None:
    opened = Index.open(path, describer=describer)
    if opened.catalogue.of_key("3.png"):
        opened.remove(["3.png", "5.png"])


def sync(path: Path, photos: Path, describer: Describer) -> None:
    Index.open(path, describer=describer).sync()


def relearn(path: Path, photos: Path, describer: Describer) -> None:
    opened = Index.open(path, describer=describer)
    if opened.info()["whitening"]["from"] != "learnt":
        opened.relearn()


def learn(path: Path, photos: Path, describer: Describer) -> None:
    opened = Index.open(path, describer=describer)
    if opened.info()["whitening"]["from"] != "learnt":
        # Seven photos have no pairs: what they would have taught is given.
        project = np.eye(8, dtype=np.float32) + np.float32(0.1) * np.eye(8, k=1, dtype=np.float32)
        vars(teach)["pairs_of"] = lambda *_: []
        vars(teach)["taught"] = lambda *_: Taught(project, 5, 50, 5, 3, 0.5, 0.6, 0.01)
        opened.learn()


OPERATIONS: dict[str, Callable[[Path, Path, Describer], None]] = {
    "create": create,
    "add": add,
    "remove": remove,
    "sync": sync,
    "relearn": relearn,
    "learn": learn,
    "supplement": supplement,
}


def answer(path: Path, photos: Path, describers: list[Describer]) -> Answer | None:
    """What a search finds, by whichever describer is the index's; None where there is no index yet."""
    if not (path / "manifest.json").exists():
        return None
    for describer in describers:
        try:
            opened = Index.open(path, describer=describer, verify=True)
        except Damaged:
            raise
        except ValueError:
            continue
        problems = [problem for problem in opened.check() if problem.damage]
        assert not problems, problems
        local = opened.state.local
        assert local is None or len(local.rows) > 20
        hits = [(hit.key, round(hit.score, 6)) for hit in opened.search(photos / "0.png", top=None, verify=0)]
        return hits, 0 if local is None else zlib.crc32(local.rows.tobytes())
    raise AssertionError("the index is of no describer that is known")


def strays(path: Path) -> list[str]:
    """Files that the manifest does not know: of an earlier generation, or of one that was never finished."""
    manifest = json.loads((path / "manifest.json").read_text())
    known = {one["file"] for one in manifest["files"].values()}
    known |= {"manifest.json", f"manifest-{manifest['generation']}.json", ".lock", ".part"}
    return sorted(file.name for file in path.iterdir() if file.name not in known)


def trial(folder: Path, operation: str, fault: str, step: int) -> dict[str, int]:
    """Strike at each point of an operation in turn, or at every so many, until it comes to its end."""
    photos, made, path = folder / "photos", folder / "made.manifind", folder / "struck.manifind"
    describer = small_describer()
    for seed in range(7):
        save_photo(photos / f"{seed}.png", seed)
    if operation != "create":
        create(made, photos, describer, geometry=operation != "supplement")
    if operation in ("add", "sync"):
        for seed in (11, 12):
            save_photo(photos / "new" / f"{seed}.png", seed)
    if operation == "sync":
        (photos / "2.png").unlink()
        (photos / "4.png").rename(photos / "z.png")

    def restore() -> None:
        shutil.rmtree(path, ignore_errors=True)
        if made.exists():
            shutil.copytree(made, path)

    restore()
    before = answer(path, photos, [describer])
    OPERATIONS[operation](path, photos, describer)
    describers = [describer]
    if operation in ("relearn", "learn"):
        from manifind.index.state.generation import Generation

        describers.append(describer.with_whitening(Generation.read(path).whitening))
    after = answer(path, photos, describers)
    assert before != after

    seen = {"points": 0, "old": 0, "new": 0}
    for at in range(0, 10_000, step):
        restore()
        if struck(lambda: OPERATIONS[operation](path, photos, describer), at, fault):
            break
        found = answer(path, photos, describers)
        assert found in (before, after), f"{operation} with {fault} at {at}: neither the old answer nor the new"
        seen["points"] += 1
        seen["old" if found == before else "new"] += 1
        if found == before or operation != "create":
            OPERATIONS[operation](path, photos, describers[-1] if found == after else describer)
        assert answer(path, photos, describers) == after, f"{operation} after {fault} at {at} did not come to its end"
        litter = [file.name for file in path.iterdir() if file.name == ".part" or file.name.endswith(".draft")]
        if found == before:
            assert not litter, f"{operation} with {fault} at {at} left {litter}"
        if found == before or operation in ("add", "sync"):  # the others see that nothing is left to do, and do nothing
            left = strays(path)
            assert not left, f"{operation} with {fault} at {at} left {left} of other generations"
    return seen


if __name__ == "__main__":
    results = {}
    memory = Path("/dev/shm")  # noqa: S108 (where flushing costs nothing)
    for one in sys.argv[1].split(","):
        for fault in sys.argv[2].split(","):
            with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as temporary:
                results[f"{one} {fault}"] = trial(Path(temporary), one, fault, int(sys.argv[3]))
    print(json.dumps(results))
