"""Photos of a collection by folder, name and date: filters of searches, and the lists that a client browses."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any

from manifind.index.search.filters import date_of, excluded_images
from manifind.index.storage.snapshot import AnySnapshot
from manifind.serve.schemas import SearchRequest
from manifind.serve.serialization import photo_payload
from manifind.serve.worker_pool import WorkerPool


async def excluded_by(request: SearchRequest, snapshot: AnySnapshot) -> frozenset[int]:
    """Return the numbers of the photos outside the folder and the dates of a request."""
    if not request.filtered:
        return frozenset()
    return await asyncio.to_thread(excluded_images, snapshot, request.folder or None, request.since, request.until)


async def with_dates(payload: dict[str, Any], snapshot: AnySnapshot, request: SearchRequest) -> dict[str, Any]:
    """Return a search result whose photos have their dates, in that order where the request asks for it."""
    root = snapshot.manifest.root

    def dated() -> list[dict[str, Any]]:
        results = []
        for one in payload["results"]:
            record = snapshot.catalogue.photo_of(one["key"])
            results.append({**one, "date": None if record is None else date_of(root, record)})
        return sorted(results, key=lambda one: one["date"] or "") if request.sort == "date" else results

    return {**payload, "results": await asyncio.to_thread(dated)}


class Browsing:
    """Looks through the catalogue in a thread; `once` finds out a thing about a state of the index and keeps it."""

    def __init__(self, pool: WorkerPool, once: Callable[[AnySnapshot, Any, Callable[[], Any]], Any]) -> None:
        self._pool, self._once = pool, once

    async def photos(self, snapshot: AnySnapshot, folder: str, contains: str, start: int, count: int) -> dict[str, Any]:
        """Return a stretch of the photos whose key lies below `folder` and has `contains` in it."""

        def found() -> list[int]:
            keys = self._once(snapshot, "keys", lambda: [one.key for one in snapshot.catalogue.images])
            numbers: list[int] = self._once(
                snapshot, (folder, contains), lambda: _matching(keys, folder, contains.casefold())
            )
            return numbers

        numbers = await self._pool.submit(1, found)
        stretch = [snapshot.catalogue[number] for number in numbers[start : start + count]]
        return {
            "total": len(numbers),
            "start": start,
            "generation": snapshot.number,
            "photos": [photo_payload(one) for one in stretch],
        }

    async def folders(self, snapshot: AnySnapshot) -> dict[str, Any]:
        """Return the folders of the collection, with how many photos each has."""
        return {
            "folders": await self._pool.submit(1, lambda: self._once(snapshot, "folders", lambda: _folders(snapshot)))
        }

    async def info(self, snapshot: AnySnapshot, find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what `find` tells of the index; where things lie on this machine is not told."""
        facts = dict(await self._pool.submit(1, lambda: self._once(snapshot, "info", find)))
        for name in ("path", "photos_folder"):
            facts.pop(name, None)
        whitening = facts["whitening"]
        facts["whitening"] = {**whitening, "from": PurePosixPath(whitening["from"]).name}
        return facts


def _matching(keys: Sequence[str], folder: str, contains: str) -> list[int]:
    below = f"{folder.rstrip('/')}/" if folder else ""
    return [
        number
        for number, key in enumerate(keys)
        if key.startswith(below) and (not contains or contains in key.casefold())
    ]


def _folders(snapshot: AnySnapshot) -> list[dict[str, Any]]:
    counts: Counter[str] = Counter()
    for one in snapshot.catalogue.images:
        for above in PurePosixPath(one.key).parents:
            if str(above) != ".":
                counts[str(above)] += 1
    return [{"folder": folder, "photos": counts[folder]} for folder in sorted(counts)]
