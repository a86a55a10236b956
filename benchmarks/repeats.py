"""How well what repeats is found: on planted scenes, on photos named by what they show, on Oxford5k's descriptors.

    python benchmarks/repeats.py [--scenes OUT] [--holidays INDEX] [--json]

OUT is the folder that `manifind demo --out OUT` filled, INDEX an index of INRIA Holidays, whose names tell the scene.
The descriptors of Oxford5k (``harness.py``; n = 106,887, d = 512, k = 100) count where they are at hand. A group is of
what most of its photos show; photos of which the truth says nothing count against it. The constants of
`manifind.repeats` were chosen on the scenes and on Holidays, Oxford5k is what is reported.

Data: as named, an index's own k; Oxford5k k = 100; all threads.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import harness
from harness import Row, make_parser, print_results
from manifind import Index, Manifold
from manifind.demo.scenes import make_scenes
from manifind.repeats import Group, find_groups, near_duplicates

FIRST = 30
PURE = 0.6


def judge(title: str, groups: Sequence[Group], labels: Sequence[str | None], seconds: float) -> Row:
    """Return of how many different things the first groups are, and how pure they are."""
    things, purities = set(), []
    for group in groups[:FIRST]:
        shown = Counter(labels[image] for image in group.images.tolist())
        label, count = max(shown.items(), key=lambda one: (one[0] is not None, one[1]))
        if label is not None and count >= PURE * len(group):
            things.add(label)
            purities.append(count / len(group))
    return {
        "collection": title,
        "groups": len(groups),
        "of the truth": len(purities),
        "things": len(things),
        "purity": float(np.mean(purities)) if purities else None,
        "without a label": sum(all(labels[i] is None for i in group.images.tolist()) for group in groups[:FIRST]),
        "cpu s": seconds,
    }


def found(manifold: Manifold, boxes: np.ndarray) -> tuple[list[Group], float]:
    began = time.process_time()
    same = near_duplicates(manifold.neighbours_, boxes, manifold.layout_)
    groups = find_groups(manifold.neighbours_, manifold.vectors_, boxes, manifold.layout_, same=same)
    return groups, time.process_time() - began


def oxford5k() -> Row:
    data = harness.oxford5k()
    names = json.loads((harness.FOLDER / "names.json").read_text())
    truth = json.loads((harness.FOLDER / "ground_oxford5k.json").read_text())
    building = {
        name: query.rpartition("_")[0]
        for kinds in (("junk",), ("good", "ok"))  # a photo that shows one building well may show another badly
        for query, one in truth.items()
        for kind in kinds
        for name in one.get(kind, ())
    }
    manifold = Manifold(k=100, query_k=50).fit(data.vectors, data.image_of)
    groups, seconds = found(manifold, np.load(harness.FOLDER / "boxes.npy").astype(np.float32))
    return judge("Oxford5k", groups, [building.get(name) for name in names], seconds)


def photos(title: str, index: Index, truth: Mapping[str, str | None] | None) -> Row:
    keys = [one.key for one in index.catalogue.images]
    labels = [truth[key] if truth else key[:4] if key[:6].isdigit() else None for key in keys]
    groups, seconds = found(index.manifold, np.asarray(index.boxes))
    return judge(title, groups, labels, seconds)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--scenes", type=Path, help="the folder that `manifind demo --out` filled")
    parser.add_argument("--holidays", type=Path, help="an index of Holidays")
    given = parser.parse_args()
    rows = []
    if given.scenes:
        index = Index.open(given.scenes / "scenes.manifind")
        made = make_scenes(given.scenes / "scenes", scenes=len(index))
        rows.append(photos("scenes (chosen on)", index, {one.file: one.shows for one in made.truth}))
    if given.holidays:
        rows.append(photos("Holidays (chosen on)", Index.open(given.holidays), None))
    if harness.at_hand():
        rows.append(oxford5k())
    if not rows:
        sys.exit("neither Oxford5k nor --scenes nor --holidays is at hand; run `manifind demo --out out` first.")
    print_results({"first": FIRST, "purity of": PURE}, rows, as_json=given.json)


if __name__ == "__main__":
    main()
