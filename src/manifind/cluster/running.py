"""Who runs tasks, as those who hand them out see it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class Running(Protocol):
    """Who runs tasks: `manifind.cluster.workers.DaskWorkers`."""

    def machines(self) -> "Counter[str]":
        """Return how many tasks each machine runs at once."""

    def threads(self, tasks: int) -> list[int]:
        """Return how many threads each of some tasks may use."""

    def memory(self) -> int:
        """Return the bytes that the rows of one task may take."""

    def run(self, calls: Sequence[tuple[Any, ...]]) -> Iterator[int]:
        """Hand out tasks, and yield their places as they are done."""
