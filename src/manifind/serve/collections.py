"""Several collections behind one address: what is asked goes to each, and what they answer becomes one.

To clients they are one collection whose top folders are the collections: ``first-0.png`` of ``holidays`` is
``holidays/first-0.png``, a search below the folder ``holidays`` searches that collection alone, and browsing,
downloads, sets and links need to know nothing else. A photo of one collection is to the others what an uploaded photo
is: it is described once more for each, since each collection has a whitening of its own.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from manifind.index import Index
from manifind.index.state.unfinished import SUFFIX
from manifind.serve.common import Common
from manifind.serve.merging import merged
from manifind.serve.problems import Problem
from manifind.serve.schemas import ExplainRequest, GeometryRequest, SearchRequest, ViewRequest
from manifind.serve.service import Service


class Collections:
    """The services of several collections, asked together.

    Parameters
    ----------
    indexes : sequence of Index
    common : Common
        What they share.
    """

    def __init__(self, indexes: Sequence[Index], common: Common) -> None:
        self.common, self.settings = common, common.settings
        self._services: dict[str, Service] = {}
        for index in indexes:
            service = Service(index, common)
            service.served.name = _free(service.name.removesuffix(SUFFIX), self._services)
            self._services[service.name] = service

    @property
    def homes(self) -> Sequence[Service]:
        """The services of all collections."""
        return tuple(self._services.values())

    @property
    def ready(self) -> bool:
        """Whether all of them are."""
        return all(one.ready for one in self.homes)

    async def start(self) -> None:
        """Begin to answer."""
        for one in self.homes:
            await one.start()

    async def stop(self) -> None:
        """Stop answering; what is shared goes on."""
        for one in self.homes:
            await one.stop()

    def check(self) -> None:
        """Raise `Problem` where the files of an index are not those that were opened."""
        for one in self.homes:
            one.check()

    def home(self, key: str) -> tuple[Service, str]:
        """Return the service of the collection that a key belongs to, and the key there."""
        name, _, own = key.partition("/")
        if name not in self._services:
            raise Problem(404, f"{ascii(key)[:200]} is in none of the collections; keys begin with {self._names()}.")
        return self._services[name], own

    def outward(self, home: Service, key: str) -> str:
        """Return the key by which clients know a photo of a collection."""
        return f"{home.name}/{key}"

    def _names(self) -> str:
        *others, last = (f"{name}/" for name in self._services)
        return f"{', '.join(others)} or {last}"

    # -- searching ----------------------------------------------------------------------------------------------------

    async def search(self, request: SearchRequest) -> dict[str, Any]:
        """Answer a search: those of all collections that it is meant for, merged."""
        asked = self._below(request.folder)
        requests = [self._for(home, request).model_copy(update={"folder": below}) for home, below in asked]
        answers = await _together([home.search(one) for (home, _), one in zip(asked, requests, strict=True)])
        told = [self._outward_answer(home, answer) for (home, _), answer in zip(asked, answers, strict=True)]
        return merged(request, told)

    def _below(self, folder: str | None) -> list[tuple[Service, str | None]]:
        """Return the collections that a folder lies in, with the folder there."""
        if not folder:
            return [(home, None) for home in self.homes]
        home, below = self.home(folder.strip("/"))
        return [(home, below or None)]

    def _for(self, home: Service, request: SearchRequest) -> SearchRequest:
        return request.model_copy(
            update={
                "views": [self._view(home, view) for view in request.views],
                "not_this": [self._view(home, view) for view in request.not_this],
            }
        )

    def _view(self, home: Service, view: ViewRequest) -> ViewRequest:
        """Return a view as the search of one collection takes it."""
        if view.key is None:
            return view
        lies_in, own = self.home(view.key)
        here = view.model_copy(update={"key": own})
        return here if lies_in is home else here.seen_from_elsewhere(lies_in.now)

    def _outward_answer(self, home: Service, answer: dict[str, Any]) -> dict[str, Any]:
        results = [
            {
                **one,
                "key": self.outward(home, one["key"]),
                "also_at": [self.outward(home, key) for key in one["also_at"]],
            }
            for one in answer["results"]
        ]
        return {**answer, "results": results}

    async def explain(self, request: ExplainRequest) -> dict[str, Any]:
        """Explain why a photo was found, within its collection."""
        home, own = self.home(request.key)
        views, not_this = ([self._view(home, view) for view in some] for some in (request.views, request.not_this))
        told = await home.explain(request.model_copy(update={"views": views, "not_this": not_this, "key": own}))
        links = [
            {**link, **{end: self._outward_place(home, link[end]) for end in ("source", "target")}}
            for link in told["links"]
        ]
        return {**told, "key": self.outward(home, told["key"]), "links": links}

    def _outward_place(self, home: Service, place: dict[str, Any]) -> dict[str, Any]:
        return {**place, "key": None if place["key"] is None else self.outward(home, place["key"])}

    async def points(self, request: GeometryRequest) -> dict[str, Any]:
        """Return the points that match in views of an object and in a photo."""
        home, own = self.home(request.key)
        views = [self._view(home, view) for view in request.views]
        return await home.points(request.model_copy(update={"views": views, "key": own}))

    # -- browsing -----------------------------------------------------------------------------------------------------

    async def photos(self, folder: str, contains: str, start: int, count: int) -> dict[str, Any]:
        """Return a stretch of the photos of all collections, one collection after the other."""
        total = 0
        found: list[dict[str, Any]] = []
        for home, below in self._below(folder):
            told = await home.photos(below or "", contains, max(0, start - total), count - len(found))
            if start < total + told["total"]:
                found += [{**one, "key": self.outward(home, one["key"])} for one in told["photos"]]
            total += told["total"]
        return {"total": total, "start": start, "generation": self._generation, "photos": found}

    @property
    def _generation(self) -> int:
        """A number that grows whenever one of the collections moves on."""
        return sum(home.now.number for home in self.homes)

    def photo(self, key: str) -> dict[str, Any]:
        """Return what the index knows of a photo."""
        home, own = self.home(key)
        told = home.photo(own)
        return {**told, "key": self.outward(home, told["key"])}

    async def folders(self) -> dict[str, Any]:
        """Return the folders: each collection is one."""
        found = []
        for home in self.homes:
            below = (await home.folders())["folders"]
            found.append({"folder": home.name, "photos": len(home.now.catalogue)})
            found += [{**one, "folder": self.outward(home, one["folder"])} for one in below]
        return {"folders": found}

    async def info(self) -> dict[str, Any]:
        """Return what each collection says of itself, and counts of all."""
        each = [await home.info() for home in self.homes]
        counts = {name: sum(one[name] for one in each) for name in ("photos", "regions")}
        return {"name": ", ".join(self._services), **counts, "collections": each}

    async def picture(self, one: ViewRequest, side: int) -> tuple[str, bytes]:
        """Return a photo or a part of it as a JPEG, and a name of its content."""
        if one.key is None:
            return await self.homes[0].picture(one, side)
        home, own = self.home(one.key)
        return await home.picture(one.model_copy(update={"key": own}), side)


async def _together(asked: Sequence[Any]) -> list[dict[str, Any]]:
    """Wait for all; where one fails, the others are given up."""
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _free(name: str, taken: dict[str, Service]) -> str:
    """Return a name that no collection has yet: a second ``photos`` becomes ``photos-2``."""
    plain = name.replace("/", "-") or "collection"
    return next(one for one in (plain, *(f"{plain}-{n}" for n in range(2, len(taken) + 3))) if one not in taken)
