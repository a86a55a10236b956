"""How well geometry verifies, how quickly, and in how many bytes.

    python benchmarks/geometry.py [--oxford PHOTOS] [--holidays PHOTOS] [--scenes COUNT] [--every N] [--json]

Limits are chosen on Oxford5k and reported on the others. The photos are not part of the repository:
``docs/verification.md`` says where they are from. What is printed for each collection and kind:

verified   precision and recall of "verified", by how many matching points are asked for, over pairs of a query and a
           photo. Oxford5k: two queries of each building and the first 120 photos by R-match, so that the false ones are
           those that look most alike. Holidays: each group's first photo and its others, and photos of other groups.
           Scenes: each object's queries and all scenes
overlap    intersection over union of the tight box with the truth, of verified scenes
strangers  pairs of photos of different groups of Holidays that are verified, of so many
turned     how many matching points are left when a photo is turned
answers    an index of scenes, searched as it is and with verification: mAP, precision, recall and F1 of the line, the
           overlap of boxes with the truth, and how many queries of noise and even colour are told that there is some
cost       milliseconds of processor time to extract and to verify, and bytes stored

Data: pairs of photos of Oxford5k, Holidays and planted scenes, one thread.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from threadpoolctl import threadpool_limits

import harness
from harness import make_parser
from manifind.boxes import iou
from manifind.demo.scenes import make_scenes
from manifind.geometry import KINDS, Features, PackedFeatures, VerificationConfig, extract, verify, verify_many
from manifind.index import Index, SearchConfig
from manifind.index.storage.local_features import LOCAL_FEATURES, keep
from manifind.io import read_photo
from manifind.types import Box

THRESHOLDS = (4, 5, 6, 7, 8, 10, 15, 20)
"""Of inliers."""
STRANGERS = 10_000
TURNS = (0, 45, 90, 180)


@dataclass(frozen=True)
class Pair:
    query: Path
    box: Box | None
    photo: Path
    shows: bool
    truth: Box | None = None


def oxford(photos: Path, most: int = 120) -> list[Pair]:
    """Pairs of two queries of each building and the photos that R-match finds first, without junk and the query."""
    protocol = harness.oxford5k()
    names = json.loads((harness.FOLDER / "names.json").read_text())
    truth = json.loads((harness.FOLDER / "ground_oxford5k.json").read_text())
    starts = np.searchsorted(protocol.image_of, np.arange(len(names)))
    pairs = []
    for number, key in enumerate(sorted(truth)):
        if number % 5 not in (0, 2):
            continue
        similar = protocol.queries[number] @ np.asarray(protocol.vectors, np.float32).T
        scores = np.maximum.reduceat(similar, starts, axis=1).sum(axis=0)
        asked = truth[key]
        own = asked["name"].removeprefix("oxc1_")
        for image in np.argsort(-scores)[:most].tolist():
            name = names[image]
            if name != own and name not in asked["junk"]:
                shows = name in asked["good"] or name in asked["ok"]
                pairs.append(Pair(photos / f"{own}.jpg", tuple(asked["box"]), photos / f"{name}.jpg", shows))
    return pairs


def holidays(photos: Path, others: int = 5) -> list[Pair]:
    """Pairs of each group's first photo with the group's others, and with some photos of other groups."""
    files = sorted(photos.glob("*.jpg"))
    numbers = np.random.default_rng(0)
    pairs = []
    for query in files:
        if not query.stem.endswith("00"):
            continue
        group = query.stem[:4]
        pairs += [Pair(query, None, file, True) for file in files if file.stem[:4] == group and file != query]
        strangers = [file for file in files if file.stem[:4] != group]
        pairs += [Pair(query, None, strangers[i], False) for i in numbers.choice(len(strangers), others, replace=False)]
    return pairs


def planted(count: int, folder: Path) -> list[Pair]:
    """Pairs of the demo's queries and its scenes."""
    made = make_scenes(folder, scenes=count)
    return [
        Pair(made.queries_folder / q.file, q.box, made.folder / s.file, q.shows == s.shows, s.box)
        for q in made.queries
        for s in made.truth
    ]


