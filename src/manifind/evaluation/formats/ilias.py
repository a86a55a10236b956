"""ILIAS (Kordopatis-Zilos et al., CVPR 2025)."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from manifind.evaluation.formats.names import refuse_missing
from manifind.evaluation.protocol import Images, Protocol, QueryPhoto, Task, box_around, name_lookup, numbers_of
from manifind.types import Box


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
    for one in sorted(path for path in folder.iterdir() if (path / "query").is_dir()):
        listed = [(f"{one.name}/pos/{file.stem.removesuffix('_bbox')}", file) for file in _box_files(one / "pos")]
        wanted = numbers_of([name for name, _ in listed], find, missing)
        boxes = {number: box_around(file) for name, file in listed if (number := find(name)) is not None}
        for file in _box_files(one / "query"):
            name = f"{one.name}/query/{file.stem.removesuffix('_bbox')}"
            queries.append(QueryPhoto(name, f"{name}.jpg", box_around(file)))
            positives.append(wanted)
            objects.append(boxes)
    refuse_missing(missing, str(folder))
    task = Task("ILIAS", tuple(positives), tuple(np.empty(0, np.int64) for _ in queries))
    return Protocol("ILIAS", images, tuple(queries), (task,), objects=tuple(objects), files=(str(folder),))


def _box_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*_bbox.txt"))
