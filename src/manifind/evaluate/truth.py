"""Ground truths as they are published, and one that anybody can write.

`read_truth` tells them apart by what they are:

======================================== ==========================================================================
a folder of ``*_query.txt``              Oxford5k and Paris6k, with ``*_good.txt``, ``*_ok.txt``, ``*_junk.txt``
a folder of ``*/query`` and ``*/pos``    ILIAS: ``ilias_core``, with a box beside each photo
a JSON object of key → name, good, ok …  the same in one file
``gnd_*.pkl``                            Revisited Oxford and Paris: read without running anything in it
``gnd_*.mat``                            INSTRE, or the others as MATLAB has them; version 5 or 7.3
a JSON object of images and queries      Revisited in one file, where queries have ``easy`` and ``hard``; else your own
``*.csv``                                your own: query, box, positives, junk
``*.dat``, or a name with "holidays"     INRIA Holidays: names of photos, a line each
======================================== ==========================================================================
"""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInput
from manifind.evaluate.matlab import read_matlab
from manifind.evaluate.protocol import (
    Images,
    Protocol,
    QueryPhoto,
    Task,
    as_box,
    box_around,
    name_finder,
    numbers_of,
    some,
    twice,
)
from manifind.evaluate.unpickle import read_pickle
from manifind.types import Box

LABELS = ("good", "ok", "junk")


def read_truth(
    path: Path,
    names: Sequence[str] | None = None,
    *,
    query_counts: bool = False,
    copies: Mapping[str, str] | None = None,
) -> Protocol:
    """Read a ground truth.

    Parameters
    ----------
    path
        A file or a folder, as above.
    names
        The names of the collection's images, in order: for a ground truth that does not list the images itself.
    query_counts
        Whether a query's own photo counts as any other, in a ground truth of your own. Otherwise it is passed over.
    copies
        Names of files that are no images of the collection because each is identical to one, and that one's name.
    """
    if not copies or names is None:
        return _read(path, names, query_counts=query_counts).passing_over_own_photos()
    find, place = name_finder(names), {name: number for number, name in enumerate(names)}
    # A copy that is found by its last part, as the photo it is a copy of, needs no name of its own.
    apart = {copy: photo for copy, photo in copies.items() if find(copy) != place[photo]}
    read = _read(path, [*names, *apart], query_counts=query_counts)
    return read.with_copies_as_one(names, apart).passing_over_own_photos()


def _read(path: Path, names: Sequence[str] | None, *, query_counts: bool) -> Protocol:
    if path.is_dir():
        read = ilias if any(path.glob("*/query/Q*_bbox.txt")) else oxford_folder
        return read(path, _needed(names, path))
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; give the file or folder of a ground truth.")
    suffix = path.suffix.lower()
    if suffix in (".pkl", ".mat"):
        stored = read_pickle(path) if suffix == ".pkl" else read_matlab(path)
        try:
            return from_gnd(stored, path, first=0 if suffix == ".pkl" else 1)
        except InvalidInput:
            raise
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InvalidInput(f"{path} is not laid out as a ground truth: {error}.") from error
    if suffix == ".csv":
        return from_csv(path, _needed(names, path), query_counts=query_counts)
    if suffix == ".dat" or "holidays" in path.stem.lower():
        return holidays(path)
    if suffix == ".json":
        return from_json(path, names, query_counts=query_counts)
    raise InvalidInput(
        f"{path} is no ground truth; give a .json, .csv, .pkl, .mat, .dat file or a folder of text files."
    )


# -- Oxford5k and Paris6k ----------------------------------------------------------------------------------------------


def oxford_folder(folder: Path, names: Sequence[str]) -> Protocol:
    """Read the official text files (Philbin et al. 2007, 2008): positives are good and ok, junk is passed over.

    ``KEY_query.txt`` has the photo's name, with ``oxc1_`` before it in Oxford5k, and the box. The query's photo counts
    as good, as the protocol has it.
    """
    files = sorted(folder.glob("*_query.txt"))
    if not files:
        raise InvalidInput(f"{folder} has no *_query.txt; give the folder of Oxford5k's or Paris6k's ground truth.")
    entries: dict[str, dict[str, Any]] = {}
    for file in files:
        key = file.name.removesuffix("_query.txt")
        words = file.read_text(encoding="utf-8").split()
        if len(words) != 5:
            raise InvalidInput(f"{file} has {len(words)} words; expected a photo's name and the four numbers of a box.")
        entries[key] = {"name": words[0].removeprefix("oxc1_"), "box": words[1:]}
        for label in LABELS:
            listed = folder / f"{key}_{label}.txt"
            if not listed.is_file():
                raise InvalidInput(f"{listed} is missing; each query has four files: query, good, ok, junk.")
            entries[key][label] = listed.read_text(encoding="utf-8").split()
    paris = any(key.startswith(("eiffel", "louvre", "triomphe", "notredame")) for key in entries)
    return _oxford("Paris6k" if paris else "Oxford5k", entries, names, str(folder))


