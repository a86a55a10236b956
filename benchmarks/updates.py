"""What it costs to add and remove 1 % of an index's photos, against building it; and to open it, by its size.

    python benchmarks/updates.py [--photos N] [--k K] [--share 0.01] [--json]

Photos stand ready as extracted (their descriptors are laid into the index's journal, as if a run had been interrupted
just after their extraction), so that only the graph and the disk are timed; the time for extraction, as measured
on a picture of noise, is added for a second ratio, that of the whole. The full build and the change run by the same
call that users make. ``MANIFIND_CORE=off`` is without the compiled core. Neighbour sets after each change are compared
with those of a fresh build. On the regions of Oxford5k where they are at hand, else on synthetic ones, which it says.

Data: the descriptors of Oxford5k (``harness.py``), n = 106,887, d = 512, k = 100, all threads.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from harness import collection, cpu, make_parser
from manifind.features import RegionExtractor, load_extractor
from manifind.groups import Layout
from manifind.index import Index
from manifind.index.build.journal import Journal
from manifind.kernels import compiled
from manifind.storage import store
from manifind.types import FloatArray

SIZE = 1024, 768


def stand_in(folder: Path, number: int) -> str:
    """Make a file that begins as a photo does; return its content hash."""
    content = b"\xff\xd8\xff" + b"%d" % number
    (folder / f"{number:06d}.jpg").write_bytes(content)
    return sha256(content).hexdigest()


def lay_in(
    index: Path, extractor: RegionExtractor, hashes: dict[int, str], vectors: FloatArray, layout: Layout
) -> None:
    """Write photos into the journal of an index."""
    fingerprint = f"{extractor.fingerprint()['sha256']} means None local None"
    with (
        store.writing(index, "index") as writer,
        Journal(writer.work / "described", fingerprint, extractor.dimension) as journal,
    ):
        for number, digest in hashes.items():
            first, end = layout.starts[number : number + 2]
            boxes = np.tile(np.array([0, 0, *SIZE], np.float32), (end - first, 1))
            journal.append(digest, *SIZE, vectors[first:end], boxes)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def agreement(index: Index, fresh: Index) -> float:
    """Return the share of neighbours that two indexes of the same photos have in common."""
    a, b = (np.sort(one.manifold.neighbours_.ids, axis=1) for one in (index, fresh))
    return float(np.mean([len(np.intersect1d(x, y)) / len(x) for x, y in zip(a, b, strict=True)]))


def measure(base: Path, vectors: FloatArray, layout: Layout, k: int, share: float) -> dict[str, Any]:
    extractor = load_extractor("mobilenet_v2")
    description: dict[str, Any] = {
        "backbone": "mobilenet_v2",
        "whiten": "shipped",
        "scales": (1.0,),
        "local_features": False,
    }
    photos = base / "photos"
    photos.mkdir()
    total = len(layout.images)
    late = set(np.linspace(0, total - 1, max(1, round(share * total))).astype(int).tolist())
    hashes = {number: stand_in(photos, number) for number in range(total) if number not in late}

    def create(path: Path, known: dict[int, str]) -> Index:
        lay_in(path, extractor, known, vectors, layout)
        return Index.create(path, photos, k=k, **description)

    path = base / "i.manifind"
    lay_in(path, extractor, hashes, vectors, layout)
    full, index = timed(lambda: Index.create(path, photos, k=k, **description))
    nothing, _ = timed(index.sync)
    size = index.info()["bytes"]
    opening, _ = timed(lambda: Index.open(path))

    late_hashes = {number: stand_in(photos, number) for number in sorted(late)}
    lay_in(path, extractor, late_hashes, vectors, layout)
    added, _ = timed(lambda: index.add([photos / f"{number:06d}.jpg" for number in sorted(late)]))
    fresh = create(base / "fresh.manifind", hashes | late_hashes)
    after_adding = agreement(index, fresh)
    shutil.rmtree(base / "fresh.manifind")

    gone = sorted(hashes)[:: max(1, round(1 / share))]
    removed, _ = timed(lambda: index.remove([f"{number:06d}.jpg" for number in gone]))
    for number in gone:
        (photos / f"{number:06d}.jpg").unlink()
    fresh = create(base / "fresh.manifind", {n: h for n, h in (hashes | late_hashes).items() if n not in gone})
    picture = np.random.default_rng(0).integers(0, 256, (576, 768, 3), dtype=np.uint8)
    extractor.extract(picture)  # the first is slower
    start = time.perf_counter()
    extractor.extract(picture)
    each = time.perf_counter() - start
    whole = {"add": (added + each * len(late)) / (full + each * len(hashes)), "remove": removed / (full + each * total)}
    return {
        "core": compiled(),
        "seconds_a_photo": each,
        "photos": total,
        "regions_added": int(sum(layout.counts[number] for number in late)),
        "bytes": size,
        "seconds": {"full": full, "nothing": nothing, "add": added, "remove": removed, "open": opening},
        "against_full": {"add": added / full, "remove": removed / full},
        "against_full_with_extraction": whole,
        "same_neighbours": {"add": after_adding, "remove": agreement(index, fresh)},
    }


def main() -> None:
    parser = make_parser(__doc__, k=100)
    parser.add_argument("--photos", type=int, help="only so many photos")
    parser.add_argument("--share", type=float, default=0.01, help="of the photos to add, and to remove")
    arguments = parser.parse_args()
    data, vectors, image_of, _ = collection(None)
    layout = Layout.of(image_of)
    if arguments.photos is not None:
        end = int(layout.starts[arguments.photos])
        vectors, layout = vectors[:end], Layout.of(image_of[:end])
    with tempfile.TemporaryDirectory() as temporary:
        measured = measure(Path(temporary), vectors, layout, arguments.k, arguments.share)
    setting = {
        "data": data,
        "n": len(vectors),
        "d": vectors.shape[1],
        "k": arguments.k,
        "threads": faiss.omp_get_max_threads(),
        "cpu": cpu(),
    }
    if arguments.json:
        print(json.dumps({**setting, **measured}, indent=1))
        return
    setting["core"] = measured["core"]
    print(", ".join(f"{name} {value}" for name, value in setting.items()))
    for name, seconds in measured["seconds"].items():
        ratio = measured["against_full"].get(name)
        same = measured["same_neighbours"].get(name)
        whole = measured["against_full_with_extraction"].get(name)
        tail = ""
        if ratio is not None:
            tail = f"  {ratio:.1%} of the full build, {whole:.1%} with extraction; {same:.4%} of neighbours as fresh"
        print(f"{name:<8} {seconds:8.2f} s{tail}")


if __name__ == "__main__":
    main()