class FeatureCache:
    """Features of photos as an index stores them, and of queries, extracted once."""

    def __init__(self, kind: str) -> None:
        self.config = replace(LOCAL_FEATURES, kind=kind)
        self.seconds: list[float] = []
        self._photos: dict[Path, PackedFeatures] = {}
        self._queries: dict[tuple[Path, Box | None], Features] = {}

    def photo(self, file: Path) -> PackedFeatures:
        if file not in self._photos:
            pixels = read_photo(file, long_side=self.config.long_side).pixels
            before = time.process_time()
            self._photos[file] = keep(pixels, self.config)
            self.seconds.append(time.process_time() - before)
        return self._photos[file]

    def query(self, file: Path, box: Box | None) -> Features:
        if (file, box) not in self._queries:
            pixels = read_photo(file).pixels
            self._queries[file, box] = extract(
                pixels,
                box,
                kind=self.config.kind,
                max_keypoints=SearchConfig().local_query.max_keypoints,
            )
        return self._queries[file, box]

    def bytes_mean(self) -> float:
        return float(np.mean([packed.rows.nbytes for packed in self._photos.values()]))


def verified(pairs: Sequence[Pair], kept: FeatureCache) -> dict[str, Any]:
    """Return precision and recall by how many matching points are asked for, and how well boxes meet the truth."""
    fewest = THRESHOLDS[0]
    config = VerificationConfig(min_inliers=fewest, min_weak_inliers=fewest)
    inliers, met, seconds = [], [], []
    for pair in pairs:
        query, photo = kept.query(pair.query, pair.box), kept.photo(pair.photo)
        before = time.process_time()
        verdict = verify(query, photo, pair.box, config=config)
        seconds.append(time.process_time() - before)
        inliers.append(verdict.inliers)
        if pair.shows and pair.truth is not None and verdict.inliers >= VerificationConfig().min_inliers:
            met.append(iou(verdict.instances[0].box, pair.truth))
    shows, found = np.array([pair.shows for pair in pairs]), np.array(inliers)
    table = {
        least: {
            "precision": float(shows[found >= least].mean()) if (found >= least).any() else 1.0,
            "recall": float((found[shows] >= least).mean()),
        }
        for least in THRESHOLDS
    }
    result: dict[str, Any] = {"pairs": len(pairs), "of_them_right": int(shows.sum()), "verified": table}
    result["ms_a_pair"] = 1000 * float(np.mean(seconds))
    return result | ({"overlap": float(np.mean(met))} if met else {})


def strangers(photos: Path, kept: FeatureCache, count: int) -> dict[str, Any]:
    """Return how many pairs of photos of different groups are verified, and which."""
    files = sorted(photos.glob("*.jpg"))
    numbers = np.random.default_rng(1)
    false, done = [], 0
    while done < count:
        query = files[numbers.integers(len(files))]
        others = [files[i] for i in numbers.choice(len(files), 50, replace=False)]
        others = [file for file in others if file.stem[:4] != query.stem[:4]]
        asked = kept.query(query, None)
        verdicts = [verify(asked, kept.photo(file)) for file in others]
        false += [(query.stem, file.stem) for file, one in zip(others, verdicts, strict=True) if one.verified]
        done += len(others)
    return {"pairs": done, "verified": false}


def turned(files: Sequence[Path], kind: str) -> dict[int, float]:
    """Return the mean number of matching points of photos and themselves turned, by degrees."""
    counts: dict[int, list[int]] = {turn: [] for turn in TURNS}
    for file in files:
        photo = Image.fromarray(read_photo(file).pixels)
        photo.thumbnail((640, 640))
        query = extract(np.asarray(photo), kind=kind, max_keypoints=SearchConfig().local_query.max_keypoints)
        for turn in TURNS:
            made = np.asarray(photo.rotate(turn, Image.Resampling.BICUBIC, expand=True))
            image = extract(made, kind=kind, max_keypoints=LOCAL_FEATURES.max_keypoints)
            counts[turn].append(verify(query, image).inliers)
    return {turn: float(np.mean(some)) for turn, some in counts.items()}


def cost(pairs: Sequence[Pair], kept: FeatureCache, count: int = 50) -> dict[str, float]:
    """Return milliseconds of processor time to verify 50 photos of one query: the median of queries."""
    seconds = []
    for query in list(dict.fromkeys((pair.query, pair.box) for pair in pairs))[:10]:
        files = [pair.photo for pair in pairs if (pair.query, pair.box) == query][:count]
        asked = kept.query(*query)
        photos = [kept.photo(file) for file in files]
        before = time.process_time()
        verify_many(asked, photos, query[1])
        seconds.append((time.process_time() - before) / len(files) * count)
    sizes = [packed.rows.nbytes for packed in kept._photos.values()]
    return {
        "ms_to_extract_a_photo": 1000 * float(np.mean(kept.seconds)),
        "ms_to_verify_50_median": 1000 * float(np.median(seconds)),
        "ms_to_verify_50_worst": 1000 * float(np.max(seconds)),
        "bytes_mean": kept.bytes_mean(),
        "bytes_most": float(np.max(sizes)),
    }


