"""How well boxes proposed for a point fit the object there.

    python benchmarks/proposals.py [--seed 7] [--scenes 120] [--json]
    python benchmarks/proposals.py --truth truth.json --photos photos/
    python benchmarks/proposals.py --fit

By default on planted scenes whose object is seen for the most part: a point in the middle of each object and two at
random places in its box. --truth takes a file of ``benchmarks/clutter.py``, or one of photos and boxes,
``{"photo.jpg": [x0, y0, x1, y1]}``. --fit prints weights found on scenes of seed 0 and 3. What is printed of all
points, of those in the middle and of the others:

first     median intersection over union of the likeliest box with the true one
over_half part of the points whose likeliest box is over 0.5
of_three  median of the best of the three boxes, and the part of points where it is over 0.5

Data: planted scenes (three points an object), or photos with boxes; one thread.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness import make_parser, print_results
from manifind.boxes import iou
from manifind.demo.scenes import make_scenes
from manifind.features import box_proposals
from manifind.io import read_photo
from manifind.types import Box

FITTED = (0, 3)
VISIBLE = 0.6
"""Part of an object that is seen in the scenes that are used."""
SAMPLE = 700
"""Boxes of each point that weights are fitted on."""


def planted(folder: Path, scenes: int, seed: int) -> list[tuple[Path, Box]]:
    """Write planted scenes; return each with the box of its object."""
    made = make_scenes(folder, scenes=scenes, seed=seed)
    return [
        (made.folder / scene.file, scene.box)
        for scene in made.truth
        if scene.box is not None and scene.visible > VISIBLE
    ]


def from_file(truth: Path, photos: Path) -> list[tuple[Path, Box]]:
    """Return photos with the box of one object each."""
    read = json.loads(truth.read_text())
    if "queries" in read:  # two photos of each object
        shown = [one for query in read["queries"] for one in query["positives"][:2]]
        return [(photos / one["image"], tuple(one["box"])) for one in shown]
    return [(photos / name, tuple(box)) for name, box in read.items()]


def points(box: Box, rng: np.random.Generator) -> Iterator[tuple[float, float]]:
    """Return the middle of a box and two random places in it."""
    x0, y0, x1, y1 = box
    yield (x0 + x1) / 2, (y0 + y1) / 2
    for _ in range(2):
        yield x0 + rng.uniform(0.15, 0.85) * (x1 - x0), y0 + rng.uniform(0.15, 0.85) * (y1 - y0)


def measure(shown: list[tuple[Path, Box]]) -> list[dict[str, Any]]:
    """Propose boxes for points on all objects."""
    rng = np.random.default_rng(1)
    fits = []
    for file, box in shown:
        pixels = read_photo(file).pixels
        for x, y in points(box, rng):
            overlaps = [float(iou(one, box)) for one in box_proposals.propose_boxes(pixels, x, y)] or [0.0]
            fits.append((overlaps[0], max(overlaps)))
    columns = np.array(fits).reshape(-1, 3, 2)
    rows = []
    for name, part in (("all", columns), ("middle", columns[:, :1]), ("elsewhere", columns[:, 1:])):
        first, best = part[..., 0].ravel(), part[..., 1].ravel()
        row = {
            "points": name,
            "n": len(first),
            "first": float(np.median(first)),
            "over_half": float(np.mean(first > 0.5)),
        }
        rows.append({**row, "of_three": float(np.median(best)), "of_three_over_half": float(np.mean(best > 0.5))})
    return rows


def fit(shown: list[tuple[Path, Box]]) -> dict[str, float]:
    """Return weights by least squares of the intersection over union."""
    rng = np.random.default_rng(1)
    names = list(box_proposals.WEIGHTS)
    measured, overlaps = [], []
    for file, box in shown:
        pixels = read_photo(file).pixels
        copy = box_proposals.shrink(pixels)
        height, width = pixels.shape[:2]
        scale = np.array([copy.shape[1] / width, copy.shape[0] / height])
        for x, y in points(box, rng):
            point = (int(x * scale[0]), int(y * scale[1]))
            boxes = box_proposals.candidate_boxes(copy.shape[:2], point)
            true = np.array(box) * np.tile(scale, 2)
            overlap = iou(boxes, true)
            kept = np.concatenate([rng.permutation(len(boxes))[: SAMPLE - 100], overlap.argsort()[-100:]])
            features = box_proposals.measure_boxes(copy, boxes[kept], point)
            measured.append(np.stack([features[name] for name in names], axis=1))
            overlaps.append(overlap[kept])
    table = np.concatenate(measured)
    with_constant = np.concatenate([table, np.ones((len(table), 1))], axis=1)
    solution = np.linalg.lstsq(with_constant, np.concatenate(overlaps), rcond=None)[0]
    return {name: round(float(weight), 5) for name, weight in zip(names, solution, strict=False)}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--scenes", type=int, default=120)
    parser.add_argument("--truth", type=Path, help="a file of boxes, instead of planted scenes")
    parser.add_argument("--photos", type=Path, help="the folder that --truth names photos of")
    parser.add_argument("--fit", action="store_true", help="print weights instead")
    options: argparse.Namespace = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.fit:
            seeds = [planted(Path(folder) / str(seed), options.scenes, seed) for seed in FITTED]
            print_results({}, [fit([one for shown in seeds for one in shown])], as_json=options.json)
            return
        if options.truth:
            shown = from_file(options.truth, options.photos or options.truth.parent)
        else:
            shown = planted(Path(folder), options.scenes, options.seed)
        print_results({"photos": len(shown)}, measure(shown), as_json=options.json)


if __name__ == "__main__":
    main()
