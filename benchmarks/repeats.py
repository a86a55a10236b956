"""How well what repeats is found: on Oxford5k's descriptors, on planted scenes, on photos named by what they show.

    python benchmarks/repeats.py                       # Oxford5k, if its descriptors are at hand
    python benchmarks/repeats.py --scenes out          # what `manifind demo --out out` made
    python benchmarks/repeats.py --holidays FOLDER     # an index of INRIA Holidays, whose names tell the scene

A group is of what most of its photos show; photos of which the truth says nothing count against it. The constants of
`manifind.repeats` were chosen on the scenes and on Holidays, Oxford5k is what is reported.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from manifind import Index, Manifold
from manifind.repeats import Group, find_groups, near_duplicates

FIRST = 30
PURE = 0.6


def told(groups: Sequence[Group], labels: Sequence[str | None], title: str, seconds: float) -> None:
    """Print how many different things the first groups are of, and how pure they are."""
    things, purities = set(), []
    for group in groups[:FIRST]:
        shown = Counter(labels[image] for image in group.images.tolist())
        label, count = max(shown.items(), key=lambda one: (one[0] is not None, one[1]))
        if label is not None and count >= PURE * len(group):
            things.add(label)
            purities.append(count / len(group))
    unknown = sum(all(labels[image] is None for image in group.images.tolist()) for group in groups[:FIRST])
    print(
        f"{title}: {len(groups)} groups in {seconds:.1f} s of CPU; among the first {FIRST}, {len(purities)} are of "
        f"{len(things)} things that the truth names, with a purity of {np.mean(purities):.3f}, and {unknown} show only "
        f"photos of which it says nothing: {', '.join(sorted(things))}"
    )


def found(manifold: Manifold, boxes: np.ndarray) -> tuple[list[Group], float]:
    began = time.process_time()
    same = near_duplicates(manifold.neighbours_, boxes, manifold.layout_)
    groups = find_groups(manifold.neighbours_, manifold.vectors_, boxes, manifold.layout_, same=same)
    return groups, time.process_time() - began


def oxford5k() -> None:
    from harness import FOLDER, oxford5k

    data = oxford5k()
    names = json.loads((FOLDER / "names.json").read_text())
    truth = json.loads((FOLDER / "ground_oxford5k.json").read_text())
    building = {
        name: query.rpartition("_")[0]
        for kinds in (("junk",), ("good", "ok"))  # a photo that shows one building well may show another badly
        for query, one in truth.items()
        for kind in kinds
        for name in one.get(kind, ())
    }
    manifold = Manifold(k=100, query_k=50).fit(data.vectors, data.image_of)
    groups, seconds = found(manifold, np.load(FOLDER / "boxes.npy").astype(np.float32))
    told(groups, [building.get(name) for name in names], f"Oxford5k, {len(data.vectors):,} regions", seconds)


def photos(path: Path, truth: dict[str, str | None] | None, title: str) -> None:
    index = Index.open(path)
    keys = [one.key for one in index.catalogue.images]
    labels = [truth[key] if truth else key[:4] if key[:6].isdigit() else None for key in keys]
    groups, seconds = found(index.manifold, np.asarray(index.boxes))
    told(groups, labels, title, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=Path, help="folder of the demo, with its index beside the photos")
    parser.add_argument("--holidays", type=Path, help="an index of Holidays")
    given = parser.parse_args()
    if given.scenes:
        said = json.loads((given.scenes / "truth.json").read_text())["scenes"]
        photos(given.scenes / "photos.manifind", {one["file"]: one["shows"] for one in said}, "scenes")
    if given.holidays:
        photos(given.holidays, None, "Holidays")
    if not (given.scenes or given.holidays):
        oxford5k()


if __name__ == "__main__":
    main()
