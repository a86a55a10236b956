"""What a protocol is: images, queries, and which images each query should find.

A `Protocol` is checked when it is made, because a ground truth that is off by a few images gives figures that look
right. Errors name the first few offenders.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInputError
from manifind.evaluation.measures import mean_average_precision
from manifind.ranking import Ranking
from manifind.types import Box

Images = npt.NDArray[np.int64]
"""Numbers of images, which are places in `Protocol.images`."""

MAX_NAMED, MAX_NAME_LENGTH = 3, 200
"""How many offenders an error names, and how many characters it shows of each."""


@dataclass(frozen=True)
class QueryPhoto:
    """What is looked for: a photo, or a box in it."""

    name: str
    image: str
    """The photo's name; it need not be one of the protocol's images."""
    box: Box | None = None


@dataclass(frozen=True)
class Task:
    """For each query the images to find and those to ignore."""

    name: str
    positives: tuple[Images, ...]
    junk: tuple[Images, ...]

    def mean_average_precision(self, rankings: Sequence[Ranking], definition: str = "trapezoid") -> float:
        """Return mAP in percent; queries without any positive are left out."""
        return 100 * mean_average_precision(rankings, self.positives, self.junk, definition=definition)


@dataclass(frozen=True)
class Protocol:
    """Images, queries, and one or more tasks on them."""

    name: str
    images: tuple[str, ...]
    queries: tuple[QueryPhoto, ...]
    tasks: tuple[Task, ...]
    query_counts: bool = False
    """Whether a query's own photo may be among its positives, as in Oxford5k and Paris6k."""
    objects: tuple[Mapping[int, Box], ...] = ()
    """For each query the box of the object in images, where it is known."""
    sizes: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Width and height of images, where they are known, in the pixels of `objects`."""
    files: tuple[str, ...] = ()
    """Where the ground truth was read from."""

    def __post_init__(self) -> None:
        check(self)

    def with_distractors(self, names: Sequence[str]) -> "Protocol":
        """Return the protocol on a collection with more images, none of them a positive of any query.

        Names that are among its images already add no image.
        """
        find = name_lookup(self.images)
        positives = {int(image) for task in self.tasks for images in task.positives for image in images}
        known = [find(name) for name in names]
        both = [name for name, number in zip(names, known, strict=True) if number in positives]
        refuse(
            both,
            self.name,
            "looks for images that are listed as distractors: {}; take them off the list",
            "positive-distractor",
        )
        more = tuple(name for name, number in zip(names, known, strict=True) if number is None)
        thousands = f"{round(len(names) / 1000)}k" if len(names) >= 1000 else str(len(names))
        return replace(self, name=f"{self.name}+{thousands}", images=self.images + more)

    def column(self, task: Task) -> str:
        """Return the name of a task's column in a table."""
        return self.name if len(self.tasks) == 1 else f"{self.name} {task.name}"

    def own_photos(self) -> list[int | None]:
        """Return the number of each query's own photo, None where it is not among the images.

        A name is looked for as `name_lookup` does; a photo of the same name in another folder is another photo.
        """
        return _own_photos(self.images, self.queries)

    def ignore_own_photos(self) -> "Protocol":
        """Return the protocol with each query's own photo among what it ignores, unless the photo counts.

        The photo that a query was cut out of comes first by every method: it says nothing, and is no mistake.
        """
        if self.query_counts:
            return self
        own_photos = self.own_photos()

        def with_own(junk: Images, photo: int | None) -> Images:
            return junk if photo is None else np.union1d(junk, [photo])

        tasks = [replace(task, junk=tuple(map(with_own, task.junk, own_photos))) for task in self.tasks]
        return replace(self, tasks=tuple(tasks))

    def merge_copies(self, names: Sequence[str], copies: Mapping[str, str]) -> "Protocol":
        """Return the protocol on a collection of these names, each copy of an image taken for the image itself.

        A copy of a positive is no second one to find; a copy of the query's own photo is that photo.
        """
        find = name_lookup([*names, *copies])
        known = [*names, *copies.values()]

        def photo(name: str) -> str:
            number = find(name)
            return name if number is None or number < len(names) else known[number]

        places: dict[object, int] = {}
        images: list[str] = []
        moved = np.empty(len(self.images), np.int64)
        for i, name in enumerate(self.images):
            number = find(name)
            original = name if number is None else known[number]
            if original not in places:
                places[original] = len(images)
                images.append(photo(name))
            moved[i] = places[original]
        queries = tuple(replace(query, image=photo(query.image)) for query in self.queries)
        ignored = [None] * len(queries) if self.query_counts else _own_photos(images, queries)
        tasks = []
        for task in self.tasks:
            distinct = [np.unique(moved[numbers]) for numbers in task.positives]
            positives = [numbers[numbers != own_photo] for numbers, own_photo in zip(distinct, ignored, strict=True)]
            junk = [np.setdiff1d(moved[a], b) for a, b in zip(task.junk, positives, strict=True)]
            tasks.append(replace(task, positives=tuple(positives), junk=tuple(junk)))
        return replace(
            self,
            images=tuple(images),
            queries=queries,
            tasks=tuple(tasks),
            objects=tuple({int(moved[i]): box for i, box in boxes.items()} for boxes in self.objects),
            sizes={int(moved[i]): size for i, size in self.sizes.items()},
        )

    def own_photos_note(self) -> str:
        """Warn whether the photos that queries were cut out of count, are ignored, or are not there."""
        photos = self.own_photos()
        there = [i for i, photo in enumerate(photos) if photo is not None]
        ignored = sum(all(_contains(task.junk[i], photos[i]) for task in self.tasks) for i in there)
        return (
            f"of {len(photos)} queries' own photos {len(photos) - len(there)} are not in the collection, {ignored} are "
            f"ignored and {len(there) - ignored} count"
        )

    def relative_sizes(self, query: int, images: Iterable[int]) -> npt.NDArray[np.float64]:
        """Return the share of each image that the object of a query covers; NaN where it is not known."""
        boxes = self.objects[query] if self.objects else {}
        shares = []
        for image in images:
            box, size = boxes.get(int(image)), self.sizes.get(int(image))
            if box is None or size is None:
                shares.append(np.nan)
            else:
                shares.append((box[2] - box[0]) * (box[3] - box[1]) / (size[0] * size[1]))
        return np.array(shares, np.float64)


