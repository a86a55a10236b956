"""A ground truth that anybody can write, in JSON or CSV; JSON may also hold Oxford's or Revisited's."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from manifind.boxes import parse_box
from manifind.errors import InvalidInputError
from manifind.evaluation.formats.gnd import from_gnd
from manifind.evaluation.formats.text import is_entry, needed_names, of_entries, read_text, refuse_missing, title_of
from manifind.evaluation.protocol import Protocol, QueryPhoto, Task, name_lookup, numbers_of, preview
from manifind.types import Box


def from_json(path: Path, names: Sequence[str] | None, *, query_counts: bool = False) -> Protocol:
    """Read a JSON file: your own, or Oxford's or Revisited's ground truth in one file.

    ::

        {"name": "toys",                                   all but queries may be left out
         "images": ["a.jpg", "b.jpg", "c.jpg"],            else the collection's
         "query_counts": false,                            true: a query's own photo is not ignored
         "queries": [{"name": "duck", "image": "duck.jpg", "box": [40, 60, 220, 310],
                      "positives": ["a.jpg", {"image": "b.jpg", "box": [0, 0, 50, 50], "photo": [640, 480]}],
                      "junk": ["c.jpg"]}]}

    The box of the object in a positive, with the photo's width and height, is for precision by object size.
    """
    text = read_text(path)
    try:
        stored = json.loads(text)
        json.dumps(stored, ensure_ascii=False).encode()  # half a character can be written in JSON, and not printed
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} is not JSON ({error}); give a ground truth.", code="not-json") from error
    is_oxford = isinstance(stored, dict) and stored and all(is_entry(entry) for entry in stored.values())
    if not is_oxford and not (isinstance(stored, dict) and isinstance(stored.get("queries"), list)):
        raise InvalidInputError(
            f"{path} has no list of queries; give "
            '{"queries": [{"image": "duck.jpg", "positives": ["a.jpg"]}]}, or a CSV file.',
            code="truth-layout",
        )
    try:
        if is_oxford:
            return of_entries(title_of(path), stored, needed_names(names, path), str(path))
        if any("easy" in query for query in stored["queries"]):
            return _revisited_json(stored, path)
        return _own(stored, path, names, query_counts=query_counts or bool(stored.get("query_counts")))
    except InvalidInputError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"{path} is not laid out as a ground truth: {type(error).__name__} at {error}.", code="truth-layout"
        ) from error


def from_csv(path: Path, names: Sequence[str], *, query_counts: bool = False) -> Protocol:
    """Read a CSV file with the columns query, box, positives and junk; name is optional.

    ``duck.jpg,"40,60,220,310",a.jpg;b.jpg,c.jpg``: photos are separated by semicolons, an empty box is the whole photo.
    """
    reader = csv.DictReader(read_text(path).splitlines(keepends=True))
    try:
        columns, rows = set(reader.fieldnames or ()), list(reader)
    except csv.Error as error:
        raise InvalidInputError(
            f"{path} is not CSV: {error} in line {reader.line_num}; give the ground truth in JSON.", code="not-csv"
        ) from error
    if not {"query", "positives"} <= columns:
        raise InvalidInputError(
            f"{path} has the columns {preview(sorted(columns))}; give query, box, positives, junk in its first line, "
            "with commas between.",
            code="csv-columns",
        )

    def split_names(cell: str | None) -> list[str]:
        return [part.strip() for part in (cell or "").split(";") if part.strip()]

    queries = [
        {
            "image": (row["query"] or "").strip(),
            "name": (row.get("name") or "").strip() or None,
            "box": row["box"].replace(";", ",").split(",") if (row.get("box") or "").strip() else None,
            "positives": split_names(row["positives"]),
            "junk": split_names(row.get("junk")),
        }
        for row in rows
    ]
    return _own({"queries": queries}, path, names, query_counts=query_counts)


def _own(stored: Mapping[str, Any], path: Path, names: Sequence[str] | None, *, query_counts: bool) -> Protocol:
    images = tuple(stored["images"]) if "images" in stored else tuple(needed_names(names, path))
    find, missing = name_lookup(images), list[str]()
    queries, positives, junk = [], [], []
    objects: list[dict[int, Box]] = []
    sizes: dict[int, tuple[float, float]] = {}
    called: dict[str, int] = {}
    for place, entry in enumerate(stored["queries"], 1):
        if not isinstance(entry, dict) or not entry.get("image") or "positives" not in entry:
            raise InvalidInputError(
                f"{path}: query {place} has no image or no positives; give "
                '{"image": "duck.jpg", "positives": ["a.jpg"]}.',
                code="query-fields",
            )
        image = entry["image"]
        called[image] = called.get(image, 0) + 1
        usual = image if called[image] == 1 else f"{image} ({called[image]})"
        name = entry.get("name") or usual
        box = entry.get("box")
        queries.append(QueryPhoto(name, image, None if box is None else parse_box(box, f"the box of {name}")))
        detailed = [positive if isinstance(positive, dict) else {"image": positive} for positive in entry["positives"]]
        positives.append(numbers_of([positive["image"] for positive in detailed], find, missing))
        junk.append(numbers_of(entry.get("junk") or (), find, missing))
        object_boxes: dict[int, Box] = {}
        for positive in detailed:
            number = find(positive["image"])
            if number is not None and "box" in positive:
                object_boxes[number] = parse_box(positive["box"], f"the box of {name} in {positive['image']}")
            if number is not None and "photo" in positive:
                sizes[number] = (float(positive["photo"][0]), float(positive["photo"][1]))
        objects.append(object_boxes)
    refuse_missing(missing, str(path))
    title = str(stored.get("name") or path.stem)
    return Protocol(
        title,
        images,
        tuple(queries),
        (Task(title, tuple(positives), tuple(junk)),),
        query_counts=query_counts,
        objects=tuple(objects) if any(objects) else (),
        sizes=sizes,
        files=(str(path),),
    )


def _revisited_json(stored: Mapping[str, Any], path: Path) -> Protocol:
    gnd = [
        {"bbx": query["box"], **{label: query[label] for label in ("easy", "hard", "junk")}}
        for query in stored["queries"]
    ]
    return from_gnd(
        {"imlist": stored["images"], "qimlist": [query["name"] for query in stored["queries"]], "gnd": gnd}, path
    )