def answers(count: int, folder: Path, every: int = 1) -> dict[str, Any]:
    """Return what verification does to the answers of an index of scenes, for every so many queries."""
    made = make_scenes(folder / "more", scenes=count, seed=1)
    truth = {scene.file: scene for scene in made.truth}
    index = Index.create(folder / "scenes.manifind", made.folder)
    rows: dict[str, list[list[float]]] = {"regions": [], "verified": []}
    boxes: dict[str, list[float]] = {"regions": [], "verified": []}
    for query in made.queries[::every]:
        pixels = read_photo(made.queries_folder / query.file).pixels
        plain = index.search(pixels, query.box, top=None, verify=0)
        for name, answer in (
            ("regions", plain),
            ("verified", index.search(pixels, query.box, top=None, expand=False)),
        ):
            right = np.array([truth[hit.key].shows == query.shows for hit in answer])
            above = right[: answer.n_matches]
            precision = np.cumsum(right) / np.arange(1, len(right) + 1)
            rows[name].append(
                [
                    float(precision[right].mean()),
                    float(above.mean()) if len(above) else 1.0,
                    float(above.sum() / right.sum()),
                    float(2 * above.sum() / (len(above) + right.sum())),
                ]
            )
            for hit in answer[: answer.n_matches]:
                known = truth[hit.key]
                if known.shows == query.shows and known.box is not None and hit.box is not None:
                    boxes[name].append(float(iou(hit.box, known.box)))
    numbers = np.random.default_rng(0)
    nothing = [numbers.integers(0, 256, (300, 400, 3), dtype=np.uint8) for _ in range(10)]
    nothing += [np.broadcast_to(colour, (300, 400, 3)).copy() for colour in numbers.integers(0, 256, (10, 3), np.uint8)]
    told = [bool(index.search(one, top=None, expand=False).n_matches) for one in nothing[::every]]
    names = ("map", "line_precision", "line_recall", "line_f1")
    result: dict[str, Any] = {
        name: dict(zip(names, np.mean(some, axis=0).tolist(), strict=True)) | {"overlap": float(np.mean(boxes[name]))}
        for name, some in rows.items()
    }
    return result | {"told_some_of_noise_and_even_colour": f"{sum(told)} of {len(told)}"}


def measure(arguments: argparse.Namespace, kind: str, scenes: Path) -> Iterator[tuple[str, Any]]:
    kept = FeatureCache(kind)
    if arguments.oxford:
        pairs = oxford(arguments.oxford)
        yield "Oxford5k (limits chosen here)", verified(pairs[:: arguments.every], kept)
        yield "cost on Oxford5k", cost(pairs, kept)
    if arguments.holidays:
        yield "Holidays", verified(holidays(arguments.holidays)[:: arguments.every], kept)
        yield "strangers of Holidays", strangers(arguments.holidays, kept, arguments.strangers)
        yield "turned", turned(sorted(arguments.holidays.glob("*00.jpg"))[:20], kind)
    if arguments.scenes:
        yield "scenes", verified(planted(arguments.scenes, scenes)[:: arguments.every], kept)
        if kind == "sift":
            yield "answers", answers(arguments.scenes, scenes, arguments.every)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--oxford", type=Path, help="the folder of Oxford5k's photos")
    parser.add_argument("--holidays", type=Path, help="the folder of Holidays' photos")
    parser.add_argument("--scenes", type=int, default=0, help="how many of the demo's scenes")
    parser.add_argument("--every", type=int, default=1, help="of the pairs and queries, every so many")
    parser.add_argument("--strangers", type=int, default=STRANGERS)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    arguments = parser.parse_args()
    if not (arguments.oxford or arguments.holidays or arguments.scenes):
        sys.exit("nothing to measure on; give --scenes 100, or folders of photos.")
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        for kind in arguments.kinds:
            for name, measured in measure(arguments, kind, Path(folder)):
                result.setdefault(kind, {})[name] = measured
                if not arguments.json:
                    print(kind, name, json.dumps(measured), flush=True)
    if arguments.json:
        json.dump(result, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
