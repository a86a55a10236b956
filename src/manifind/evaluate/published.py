"""Figures that others published, as data with their sources: ``published.json``.

A published figure stands beside one measured here only if both are of the same method on the same descriptors, by the
same protocol and definition of average precision. Otherwise it is shown and marked as not comparable, with the reason.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from manifind.errors import InvalidInput

NOT_KNOWN = "AP may differ"


@dataclass(frozen=True)
class Published:
    """A row of somebody's table."""

    method: str | None
    """The method's name here, if there is such."""
    title: str
    descriptors: str
    definition: str | None
    values: dict[str, float]
    """mAP in percent by column: the protocol's name, and the task's where it has several."""
    source: str
    note: str

    def why_not_comparable(self, descriptors: str | None, definition: str) -> str:
        """Return why a figure measured here cannot be held against this one; nothing if it can."""
        if self.definition is None:
            return NOT_KNOWN
        if self.definition != definition:
            return f"AP is {self.definition}, not {definition}"
        if self.method is None:
            return "the method is not one of these"
        if descriptors != self.descriptors:
            return "other descriptors"
        return ""


@cache
def _stored() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((files("manifind.evaluate") / "published.json").read_text(encoding="utf-8"))
    return stored


def known_descriptors() -> dict[str, str]:
    """Return the descriptors that published figures are of, by name, with what they are."""
    return dict(_stored()["descriptors"])


def check_descriptors(name: str | None) -> None:
    """Raise `InvalidInput` for a name that no published figure goes by."""
    if name is not None and name not in known_descriptors():
        raise InvalidInput(f"descriptors are {name!r}; published figures are of {', '.join(known_descriptors())}.")


def published(columns: Iterable[str]) -> list[Published]:
    """Return the rows that have a figure for any of these columns."""
    wanted = set(columns)
    rows = [Published(**row) for row in _stored()["figures"]]
    return [row for row in rows if wanted & set(row.values)]
