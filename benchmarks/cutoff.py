"""How far the line can be trusted: on a collection whose truth is known, and for queries that have nothing in it.

    python benchmarks/cutoff.py INDEX --truth TRUTH [--queries FOLDER] [--strangers FOLDER ...] [--asked N] [--most 40]
                              [--made 20] [--verify N] [--no-expand] [--json]

INDEX is searched as `Index.search` does it by default; with ``--verify 0`` geometry is not asked. TRUTH is any that
``manifind evaluate --truth`` reads; photos of queries are looked for in the index, and those outside it in FOLDER.
Strangers' folders hold photos of other things. A query's own photo, junk, and photos that the truth does not list count
neither for nor against. What is printed:

line       over queries that have something to find: precision above the line (of queries that were told some), recall
           and F1; the F1 of the best line that the same ranking would have allowed; how many queries were told that
           there is nothing
verified   precision and recall of *verified*, over all photos of all queries
nothing    how many strangers were told that there is something, by kind: noise, even colours, gradients, and of each
           folder whole photos, the middle of photos, and the evenest ninth of photos (sky, walls)
boxes      where the truth has boxes, intersection over union of the right photos' boxes with it: the tight box and the
           box round the outline of verified photos; the box of others above the line, and of others among the first 50

Data: an index of photos by its own parameters, all threads.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from harness import make_parser
from manifind.boxes import iou
from manifind.evaluation.formats import read_truth
from manifind.evaluation.protocol import Protocol, name_lookup
from manifind.index import Index
from manifind.index.search.results import Hit, SearchResult
from manifind.io import ListedFile, key_to_path, list_photos, read_photo
from manifind.types import Box

Pixels = npt.NDArray[np.uint8]
LONG_SIDE = 1024
"""Strangers' photos are read at this size."""
FIRST = 50
"""Among how many photos the boxes of those that are neither verified nor above the line are looked at."""


@dataclass(frozen=True)
class How:
    """How searches are made."""

    verify: int | None
    """How many photos geometry looks at first; None for as many as usual."""
    expand: bool


@dataclass
class Counts:
    """What one query was told."""

    name: str
    positives: int
    above: int
    right: int
    """Positives above the line."""
    best_f1: float
    verified: int
    verified_right: int
    boxes: dict[str, list[float]] = field(default_factory=dict)

    @property
    def f1(self) -> float:
        return 2 * self.right / (self.above + self.positives)


def counted(result: SearchResult, name: str, positives: set[str], known: set[str], truth: dict[str, Box]) -> Counts:
    """Count what stands above the line; `known` are the keys that count."""
    keys = [result.retrieval.snapshot.catalogue[image].key for image in result.images.tolist()]
    places = [place for place, key in enumerate(keys) if key in known]
    right = np.array([keys[place] in positives for place in places], bool)
    above = np.array(places) < (result.n_matches or 0)
    verified = np.array(places) < (result.n_verified or 0)
    best = (2 * np.cumsum(right) / (np.arange(1, len(right) + 1) + len(positives))).max(initial=0.0)
    found = Counts(
        name,
        len(positives),
        int(above.sum()),
        int((above & right).sum()),
        float(best),
        int(verified.sum()),
        int((verified & right).sum()),
    )
    for i, place in enumerate(places):
        box = truth.get(keys[place])
        if right[i] and box is not None and (above[i] or verified[i] or i < FIRST):
            for label, value in met(result[place], box, result):
                found.boxes.setdefault(label, []).append(value)
    return found


def met(hit: Hit, truth: Box, result: SearchResult) -> Iterator[tuple[str, float]]:
    """Yield how well the boxes of a hit meet the truth, each with what kind of box it is."""
    if hit.box is None:
        return
    if hit.outline is not None:
        record = result.retrieval.snapshot.catalogue[hit.image]
        size = np.array([record.width, record.height])
        corners = np.clip(np.array(hit.outline), 0, size)
        yield "verified_tight_box", float(iou(hit.box, truth))
        yield "verified_round_the_outline", float(iou([*corners.min(axis=0), *corners.max(axis=0)], truth))
    elif hit.is_match:
        yield "others_above_the_line", float(iou(hit.box, truth))
    else:
        yield "others_of_the_first", float(iou(hit.box, truth))


