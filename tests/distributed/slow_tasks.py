"""Tasks that wait for a test, so that it can kill somebody meanwhile, and how many a cluster has."""

import time
from functools import partial
from pathlib import Path
from typing import Any

from manifind.distributed import knn_builder as rows
from manifind.distributed import tasks

SECONDS = 0.3
GO_ON = "go-on"


def _slow(folder: Path, most: int, *given: Any) -> bool:
    time.sleep(SECONDS)
    while len(list(folder.glob("tiles-*/tile-*.npy"))) >= most and not (folder / GO_ON).exists():
        time.sleep(0.02)
    return tasks.find_neighbours(*given)


def slowly(folder: Path, most: int) -> None:
    """Let a driver hand out tasks that wait before they begin.

    Once `most` tiles are in the folder, they wait until a file "go-on" is there too.
    """

    class Slow:
        """The module as a driver sees it."""

        def __getattr__(self, name: str) -> Any:
            return partial(_slow, folder, most) if name == "find_neighbours" else getattr(tasks, name)

    setattr(rows, "tasks", Slow())  # noqa: B010 (mypy would take it for the module)


def tasks_to_do(dask_scheduler: Any) -> int:
    """Return how many tasks a scheduler has handed out, or has yet to."""
    states = ("waiting", "no-worker", "queued", "processing")
    return sum(task.state in states for task in dask_scheduler.tasks.values())


def tasks_under_way(dask_worker: Any) -> int:
    """Return how many tasks a worker is at, those too that nobody waits for any more."""
    return len(dask_worker.state.all_running_tasks)
