"""What scales, whitening and the graph's parameters find, on parts of a folder of photos in groups.

    python benchmarks/descriptors.py --photos holidays/ --sizes 70 200 600 1156
    python benchmarks/descriptors.py --photos oxbuild_images/ --oxford --sizes 70 200 600

A photo's group is what its name begins with (four characters, as in INRIA Holidays); the first photo of a group is the
query, its others are what is to be found, and its own photo is passed over. Parts of a size are drawn by chance,
group by group; ``--oxford`` takes the groups of Oxford5k's ground truth (the
good photos of a landmark, which are many) and draws a 25th of the part's size from each, and photos of no landmark for
the rest. The raw vectors are kept in ``--keep`` between runs. Whitenings mix the own moments with the prior's in each
``--share``, and divide by variances to each ``--power``; without a share, it is what an index takes where no verified
photos choose. ``--p``, ``--long-side`` and ``--flip`` try other ways of extraction; a network or a pooling of which no
moments come along is whitened by the collection alone. Prints mAP (trapezoids) in per cent.

Data: photos in groups, d = 768, k = 50, 100 and 200, all threads.
"""

import json
import random
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import harness
from harness import make_parser
from manifind import Manifold
from manifind.baselines import NearestImages, RegionMatch
from manifind.evaluation.measures import average_precision
from manifind.features import SCALES, Moments, RegionExtractor, load_extractor, shipped_moments
from manifind.features.backbone import DEFAULT, Photo
from manifind.features.moments import DIMENSION
from manifind.features.whitening import unit_rows
from manifind.index.config import WhiteningCandidate
from manifind.index.storage.build_config import WhiteningTraining
from manifind.io import ListedFile, extract_ahead, list_photos

Rows = npt.NDArray[np.float16]


def seen_both_ways(extractor: RegionExtractor, photo: Photo) -> npt.NDArray[np.float32]:
    """Return the vectors of a photo's regions, each joined to that of the same part of the mirrored photo."""
    seen, mirrored = extractor.extract(photo), extractor.extract(np.ascontiguousarray(photo[:, ::-1]))
    left, top, right, bottom = mirrored.boxes.T
    back = np.stack([photo.shape[1] - right, top, photo.shape[1] - left, bottom], axis=1)
    twin = np.abs(seen.boxes[:, None] - back).sum(axis=2).argmin(axis=1)
    return unit_rows(seen.vectors + mirrored.vectors[twin])


def raw_vectors(
    folder: Path, keep: Path | None, whole: RegionExtractor, *, flip: bool
) -> tuple[Rows, npt.NDArray[np.int64], list[str]]:
    """Return the vectors of all photos before whitening, how many each has, and the names."""
    if keep is not None and keep.is_file():
        with np.load(keep, allow_pickle=False) as kept:
            return kept["vectors"], kept["counts"], kept["names"].tolist()
    extractor, threads = whole.for_threads()
    rows, names = [], []
    found = [one for one in list_photos(folder) if isinstance(one, ListedFile)]
    extract = partial(seen_both_ways, extractor) if flip else extractor.extract_unwhitened
    with closing(extract_ahead(found, extract, threads=threads, long_side=extractor.long_side)) as photos:
        for one, _, seen in photos:
            if seen is not None:
                rows.append(seen.astype(np.float16))
                names.append(one.key)
    vectors, counts = np.concatenate(rows), np.array([len(one) for one in rows])
    if keep is not None:
        np.savez(keep, vectors=vectors, counts=counts, names=np.array(names))
    return vectors, counts, names


def measured(
    vectors: npt.NDArray[np.float32], image_of: npt.NDArray[np.int32], groups: list[list[int]], arguments: Any
) -> dict[str, float]:
    """Return the mAP of plain similarity, R-match and regional diffusion with each k and alpha."""
    queries = [vectors[image_of == group[0]] for group in groups]

    def score(rankings: Iterable[Any]) -> float:
        found = [
            average_precision(ranking.images, group[1:], junk=group[:1])
            for ranking, group in zip(rankings, groups, strict=True)
        ]
        return round(100 * float(np.mean(found)), 1)

    table = {}
    for name, baseline in (("plain", NearestImages()), ("R-match", RegionMatch())):
        table[name] = score(baseline.fit(vectors, image_of).search_many(queries, None))
    for k in arguments.k:
        for alpha in arguments.alpha:
            manifold = Manifold(k=min(k, len(vectors) - 1), query_k=min(50, len(vectors)), alpha=alpha)
            table[f"k {k}, alpha {alpha:g}"] = score(manifold.fit(vectors, image_of).search_many(queries, None))
    return table


