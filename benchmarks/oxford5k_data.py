"""Region descriptors of Oxford5k, if they are at hand: ``../shared/data/oxford5k`` beside the repository.

5,063 photos (Philbin et al. 2007), 106,887 regions, MobileNetV2, 512 dimensions after whitening; 55 queries with their
ground truth, and the 70 queries of the Revisited protocol (Radenović et al. 2018) on 4,993 of the photos.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from manifind.evaluation import Task, read_truth
from manifind.evaluation.dataset import EvaluationSet, prepare
from manifind.evaluation.descriptors import read_collection, read_queries
from manifind.groups import Layout, aggregate, aggregate_one
from manifind.types import FloatArray, IntArray

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "oxford5k"


def at_hand() -> bool:
    return (FOLDER / "vectors.npy").is_file()


@dataclass(frozen=True)
class Protocol:
    data: EvaluationSet

    @property
    def vectors(self) -> FloatArray:
        return self._regions[0]

    @property
    def image_of(self) -> IntArray:
        return self._regions[1]

    @cached_property
    def queries(self) -> list[FloatArray]:
        assert self.data.queries.regional is not None  # noqa: S101
        return self.data.queries.regional.apart()

    @property
    def tasks(self) -> dict[str, Task]:
        return {task.name: task for task in self.data.protocol.tasks}

    @cached_property
    def whole_images(self) -> FloatArray:
        """Global descriptors, a row for each image number."""
        return aggregate(self.vectors, Layout.of(self.image_of))

    @cached_property
    def whole_queries(self) -> list[FloatArray]:
        """The global descriptor of each query."""
        return [aggregate_one(query) for query in self.queries]

    @property
    def _regions(self) -> tuple[FloatArray, IntArray]:
        assert self.data.images.regional is not None  # noqa: S101
        return self.data.images.regional.vectors, self.data.images.regional.of


def oxford5k() -> Protocol:
    return _read("oxford5k")


def revisited() -> Protocol:
    """Easy, Medium and Hard; image numbers are places in the ground truth's own list of photos."""
    return _read("roxford5k")


def _read(name: str) -> Protocol:
    collection, _ = read_collection(FOLDER)
    truth = read_truth(FOLDER / f"ground_{name}.json", collection.names)
    return Protocol(prepare(truth, collection, read_queries(FOLDER / f"queries_{name}.npz")))
