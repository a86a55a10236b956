"""What is left of an index when its writer dies, or its disk fails, at each point in turn.

Run as a program, with the names of operations and faults and how many points to go on by (one number, or one for each
fault), or without arguments at all points of all: it prints, as JSON, how often the old and the new generation were
found. A process of its own, so that it can be forked hundreds of times before any library has started threads.
"""

import itertools
import json
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

from manifind.errors import DamagedError
from manifind.features import RegionExtractor
from manifind.index import Index
from tests.faults import FAULTS, struck
from tests.index.small import save_photo, small_extractor

Answer = tuple[list[tuple[str, float]], int]
"""What a search finds, and a checksum of the local features that are kept: 0 where none are."""
PARAMETERS = {"k": 12, "query_k": 10}


def create(path: Path, photos: Path, extractor: RegionExtractor, *, local_features: bool = True) -> None:
    Index.create(path, photos, extractor=extractor, local_features=local_features, **PARAMETERS)  # type: ignore[arg-type]


def add(path: Path, photos: Path, extractor: RegionExtractor) -> None:
    Index.open(path, extractor=extractor).add([photos / "new"])


def add_local_features(path: Path, photos: Path, extractor: RegionExtractor) -> None:
    Index.open(path, extractor=extractor).sync(local_features=True)


def remove(path: Path, photos: Path, extractor: RegionExtractor) -> None:
    opened = Index.open(path, extractor=extractor)
    if opened.catalogue.of_key("3.png"):
        opened.remove(["3.png", "5.png"])


def sync(path: Path, photos: Path, extractor: RegionExtractor) -> None:
    Index.open(path, extractor=extractor).sync()


def retrain_whitening(path: Path, photos: Path, extractor: RegionExtractor) -> None:
    opened = Index.open(path, extractor=extractor)
    if opened.info()["whitening"]["from"] != "learnt":
        opened.retrain_whitening()


OPERATIONS: dict[str, Callable[[Path, Path, RegionExtractor], None]] = {
    "create": create,
    "add": add,
    "remove": remove,
    "sync": sync,
    "retrain_whitening": retrain_whitening,
    "supplement": add_local_features,
}


def answer(path: Path, photos: Path, extractors: list[RegionExtractor]) -> Answer | None:
    """What a search finds, by whichever extractor is the index's; None where there is no index yet."""
    if not (path / "manifest.json").exists():
        return None
    for extractor in extractors:
        try:
            opened = Index.open(path, extractor=extractor, verify=True)
        except DamagedError:
            raise
        except ValueError:
            continue
        problems = [problem for problem in opened.check() if problem.is_damage]
        assert not problems, problems
        local = opened.state.local
        assert local is None or len(local.rows) > 20
        hits = [(hit.key, round(hit.score, 6)) for hit in opened.search(photos / "0.png", top=None, verify=0)]
        return hits, 0 if local is None else zlib.crc32(local.rows.tobytes())
    raise AssertionError("the index is of no extractor that is known")


def strays(path: Path) -> list[str]:
    """Files that the manifest does not know: of an earlier generation, or of one that was never finished."""
    manifest = json.loads((path / "manifest.json").read_text())
    known = {one["file"] for one in manifest["files"].values()}
    known |= {"manifest.json", f"manifest-{manifest['generation']}.json", ".lock", ".part"}
    return sorted(file.name for file in path.iterdir() if file.name not in known)


def trial(folder: Path, operation: str, fault: str, step: int) -> dict[str, int]:
    """Strike at each point of an operation in turn, or at every so many, until it comes to its end."""
    photos, made, path = folder / "photos", folder / "made.manifind", folder / "struck.manifind"
    extractor = small_extractor()
    for seed in range(7):
        save_photo(photos / f"{seed}.png", seed)
    if operation != "create":
        create(made, photos, extractor, local_features=operation != "supplement")
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
    before = answer(path, photos, [extractor])
    OPERATIONS[operation](path, photos, extractor)
    extractors = [extractor]
    if operation == "retrain_whitening":
        from manifind.index.storage.snapshot import Snapshot

        extractors.append(extractor.with_whitening(Snapshot.read(path).whitening))
    after = answer(path, photos, extractors)
    assert before != after

    seen = {"points": 0, "old": 0, "new": 0}
    for at in range(0, 10_000, step):
        restore()
        if struck(lambda: OPERATIONS[operation](path, photos, extractor), at, fault):
            break
        found = answer(path, photos, extractors)
        assert found in (before, after), f"{operation} with {fault} at {at}: neither the old answer nor the new"
        seen["points"] += 1
        seen["old" if found == before else "new"] += 1
        if found == before or operation != "create":
            OPERATIONS[operation](path, photos, extractors[-1] if found == after else extractor)
        assert answer(path, photos, extractors) == after, f"{operation} after {fault} at {at} did not come to its end"
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
    operations, faults, steps = sys.argv[1:] or (",".join(OPERATIONS), ",".join(FAULTS), "1")
    step_of = dict(zip(faults.split(","), itertools.cycle(steps.split(",")), strict=False))
    for operation in operations.split(","):
        for fault, step in step_of.items():
            with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as temporary:
                results[f"{operation} {fault}"] = trial(Path(temporary), operation, fault, int(step))
    print(json.dumps(results))
