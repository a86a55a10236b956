"""The photos and folders of a collection, a stretch at a time."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any

from manifind.index.state.generation import State
from manifind.serve.answers import shown
from manifind.serve.stages import Stage


class Browsing:
    """Looks through the catalogue in a thread; `once` finds out a thing about a state of the index and keeps it."""

    def __init__(self, stage: Stage, once: Callable[[State, Any, Callable[[], Any]], Any]) -> None:
        self._stage, self._once = stage, once

    async def photos(self, now: State, folder: str, contains: str, start: int, count: int) -> dict[str, Any]:
        """Return a stretch of the photos whose key lies below `folder` and has `contains` in it."""

        def found() -> list[int]:
            keys = self._once(now, "keys", lambda: [one.key for one in now.catalogue.images])
            numbers: list[int] = self._once(
                now, (folder, contains), lambda: _matching(keys, folder, contains.casefold())
            )
            return numbers

        numbers = await self._stage.do(1, found)
        stretch = [now.catalogue[number] for number in numbers[start : start + count]]
        return {
            "total": len(numbers),
            "start": start,
            "generation": now.number,
            "photos": [shown(one) for one in stretch],
        }

    async def folders(self, now: State) -> dict[str, Any]:
        """Return the folders of the collection, with how many photos each has."""
        return {"folders": await self._stage.do(1, lambda: self._once(now, "folders", lambda: _folders(now)))}

    async def info(self, now: State, find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what `find` tells of the index; where things lie on this machine is not told."""
        facts = dict(await self._stage.do(1, lambda: self._once(now, "info", find)))
        for name in ("path", "photos_folder"):
            facts.pop(name, None)
        learnt = facts["whitening"]
        name = PurePosixPath(learnt["from"]).name
        facts["whitening"] = {**learnt, "from": name, "words": learnt["words"].replace(learnt["from"], name)}
        return facts


def _matching(keys: Sequence[str], folder: str, contains: str) -> list[int]:
    below = f"{folder.rstrip('/')}/" if folder else ""
    return [
        number
        for number, key in enumerate(keys)
        if key.startswith(below) and (not contains or contains in key.casefold())
    ]


def _folders(now: State) -> list[dict[str, Any]]:
    counts: Counter[str] = Counter()
    for one in now.catalogue.images:
        for above in PurePosixPath(one.key).parents:
            if str(above) != ".":
                counts[str(above)] += 1
    return [{"folder": folder, "photos": counts[folder]} for folder in sorted(counts)]
