"""Figures that others published, as data with their sources: ``published.json``.

A published figure says what was computed as a method with its parameters: pooling, regions, shortlist, graph. It stands
beside a run of exactly that, and can be compared with it where descriptors and definition of average precision are the
same too. Otherwise the reason is given.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from manifind.errors import InvalidInputError
from manifind.evaluation.methods import parse

PAPER = "Iscen et al., CVPR 2017"


@dataclass(frozen=True)
class Published:
    """A row of a published table."""

    method: str | None
    """What was computed, as ``--method`` takes it; None where it is not one of the methods here."""
    title: str
    descriptors: str
    definition: str | None
    measure: str
    """"mAP" in percent, "seconds" of a query, or "edges" a region."""
    values: dict[str, float]
    """By column: the protocol's name, and the task's where it has several."""
    source: str
    note: str

    @property
    def key(self) -> str | None:
        """What was computed, as `MethodSpec.key` has it."""
        return None if self.method is None else parse(self.method).key

    def why_not_comparable(self, descriptors: str | None, definition: str) -> str:
        """Return why a run of the same method cannot be compared with this row; nothing where it can."""
        if self.method is None:
            return "the method is not one of these"
        if self.measure == "seconds":
            return "another machine"
        if self.measure == "mAP":
            if self.definition is None:
                return "AP may differ"
            if self.definition != definition:
                return f"AP is {self.definition}, not {definition}"
        return "" if descriptors == self.descriptors else "other descriptors"


@cache
def _stored() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((files("manifind.evaluation") / "published.json").read_text(encoding="utf-8"))
    return stored


def known_descriptors() -> dict[str, str]:
    """Return the descriptors that published figures are of, by name, with what they are."""
    return dict(_stored()["descriptors"])


def check_descriptors(name: str | None) -> None:
    """Raise `InvalidInputError` for descriptors that no published figure names."""
    if name is not None and name not in known_descriptors():
        raise InvalidInputError(
            f"descriptors are {name!r}; published figures are of {', '.join(known_descriptors())}.",
            code="unknown-descriptors",
        )


def published(columns: Iterable[str]) -> list[Published]:
    """Return the rows that have a figure for any of these columns."""
    wanted = set(columns)
    rows = [Published(**row) for row in _stored()["figures"]]
    return [row for row in rows if wanted & set(row.values)]


def methods_of_the_paper(columns: Iterable[str]) -> list[str]:
    """Return what the paper's tables and figures computed on these columns, or on Oxford5k if it has none of them."""
    for wanted in (list(columns), ["Oxford5k"]):
        rows = [row for row in published(wanted) if row.source.startswith(PAPER)]
        if rows:
            break
    return list(dict.fromkeys(row.method for row in rows if row.method is not None))
