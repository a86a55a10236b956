"""Many queries at once: a list of photos and boxes, described one by one and answered with one pass over the graph.

A list is a CSV file with the columns ``photo``, ``box`` (or ``x0``, ``y0``, ``x1``, ``y1``) and ``name``. Rows of the
same name are one query of several views. A photo that cannot be read costs its query, not the batch.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from manifind.describe import Unreadable
from manifind.errors import InvalidInput
from manifind.index.asking.answer import Answer
from manifind.index.asking.closer import closer_answer
from manifind.index.asking.features import kind_of, sought_in
from manifind.index.asking.query import QueryRegions, View, rank, view
from manifind.index.asking.refine import NONE, refined_answers
from manifind.index.asking.sources import Source
from manifind.index.asking.verified import VerifiedAnswer
from manifind.index.asking.verify import deepest, verified_answer
from manifind.types import StageProgress

if TYPE_CHECKING:
    from manifind.index.index import Index

CORNERS = ("x0", "y0", "x1", "y1")
LARGEST = 10_000_000
"""The most bytes that a list may have. A longer file is not a list of queries."""

Views = Sequence[tuple[Source, Sequence[float] | None]]


@dataclass(frozen=True)
class Asked:
    """One query of a batch: photos, and a box in each or None."""

    name: str
    views: Views


@dataclass(frozen=True)
class Outcome:
    """What became of a query."""

    asked: Asked
    answer: Answer | None
    problem: str | None = None
    """Why there is no answer, in a sentence."""


def read_queries(file: Path, is_photo: Callable[[str], bool]) -> list[Asked]:
    """Read a list of queries.

    Parameters
    ----------
    file : Path
        A CSV file with a header.
    is_photo : callable
        Says whether a name is that of a photo as it stands; if it is not, it is taken from the list's own folder.
    """
    if not file.is_file():
        raise InvalidInput(f"{file} is not a file; give a CSV file with the columns photo, box, name.")
    if file.stat().st_size > LARGEST:
        raise InvalidInput(f"{file} is longer than {LARGEST // 10**6} million bytes; divide it.")
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{file} is no CSV file ({error}); give one with the columns photo, box, name.") from error
    if not rows or "photo" not in rows[0]:
        raise InvalidInput(f"{file} has no column named photo, or no row; give the columns photo, box, name.")
    named: dict[str, list[tuple[Source, Sequence[float] | None]]] = {}
    for number, row in enumerate(rows, 2):
        photo = (row.get("photo") or "").strip()
        if not photo:
            raise InvalidInput(f"line {number} of {file} names no photo; fill its column photo.")
        where = photo if is_photo(photo) else str(file.parent / photo)
        name = (row.get("name") or "").strip() or f"{number - 1} {photo}"
        named.setdefault(name, []).append((where, _box(row, number, file)))
    return [Asked(name, tuple(views)) for name, views in named.items()]


def _box(row: dict[str, str], number: int, file: Path) -> tuple[float, ...] | None:
    written = (row.get("box") or "").strip(" ()[]")
    apart = [row.get(side) or "" for side in CORNERS]
    parts = written.replace(";", ",").replace(" ", ",").split(",") if written else apart
    parts = [part.strip() for part in parts if part.strip()]
    if not parts:
        return None
    try:
        box = tuple(float(part) for part in parts)
    except ValueError:
        box = ()
    if len(box) != 4:
        raise InvalidInput(f"line {number} of {file} has the box {written or parts!r}; give four numbers x0,y0,x1,y1.")
    return box


def batch(
    index: "Index",
    queries: Sequence[Asked],
    *,
    top: int | None = 20,
    method: str = "regional",
    verify: int = 0,
    refine: str = NONE,
    progress: StageProgress | None = None,
) -> list[Outcome]:
    """Answer queries, those of regional diffusion with one pass over the graph; in the order in which they were asked.

    Parameters are those of `Index.search`; `progress` is told of "queries" as they are described, and of "geometry".
    """
    report = progress or (lambda *_: None)
    state, describer = index.state, index.describer
    described: dict[int, QueryRegions] = {}
    problems: dict[int, str] = {}
    for place, asked in enumerate(queries):
        try:
            views: list[View] = [view(describer, index.pixels(photo), box) for photo, box in asked.views]
            described[place] = QueryRegions.of(views)
        except (InvalidInput, Unreadable) as error:
            problems[place] = str(error)
        report("queries", place + 1, len(queries))
    looked_at = None if top is None else max(top, deepest(verify))
    searches = dict(zip(described, rank(state, list(described.values()), looked_at, method), strict=True))
    answers: dict[int, Answer] = {}
    for place, search in searches.items():
        own = [record.number for photo, _ in queries[place].views if (record := index.find(photo)) is not None]
        answers[place] = Answer(search, own=own)
    if verify:
        answers |= _verified(index, queries, answers, verify, top, refine, report)
    return [
        Outcome(asked, None, problems[place]) if place in problems else Outcome(asked, answers[place].reached())
        for place, asked in enumerate(queries)
    ]


def _verified(
    index: "Index",
    queries: Sequence[Asked],
    answers: Mapping[int, Answer],
    first: int,
    top: int | None,
    refine: str,
    report: StageProgress,
) -> dict[int, VerifiedAnswer]:
    """Let geometry look at answers, and where wanted let verified photos teach all queries, in one more pass."""
    looked_at: dict[int, VerifiedAnswer] = {}
    sought = {}
    for done, (place, answer) in enumerate(answers.items(), 1):
        kind = kind_of(answer.search.generation)
        sought[place] = [sought_in(index.pixels(photo), box, kind=kind) for photo, box in queries[place].views]
        looked_at[place] = verified_answer(answer, sought[place], first=first)
        report("geometry", done, len(answers))
    if refine == NONE:
        return {place: closer_answer(answer, sought[place]).cut(top) for place, answer in looked_at.items()}
    refined = refined_answers(list(looked_at.values()), list(sought.values()), first=first, top=top)
    return dict(zip(looked_at, refined, strict=True))