def _own_photos(images: Sequence[str], queries: Sequence[QueryPhoto]) -> list[int | None]:
    find = name_lookup(images)
    photos = []
    for query in queries:
        number = find(query.image)
        if number is not None:
            asked, listed = (f"/{without_suffix(name)}" for name in (query.image, images[number]))
            number = number if asked.endswith(listed) or listed.endswith(asked) else None
        photos.append(number)
    return photos


def check(protocol: Protocol) -> None:
    """Raise `InvalidInputError` for a ground truth that cannot be right."""
    name, images, queries = protocol.name, protocol.images, protocol.queries
    if not queries:
        raise InvalidInputError(f"{name} has no queries; give a ground truth with at least one.", code="no-queries")
    refuse(duplicate_names(images), name, "lists {} twice among its images; give each once", "duplicate-image")
    duplicates = duplicate_names([query.name for query in queries])
    refuse(duplicates, name, "has two queries called {}; give each a name of its own", "duplicate-query")
    refuse(
        _wrong_boxes(protocol),
        name,
        "has a box that is no box in its photo, x0 < x1 and y0 < y1 within it: {}",
        "box-outside",
    )
    for task in protocol.tasks:
        both = [
            f"{query.name} ({images[int(image)]})"
            for query, positives, junk in zip(queries, task.positives, task.junk, strict=True)
            for image in np.intersect1d(positives, junk)[:1]
        ]
        refuse(
            both,
            name,
            "has an image that is both positive and junk, of query {}; let it be one of them",
            "positive-and-junk",
        )
    empty = [
        query.name for i, query in enumerate(queries) if not any(len(task.positives[i]) for task in protocol.tasks)
    ]
    refuse(
        empty,
        name,
        "has no positive for query {}; give at least one image to find, or leave the query out",
        "no-positives",
    )
    if not protocol.query_counts:
        own_positives = [
            query.name
            for i, (query, photo) in enumerate(zip(queries, protocol.own_photos(), strict=True))
            if any(_contains(task.positives[i], photo) for task in protocol.tasks)
        ]
        refuse(
            own_positives,
            name,
            "has the photo of the query itself among the positives of {}; take it out or make it junk, or say that "
            "it counts (--query-counts, or query_counts in JSON)",
            "own-photo-positive",
        )


def refuse(offenders: Sequence[str], name: str, sentence: str, code: str) -> None:
    """Raise `InvalidInputError` that names the first few offenders, if there are any."""
    if offenders:
        raise InvalidInputError(f"{name} {sentence.format(preview(offenders))}.", code=code)


