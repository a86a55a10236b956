"""Ground truths as files, and what is read in them."""

from typing import Any

import numpy as np

from manifind.evaluation import Protocol

NAMES = [f"jpg/photo_{i}.jpg" for i in range(8)]


def listed(protocol: Protocol, task: int, query: int) -> tuple[list[int], list[int]]:
    """Return the positives and the junk of a query."""
    found = protocol.tasks[task]
    return sorted(found.positives[query].tolist()), sorted(found.junk[query].tolist())


def revisited() -> dict[str, Any]:
    """Two queries in six photos, as the authors of Revisited pickled them."""
    return {
        "imlist": [f"photo_{i}" for i in range(6)],
        "qimlist": ["asked_0", "asked_1"],
        "gnd": [
            {"bbx": [1.0, 2.0, 30.0, 40.0], "easy": [0, 1], "hard": [2], "junk": [3]},
            {"bbx": np.array([1.0, 2.0, 30.0, 40.0]), "easy": np.array([], int), "hard": np.array([4]), "junk": []},
        ],
    }
