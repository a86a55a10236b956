"""Searches that are confined to a folder or to dates, and results in the order in which they were taken."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from manifind.index import Generation
from manifind.index.state.dates import date_of, is_within
from manifind.index.state.generation import State
from manifind.serve.problems import Problem
from manifind.serve.schemas import SearchRequest

T = TypeVar("T")


class Dated:
    """Knows the dates of photos; `once` finds out a thing about a state of the index and keeps it."""

    def __init__(self, once: Callable[[State, Any, Callable[[], Any]], Any]) -> None:
        self._once = once
        self._one_at_a_time = asyncio.Lock()

    async def outside(self, now: State, request: SearchRequest) -> frozenset[int]:
        """Return the numbers of the photos that a search leaves out."""
        if not request.filtered:
            return frozenset()
        if not isinstance(now, Generation):
            raise Problem(422, "A collection in a store cannot be confined to a folder or to dates; search all of it.")
        what = "outside", request.folder, request.since, request.until
        async with self._one_at_a_time:
            found: frozenset[int] = await asyncio.to_thread(
                self._once, now, what, lambda: self._left_out(now, request.folder, request.since, request.until)
            )
        return found

    def _left_out(self, now: Generation, folder: str | None, since: str | None, until: str | None) -> frozenset[int]:
        below = f"{folder.rstrip('/')}/" if folder else ""
        records = now.catalogue.images
        left_out = {record.number for record in records if not record.key.startswith(below)}
        if since is not None or until is not None:
            dates = self._dates(now)
            left_out |= {number for number, date in enumerate(dates) if not is_within(date, since, until)}
        return frozenset(left_out)

    def _dates(self, now: Generation) -> list[str]:
        """Return the dates of all photos; the heads of their files are read, once."""
        root = now.manifest.root
        dates: list[str] = self._once(now, "dates", lambda: [date_of(root, one) for one in now.catalogue.images])
        return dates

    async def told(self, now: State, request: SearchRequest, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer whose results say when they were taken, in that order where it was asked for."""
        root = now.manifest.root

        def dated() -> list[dict[str, Any]]:
            found = []
            for one in answer["results"]:
                record = now.catalogue.photo_of(one["key"])
                found.append({**one, "date": None if record is None else date_of(root, record)})
            return sorted(found, key=lambda one: one["date"] or "") if request.sort == "date" else found

        return {**answer, "results": await asyncio.to_thread(dated)}