def _oxford(name: str, entries: Mapping[str, Mapping[str, Any]], names: Sequence[str], file: str) -> Protocol:
    find, missing = name_finder(names), list[str]()
    queries, positives, junk = [], [], []
    for key in sorted(entries):
        entry = entries[key]
        queries.append(QueryPhoto(key, str(entry["name"]), as_box(entry["box"], key)))
        positives.append(numbers_of([*entry["good"], *entry["ok"]], find, missing))
        junk.append(numbers_of(entry["junk"], find, missing))
    _refuse_missing(missing, file)
    task = Task(name, tuple(positives), tuple(junk))
    return Protocol(name, tuple(names), tuple(queries), (task,), query_counts=True, files=(file,))


# -- files that list images, queries and gnd: Revisited, INSTRE --------------------------------------------------------


def from_gnd(stored: Any, path: Path, *, first: int = 0) -> Protocol:
    """Make a protocol of ``imlist``, ``qimlist`` (or ``qidx``) and ``gnd``; `first` is the number of the first image.

    Revisited (Radenović et al. 2018): with ``easy``, ``hard`` and ``junk``, three tasks. Easy passes over the hard,
    Hard over the easy, Medium looks for both. With ``ok``, one task: INSTRE as the paper has it, Oxford5k, Paris6k.
    """
    if not isinstance(stored, Mapping) or not {"imlist", "gnd"} <= set(stored):
        raise InvalidInput(f"{path} has no imlist and gnd; give a file such as gnd_roxford5k.pkl or gnd_instre.mat.")
    images = _texts(stored["imlist"], f"imlist of {path}")
    gnd = list(stored["gnd"])
    if "qimlist" in stored:
        asked = list(_texts(stored["qimlist"], f"qimlist of {path}"))
    elif "qidx" in stored:
        asked = [images[i] for i in _within(stored["qidx"], images, f"{path}'s qidx", first)]
    else:
        raise InvalidInput(f"{path} has neither qimlist nor qidx; without them the queries are not known.")
    if len(asked) != len(gnd):
        raise InvalidInput(f"{path} has {len(asked)} queries and {len(gnd)} entries in gnd; it is cut short.")
    corners = _corners([entry.get("bbx") for entry in gnd], path)
    repeated = set(twice(asked))
    queries = tuple(
        QueryPhoto(f"{name} ({i})" if name in repeated else name, name, box)
        for i, (name, box) in enumerate(zip(asked, corners, strict=True))
    )

    def labelled(entry: Mapping[str, Any], i: int, *labels: str) -> Images:
        values = [
            _within(entry.get(label, ()), images, f"{label} of {queries[i].name} in {path}", first) for label in labels
        ]
        return np.unique(np.concatenate(values))

    def task(name: str, wanted: tuple[str, ...], passed_over: tuple[str, ...]) -> Task:
        positives = tuple(labelled(entry, i, *wanted) for i, entry in enumerate(gnd))
        return Task(name, positives, tuple(labelled(entry, i, *passed_over) for i, entry in enumerate(gnd)))

    title = _title(path.stem.removeprefix("gnd_").removeprefix("ground_"))
    if any("easy" in entry for entry in gnd):
        return Protocol(title, images, queries, revisited_tasks(task), files=(str(path),))
    only = task(title, ("ok",), ("junk",))
    return Protocol(title, images, queries, (only,), query_counts=_all_count(images, queries, only), files=(str(path),))


def revisited_tasks(task: Any) -> tuple[Task, ...]:
    """Return Easy, Medium and Hard, made by ``task(name, labels wanted, labels passed over)``."""
    return (
        task("Easy", ("easy",), ("junk", "hard")),
        task("Medium", ("easy", "hard"), ("junk",)),
        task("Hard", ("hard",), ("junk", "easy")),
    )


def _all_count(images: Sequence[str], queries: Sequence[QueryPhoto], task: Task) -> bool:
    """Whether every query's photo is among its own positives: the rule of Oxford5k, not an accident."""
    find = name_finder(images)
    return all(find(query.image) in wanted.tolist() for query, wanted in zip(queries, task.positives, strict=True))


def _corners(boxes: Sequence[Any], path: Path) -> list[Box | None]:
    """Return boxes as corners.

    Copies of gnd_instre.mat are described with corners and with x, y, width, height. Corners always ascend; widths and
    heights do not always exceed x and y: where one does not, all of the file are widths and heights.
    """
    read = [
        None if box is None else as_box(_numbers(box, f"the box of query {i} in {path}"), f"query {i} in {path}")
        for i, box in enumerate(boxes)
    ]
    if all(box is None or (box[0] < box[2] and box[1] < box[3]) for box in read):
        return list(read)
    return [None if box is None else (box[0], box[1], box[0] + box[2], box[1] + box[3]) for box in read]


