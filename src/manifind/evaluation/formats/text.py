"""Ground truths in text files: Oxford5k and Paris6k, Holidays, ILIAS; and what every format asks of names."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from manifind.boxes import parse_box
from manifind.errors import InvalidInputError
from manifind.evaluation.protocol import (
    Images,
    Protocol,
    QueryPhoto,
    Task,
    box_around,
    name_lookup,
    numbers_of,
    preview,
)
from manifind.types import Box


def read_text(path: Path) -> str:
    """Return the text of a file; `InvalidInputError` where it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not UTF-8 text ({error}); save it as UTF-8.", code="not-utf-8") from error


def needed_names(names: Sequence[str] | None, path: Path) -> Sequence[str]:
    """Return the names of the collection's images, which a ground truth that lists none takes from elsewhere."""
    if names is None:
        raise InvalidInputError(
            f"{path} does not list the collection's images and the descriptors do not name them; give --names.",
            code="no-image-names",
        )
    return names


def refuse_missing(missing: Sequence[str], file: str) -> None:
    """Raise `InvalidInputError` where a ground truth names images that the collection does not have."""
    if missing:
        unique = list(dict.fromkeys(missing))
        raise InvalidInputError(
            f"{file} names images that are not in the collection: {preview(unique)}; give its own collection.",
            code="unknown-image",
        )


def title_of(path: Path) -> str:
    """Return what a published ground truth is called, or the name of its file."""
    stem = path.stem.removeprefix("gnd_").removeprefix("ground_")
    known = {
        "roxford5k": "ROxford5k",
        "rparis6k": "RParis6k",
        "oxford5k": "Oxford5k",
        "paris6k": "Paris6k",
        "instre": "INSTRE",
    }
    return known.get(stem.lower(), stem)


LABELS = ("good", "ok", "junk")


def oxford_folder(folder: Path, names: Sequence[str]) -> Protocol:
    """Read the official text files (Philbin et al. 2007, 2008): positives are good and ok, junk is ignored.

    ``KEY_query.txt`` has the photo's name, with ``oxc1_`` before it in Oxford5k, and the box. The query's photo counts
    as good, as the protocol has it.
    """
    files = sorted(folder.glob("*_query.txt"))
    if not files:
        raise InvalidInputError(
            f"{folder} has no *_query.txt; give the folder of Oxford5k's or Paris6k's ground truth.",
            code="no-query-files",
        )
    entries: dict[str, dict[str, Any]] = {}
    for file in files:
        key = file.name.removesuffix("_query.txt")
        words = read_text(file).split()
        if len(words) != 5:
            raise InvalidInputError(
                f"{file} has {len(words)} words; expected a photo's name and the four numbers of a box.",
                code="query-file",
            )
        entries[key] = {"name": words[0].removeprefix("oxc1_"), "box": words[1:]}
        for label in LABELS:
            listed = folder / f"{key}_{label}.txt"
            if not listed.is_file():
                raise InvalidInputError(
                    f"{listed} is missing; each query has four files: query, good, ok, junk.", code="missing-file"
                )
            entries[key][label] = read_text(listed).split()
    paris = any(key.startswith(("eiffel", "louvre", "triomphe", "notredame")) for key in entries)
    return of_entries("Paris6k" if paris else "Oxford5k", entries, names, str(folder))


def of_entries(name: str, entries: Mapping[str, Mapping[str, Any]], names: Sequence[str], file: str) -> Protocol:
    """Make a protocol of name, box, good, ok and junk by the key of each query."""
    find, missing = name_lookup(names), list[str]()
    queries, positives, junk = [], [], []
    for key in sorted(entries):
        entry = entries[key]
        queries.append(QueryPhoto(key, str(entry["name"]), parse_box(entry["box"], f"the box of {key}")))
        positives.append(numbers_of([*entry["good"], *entry["ok"]], find, missing))
        junk.append(numbers_of(entry["junk"], find, missing))
    refuse_missing(missing, file)
    task = Task(name, tuple(positives), tuple(junk))
    return Protocol(name, tuple(names), tuple(queries), (task,), query_counts=True, files=(file,))


def is_entry(entry: object) -> bool:
    """Warn whether this is what one of the official files says of a query."""
    return isinstance(entry, dict) and {"name", "box", *LABELS} <= set(entry)


def holidays(path: Path) -> Protocol:
    """Read INRIA Holidays off the names of its photos, a line each.

    ``1234500.jpg`` is the query of group 12345 and the others of the group are its positives; the query itself is
    ignored. The files of the evaluation package have the name first and more words after it.
    """
    names = [line.split()[0] for line in read_text(path).splitlines() if line.strip()]
    stems = [Path(name).stem for name in names]
    wrong = [name for name, stem in zip(names, stems, strict=True) if not stem.isdigit()]
    if wrong:
        raise InvalidInputError(
            f"{path} lists photos that are not called by a number, as those of Holidays are: {preview(wrong)}.",
            code="not-holidays",
        )
    groups: dict[int, list[int]] = {}
    for number, stem in enumerate(stems):
        groups.setdefault(int(stem) // 100, []).append(number)
    queries, positives, junk = [], [], []
    for number, stem in enumerate(stems):
        if int(stem) % 100 == 0:
            queries.append(QueryPhoto(stem, names[number]))
            positives.append(np.array([i for i in groups[int(stem) // 100] if i != number], np.int64))
            junk.append(np.array([number], np.int64))
    task = Task("Holidays", tuple(positives), tuple(junk))
    return Protocol("Holidays", tuple(names), tuple(queries), (task,), files=(str(path),))


def ilias(folder: Path, names: Sequence[str]) -> Protocol:
    """Read ILIAS off its folder ``ilias_core``, one folder an object.

    ``OBJECT/query/Q*.jpg`` are queries and ``OBJECT/pos/P*.jpg`` their positives, each with a text file of boxes, x, y,
    width and height; all that a query's boxes hold is looked for. Every other photo of the collection is a distractor,
    but for the query photos, which are no part of it.
    """
    images = tuple(name for name in names if "query" not in PurePosixPath(name).parts[-2:-1])
    find, missing = name_lookup(images), list[str]()
    queries: list[QueryPhoto] = []
    positives: list[Images] = []
    objects: list[dict[int, Box]] = []
    for object_folder in sorted(path for path in folder.iterdir() if (path / "query").is_dir()):
        listed = [
            (f"{object_folder.name}/pos/{file.stem.removesuffix('_bbox')}", file)
            for file in _box_files(object_folder / "pos")
        ]
        wanted = numbers_of([name for name, _ in listed], find, missing)
        boxes = {number: box_around(file) for name, file in listed if (number := find(name)) is not None}
        for file in _box_files(object_folder / "query"):
            name = f"{object_folder.name}/query/{file.stem.removesuffix('_bbox')}"
            queries.append(QueryPhoto(name, f"{name}.jpg", box_around(file)))
            positives.append(wanted)
            objects.append(boxes)
    refuse_missing(missing, str(folder))
    task = Task("ILIAS", tuple(positives), tuple(np.empty(0, np.int64) for _ in queries))
    return Protocol("ILIAS", images, tuple(queries), (task,), objects=tuple(objects), files=(str(folder),))


def _box_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*_bbox.txt"))
