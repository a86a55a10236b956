"""INRIA Holidays (Jégou et al. 2008)."""

from pathlib import Path

import numpy as np

from manifind.errors import InvalidInputError
from manifind.evaluation.protocol import Protocol, QueryPhoto, Task, preview


def holidays(path: Path) -> Protocol:
    """Read INRIA Holidays off the names of its photos, a line each.

    ``1234500.jpg`` is the query of group 12345 and the others of the group are its positives; the query itself is
    ignored. The files of the evaluation package have the name first and more words after it.
    """
    names = [line.split()[0] for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    stems = [Path(name).stem for name in names]
    wrong = [name for name, stem in zip(names, stems, strict=True) if not stem.isdigit()]
    if wrong:
        raise InvalidInputError(
            f"{path} lists photos that are not called by a number, as those of Holidays are: {preview(wrong)}."
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