class Known:
    """An index with a truth about it, and the files of the queries."""

    def __init__(self, index: Index, truth: Path, queries: Path | None) -> None:
        self.index = index
        photos = index.catalogue.images
        self._keys = [one.key for one in photos]
        copies = {copy: one.key for one in photos for copy in index.catalogue.copies_of(one.sha256)}
        self.protocol: Protocol = read_truth(truth, self._keys, copies=copies)
        find = name_lookup(self.protocol.images)
        self.key_of = {place: key for key in self._keys if (place := find(key)) is not None}
        self._find, self._folder = name_lookup(self._keys), queries

    def file(self, name: str) -> Path:
        """Return the file of a query's photo."""
        if self._folder is not None and (self._folder / name).is_file():
            return self._folder / name
        number = self._find(name)
        if number is None:
            sys.exit(f"{name} is neither in the index nor below --queries; give the folder that holds it.")
        return key_to_path(self.index.root, self._keys[number])

    def keys(self, images: Sequence[int]) -> set[str]:
        return {self.key_of[int(image)] for image in images if int(image) in self.key_of}


def told(known: Known, how: How, most: int | None) -> dict[str, list[Counts]]:
    """Search for every query, or for so many evenly spaced, and count by task."""
    found: dict[str, list[Counts]] = {}
    queries = known.protocol.queries
    for number in spaced(range(len(queries)), most):
        query = queries[number]
        file = known.file(query.image)
        result = known.index.search(file, query.box, top=None, verify=how.verify, expand=how.expand)
        itself = known.index.find(file)
        own = set() if itself is None else {itself.key}
        boxes = known.protocol.objects[number] if known.protocol.objects else {}
        truth = {known.key_of[image]: box for image, box in boxes.items() if image in known.key_of}
        for task in known.protocol.tasks:
            positives = known.keys(task.positives[number].tolist()) - own
            counting = set(known.key_of.values()) - own - known.keys(task.junk[number].tolist())
            if positives:
                counts = counted(result, query.name, positives, counting, truth)
                found.setdefault(known.protocol.column(task), []).append(counts)
    return found


def spaced(some: Sequence[Any], most: int | None) -> list[Any]:
    """Return so many of them, evenly spaced."""
    if most is None or most >= len(some):
        return list(some)
    return [some[i] for i in np.linspace(0, len(some) - 1, most).round().astype(int)]


def strangers(folders: Sequence[Path], most: int, made: int = 20) -> Iterator[tuple[str, Pixels, Box | None]]:
    """Yield queries that have nothing in the collection: what kind of query each is, its photo and its box."""
    rng = np.random.default_rng(0)
    for _ in range(made):
        yield "noise", rng.integers(0, 256, (300, 400, 3), dtype=np.uint8), None
        yield "even colours", np.broadcast_to(rng.integers(0, 256, 3, dtype=np.uint8), (300, 400, 3)).copy(), None
        few = Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8))
        yield "gradients", np.asarray(few.resize((400, 300), Image.Resampling.BICUBIC)), None
    for folder in folders:
        files = [one.path for one in list_photos(folder) if isinstance(one, ListedFile)]
        for file in spaced(files, most):
            pixels = read_photo(file, long_side=LONG_SIDE).pixels
            height, width = pixels.shape[:2]
            yield f"{folder.name}, whole", pixels, None
            yield f"{folder.name}, the middle", pixels, (width / 4, height / 4, 3 * width / 4, 3 * height / 4)
            yield f"{folder.name}, the evenest", pixels, evenest(pixels)


