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

Part = tuple[Service, FoundSet]
"""A collection, and what it has of a set."""


class GatheredSets:
    """Sets in which every photo goes by the key that clients know; everything here may take long."""

    def __init__(self, service: Answering) -> None:
        self._service = service

    def __iter__(self) -> Iterator[FoundSet]:
        parts: dict[str, list[Part]] = {}
        for home in self._service.homes:
            for one in home.served.index.sets:
                parts.setdefault(one.name, []).append((home, one))
        return (self._joined(parts[name]) for name in sorted(parts))

    def __getitem__(self, name: str) -> FoundSet:
        return self._joined(self._known(name))

    def _joined(self, parts: Sequence[Part]) -> FoundSet:
        """Return one set in place of what several collections have of it."""
        members = tuple(
            replace(member, key=self._service.outward(home, member.key))
            for home, one in parts
            for member in one.members
        )
        search = next((self._outward(home, one.search) for home, one in parts if one.search is not None), None)
        return FoundSet(parts[0][1].name, min(one.made for _, one in parts), members, search)

    def _parts(self, name: str) -> list[Part]:
        """Return what each collection has of the set of this name, where it has one."""
        return [(home, one) for home in self._service.homes if (one := home.served.index.sets.get(name)) is not None]

    def _known(self, name: str) -> list[Part]:
        parts = self._parts(name)
        if not parts:
            raise Problem(404, f"there is no set named {name!r}; /api/sets lists those there are.")
        return parts

    def add(self, name: str, photos: Views, verdict: str) -> None:
        """Add photos to a set, which is made if it is not there."""
        each: dict[Service, list[tuple[str, Sequence[float] | None]]] = {}
        for key, box in photos:
            home, own = self._service.home(key)
            each.setdefault(home, []).append((own, box))
        if not each and not self._parts(name):
            each = {self._service.homes[0]: []}
        for home, own_photos in each.items():
            home.served.index.sets.add(name, own_photos, verdict=verdict)

    def take(self, name: str, keys: Sequence[str]) -> None:
        """Take photos out of a set."""
        each: dict[Service, list[str]] = {}
        for key in keys:
            home, own = self._service.home(key)
            each.setdefault(home, []).append(own)
        for home, own_keys in each.items():
            home.served.index.sets.take(name, own_keys)

    def rename(self, name: str, new: str) -> None:
        """Give a set another name."""
        parts = self._known(name)
        if new != name and self._parts(new):
            raise InvalidInput(f"there is a set named {new!r} already; choose another name.")
        for home, _ in parts:
            home.served.index.sets.rename(name, new)

    def delete(self, name: str) -> None:
        """Forget a set; no photo is touched."""
        for home, _ in self._parts(name):
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
        searched = [home for home, one in self._known(name) if one.search is not None]
        if not searched:
            raise InvalidInput(f"the set {name!r} has no search; keep one with it.")
        found = []
        for home in searched:
            home.check()
            found += [(home, hit) for hit in home.served.index.sets.news(name)]
        return found
