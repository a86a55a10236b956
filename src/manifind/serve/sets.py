"""The sets of all collections, by name: a set may have photos of several, and each collection keeps its own of them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from manifind.describe import key_of, key_to_path
from manifind.errors import InvalidInput
from manifind.index import Hit
from manifind.index.sets import FoundSet
from manifind.serve.answering import Answering
from manifind.serve.problems import Problem
from manifind.serve.service import Service

Views = Sequence[tuple[str, Sequence[float] | None]]
"""Photos by the keys that clients know, and a box in each or None."""


class GatheredSets:
    """Sets in which every photo goes by the key that clients know; everything here may take long."""

    def __init__(self, service: Answering) -> None:
        self._service = service

    def __iter__(self) -> Iterator[FoundSet]:
        names = {name for home in self._service.homes for name in home.served.index.sets.names()}
        return (self[name] for name in sorted(names))

    def __getitem__(self, name: str) -> FoundSet:
        homes = self._with(name)
        if not homes:
            raise Problem(404, f"there is no set named {name!r}; /api/sets lists those there are.")
        parts = [(home, home.served.index.sets[name]) for home in homes]
        members = tuple(
            replace(member, key=self._service.outward(home, member.key))
            for home, one in parts
            for member in one.members
        )
        search = next((self._outward(home, one.search) for home, one in parts if one.search is not None), None)
        return FoundSet(name, min(one.made for _, one in parts), members, search)

    def _with(self, name: str) -> list[Service]:
        """Return the collections that have a set of this name."""
        return [home for home in self._service.homes if name in home.served.index.sets.names()]

    def add(self, name: str, photos: Views, verdict: str) -> None:
        """Add photos to a set, which is made if it is not there."""
        each: dict[Service, list[tuple[str, Sequence[float] | None]]] = {}
        for key, box in photos:
            home, own = self._service.home(key)
            each.setdefault(home, []).append((own, box))
        if not each and not self._with(name):
            each = {self._service.homes[0]: []}
        for home, own_photos in each.items():
            home.served.index.sets.add(name, own_photos, verdict=verdict)

    def take(self, name: str, keys: Sequence[str]) -> None:
        """Take photos out of a set."""
        for key in keys:
            home, own = self._service.home(key)
            home.served.index.sets.take(name, [own])

    def rename(self, name: str, new: str) -> None:
        """Give a set another name."""
        self[name]
        if new != name and self._with(new):
            raise InvalidInput(f"there is a set named {new!r} already; choose another name.")
        for home in self._with(name):
            home.served.index.sets.rename(name, new)

    def delete(self, name: str) -> None:
        """Forget a set; no photo is touched."""
        for home in self._with(name):
            home.served.index.sets.delete(name)

    # -- a search that is kept ----------------------------------------------------------------------------------------

    def keep_search(self, name: str, views: Views, not_this: Views, method: str, seen: Sequence[str]) -> None:
        """Keep a search with a set in every collection, and remember what it found."""
        found: dict[Service, list[str]] = {home: [] for home in self._service.homes}
        for key in seen:
            home, own = self._service.home(key)
            found[home].append(own)
        for home, keys in found.items():
            own_views, own_not = ([self._for(home, *view) for view in some] for some in (views, not_this))
            home.served.index.sets.keep_search(name, own_views, not_this=own_not, method=method, seen=keys)

    def _for(self, home: Service, key: str, box: Sequence[float] | None) -> tuple[str, Sequence[float] | None]:
        """Return a view as one collection keeps it: a photo of another collection goes by its path."""
        lies_in, own = self._service.home(key)
        record = lies_in.pictures.record(lies_in.now, own)  # a path would be read when the search is asked again
        return own if lies_in is home else str(key_to_path(lies_in.now.manifest.root, record.key)), box

    def _outward(self, home: Service, search: Any) -> dict[str, Any]:
        def outward(views: Any) -> list[Any]:
            return [[self._outward_key(home, key), box] for key, box in views]

        return {**search, **{name: outward(search[name]) for name in ("views", "not_this")}}

    def _outward_key(self, home: Service, key: str) -> str:
        if home.now.catalogue.photo_of(key) is not None:
            return self._service.outward(home, key)
        for other in self._service.homes:
            root = other.now.manifest.root
            if Path(key).is_relative_to(root):
                return self._service.outward(other, key_of(root, key))
        return key

    def news(self, name: str) -> list[tuple[Service, Hit]]:
        """Return what the search of a set finds above the line and had not found before, by collection."""
        if self[name].search is None:
            raise InvalidInput(f"the set {name!r} has no search; keep one with it.")
        found = []
        for home in self._with(name):
            home.check()
            own = home.served.index.sets
            found += [(home, hit) for hit in own.news(name)] if own[name].search is not None else []
        return found