def preview(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    listed = ", ".join(
        f"{str(name)[:MAX_NAME_LENGTH]}…" if len(str(name)) > MAX_NAME_LENGTH else str(name)
        for name in names[:MAX_NAMED]
    )
    return listed if len(names) <= MAX_NAMED else f"{listed} and {len(names) - MAX_NAMED} more"


def duplicate_names(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once."""
    seen: set[str] = set()
    repeated: dict[str, None] = {}
    for name in names:
        if name in seen:
            repeated[name] = None
        seen.add(name)
    return list(repeated)


def name_lookup(names: Sequence[str]) -> Callable[[str], int | None]:
    """Return a function that finds the number of an image by its name.

    Ground truths call ``jpg/all_souls_000013.jpg`` by ``all_souls_000013``: a name is looked for as it stands, then
    without its suffix, then by its last part, where no two images share that.
    """
    exact = {name: number for number, name in enumerate(names)}
    bare: dict[str, int | None] = {}
    last: dict[str, int | None] = {}
    for number, name in enumerate(names):
        for table, key in ((bare, without_suffix(name)), (last, without_suffix(name).rpartition("/")[2])):
            table[key] = None if key in table else number

    def find(name: str) -> int | None:
        if name in exact:
            return exact[name]
        key = without_suffix(name)
        if key in bare:
            return bare[key]
        return last.get(key.rpartition("/")[2])

    return find


def without_suffix(name: str) -> str:
    """Return the name of a photo without ``./`` before it and ``.jpg`` or the like after it."""
    path = PurePosixPath(name.replace("\\", "/"))
    suffix = path.suffix.lower()
    is_photo = suffix in {".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".jp2"}
    return str(path.with_suffix("") if is_photo else path)


def numbers_of(names: Iterable[str], find: Callable[[str], int | None], missing: list[str]) -> Images:
    """Return the numbers of images, each once; those that are not there are added to `missing`."""
    numbers: dict[int, None] = {}
    for name in names:
        number = find(name)
        if number is None:
            missing.append(name)
        else:
            numbers[number] = None
    return np.array(list(numbers), np.int64)


def boxes_in(file: Path) -> list[Box]:
    """Read the boxes that INSTRE and ILIAS have in a text file beside each photo: x, y, width, height, a line each."""
    try:
        lines = [[float(word) for word in line.split()] for line in file.read_text(encoding="utf-8").splitlines()]
    except ValueError:
        lines = [[]]
    if any(len(line) not in (0, 4) for line in lines) or lines == [[]]:
        raise InvalidInputError(f"{file} is no list of boxes; each line has x, y, width and height.", code="box-file")
    return [(x, y, x + w, y + h) for x, y, w, h in filter(None, lines)]


def box_around(file: Path) -> Box:
    """Return the bounding box of the boxes in a file."""
    boxes = boxes_in(file)
    if not boxes:
        raise InvalidInputError(f"{file} has no box; each line has x, y, width and height.", code="box-file")
    return bounding_box(boxes)


def bounding_box(boxes: Sequence[Box]) -> Box:
    """Return the bounding box of boxes."""
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return min(x0), min(y0), max(x1), max(y1)


def _wrong_boxes(protocol: Protocol) -> list[str]:
    find = name_lookup(protocol.images) if protocol.sizes else None
    wrong = []
    for query in protocol.queries:
        number = find(query.image) if find else None
        if query.box is not None and not _fits(query.box, None if number is None else protocol.sizes.get(number)):
            wrong.append(f"{query.name} {format_box(query.box)}")
    for query, boxes in zip(protocol.queries, protocol.objects, strict=False):
        wrong += [
            f"{query.name} in {protocol.images[image]} {format_box(box)}"
            for image, box in boxes.items()
            if not _fits(box, protocol.sizes.get(image))
        ]
    return wrong


def _fits(box: Box, size: tuple[float, float] | None) -> bool:
    """Whether a box has an area and lies within its photo, give or take one pixel of rounding."""
    x0, y0, x1, y1 = box
    if not (np.isfinite(box).all() and x0 < x1 and y0 < y1):
        return False
    return size is None or (x0 >= -1 and y0 >= -1 and x1 <= size[0] + 1 and y1 <= size[1] + 1)


def format_box(box: Box) -> str:
    """Return a box for an error."""
    return "(" + ", ".join(f"{corner:g}" for corner in box) + ")"


def _contains(images: Images, number: int | None) -> bool:
    return number is not None and bool((images == number).any())