def _texts(values: Any, what: str) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise InvalidInput(f"{what} has entries that are no text; they should be names of photos.")
    return tuple(str(value) for value in values)


def _numbers(values: Any, what: str) -> npt.NDArray[Any]:
    """Return numbers as a row; what is none is refused before NumPy makes an array of it."""
    plain = isinstance(values, list | tuple) and all(isinstance(value, int | float) for value in values)
    if not plain and not (isinstance(values, np.ndarray) and values.dtype.kind in "iuf"):
        raise InvalidInput(f"{what} are not numbers; give a list of them.")
    numbers: npt.NDArray[Any] = np.asarray(values, np.float64 if not len(values) else None).ravel()
    return numbers


def _within(values: Any, images: Sequence[str], what: str, first: int) -> Images:
    numbers = _numbers(values, what)
    if not (np.isfinite(numbers) & (numbers == np.floor(numbers)) & (np.abs(numbers) < 2.0**53)).all():
        raise InvalidInput(f"{what} are not whole numbers; they should be places in its list of images.")
    places = numbers.astype(np.int64) - first
    outside = [str(number) for number in numbers[(places < 0) | (places >= len(images))]]
    if outside:
        raise InvalidInput(f"{what} name images that are not among the {len(images)}: {some(outside)}.")
    return places


def _title(stem: str) -> str:
    known = {
        "roxford5k": "ROxford5k",
        "rparis6k": "RParis6k",
        "oxford5k": "Oxford5k",
        "paris6k": "Paris6k",
        "instre": "INSTRE",
    }
    return known.get(stem.lower(), stem)


# -- Holidays ----------------------------------------------------------------------------------------------------------


