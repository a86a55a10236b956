"""Region descriptors of Oxford5k, if they are at hand: ``../shared/data/oxford5k`` beside the repository.

5,063 photos (Philbin et al. 2007), 106,887 regions, MobileNetV2, 512 dimensions after whitening; 55 queries with their
ground truth, and the 70 queries of the Revisited protocol (Radenović et al. 2018) on 4,993 of the photos.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.evaluate import mean_average_precision
from manifind.layout import Layout, aggregate, aggregate_one
from manifind.ranking import Ranking
from manifind.validation import FloatArray, IntArray

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "oxford5k"

Images = npt.NDArray[np.int64]


def at_hand() -> bool:
    return (FOLDER / "vectors.npy").is_file()


@dataclass(frozen=True)
class Task:
    """For each query, the images to find and those to pass over."""

    positives: list[Images]
    junk: list[Images]

    def mean_average_precision(self, rankings: list[Ranking]) -> float:
        """In percent, by the trapezoid as in Oxford's own program."""
        return 100 * mean_average_precision(rankings, self.positives, self.junk)


@dataclass(frozen=True)
class Protocol:
    vectors: FloatArray
    image_of: IntArray
    queries: list[FloatArray]
    tasks: dict[str, Task]

    @cached_property
    def whole_images(self) -> FloatArray:
        """Global descriptors, a row for each image number."""
        return aggregate(self.vectors, Layout.of(self.image_of))

    @cached_property
    def whole_queries(self) -> list[FloatArray]:
        """The global descriptor of each query."""
        return [aggregate_one(query) for query in self.queries]


def oxford5k() -> Protocol:
    names: list[str] = json.loads((FOLDER / "names.json").read_text())
    number = {name: i for i, name in enumerate(names)}
    truth: dict[str, Any] = json.loads((FOLDER / "ground_oxford5k.json").read_text())
    vectors, image_of = _regions()
    keys = sorted(truth)

    def images(key: str, *labels: str) -> Images:
        return np.array([number[name] for label in labels for name in truth[key][label]], np.int64)

    task = Task([images(key, "good", "ok") for key in keys], [images(key, "junk") for key in keys])
    return Protocol(vectors, image_of, _queries("queries_oxford5k.npz"), {"Oxford5k": task})


def revisited() -> Protocol:
    """Easy, Medium and Hard; image numbers are places in the ground truth's own list of photos."""
    names: list[str] = json.loads((FOLDER / "names.json").read_text())
    truth = json.loads((FOLDER / "ground_roxford5k.json").read_text())
    place = {name: i for i, name in enumerate(truth["images"])}
    renumbered = np.array([place.get(name, -1) for name in names], np.int32)
    vectors, image_of = _regions()
    image_of = renumbered[image_of]
    order = np.argsort(image_of, kind="stable")[np.count_nonzero(image_of < 0) :]

    def images(query: Any, *labels: str) -> Images:
        return np.array([i for label in labels for i in query[label]], np.int64)

    def task(wanted: tuple[str, ...], passed_over: tuple[str, ...]) -> Task:
        queries = truth["queries"]
        return Task([images(q, *wanted) for q in queries], [images(q, *passed_over) for q in queries])

    tasks = {
        "Easy": task(("easy",), ("junk", "hard")),
        "Medium": task(("easy", "hard"), ("junk",)),
        "Hard": task(("hard",), ("junk", "easy")),
    }
    return Protocol(vectors[order], image_of[order], _queries("queries_roxford5k.npz"), tasks)


def _regions() -> tuple[FloatArray, IntArray]:
    return np.load(FOLDER / "vectors.npy").astype(np.float32), np.load(FOLDER / "image_of.npy")


def _queries(file: str) -> list[FloatArray]:
    with np.load(FOLDER / file) as stored:
        vectors, query_of = stored["vectors"].astype(np.float32), stored["query_of"]
    return [vectors[query_of == i] for i in range(query_of.max() + 1)]