def part(groups: list[list[int]], size: int, seed: int, others: list[int]) -> list[list[int]]:
    """Return groups drawn by chance until there are so many photos; photos of no group are groups of one.

    Where there are such photos, a 25th of the size is drawn from each group, and the rest from them.
    """
    chance = random.Random(seed)  # noqa: S311 (no secret)
    drawn: list[list[int]] = []
    for group in chance.sample(groups, len(groups)):
        if sum(map(len, drawn)) < size:
            most = max(3, size // 25) if others else len(group)
            drawn.append(sorted(chance.sample(group, min(most, len(group)))))
    missing = max(0, size - sum(map(len, drawn)))
    return drawn + [[other] for other in chance.sample(others, min(missing, len(others)))]


def grouped(names: list[str], oxford: bool) -> tuple[list[list[int]], list[int]]:
    """Return the groups of more than one photo, and the photos of none."""
    if not oxford:
        by_name: dict[str, list[int]] = {}
        for number, name in enumerate(names):
            by_name.setdefault(Path(name).name[:4], []).append(number)
        return [group for group in by_name.values() if len(group) > 1], []
    truth = json.loads((harness.FOLDER / "ground_oxford5k.json").read_text())
    place = {Path(name).stem: number for number, name in enumerate(names)}
    landmarks: dict[str, set[int]] = {}
    shown: set[int] = set()
    for key, query in truth.items():
        landmarks.setdefault(key.rpartition("_")[0], set()).update(place[name] for name in query["good"])
        shown.update(place[name] for label in ("good", "ok", "junk") for name in query[label])
    return [sorted(group) for group in landmarks.values()], [i for i in range(len(names)) if i not in shown]


def main() -> None:
    """Measure, and print a table."""
    parser = make_parser(__doc__, repeats=1)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--keep", type=Path, help="an .npz file for the raw vectors")
    parser.add_argument("--oxford", action="store_true", help="groups by the shared ground truth of Oxford5k")
    parser.add_argument("--sizes", type=int, nargs="+", default=[70, 200, 600])
    parser.add_argument("--share", type=float, nargs="+", help="of the own moments; by default what an index takes")
    parser.add_argument("--power", type=float, nargs="+", default=[0.5], help="of variances, for each share")
    parser.add_argument("--dimension", type=int, default=DIMENSION, help="what a whitening keeps")
    parser.add_argument("--backbone", default=DEFAULT)
    parser.add_argument("--p", type=float, default=3.0, help="GeM's exponent")
    parser.add_argument("--long-side", type=int, help="pixels of the longer side")
    parser.add_argument("--flip", action="store_true", help="join each region to its mirror image")
    parser.add_argument("--k", type=int, nargs="+", default=[50, 100, 200])
    parser.add_argument("--alpha", type=float, nargs="+", default=[0.9, 0.99])
    arguments = parser.parse_args()
    extractor = load_extractor(
        arguments.backbone, whitening=None, scales=SCALES, p=arguments.p, long_side=arguments.long_side
    )
    vectors, counts, names = raw_vectors(arguments.photos, arguments.keep, extractor, flip=arguments.flip)
    starts = np.cumsum(counts) - counts
    prior = shipped_moments(extractor)
    groups, others = grouped(names, arguments.oxford)
    lines = []
    for size in arguments.sizes:
        tables: dict[str, list[dict[str, float]]] = {}
        for seed in range(arguments.repeats):
            drawn = part(groups, size, seed, others)
            images = [image for group in drawn for image in group]
            rows = np.concatenate([np.arange(starts[i], starts[i] + counts[i]) for i in images])
            image_of = np.repeat(np.arange(len(images), dtype=np.int32), counts[images])
            place = {image: number for number, image in enumerate(images)}
            here = [[place[image] for image in group] for group in drawn if len(group) > 1]
            own = Moments.of(vectors[rows], extractor.pooled_by)
            learnt = {"auto": WhiteningTraining(prior, dimension=arguments.dimension).whitening(own)}
            if arguments.share is not None and prior is not None:
                # However few regions there are, they get the whole share.
                training = WhiteningTraining(prior, 1e-9, arguments.dimension)
                learnt = {
                    f"{share:g}, power {power:g}": training.candidate(own, WhiteningCandidate(share, power=power))
                    for share in arguments.share
                    for power in arguments.power
                }
            for name, whitening in learnt.items():
                whitened = whitening.apply(vectors[rows].astype(np.float32))
                tables.setdefault(name, []).append(measured(whitened, image_of, here, arguments))
        for share_name, found in tables.items():
            means = {name: round(float(np.mean([table[name] for table in found])), 1) for name in found[0]}
            lines.append({"photos": size, "share": share_name, **means})
            if not arguments.json:
                print(lines[-1], flush=True)
    if arguments.json:
        print(json.dumps(lines))


if __name__ == "__main__":
    main()
