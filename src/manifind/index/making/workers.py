"""The seat for workers: whoever describes, whitens and compares regions in place of the process that makes an index.

The room `manifind.cluster` fills it with Dask's workers. This room knows that one by its name alone, and imports it
when a client is given.
"""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from manifind.describe import Found, Regions
from manifind.describe.moments import DoubleArray, Sums
from manifind.index.making.gather import Outcomes
from manifind.index.making.journal import Journal
from manifind.index.state.recipe import Recipe
from manifind.kernels import Rows
from manifind.types import Vectors

ROOM = "manifind.cluster.workers"
"""The module whose function `workers` makes workers of a client or of a scheduler's address."""


class Workers(Protocol):
    """Who does the long parts of making an index, to the same result."""

    def described(self, found: Sequence[Found], recipe: Recipe, means: int | None, work: Path) -> Outcomes:
        """Yield what becomes of photos, in their order; what is finished may be kept in the folder `work`."""

    def sums(self, raw: Journal, parts: Sequence[Sequence[tuple[int, int]]], around: DoubleArray) -> Iterator[Sums]:
        """Add up the rows of each part of a journal around a point: a part is the runs of rows that it has."""

    def whitened(
        self, raw: Journal, recipe: Recipe, groups: Sequence[Sequence[tuple[int, int]]]
    ) -> Iterator[list[Regions]]:
        """Yield what `making.learning.whitened` makes of each group of photos, which are runs of rows."""

    def rows(self, vectors: Vectors, file: Path) -> Rows:
        """Return vectors that lie in a file, as rows that workers compare with each other."""

    def finished(self, work: Path) -> None:
        """Remove what was kept in the folder `work` or elsewhere: the index is written."""

    def close(self) -> None:
        """Let go of a connection that was made here."""


@contextmanager
def working(client: Any) -> Iterator[Workers | None]:
    """Give the workers of a client of Dask, or of the scheduler at an address; nobody where there is no client."""
    if client is None:
        yield None
        return
    made: Workers = importlib.import_module(ROOM).workers(client)
    try:
        yield made
    finally:
        if made is not client:
            made.close()
