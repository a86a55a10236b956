"""What a search finds of mirrored objects, with and without looking for them, on planted scenes.

    python benchmarks/mirrored.py [--folder FOLDER] [--scenes 45] [--seed 0] [--every 2] [--json]

The scenes of ``manifind demo`` are written to FOLDER and indexed. Every second query is searched as it is, and
mirrored: to the mirrored query all scenes are mirrored ones. What is printed, of each searched one way and both ways:

map        mean average precision of the last result
score      mean score of the three best right photos of the first ranking, before anything is verified
right      verified photos that show the object
wrong      verified photos that do not
mirrored   verified photos that are told as mirrored
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from harness import make_parser, print_results
from manifind.demo.scenes import Query, Scenes, make_scenes
from manifind.geometry import mirror_box
from manifind.index import Index
from manifind.io import read_photo
from manifind.types import Box


def measure(index: Index, made: Scenes, queries: list[Query], *, turned: bool, mirrored: bool) -> dict[str, Any]:
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


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--scenes", type=int, default=45)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        made = make_scenes(folder, scenes=given.scenes, seed=given.seed)
        index = Index.create(folder / "photos.manifind", made.folder)
        queries = list(made.queries[:: given.every])
        rows = [
            {
                "query": "mirrored" if turned else "as it is",
                "searched": "both ways" if both else "one way",
                **measure(index, made, queries, turned=turned, mirrored=both),
            }
            for turned in (False, True)
            for both in (False, True)
        ]
    conditions = {"scenes": given.scenes, "seed": given.seed, "queries": len(queries)}
    print_results(conditions, rows, as_json=given.json)


if __name__ == "__main__":
    main()
