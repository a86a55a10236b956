"""What verified pairs of a collection teach its descriptions, at several strengths.

    python benchmarks/learning.py photos.manifind --group 4

Photos whose names begin with the same letters, as many as ``--group`` says, show the same thing (Holidays: 4); the
first of each group is the query. Printed is mAP by R-match and by regional diffusion, before and after, for all queries
and for those of things that taught nothing.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from manifind import Index, Manifold
from manifind.baselines import RegionMatch
from manifind.describe.whitening import unit_rows
from manifind.evaluate import mean_average_precision
from manifind.index.state.generation import Generation
from manifind.index.tending.pairs import things
from manifind.index.tending.teach import pairs_of
from manifind.index.tending.teaching import kept_apart, taught
from manifind.types import FloatArray

Queries = list[tuple[int, list[int]]]


def groups(keys: Sequence[str], letters: int) -> Queries:
    """Return the first photo of each group, and the others."""
    found: dict[str, list[int]] = {}
    for image, key in enumerate(keys):
        found.setdefault(Path(key).name[:letters], []).append(image)
    return [(first, others) for first, *others in found.values() if others]


def measured(vectors: FloatArray, starts: npt.NDArray[np.integer], queries: Queries) -> list[float]:
    """Return mAP in per cent by R-match and by regional diffusion; the query's own photo is passed over."""
    image_of = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
    asked = [vectors[starts[image] : starts[image + 1]] for image, _ in queries]
    positives, own = [others for _, others in queries], [[image] for image, _ in queries]
    figures = []
    for method in (RegionMatch(), Manifold(k=100, query_k=50, alpha=0.99)):
        rankings = method.fit(vectors, image_of).search_many(asked, None)
        figures.append(100 * mean_average_precision(rankings, positives, own, definition="mean"))
    return figures


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("--group", type=int, default=4, help="letters by which names are grouped")
    parser.add_argument("--shrinkage", type=float, nargs="+", default=[0.9, 0.7, 0.5, 0.3, 0.1])
    given = parser.parse_args()
    now = Index.open(given.index).state
    if not isinstance(now, Generation):
        parser.error("the index must lie in a folder")
    pairs = [pair for pair in pairs_of(now, lambda *_: None) if len(pair.regions)]
    vectors, starts = np.asarray(now.manifold.vectors_, np.float32), now.manifold.layout_.starts
    shown = things(pairs, len(now.catalogue))
    apart = kept_apart(pairs, shown)
    lessons = {int(shown[pair.a]) for pair in pairs} - apart
    queries = groups([record.key for record in now.catalogue.images], given.group)
    untaught = [one for one in queries if int(shown[one[0]]) not in lessons]
    regions = sum(len(pair.regions) for pair in pairs)
    print(f"{len(pairs)} pairs of photos, {regions} of regions, {len(apart)} things apart")
    print(f"{len(queries)} queries, {len(untaught)} of things that taught nothing")
    print("shrinkage  reciprocal rank  R-match, diffusion: all queries  of things that taught nothing")

    def row(name: str, rank: str, seen: FloatArray) -> None:
        figures = [f"{figure:.1f}" for some in (queries, untaught) if some for figure in measured(seen, starts, some)]
        print(f"{name:>9}  {rank:>15}  {'  '.join(figures)}", flush=True)

    row("none", "", vectors)
    for shrinkage in given.shrinkage:
        learnt = taught(vectors, starts, pairs, shrinkage=shrinkage)
        rank = f"{learnt.before:.4f} {learnt.after:.4f} ±{learnt.error:.4f}"
        row(f"{shrinkage:g}", rank, unit_rows(vectors @ learnt.project))


if __name__ == "__main__":
    main()
