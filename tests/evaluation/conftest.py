import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from manifind.demo.synthetic import Planted, planted_objects


@dataclass(frozen=True)
class Laid:
    """A small collection as files: descriptors, queries, and the truth."""

    planted: Planted
    names: list[str]
    vectors: Path
    queries: Path
    truth: Path


@pytest.fixture(scope="session")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Laid:
    folder = tmp_path_factory.mktemp("laid")
    planted = planted_objects(images=60, objects=4, views=6, queries=2, d=32, seed=1)
    names = [f"image_{i}" for i in range(int(planted.image_of[-1]) + 1)]
    np.savez(folder / "vectors.npz", vectors=planted.vectors, image_of=planted.image_of, names=names)
    query_of = np.repeat(np.arange(len(planted.queries)), [len(query) for query in planted.queries])
    np.savez(folder / "queries.npz", vectors=np.concatenate(planted.queries), query_of=query_of)
    rng = np.random.default_rng(0)
    queries = [
        {
            "image": f"query_{i}",
            "positives": [
                {"image": names[p], "box": [0, 0, 10, 100 * rng.uniform(0.05, 1)], "photo": [100, 100]} for p in wanted
            ],
            "junk": [names[int(np.setdiff1d(np.arange(len(names)), wanted)[i])]],
        }
        for i, wanted in enumerate(planted.positives)
    ]
    (folder / "truth.json").write_text(json.dumps({"name": "planted", "queries": queries}))
    return Laid(planted, names, folder / "vectors.npz", folder / "queries.npz", folder / "truth.json")
