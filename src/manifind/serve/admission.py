"""How many searches are let in: no more than can be answered well within their time, at the pace of late."""

from collections.abc import Iterator
from contextlib import contextmanager

from manifind.serve.metrics import Metrics
from manifind.serve.problems import busy
from manifind.serve.settings import Settings

WELL_WITHIN = 0.7
"""The part of the time limit that what is let in may take to be answered."""

REMEMBERED = 0.5
"""How much earlier searches say about the pace, beside those that were solved last."""

FEWEST_WAITING = 4
"""Searches that are let in however slow the machine is."""


class Admission:
    """The places for searches, as many as the solver's pace allows."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self._under_way = 0
        self._pace = 0.0
        """Seconds that the solver takes for a search of late, in the company that it has."""
        self._spent = self._searches = 0.0
        """Seconds that the solver has worked, and for how many searches: the latest count most."""

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold one of the places; 503 where none is free."""
        in_time = int(WELL_WITHIN * self._settings.time_limit / max(self._pace, 1e-6))
        if self._under_way >= min(self._settings.waiting, max(FEWEST_WAITING, in_time)):
            self._metrics.refused.inc()
            raise busy()
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def note(self, seconds: float, searches: int) -> None:
        """Note how long the solver took for searches that it solved together.

        Where there are none, as for queries that were taught by a search that was counted, the time belongs to those
        that come next.
        """
        self._spent += seconds
        if searches:
            self._searches += searches
            self._pace = self._spent / self._searches
            self._spent, self._searches = REMEMBERED * self._spent, REMEMBERED * self._searches

    def _count(self, more: int) -> None:
        self._under_way += more
        self._metrics.busy.set(self._under_way)
