"""How good a search is where people steer it: negatives and positives, boxes by regions, mirrored objects.

    python benchmarks/feedback.py [--scenes FOLDER] [--manifold SAVED] [--part refine | where | mirrored ...] [--json]
    python benchmarks/feedback.py --part mirrored [--photos 45] [--seed 0] [--every 2] [--json]

refine    mAP after the first wrong results were marked as not meant (they are taken out of both rankings), by weight,
          and after right results were marked as meant.
where     how well boxes meet the planted objects, as intersection over union: the region of the largest share, and the
          box that the page draws, on the scenes that ``manifind demo --out FOLDER`` made and indexed (--scenes)
mirrored  what a search finds of mirrored objects, with and without looking for them, on planted scenes made for it.
          Every second query is searched as it is, and mirrored: to the mirrored query all scenes are mirrored ones. Of
          each searched one way and both ways: mAP of the last result, the mean score of the three best right photos of
          the first ranking, verified photos that show the object, that do not, and that are told as mirrored

Data: refine, the descriptors of Oxford5k (``harness.py``), n = 106,887, d = 512, k = query_k = 50; all threads.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

import harness
from harness import make_parser, print_results
from manifind import Manifold
from manifind.boxes import iou
from manifind.demo import scenes
from manifind.diffusion import SeedWeights
from manifind.geometry import mirror_box
from manifind.index import Index, QueryRegions, QueryView, Retrieval, Snapshot, retrieve, whole_box
from manifind.io import read_photo
from manifind.manifold import Request, answer
from manifind.ranking import Ranking
from manifind.types import Box, FloatArray

PARTS = ("refine", "where", "mirrored")
WEIGHTS = (0.1, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Known:
    """Queries on a collection, with the photos that show what they ask for."""

    name: str
    state: Snapshot
    queries: list[FloatArray]
    positives: list[set[int]]
    junk: list[set[int]]
    own: list[set[int]]
    """Photos that the query was cut from."""

    def searches(self, queries: Sequence[FloatArray] | None = None) -> list[Retrieval]:
        views = [QueryRegions.of([QueryView(q, np.zeros((len(q), 4), np.float32))]) for q in queries or self.queries]
        return retrieve(self.state, views, None)


def oxford5k(k: int, saved: Path | None) -> Known:
    protocol = harness.oxford5k()
    if saved is None:
        manifold = Manifold(k=k, query_k=50).fit(protocol.vectors, protocol.image_of)
    else:
        manifold = Manifold.load(saved, verify=False)
    images = len(manifold.layout_.images)
    # All that ranking and evidence look at.
    state = SimpleNamespace(
        manifold=manifold, boxes=np.zeros((len(protocol.vectors), 4)), others={}, catalogue=range(images)
    )
    names = json.loads((harness.FOLDER / "names.json").read_text())
    truth = json.loads((harness.FOLDER / "ground_oxford5k.json").read_text())
    own = [{names.index(truth[key]["name"].removeprefix("oxc1_"))} for key in sorted(truth)]
    task = protocol.tasks["Oxford5k"]
    positives, junk = ([set(one.tolist()) for one in some] for some in (task.positives, task.junk))
    return Known("Oxford5k", cast(Snapshot, state), protocol.queries, positives, junk, own)


def demo_scenes(folder: Path) -> tuple[Known, Index, scenes.Scenes]:
    index = Index.open(folder / "scenes.manifind")
    made = scenes.make_scenes(folder / "scenes", scenes=len(index))
    number = {image.key: image.number for image in index.catalogue.images}
    queries = [
        index.extractor.extract(np.ascontiguousarray(_cut(index, made.queries_folder / one.file, one.box)))
        for one in made.queries
    ]
    positives = [{number[s.file] for s in made.truth if s.shows == one.shows} for one in made.queries]
    none: list[set[int]] = [set() for _ in queries]
    state = index.state
    assert isinstance(state, Snapshot)  # noqa: S101 (it is on disk)
    return Known("scenes", state, [q.vectors for q in queries], positives, none, none), index, made


def _cut(index: Index, file: Path, box: Sequence[float]) -> Any:
    pixels = index.pixels(file)
    x0, y0, x1, y1 = whole_box(box, pixels.shape[1], pixels.shape[0])
    return pixels[y0:y1, x0:x1]


def mean_ap(rankings: Sequence[Ranking], known: Known, left_out: Sequence[set[int]]) -> float:
    values = []
    for ranking, positives, junk, out in zip(rankings, known.positives, known.junk, left_out, strict=True):
        right = np.array([one in positives for one in ranking.images.tolist() if one not in junk and one not in out])
        precision = np.cumsum(right) / np.arange(1, len(right) + 1)
        before = np.concatenate([[1.0], precision[:-1]])
        values.append(float(((precision + before) / 2)[right].sum() / len(positives - out)))
    return 100 * float(np.mean(values))


def refine(known: Known) -> dict[str, Any]:
    manifold = known.state.manifold
    base = [search.ranking for search in known.searches()]
    nobody: list[set[int]] = [set() for _ in base]

    def parts(ranking: Ranking, image: int) -> FloatArray:
        """Return the five regions of a photo that contribute most: what the page's box holds."""
        first, end = manifold.layout_.starts[image : image + 2]
        order = np.argsort(-(manifold.weights_[first:end] * ranking.regions[first:end]))
        return np.asarray(manifold.vectors_[first:end][order[:5]], np.float32)

    result: dict[str, Any] = {"as_it_was": mean_ap(base, known, nobody)}
    for count in (1, 3):
        wrong = [
            [one for one in ranking.images.tolist() if one not in positives | junk][:count]
            for ranking, positives, junk in zip(base, known.positives, known.junk, strict=True)
        ]
        out = [set(one) for one in wrong]
        against = [np.concatenate([parts(r, one) for one in some]) for r, some in zip(base, wrong, strict=True)]
        row = {"without": mean_ap(base, known, out)}
        for weight in WEIGHTS:
            weights = SeedWeights(negatives=weight)
            requests = [Request(*one, weights=weights) for one in zip(known.queries, against, strict=True)]
            row[str(weight)] = mean_ap(answer(manifold, requests), known, out)
        result[f"not_this_{count}"] = row
    for count in (1, 3):
        queries = []
        for query, ranking, positives, own in zip(known.queries, base, known.positives, known.own, strict=True):
            right = [one for one in ranking.images.tolist()[:50] if one in positives - own][-count:]
            queries.append(np.concatenate([query, *(parts(ranking, one) for one in right)]))
        result[f"also_this_{count}"] = mean_ap(manifold.search_many(queries), known, nobody)
    return result


