"""Files that list images, queries and gnd: Revisited Oxford and Paris, INSTRE."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.boxes import parse_box
from manifind.errors import InvalidInputError
from manifind.evaluation.formats.text import title_of
from manifind.evaluation.protocol import (
    Images,
    Protocol,
    QueryPhoto,
    Task,
    duplicate_names,
    name_lookup,
    preview,
)
from manifind.types import Box


def from_gnd(stored: Any, path: Path, *, first: int = 0) -> Protocol:
    """Make a protocol of ``imlist``, ``qimlist`` (or ``qidx``) and ``gnd``; `first` is the number of the first image.

    Revisited (Radenović et al. 2018): with ``easy``, ``hard`` and ``junk``, three tasks. Easy passes over the hard,
    Hard over the easy, Medium looks for both. With ``ok``, one task: INSTRE as the paper has it, Oxford5k, Paris6k.
    """
    if not isinstance(stored, Mapping) or not {"imlist", "gnd"} <= set(stored):
        raise InvalidInputError(
            f"{path} has no imlist and gnd; give a file such as gnd_roxford5k.pkl or gnd_instre.mat.",
            code="truth-layout",
        )
    images = _texts(stored["imlist"], f"imlist of {path}")
    gnd = list(stored["gnd"])
    if "qimlist" in stored:
        asked = list(_texts(stored["qimlist"], f"qimlist of {path}"))
    elif "qidx" in stored:
        asked = [images[i] for i in _within(stored["qidx"], images, f"{path}'s qidx", first)]
    else:
        raise InvalidInputError(
            f"{path} has neither qimlist nor qidx; without them the queries are not known.", code="truth-layout"
        )
    if len(asked) != len(gnd):
        raise InvalidInputError(
            f"{path} has {len(asked)} queries and {len(gnd)} entries in gnd; it is cut short.", code="query-count"
        )
    corners = _corners([entry.get("bbx") for entry in gnd], path)
    repeated = set(duplicate_names(asked))
    queries = tuple(
        QueryPhoto(f"{name} ({i})" if name in repeated else name, name, box)
        for i, (name, box) in enumerate(zip(asked, corners, strict=True))
    )

    def labelled(entry: Mapping[str, Any], i: int, *labels: str) -> Images:
        values = [
            _within(entry.get(label, ()), images, f"{label} of {queries[i].name} in {path}", first) for label in labels
        ]
        return np.unique(np.concatenate(values))

    def task(name: str, wanted: tuple[str, ...], ignored: tuple[str, ...]) -> Task:
        positives = tuple(labelled(entry, i, *wanted) for i, entry in enumerate(gnd))
        return Task(name, positives, tuple(labelled(entry, i, *ignored) for i, entry in enumerate(gnd)))

    title = title_of(path)
    if any("easy" in entry for entry in gnd):
        return Protocol(title, images, queries, revisited_tasks(task), files=(str(path),))
    only = task(title, ("ok",), ("junk",))
    return Protocol(title, images, queries, (only,), query_counts=_all_count(images, queries, only), files=(str(path),))


def revisited_tasks(task: Any) -> tuple[Task, ...]:
    """Return Easy, Medium and Hard, made by ``task(name, labels wanted, labels ignored)``."""
    return (
        task("Easy", ("easy",), ("junk", "hard")),
        task("Medium", ("easy", "hard"), ("junk",)),
        task("Hard", ("hard",), ("junk", "easy")),
    )


def _all_count(images: Sequence[str], queries: Sequence[QueryPhoto], task: Task) -> bool:
    """Whether every query's photo is among its own positives: the rule of Oxford5k, not an accident."""
    find = name_lookup(images)
    return all(find(query.image) in wanted.tolist() for query, wanted in zip(queries, task.positives, strict=True))


def _corners(boxes: Sequence[Any], path: Path) -> list[Box | None]:
    """Return boxes as corners.

    Copies of gnd_instre.mat are described with corners and with x, y, width, height. Corners always ascend; widths and
    heights do not always exceed x and y: where one does not, all of the file are widths and heights.
    """
    read = [
        None if box is None else parse_box(_numbers(box, whose := f"the box of query {i} in {path}"), whose)
        for i, box in enumerate(boxes)
    ]
    if all(box is None or (box[0] < box[2] and box[1] < box[3]) for box in read):
        return list(read)
    return [None if box is None else (box[0], box[1], box[0] + box[2], box[1] + box[3]) for box in read]


def _texts(values: Any, what: str) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise InvalidInputError(
            f"{what} has entries that are no text; they should be names of photos.", code="truth-layout"
        )
    return tuple(str(value) for value in values)


def _numbers(values: Any, what: str) -> npt.NDArray[Any]:
    """Return numbers as a row; what is none is refused before NumPy makes an array of it."""
    plain = isinstance(values, list | tuple) and all(isinstance(value, int | float) for value in values)
    if not plain and not (isinstance(values, np.ndarray) and values.dtype.kind in "iuf"):
        raise InvalidInputError(f"{what} are not numbers; give a list of them.", code="truth-layout")
    numbers: npt.NDArray[Any] = np.asarray(values, np.float64 if not len(values) else None).ravel()
    return numbers


def _within(values: Any, images: Sequence[str], what: str, first: int) -> Images:
    numbers = _numbers(values, what)
    if not (np.isfinite(numbers) & (numbers == np.floor(numbers)) & (np.abs(numbers) < 2.0**53)).all():
        raise InvalidInputError(
            f"{what} are not whole numbers; they should be places in its list of images.", code="truth-layout"
        )
    places = numbers.astype(np.int64) - first
    outside = [str(number) for number in numbers[(places < 0) | (places >= len(images))]]
    if outside:
        raise InvalidInputError(
            f"{what} name images that are not among the {len(images)}: {preview(outside)}.", code="image-number"
        )
    return places
