"""Images a second: our mixtures and scikit-learn's, from the same start, in the same run.

    python benchmarks/gmm.py [--images 500] [--regions-per-image 5] [--threads 1] [--json]

Our time is that of the whole of `compact`, the choice of the start included; scikit-learn is given the start and only
fits. Both are the best of a few runs.
"""

import json
import time
import warnings
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from harness import collection, make_parser
from manifind.gmm import MIN_VARIANCE, DoubleArray, compact, starting_regions

T = TypeVar("T")


def scikit_learn(points: DoubleArray, start: DoubleArray) -> DoubleArray:
    """Return the unit-normalised means of one image's mixture, from the given means."""
    c = len(start)
    mixture = GaussianMixture(
        c,
        covariance_type="spherical",
        reg_covar=MIN_VARIANCE,
        means_init=start,
        weights_init=np.full(c, 1 / c),
        precisions_init=np.full(c, 1 / MIN_VARIANCE),
    ).fit(points)
    means: DoubleArray = mixture.means_ / np.linalg.norm(mixture.means_, axis=1, keepdims=True)
    return means


def best_of(runs: int, work: Callable[[], T]) -> tuple[float, T]:
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - began)
    return min(seconds), result


def measure(images: int, c: int, threads: int) -> dict[str, object]:
    data, vectors, image_of, _ = collection(None)
    rows = int(np.searchsorted(image_of, images))
    vectors, image_of = vectors[:rows], image_of[:rows]
    counts = np.bincount(image_of)
    photos = [p.astype(np.float64) for p in np.split(vectors, np.cumsum(counts)[:-1]) if len(p) > c]
    starts = [p[starting_regions((p @ p.T)[None], c)[0]] for p in photos]
    with threadpool_limits(threads), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours_s, ours = best_of(5, lambda: compact(vectors, image_of, regions_per_image=c))
        theirs_s, theirs = best_of(2, lambda: [scikit_learn(p, s) for p, s in zip(photos, starts, strict=True)])
    means = ours.vectors[np.isin(ours.image_of, np.flatnonzero(counts > c))]
    return {
        "data": data,
        "images": len(counts),
        "regions_per_image": f"{counts.min()} to {counts.max()}, {counts.mean():.1f} on average",
        "dimensions": vectors.shape[1],
        "components": c,
        "threads": threads,
        "images_per_second": round(len(counts) / ours_s),
        "images_per_second_scikit_learn": round(len(photos) / theirs_s),
        "ratio": round(len(counts) / ours_s * theirs_s / len(photos), 1),
        "largest_difference_of_means": float(np.abs(means - np.concatenate(theirs)).max()),
    }


def main() -> None:
    parser = make_parser(__doc__, threads=1)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--regions-per-image", type=int, default=5)
    arguments = parser.parse_args()
    measured = measure(arguments.images, arguments.regions_per_image, arguments.threads)
    if arguments.json:
        print(json.dumps(measured, indent=2))
    else:
        for name, value in measured.items():
            print(f"{name.replace('_', ' '):32} {value}")


if __name__ == "__main__":
    main()