def where(known: Known, index: Index, made: scenes.Scenes) -> dict[str, float]:
    truth = {scene.file: scene for scene in made.truth}
    region, drawn = [], []
    for query, search in zip(made.queries, known.searches(), strict=True):
        for image in search.ranking.images[:40].tolist():
            scene, box = truth[index.catalogue[image].key], search.locate(image)
            if scene.shows == query.shows and scene.box is not None and box is not None:
                region.append(iou(search.shown_regions(image)[0].box, scene.box))
                drawn.append(iou(box, scene.box))
    return {"region_of_the_largest_share": float(np.mean(region)), "box": float(np.mean(drawn)), "photos": len(drawn)}


def measure_mirrored(
    index: Index, made: scenes.Scenes, queries: list[scenes.Query], *, turned: bool, mirrored: bool
) -> dict[str, Any]:
    """Search with all queries, or with their mirrored photos."""
    rows = []
    for query in queries:
        shown = {scene.file for scene in made.truth if scene.shows == query.shows}
        pixels = read_photo(made.queries_folder / query.file).pixels
        box: Box = query.box
        if turned:
            box = mirror_box(box, pixels.shape[1])
            pixels = np.ascontiguousarray(pixels[:, ::-1])
        ranked = index.search(pixels, box, top=None, verify=0, mirrored=mirrored)
        result = index.search(pixels, box, top=None, mirrored=mirrored)
        right = np.array([hit.key in shown for hit in result])
        precision = np.cumsum(right)[right] / (np.flatnonzero(right) + 1)
        best = [hit.score for hit in ranked if hit.key in shown][:3]
        verified = [hit for hit in result if hit.verified]
        found = sum(hit.key in shown for hit in verified)
        told = sum(bool(hit.mirrored) for hit in verified)
        rows.append((precision.sum() / len(shown), np.mean(best), found, len(verified) - found, told))
    columns = np.array(rows)
    return {
        "map": 100 * float(columns[:, 0].mean()),
        "score": float(columns[:, 1].mean()),
        **dict(zip(("right", "wrong", "mirrored"), columns[:, 2:].sum(axis=0).astype(int).tolist(), strict=True)),
    }


def mirrored(photos: int, seed: int, every: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        made = scenes.make_scenes(temporary, scenes=photos, seed=seed)
        index = Index.create(Path(temporary) / "photos.manifind", made.folder)
        queries = list(made.queries[::every])
        rows = [
            {
                "query": "mirrored" if turned else "as it is",
                "searched": "both ways" if both else "one way",
                **measure_mirrored(index, made, queries, turned=turned, mirrored=both),
            }
            for turned in (False, True)
            for both in (False, True)
        ]
    return {"scenes": photos, "seed": seed, "queries": len(queries), "rows": rows}


def main() -> None:
    parser = make_parser(__doc__, "k")
    parser.add_argument("--scenes", type=Path, help="the folder that `manifind demo --out` filled")
    parser.add_argument("--manifold", type=Path, help="of Oxford5k, saved, in place of building its graph")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS[:2]))
    parser.add_argument("--photos", type=int, default=45, help="mirrored: how many scenes")
    parser.add_argument("--seed", type=int, default=0, help="mirrored: of the scenes")
    parser.add_argument("--every", type=int, default=2, help="mirrored: of the queries, every so many")
    args = parser.parse_args()
    if args.part == ["mirrored"]:
        made = mirrored(args.photos, args.seed, args.every)
        print_results({key: value for key, value in made.items() if key != "rows"}, made["rows"], as_json=args.json)
        return
    planted = demo_scenes(args.scenes) if args.scenes and "where" in args.part else None
    real = oxford5k(args.k, args.manifold) if harness.at_hand() and "refine" in args.part else None
    collections = [one for one in (real, planted[0] if planted else None) if one is not None]
    if not collections:
        sys.exit("neither Oxford5k nor --scenes is at hand; run `manifind demo --out out` and give --scenes out.")
    result: dict[str, Any] = {}
    for known in collections:
        mine: dict[str, Any] = {}
        if "refine" in args.part and known is real:
            mine["refine"] = refine(known)
        if "where" in args.part and planted and known is planted[0]:
            mine["where"] = where(*planted)
        result[known.name] = mine
    if args.json:
        json.dump(result, sys.stdout, indent=1)
        return
    for name, mine in result.items():
        for part, values in mine.items():
            print(f"{name}, {part}")
            for label, value in values.items():
                shown = (
                    ", ".join(f"{a} {b:.2f}" for a, b in value.items()) if isinstance(value, dict) else f"{value:.3f}"
                )
                print(f"    {label.replace('_', ' '):<34} {shown}")


if __name__ == "__main__":
    main()
