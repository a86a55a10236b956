"""Make a collection of small objects in clutter, and the truth about it, from folders of photos.

    python benchmarks/clutter.py OUT --things FOLDER [FOLDER ...] --behind FOLDER [FOLDER ...]
                                 [--objects 50] [--photos 1200] [--seed 0]

Photos of things before something even and white give cut-outs: what is not joined with the border by white. Some of
them, each of a folder of its own as far as there are folders, are the objects that are looked for, one query each; the
others lie about as clutter. A photo is set before another photo and holds 4 to 8 things, small, turned, tilted, and
half of the time partly hidden by one another; half of the photos hold one object. Queries are set before photos that
nothing else is set before. OUT gets ``photos/``, ``queries/`` and ``truth.json``, which ``benchmarks/cutoff.py`` and
``manifind evaluate --truth`` read: each positive has the box round the object's mask, hidden parts included.

Data: folders of photos of your own.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageEnhance, ImageFilter
from scipy import ndimage

FRAMES = (640, 480), (480, 640)
SIZES = 0.015, 0.08
"""Least and largest part of a photo that an object takes."""
QUERY_SIZE = 0.15
ENLARGED = 1.5
"""How much larger than it was cut out a thing may become."""
THINGS = 4, 8
TURN, TILT = 60.0, 0.1
WHITE = 235
SUFFIXES = {".jpg", ".jpeg", ".png"}
Corners = npt.NDArray[np.float64]


def cut_out(file: Path) -> Image.Image | None:
    """Return a thing with its mask; None for a photo that is no thing before something white."""
    with Image.open(file) as opened:
        photo = opened.convert("RGB")
    if min(photo.size) < 100:
        return None
    pale = (np.asarray(photo).min(axis=2) >= WHITE).astype(np.uint8)
    border = np.concatenate([pale[0], pale[-1], pale[:, 0], pale[:, -1]])
    if border.mean() < 0.9:
        return None
    joined, _ = ndimage.label(np.pad(pale, 1, constant_values=1))
    mask = Image.fromarray(255 * (joined[1:-1, 1:-1] != joined[0, 0]).astype(np.uint8))
    mask = mask.filter(ImageFilter.MedianFilter(5)).filter(ImageFilter.MinFilter(3))
    box = mask.getbbox()
    if box is None or not 0.15 < np.asarray(mask).mean() / 255 < 0.85:
        return None
    photo.putalpha(mask)
    thing = photo.crop(box)
    grey = np.asarray(thing.convert("L"), np.float64)[np.asarray(thing.getchannel("A")) > 0]
    return thing if grey.std() > 25 else None


def files_of(folders: Sequence[Path]) -> list[Path]:
    return sorted(file for folder in folders for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES)


def cut_outs(folders: Sequence[Path], rng: np.random.Generator, count: int) -> list[Image.Image]:
    """Return so many things, of as many different folders as can be."""
    by_folder: dict[Path, list[Path]] = {}
    for file in files_of(folders):
        by_folder.setdefault(file.parent, []).append(file)
    queues = [[some[i] for i in rng.permutation(len(some))] for some in by_folder.values()]
    found: list[Image.Image] = []
    while queues and len(found) < count:
        for queue in list(queues):
            thing = None
            while queue and thing is None:
                thing = cut_out(queue.pop())
            if thing is None:
                queues.remove(queue)
            else:
                found.append(thing)
    return found[:count]


def lay(
    picture: Image.Image, thing: Image.Image, rng: np.random.Generator, size: float, turn: float, tilt: float
) -> Any:
    """Paste a thing that takes this part of the picture, somewhere within it, and return what it covers, 0 to 1."""
    area = float((np.asarray(thing.getchannel("A")) > 127).sum())
    scale = min(ENLARGED, math.sqrt(size * picture.width * picture.height / area))
    scale = min(scale, 0.8 * min(picture.size) / max(thing.size))
    small = thing.resize(
        (max(8, round(scale * thing.width)), max(8, round(scale * thing.height))), Image.Resampling.LANCZOS
    )
    sides = np.array(small.size, np.float64)
    corners = sides * np.array([(0, 0), (1, 0), (1, 1), (0, 1)])
    angle = math.radians(rng.uniform(-turn, turn))
    turned = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    target = (corners + tilt * sides * rng.uniform(-1, 1, (4, 2))) @ turned
    target -= target.min(axis=0)
    room = np.array(picture.size) - target.max(axis=0)
    target += rng.uniform(0, 1, 2) * np.maximum(room, 0)
    layer = small.transform(
        picture.size, Image.Transform.PERSPECTIVE, homography(target, corners), Image.Resampling.BICUBIC
    )
    light = rng.uniform(0.75, 1.25)
    picture.paste(ImageEnhance.Brightness(layer.convert("RGB")).enhance(light), (0, 0), layer.getchannel("A"))
    return np.asarray(layer.getchannel("A"), np.float64) / 255


def homography(source: Corners, target: Corners) -> tuple[float, ...]:
    """Return the eight numbers of the projective map that takes four points to four others."""
    rows, values = [], []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    return tuple(np.linalg.solve(np.array(rows), np.array(values)).tolist())


def setting(files: Sequence[Path], rng: np.random.Generator) -> Image.Image:
    """Return a part of a photo as large as a frame."""
    frame = FRAMES[int(rng.integers(2))]
    with Image.open(files[int(rng.integers(len(files)))]) as opened:
        opened.draft("RGB", (1280, 1280))
        photo = opened.convert("RGB")
    scale = max(frame[0] / photo.width, frame[1] / photo.height) * rng.uniform(1, 1.3)
    photo = photo.resize((math.ceil(scale * photo.width), math.ceil(scale * photo.height)), Image.Resampling.LANCZOS)
    x, y = (int(rng.integers(side - part + 1)) for side, part in zip(photo.size, frame, strict=True))
    return photo.crop((x, y, x + frame[0], y + frame[1]))


def size_of(rng: np.random.Generator) -> float:
    return float(np.exp(rng.uniform(*np.log(SIZES))))


def photographed(picture: Image.Image, rng: np.random.Generator, file: Path) -> None:
    """Write the picture as a camera would take it."""
    lit = ImageEnhance.Contrast(ImageEnhance.Brightness(picture).enhance(rng.uniform(0.7, 1.3))).enhance(
        rng.uniform(0.8, 1.2)
    )
    blurred = np.asarray(lit.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.2))), np.float64)
    noisy = blurred + rng.normal(scale=rng.uniform(0, 6), size=(*blurred.shape[:2], 1))
    Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(file, quality=int(rng.integers(50, 93)))


def box_round(cover: npt.NDArray[np.float64]) -> list[int]:
    rows, columns = np.nonzero(cover >= 0.5)
    return [int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1]


def make(out: Path, things: Sequence[Path], behind: Sequence[Path], objects: int, photos: int, seed: int) -> int:
    """Write everything and return how many things lie about as clutter."""
    rng = np.random.default_rng(seed)
    found = cut_outs(things, rng, max(3 * objects, objects + 10))
    if len(found) < objects + 10:
        sys.exit(f"only {len(found)} things were cut out; give more --things, or fewer --objects.")
    wanted, clutter = found[:objects], found[objects:]
    files = [files_of(behind)[i] for i in rng.permutation(len(files_of(behind)))]
    # No photo is set before what a query is set before: it would be verified for that.
    apart, files = files[:objects], files[objects:] or files
    for name in ("photos", "queries"):
        (out / name).mkdir(parents=True, exist_ok=True)
    positives: list[list[dict[str, Any]]] = [[] for _ in wanted]
    for number in range(photos):
        picture, name = setting(files, rng), f"photo-{number:05}.jpg"
        count = int(rng.integers(THINGS[0], THINGS[1] + 1))
        shown = number % (2 * objects)
        # What is laid after the object may hide parts of it: in half of the photos nothing is.
        place = count - 1 if rng.random() < 0.5 else int(rng.integers(count))
        for i in range(count):
            if i == place and shown < objects:
                cover = lay(picture, wanted[shown], rng, size_of(rng), TURN, TILT)
                entry = {"image": name, "box": box_round(cover), "photo": list(picture.size)}
                positives[shown].append(entry)
            else:
                lay(picture, clutter[int(rng.integers(len(clutter)))], rng, size_of(rng), TURN, TILT)
        photographed(picture, rng, out / "photos" / name)
    queries = []
    for number, thing in enumerate(wanted):
        picture, name = setting([apart[number % len(apart)]], rng), f"object-{number:03}.jpg"
        box = box_round(lay(picture, thing, rng, QUERY_SIZE, 15, 0.02))
        picture.save(out / "queries" / name, quality=92)
        queries.append({"name": name, "image": name, "box": box, "positives": positives[number]})
    (out / "truth.json").write_text(json.dumps({"name": f"clutter, seed {seed}", "queries": queries}, indent=1) + "\n")
    return len(clutter)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--things", type=Path, nargs="+", required=True, help="folders of things before white")
    parser.add_argument("--behind", type=Path, nargs="+", required=True, help="folders of photos to set them before")
    parser.add_argument("--objects", type=int, default=50)
    parser.add_argument("--photos", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    clutter = make(args.out, args.things, args.behind, args.objects, args.photos, args.seed)
    print(f"{args.photos} photos, {args.objects} objects, {clutter} other things in {args.out}")


if __name__ == "__main__":
    main()
