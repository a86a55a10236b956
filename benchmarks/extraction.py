"""What extraction costs against the bare network, and what the descriptors are worth on Oxford5k.

    python benchmarks/extraction.py [--photos FOLDER] [--count 60] [--json]
    python benchmarks/extraction.py --photos oxbuild_images --oxford [--json]

The first compares `RegionExtractor.extract` with the network alone on the same tensors, and then whole passes (reading,
decoding, extraction) in several ways that take turns: photos a second, and the processor's time for a photo, which a
busy machine changes less. Photos are those of FOLDER, or sample photographs of scikit-learn at
several sizes. The second extracts the Oxford5k photos (5,063 files named as in the ground truth) and the 55 queries by
this code, with several ways of scaling the queries, and prints mAP (trapezoid) of plain search and of regional
diffusion beside that of the shared descriptors.

Data: photos, all cores; for mAP those of Oxford5k, n = 106,887, d = 512.
"""

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import harness
from harness import cpu, in_turns, make_parser
from manifind import Manifold
from manifind.baselines import NearestImages
from manifind.features import SCALES, load_extractor
from manifind.features.backbone import available_cores
from manifind.features.extractor import ONE_SCALE, resized
from manifind.index import Index, whole_box
from manifind.io import ListedFile, extract_ahead, read_photo
from manifind.types import FloatArray