def evenest(pixels: Pixels) -> Box:
    """Return the ninth of a photo in which the brightness changes least."""
    grey = pixels.mean(axis=2)
    change = np.abs(np.diff(grey, axis=0))[:, :-1] + np.abs(np.diff(grey, axis=1))[:-1]
    height, width = (side // 3 for side in change.shape)
    parts = [(x, y) for y in range(0, 2 * height + 1, height // 2) for x in range(0, 2 * width + 1, width // 2)]
    x, y = min(parts, key=lambda at: change[at[1] : at[1] + height, at[0] : at[0] + width].mean())
    return float(x), float(y), float(x + width), float(y + height)


def summed_up(counts: Sequence[Counts]) -> dict[str, Any]:
    """Return the figures of the line, of verification and of boxes."""
    some = [one for one in counts if one.above]
    right = sum(one.verified_right for one in counts)
    boxes: dict[str, list[float]] = {}
    for one in counts:
        for label, values in one.boxes.items():
            boxes.setdefault(label, []).extend(values)
    return {
        "line": {
            "queries": len(counts),
            "precision": float(np.mean([one.right / one.above for one in some])) if some else None,
            "recall": float(np.mean([one.right / one.positives for one in counts])),
            "f1": float(np.mean([one.f1 for one in counts])),
            "best_f1": float(np.mean([one.best_f1 for one in counts])),
            "told_none": len(counts) - len(some),
        },
        "verified": {
            "photos": sum(one.verified for one in counts),
            "precision": right / max(1, sum(one.verified for one in counts)),
            "recall": right / sum(one.positives for one in counts),
        },
        "boxes": {label: {"photos": len(v), "overlap": float(np.mean(v))} for label, v in sorted(boxes.items())},
        "told_none": [one.name for one in counts if not one.above],
    }


def nothing(index: Index, some: Iterable[tuple[str, Pixels, Box | None]], how: How) -> dict[str, dict[str, int]]:
    """Return how many strangers of each kind were told that there is something."""
    found: dict[str, dict[str, int]] = {}
    for kind, pixels, box in some:
        result = index.search(pixels, box, top=None, verify=how.verify, expand=how.expand)
        mine = found.setdefault(kind, {"strangers": 0, "told_some": 0})
        mine["strangers"] += 1
        mine["told_some"] += bool(result.n_matches)
    return found


def show(result: dict[str, Any]) -> None:
    for name, mine in result["tasks"].items():
        line, verified = mine["line"], mine["verified"]
        precision = "–" if line["precision"] is None else f"{line['precision']:.3f}"
        print(f"{name}: {line['queries']} queries")
        print(f"    line      precision {precision}, recall {line['recall']:.3f}, F1 {line['f1']:.3f}", end="")
        print(f" (the best line: {line['best_f1']:.3f}), told none {line['told_none']}")
        print(f"    verified  precision {verified['precision']:.3f}, recall {verified['recall']:.3f}", end="")
        print(f", {verified['photos']} photos")
        for label, value in mine["boxes"].items():
            print(f"    box       {label.replace('_', ' ')}: {value['overlap']:.3f} ({value['photos']} photos)")
    for kind, value in result["nothing"].items():
        print(f"    nothing   {kind}: {value['told_some']} of {value['strangers']} told some")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--queries", type=Path, help="the folder of queries' photos that are not in the index")
    parser.add_argument("--strangers", type=Path, nargs="+", default=[], help="folders of photos of other things")
    parser.add_argument("--asked", type=int, help="how many queries, evenly spaced; all by default")
    parser.add_argument("--most", type=int, default=40, help="how many photos of each strangers' folder")
    parser.add_argument("--made", type=int, default=20, help="how many strangers of each kind that is no photo")
    parser.add_argument("--verify", type=int, help="how many photos geometry looks at; 0 for none")
    parser.add_argument("--no-expand", action="store_true", help="leave query expansion out")
    args = parser.parse_args()
    index, how = Index.open(args.index), How(args.verify, not args.no_expand)
    counts = told(Known(index, args.truth, args.queries), how, args.asked)
    result = {
        "tasks": {name: summed_up(some) for name, some in counts.items()},
        "nothing": nothing(index, strangers(args.strangers, args.most, args.made), how),
    }
    if args.json:
        json.dump(result, sys.stdout, indent=1)
    else:
        show(result)


if __name__ == "__main__":
    main()
