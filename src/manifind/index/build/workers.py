"""The interface of workers, which extract, whiten and compare regions in place of the building process.

`manifind.distributed` implements it with Dask's workers. That package is imported when a client is given.
"""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from manifind.features import Regions
from manifind.features.moments import DoubleArray, Sums
from manifind.index.build.gather import Outcomes
from manifind.index.build.journal import Journal
from manifind.index.storage.build_config import BuildConfig
from manifind.io import ListedFile
from manifind.kernels import KnnGraphBuilder
from manifind.types import Vectors

MODULE = "manifind.distributed.workers"
"""The module whose function `workers` makes workers of a client or of a scheduler's address."""


class Workers(Protocol):
    """Do the long parts of a build in other processes, with the same result."""

    def extract(
        self, found: Sequence[ListedFile], config: BuildConfig, regions_per_image: int | None, work: Path
    ) -> Outcomes:
        """Yield what becomes of photos, in their order; what is finished may be kept in the folder `work`."""

    def sum_rows(self, raw: Journal, parts: Sequence[Sequence[tuple[int, int]]], around: DoubleArray) -> Iterator[Sums]:
        """Add up the rows of each part of a journal around a point: a part is the runs of rows that it has."""

    def whiten(
        self, raw: Journal, config: BuildConfig, groups: Sequence[Sequence[tuple[int, int]]]
    ) -> Iterator[list[Regions]]:
        """Yield `learning.whitened` of each group of photos, which are runs of rows."""

    def knn_builder(self, vectors: Vectors, file: Path) -> KnnGraphBuilder:
        """Return a builder of the k-NN graph of vectors that lie in a file, whose work workers do."""

    def clean_up(self, work: Path) -> None:
        """Remove what was kept in the folder `work` or elsewhere: the index is written."""

    def close(self) -> None:
        """Close a connection that was opened here."""


@contextmanager
def connect_workers(client: Any) -> Iterator[Workers | None]:
    """Yield the workers of a Dask client, or of the scheduler at an address; None where there is no client."""
    if client is None:
        yield None
        return
    made: Workers = importlib.import_module(MODULE).workers(client)
    try:
        yield made
    finally:
        if made is not client:
            made.close()
