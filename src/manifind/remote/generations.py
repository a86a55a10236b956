"""The generations of a published collection: which one is visible, and what it says of itself.

A generation is a document of its own name, written last and in one step; the visible generation is the newest that has
one. It names the documents that hold what is larger: the facts (how the collection was made, and what `info` says), the
whitening, and the numbers of rows that the generation no longer has, because newer rows took their place or because
their photos are gone. These rows are removed once the new generation is visible.
"""

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from manifind.errors import DamagedError, FormatVersionError
from manifind.features import Whitening
from manifind.index.storage.manifest import Manifest
from manifind.remote.row_format import Numbers
from manifind.remote.store import ONE_STEP, Store

FORMAT = 2
GRACE_SECONDS = 10.0
"""Seconds after a generation became visible before rows that it has no more are removed: searches end meanwhile."""

NAME = re.compile(r"generation-([0-9]{1,15})")


@dataclass(frozen=True, eq=False)
class Published:
    """One generation, as it was published."""

    number: int
    stamp: str
    photos: int
    regions: int
    dimension: int
    descriptors: int
    """How many a photo is found by; 0 is its global descriptor."""
    source: str
    """The stamp of the index that it was published from."""
    row_bytes: int
    """Of a packed row, in the mean."""
    manifest: Manifest
    facts: dict[str, Any]
    whitening: Whitening | None
    tombstones: Numbers
    """Rows that this generation has no more, ascending."""
    features: bool = False
    """Whether local features lie beside the rows."""

    @classmethod
    def read(cls, store: Store) -> Self | None:
        """Return the visible generation, or None where there is none."""
        while True:
            newest = visible_generation(store)
            if newest == 0:
                return None
            try:
                return cls._of(store, newest)
            except DamagedError:
                if visible_generation(store) == newest:  # else it went out of date while it was read
                    raise

    @classmethod
    def _of(cls, store: Store, number: int) -> Self:
        head = _json(_read(store, f"generation-{number}"))
        if head.get("format") != FORMAT:
            raise FormatVersionError(
                f"the collection is of format {head.get('format')}, not {FORMAT}; publish it again."
            )
        facts = _json(_read(store, f"facts-{number}"))
        try:
            shape, whitening = head["whitening"], None
            if shape is not None:
                values = np.frombuffer(_read(store, f"whitening-{number}"), "<f4")
                whitening = Whitening(values[: shape[0]].copy(), values[shape[0] :].reshape(shape).copy())
            return cls(
                number=number,
                stamp=str(head["stamp"]),
                photos=int(head["photos"]),
                regions=int(head["regions"]),
                dimension=int(head["dimension"]),
                descriptors=int(head["descriptors"]),
                source=str(head["source"]),
                row_bytes=int(head["row_bytes"]),
                manifest=Manifest.of(facts["manifest"]),
                facts=dict(facts["info"]),
                whitening=whitening,
                tombstones=np.frombuffer(_read(store, f"superseded-{number}"), "<i8"),
                features=bool(head.get("features", False)),
            )
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DamagedError(f"the collection does not say all of what it is ({error}); publish it again.") from error

    def write(self, store: Store) -> None:
        """Write the generation; it becomes visible with the last document."""
        number, learnt = self.number, self.whitening
        documents = {
            f"facts-{number}": json.dumps({"manifest": self.manifest.fields, "info": self.facts}).encode(),
            f"superseded-{number}": np.sort(self.tombstones).astype("<i8").tobytes(),
        }
        if learnt is not None:
            documents[f"whitening-{number}"] = b"".join(
                np.ascontiguousarray(part, "<f4").tobytes() for part in (learnt.mean, learnt.project)
            )
        store.delete([name for name in store.names() if name in documents])
        for name, content in documents.items():
            store.write(name, content)
        head: Mapping[str, Any] = {
            "format": FORMAT,
            "stamp": self.stamp,
            "photos": self.photos,
            "regions": self.regions,
            "dimension": self.dimension,
            "descriptors": self.descriptors,
            "source": self.source,
            "row_bytes": self.row_bytes,
            "features": self.features,
            "whitening": None if learnt is None else list(learnt.project.shape),
        }
        text = json.dumps(head).encode()
        if len(text) > ONE_STEP:
            raise ValueError("the head of a generation is longer than a store writes in one step")
        store.write(f"generation-{number}", text)


def visible_generation(store: Store) -> int:
    """Return the number of the visible generation; 0 where there is none."""
    return max((int(match[1]) for name in store.names() if (match := NAME.fullmatch(name))), default=0)


def delete_before(store: Store, number: int) -> None:
    """Remove the documents of earlier generations; those that make a generation visible last."""
    others = [name for name in store.names() if name.rpartition("-")[2].isdecimal()]
    earlier = [name for name in others if int(name.rpartition("-")[2]) < number]
    store.delete(sorted(earlier, key=lambda name: NAME.fullmatch(name) is not None))


def new_stamp() -> str:
    """Return what no other generation has."""
    return secrets.token_hex(16)


def _read(store: Store, name: str) -> bytes:
    content = store.read(name)
    if content is None:
        raise DamagedError(f"the collection has no {name}; publish it again.")
    return content


def _json(content: bytes) -> dict[str, Any]:
    try:
        metadata = json.loads(content)
    except ValueError as error:
        raise DamagedError(f"the collection does not say what it is ({error}); publish it again.") from error
    if not isinstance(metadata, dict):
        raise DamagedError("the collection does not say what it is; publish it again.")
    return metadata
