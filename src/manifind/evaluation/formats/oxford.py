"""Oxford5k and Paris6k (Philbin et al. 2007, 2008): the official text files, or the same in one JSON file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from manifind.errors import InvalidInputError
from manifind.evaluation.formats.names import refuse_missing
from manifind.evaluation.protocol import Protocol, QueryPhoto, Task, as_box, name_lookup, numbers_of

LABELS = ("good", "ok", "junk")


def oxford_folder(folder: Path, names: Sequence[str]) -> Protocol:
    """Read the official text files (Philbin et al. 2007, 2008): positives are good and ok, junk is ignored.

    ``KEY_query.txt`` has the photo's name, with ``oxc1_`` before it in Oxford5k, and the box. The query's photo counts
    as good, as the protocol has it.
    """
    files = sorted(folder.glob("*_query.txt"))
    if not files:
        raise InvalidInputError(
            f"{folder} has no *_query.txt; give the folder of Oxford5k's or Paris6k's ground truth."
        )
    entries: dict[str, dict[str, Any]] = {}
    for file in files:
        key = file.name.removesuffix("_query.txt")
        words = file.read_text(encoding="utf-8").split()
        if len(words) != 5:
            raise InvalidInputError(
                f"{file} has {len(words)} words; expected a photo's name and the four numbers of a box."
            )
        entries[key] = {"name": words[0].removeprefix("oxc1_"), "box": words[1:]}
        for label in LABELS:
            listed = folder / f"{key}_{label}.txt"
            if not listed.is_file():
                raise InvalidInputError(f"{listed} is missing; each query has four files: query, good, ok, junk.")
            entries[key][label] = listed.read_text(encoding="utf-8").split()
    paris = any(key.startswith(("eiffel", "louvre", "triomphe", "notredame")) for key in entries)
    return of_entries("Paris6k" if paris else "Oxford5k", entries, names, str(folder))


def of_entries(name: str, entries: Mapping[str, Mapping[str, Any]], names: Sequence[str], file: str) -> Protocol:
    """Make a protocol of name, box, good, ok and junk by the key of each query."""
    find, missing = name_lookup(names), list[str]()
    queries, positives, junk = [], [], []
    for key in sorted(entries):
        entry = entries[key]
        queries.append(QueryPhoto(key, str(entry["name"]), as_box(entry["box"], key)))
        positives.append(numbers_of([*entry["good"], *entry["ok"]], find, missing))
        junk.append(numbers_of(entry["junk"], find, missing))
    refuse_missing(missing, file)
    task = Task(name, tuple(positives), tuple(junk))
    return Protocol(name, tuple(names), tuple(queries), (task,), query_counts=True, files=(file,))


def is_entry(entry: object) -> bool:
    """Say whether this is what one of the official files says of a query."""
    return isinstance(entry, dict) and {"name", "box", *LABELS} <= set(entry)
