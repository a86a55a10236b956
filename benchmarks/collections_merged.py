"""How well several collections are searched together, beside one index of all their photos.

An index is divided at random into two collections, each with a graph of its own. The queries are asked of both, and the
answers are merged: by their scores as they are, and as the service does it (`manifind.serve.merging`). Geometry is left
out. The rule was chosen on Holidays.

    python benchmarks/collections_merged.py --holidays hol.manifind --scenes FOLDER_OF_THE_DEMO
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manifind.evaluate.measures import average_precision
from manifind.index import Answer, Index, QueryRegions, View, rank, view
from manifind.serve.merging import merged
from manifind.serve.schemas import SearchRequest, ViewRequest

SHARES = (0.5, 0.85)
TOP = 300


@dataclass
class Query:
    regions: QueryRegions
    own: str | None
    shown_in: set[str]


def divided(path: Path, share: float, folder: Path) -> list[Index]:
    keys = [one.key for one in Index.open(path).catalogue.images]
    first = set(np.random.default_rng(0).permutation(keys)[: int(share * len(keys))].tolist())
    parts = []
    for name, gone in (("a", [key for key in keys if key not in first]), ("b", sorted(first))):
        shutil.copytree(path, folder / f"{name}-{share}.manifind")
        part = Index.open(folder / f"{name}-{share}.manifind")
        part.remove(gone)
        parts.append(part)
    return parts


def told(index: Index, query: Query) -> dict[str, Any]:
    (search,) = rank(index.state, [query.regions], None, "regional")
    own = None if query.own is None else index.catalogue.of_key(query.own)
    answer = Answer(search, own=[] if own is None else [own.number], top=TOP, reached=True)
    likely, evidence = answer.likely or 0, answer.evidence
    results = [
        {"rank": place, "key": index.catalogue[image].key, "score": score, "verified": None, "likely": place <= likely}
        for place, (image, score) in enumerate(
            zip(search.ranking.images[:TOP].tolist(), search.ranking.scores[:TOP].tolist(), strict=True), 1
        )
    ]
    best = max((one["score"] for one in results if one["key"] != query.own), default=0.0)
    said = None if evidence is None else {"similarity": evidence.similarity, "chance": evidence.chance, "best": best}
    common: dict[str, Any] = {"verified": None, "generation": 1, "milliseconds": {}}
    return {"results": results, "likely": likely, "evidence": said, **common}


def measured(path: Path, queries: Sequence[Query], title: str) -> None:
    request = SearchRequest(views=[ViewRequest(key="any")], top=2 * TOP)

    def precision(found: Sequence[dict[str, Any]], query: Query) -> float:
        keys = [one["key"] for one in found if one["key"] != query.own]
        places = [place for place, key in enumerate(keys) if key in query.shown_in]
        missing = range(10**6, 10**6 + len(query.shown_in) - len(places))
        return average_precision(np.arange(len(keys)), np.array([*places, *missing]))

    whole = Index.open(path)
    together = np.mean([precision(told(whole, query)["results"], query) for query in queries])
    print(f"{title}: {len(whole)} photos, {len(queries)} queries; one index of all: mAP {100 * together:.1f}")
    for share in SHARES:
        with tempfile.TemporaryDirectory() as folder:
            parts = divided(path, share, Path(folder))
            as_they_are, by_rule = [], []
            for query in queries:
                answers = [told(part, query) for part in parts]
                every = [one for answer in answers for one in answer["results"]]
                as_they_are.append(precision(sorted(every, key=lambda one: -one["score"]), query))
                by_rule.append(precision(merged(request, answers)["results"], query))
            sizes = " + ".join(str(len(part)) for part in parts)
            print(f"  {sizes}: by scores {100 * np.mean(as_they_are):.1f}, merged {100 * np.mean(by_rule):.1f}")


def of_holidays(path: Path) -> list[Query]:
    index = Index.open(path)
    keys = [one.key for one in index.catalogue.images if Path(one.key).stem.isdigit()]
    queries = []
    for key in keys:
        others = {other for other in keys if int(Path(other).stem) // 100 == int(Path(key).stem) // 100} - {key}
        if int(Path(key).stem) % 100 == 0 and others:
            queries.append(Query(_described(index, key), key, others))
    return queries


def of_scenes(folder: Path) -> tuple[Path, list[Query]]:
    path = folder / "photos.manifind"
    index, said = Index.open(path), json.loads((folder / "truth.json").read_text())
    queries = []
    for one in said["queries"]:
        shown_in = {scene["file"] for scene in said["scenes"] if scene["shows"] == one["shows"]}
        queries.append(Query(_described(index, folder / "queries" / one["file"], one["box"]), None, shown_in))
    return path, queries


def _described(index: Index, photo: str | Path, box: Sequence[float] | None = None) -> QueryRegions:
    seen: View = view(index.describer, index.pixels(photo), box)
    return QueryRegions.of([seen])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--holidays", type=Path, help="an index of Holidays")
    parser.add_argument("--scenes", type=Path, help="folder of the demo, with its index beside the photos")
    given = parser.parse_args()
    if given.holidays:
        measured(given.holidays, of_holidays(given.holidays), "Holidays")
    if given.scenes:
        measured(*of_scenes(given.scenes), "scenes")


if __name__ == "__main__":
    main()
