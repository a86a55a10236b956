"""Tasks that take their time, so that a test can kill somebody meanwhile."""

import time
from functools import partial
from typing import Any

from manifind.cluster import rows, tasks


def _slow(seconds: float, *given: Any) -> bool:
    time.sleep(seconds)
    return tasks.find_neighbours(*given)


def slowly(seconds: float) -> None:
    """Let a driver hand out tasks that wait before they begin."""

    class Slow:
        """The module as a driver sees it."""

        def __getattr__(self, name: str) -> Any:
            return partial(_slow, seconds) if name == "find_neighbours" and seconds else getattr(tasks, name)

    setattr(rows, "tasks", Slow())  # noqa: B010 (mypy would take it for the module)