def sample_photos(folder: Path, count: int) -> list[ListedFile]:
    from sklearn.datasets import load_sample_image

    found = []
    for i in range(count):
        photo = Image.fromarray(load_sample_image(("china.jpg", "flower.jpg")[i % 2]))
        width = (1024, 2048, 4000)[i % 3]
        file = folder / f"{i}.jpg"
        photo.resize((width, width * photo.height // photo.width)).save(file, quality=90)
        found.append(ListedFile(file.name, file, file.stat().st_size, 0))
    return found


def cost(found: Sequence[ListedFile]) -> dict[str, Any]:
    extractor = load_extractor()
    photos = [read_photo(one.path, long_side=extractor.long_side).pixels for one in found[:20]]
    seen = [resized(photo, *extractor.seen_size(*photo.shape[:2])) for photo in photos]

    def bare() -> None:
        for photo in seen:
            extractor.backbone.features(photo)

    def extracted() -> None:
        for photo in seen:
            extractor.extract(photo)

    bare()
    network, extraction = in_turns(3, bare, extracted)
    passes = whole_passes(found)
    one = passes["one scale, a photo at a time"]["cpu_ms"]
    return {
        "photos": len(found),
        "sizes_seen": sorted({f"{p.shape[1]}x{p.shape[0]}" for p in seen}),
        "network_ms": 1e3 * network / len(seen),
        "extract_ms": 1e3 * extraction / len(seen),
        "ratio": extraction / network,
        "at_most": 1.2,
        "passes": [{"way": way, **figures, "of_one_scale": figures["cpu_ms"] / one} for way, figures in passes.items()],
    }


WAYS = {
    "one scale, a photo at a time": ("mobilenet_v2", ONE_SCALE, False),
    "three scales, a photo at a time": ("mobilenet_v2", SCALES, False),
    "three scales, photos side by side": ("mobilenet_v2", SCALES, True),
    "three scales, side by side, 8 bits": ("mobilenet_v2_int8", SCALES, True),
}
"""Ways of extracting photos from their files: the network, the scales, and whether each photo is one thread's work."""


def whole_passes(found: Sequence[ListedFile], repeats: int = 3) -> dict[str, dict[str, float]]:
    """Return the photos a second and the processor's milliseconds a photo of whole passes: the ways take turns."""
    extractors = {way: (load_extractor(name, scales=scales), 0) for way, (name, scales, _) in WAYS.items()}
    extractors = {way: one.for_threads() if WAYS[way][2] else (one, 0) for way, (one, _) in extractors.items()}
    best: dict[str, dict[str, float]] = {}
    for _ in range(repeats):
        for way, (extractor, threads) in extractors.items():
            wall, processor = time.perf_counter(), time.process_time()
            if threads:
                for _ in extract_ahead(found, extractor.extract, threads=threads, long_side=extractor.long_side):
                    pass
            else:
                for _, photo, _ in extract_ahead(found, lambda _: None, threads=2, long_side=extractor.long_side):
                    extractor.extract(photo.pixels)  # type: ignore[union-attr]
            seconds, taken = time.perf_counter() - wall, time.process_time() - processor
            figures = {"photos_a_second": len(found) / seconds, "cpu_ms": 1e3 * taken / len(found)}
            best[way] = min(best.get(way, figures), figures, key=lambda one: one["cpu_ms"])
    return best


CROP_SIZES = ("as the photo", "as it is", "long side 768", "at least 128", "at least 224", "at least 320")
"""Ways of scaling a query's crop."""


def oxford(folder: Path) -> list[dict[str, Any]]:
    shared = harness.oxford5k()
    task = shared.tasks["Oxford5k"]
    names = json.loads((harness.FOLDER / "names.json").read_text())
    truth = json.loads((harness.FOLDER / "ground_oxford5k.json").read_text())
    extractor = load_extractor()
    index = folder.with_name("oxford5k.manifind")
    made = Index.open(index) if (index / "manifest.json").exists() else Index.create(index, folder, k=50, query_k=50)
    number = {name: i for i, name in enumerate(names)}
    # Photos of the folder that the ground truth does not know are left out; the others are numbered as there.
    image_of = np.repeat(
        [number.get(Path(image.key).stem, -1) for image in made.catalogue.images], made.manifold.layout_.counts
    )
    order = np.argsort(image_of, kind="stable")[np.count_nonzero(image_of < 0) :]
    vectors, image_of = made.manifold.vectors_[order], image_of[order].astype(np.int32)
    plain, regional = NearestImages().fit(vectors, image_of), Manifold(k=50, query_k=50).fit(vectors, image_of)

    def query(key: str, way: str) -> FloatArray:
        photo = read_photo(folder / f"{truth[key]['name']}.jpg").pixels
        height, width = photo.shape[:2]
        x0, y0, x1, y1 = whole_box(truth[key]["box"], width, height)
        crop = np.ascontiguousarray(photo[y0:y1, x0:x1])
        longer, shorter = max(crop.shape[:2]), min(crop.shape[:2])
        fit = min(1.0, 768 / longer)
        scale = {
            "as the photo": min(1.0, 768 / max(height, width)),
            "as it is": fit,
            "long side 768": 768 / longer,
        }.get(way) or min(max(fit, int(way.split()[-1]) / shorter), 768 / longer)
        return extractor.extract(crop, scale=scale).vectors

    rows = [
        {
            "descriptors": "shared, queries as the photo",
            "plain": task.mean_average_precision(
                NearestImages().fit(shared.vectors, shared.image_of).search_many(shared.queries)
            ),
        }
    ]
    for way in CROP_SIZES:
        queries = [query(key, way) for key in sorted(truth)]
        rows.append(
            {
                "descriptors": f"this code, queries {way}",
                "plain": task.mean_average_precision(plain.search_many(queries)),
                "regional": task.mean_average_precision(regional.search_many(queries)),
            }
        )
    return rows


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--oxford", action="store_true")
    parser.add_argument("--count", type=int, default=60)
    arguments = parser.parse_args()
    setting = {"cpu": cpu(), "threads": available_cores()}
    if arguments.oxford:
        if arguments.photos is None or not harness.at_hand():
            print("--oxford needs --photos and the shared ground truth.", file=sys.stderr)
            return 2
        result: dict[str, Any] = {**setting, "rows": oxford(arguments.photos)}
    else:
        with tempfile.TemporaryDirectory() as folder:
            if arguments.photos is None:
                found = sample_photos(Path(folder), arguments.count)
            else:
                files = sorted(arguments.photos.glob("*.jpg"))[: arguments.count]
                found = [ListedFile(file.name, file, file.stat().st_size, 0) for file in files]
            result = {**setting, **cost(found)}
    if arguments.json:
        print(json.dumps(result, indent=1))
        return 0
    rows = result.pop("rows", [])
    passes = result.pop("passes", [])
    for name, value in result.items():
        print(f"{name:28} {value}")
    for one in passes:
        print(
            f"{one['way']:36} {one['photos_a_second']:.1f} photos a second, {one['cpu_ms']:.0f} ms of processor time a "
            f"photo, {one['of_one_scale']:.2f} of one scale's"
        )
    for row in rows:
        figures = "   ".join(f"{name} {row[name]:.2f}" for name in ("plain", "regional") if name in row)
        print(f"{row['descriptors']:36} {figures}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