def holidays(path: Path) -> Protocol:
    """Read INRIA Holidays (Jégou et al. 2008) off the names of its photos, a line each.

    ``1234500.jpg`` is the query of group 12345 and the others of the group are its positives; the query itself is
    passed over. The files of the evaluation package have the name first and more words after it.
    """
    names = [line.split()[0] for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    stems = [Path(name).stem for name in names]
    wrong = [name for name, stem in zip(names, stems, strict=True) if not stem.isdigit()]
    if wrong:
        raise InvalidInput(
            f"{path} lists photos that are not called by a number, as those of Holidays are: {some(wrong)}."
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


# -- ILIAS -------------------------------------------------------------------------------------------------------------


def ilias(folder: Path, names: Sequence[str]) -> Protocol:
    """Read ILIAS (Kordopatis-Zilos et al., CVPR 2025) off its folder ``ilias_core``, one folder an object.

    ``OBJECT/query/Q*.jpg`` are queries and ``OBJECT/pos/P*.jpg`` their positives, each with a text file of boxes, x, y,
    width and height; all that a query's boxes hold is looked for. Every other photo of the collection is a distractor,
    but for the query photos, which are no part of it.
    """
    images = tuple(name for name in names if "query" not in PurePosixPath(name).parts[-2:-1])
    find, missing = name_finder(images), list[str]()
    queries: list[QueryPhoto] = []
    positives: list[Images] = []
    objects: list[dict[int, Box]] = []
    for one in sorted(path for path in folder.iterdir() if (path / "query").is_dir()):
        listed = [(f"{one.name}/pos/{file.stem.removesuffix('_bbox')}", file) for file in _box_files(one / "pos")]
        wanted = numbers_of([name for name, _ in listed], find, missing)
        boxes = {number: box_around(file) for name, file in listed if (number := find(name)) is not None}
        for file in _box_files(one / "query"):
            name = f"{one.name}/query/{file.stem.removesuffix('_bbox')}"
            queries.append(QueryPhoto(name, f"{name}.jpg", box_around(file)))
            positives.append(wanted)
            objects.append(boxes)
    _refuse_missing(missing, str(folder))
    task = Task("ILIAS", tuple(positives), tuple(np.empty(0, np.int64) for _ in queries))
    return Protocol("ILIAS", images, tuple(queries), (task,), objects=tuple(objects), files=(str(folder),))


def _box_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*_bbox.txt"))


# -- anybody's ---------------------------------------------------------------------------------------------------------


def from_json(path: Path, names: Sequence[str] | None, *, query_counts: bool = False) -> Protocol:
    """Read a JSON file: your own, or Oxford's or Revisited's ground truth in one file.

    ::

        {"name": "toys",                                   all but queries may be left out
         "images": ["a.jpg", "b.jpg", "c.jpg"],            else the collection's
         "query_counts": false,                            true: a query's own photo is not passed over
         "queries": [{"name": "duck", "image": "duck.jpg", "box": [40, 60, 220, 310],
                      "positives": ["a.jpg", {"image": "b.jpg", "box": [0, 0, 50, 50], "photo": [640, 480]}],
                      "junk": ["c.jpg"]}]}

    The box of the object in a positive, with the photo's width and height, is for precision by object size.
    """
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not JSON ({error}); give a ground truth.") from error
    try:
        if isinstance(stored, dict) and stored and all(_is_oxford(entry) for entry in stored.values()):
            title = _title(path.stem.removeprefix("gnd_").removeprefix("ground_"))
            return _oxford(title, stored, _needed(names, path), str(path))
        if not isinstance(stored, dict) or not isinstance(stored.get("queries"), list):
            raise InvalidInput(f"{path} has no list of queries; give an object with one.")
        if any("easy" in query for query in stored["queries"]):
            return _revisited_json(stored, path)
        return _own(stored, path, names, query_counts=query_counts or bool(stored.get("query_counts")))
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"{path} is not laid out as a ground truth: {type(error).__name__} at {error}.") from error


def from_csv(path: Path, names: Sequence[str], *, query_counts: bool = False) -> Protocol:
    """Read a CSV file with the columns query, box, positives and junk; name is optional.

    ``duck.jpg,"40,60,220,310",a.jpg;b.jpg,c.jpg``: photos are separated by semicolons, an empty box is the whole photo.
    """
    with path.open(newline="", encoding="utf-8-sig") as stream:
        reader = csv.DictReader(stream)
        columns = set(reader.fieldnames or ())
        if not {"query", "positives"} <= columns:
            raise InvalidInput(
                f"{path} has the columns {sorted(columns)}; give query, box, positives, junk in its first line."
            )
        rows = list(reader)

    def listed(cell: str | None) -> list[str]:
        return [part.strip() for part in (cell or "").split(";") if part.strip()]

    queries = [
        {
            "image": row["query"].strip(),
            "name": (row.get("name") or "").strip() or None,
            "box": row["box"].replace(";", ",").split(",") if (row.get("box") or "").strip() else None,
            "positives": listed(row["positives"]),
            "junk": listed(row.get("junk")),
        }
        for row in rows
    ]
    return _own({"queries": queries}, path, names, query_counts=query_counts)


def _own(stored: Mapping[str, Any], path: Path, names: Sequence[str] | None, *, query_counts: bool) -> Protocol:
    images = tuple(stored["images"]) if "images" in stored else tuple(_needed(names, path))
    find, missing = name_finder(images), list[str]()
    queries, positives, junk = [], [], []
    objects: list[dict[int, Box]] = []
    sizes: dict[int, tuple[float, float]] = {}
    called: dict[str, int] = {}
    for entry in stored["queries"]:
        image = entry["image"]
        called[image] = called.get(image, 0) + 1
        usual = image if called[image] == 1 else f"{image} ({called[image]})"
        name = entry.get("name") or usual
        box = entry.get("box")
        queries.append(QueryPhoto(name, image, None if box is None else as_box(box, name)))
        detailed = [one if isinstance(one, dict) else {"image": one} for one in entry["positives"]]
        positives.append(numbers_of([one["image"] for one in detailed], find, missing))
        junk.append(numbers_of(entry.get("junk") or (), find, missing))
        own: dict[int, Box] = {}
        for one in detailed:
            number = find(one["image"])
            if number is not None and "box" in one:
                own[number] = as_box(one["box"], f"{name} in {one['image']}")
            if number is not None and "photo" in one:
                sizes[number] = (float(one["photo"][0]), float(one["photo"][1]))
        objects.append(own)
    _refuse_missing(missing, str(path))
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


def _is_oxford(entry: object) -> bool:
    return isinstance(entry, dict) and {"name", "box", *LABELS} <= set(entry)


def _revisited_json(stored: Mapping[str, Any], path: Path) -> Protocol:
    gnd = [
        {"bbx": query["box"], **{label: query[label] for label in ("easy", "hard", "junk")}}
        for query in stored["queries"]
    ]
    return from_gnd(
        {"imlist": stored["images"], "qimlist": [query["name"] for query in stored["queries"]], "gnd": gnd}, path
    )


def _needed(names: Sequence[str] | None, path: Path) -> Sequence[str]:
    if names is None:
        raise InvalidInput(
            f"{path} does not list the collection's images and the descriptors do not name them; give --names."
        )
    return names


def _refuse_missing(missing: Sequence[str], file: str) -> None:
    if missing:
        unique = list(dict.fromkeys(missing))
        raise InvalidInput(
            f"{file} names images that are not in the collection: {some(unique)}; give the collection that it is about."
        )
