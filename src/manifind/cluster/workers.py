"""Dask's workers, for the long parts of making an index: describing photos, whitening and comparing their regions.

The driver, which is the process that makes the index, hands out tasks (`tasks`) and takes in the files that they write
into the index's folder, which every worker must see under the same path. Work that is done is in these files: a worker
that is lost costs the tasks it had begun, and a driver that is lost costs nothing that was finished.
"""

import hashlib
import itertools
import math
import os
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from manifind.cluster import tasks, whitening
from manifind.cluster.rows import TAKEN, DaskRows, DescendingRows
from manifind.cluster.shards import Shards
from manifind.cluster.store import Unavailable
from manifind.describe import Found, Regions, Unreadable
from manifind.describe.moments import DoubleArray, Sums
from manifind.errors import MissingExtra
from manifind.index.making.gather import Described, Outcomes
from manifind.index.making.journal import Journal
from manifind.index.making.learning import Run
from manifind.index.state.recipe import Recipe
from manifind.kernels import Rows, compiled
from manifind.storage import disk
from manifind.types import Vectors

EXCHANGED = ("described-", "learning-", "tiles-", "descent-", "following-", "columns-")
"""How the names of folders begin in which files are exchanged."""
AHEAD = 1024
"""Tasks that are handed out at a time: the scheduler need not know of all there will be."""
PHOTOS, TURNS = 32, 4
"""Photos that a task describes at most, and tasks that each worker gets at least where there are photos for them."""
SHARE = 0.25
"""The part of a worker's memory that the rows of a task may take; comparing them takes as much again, and lists."""
DESCENT, DESCENT_BYTES = 5, 4_000
"""What NN-Descent takes of a row: bytes a dimension, with the row itself, and beside them for lists."""


def workers(client: Any, *, shards: str | None = None, seconds: float = 20) -> "DaskWorkers":
    """Return the workers of a client of Dask, or of the scheduler at an address if it answers within some seconds.

    Parameters
    ----------
    client : distributed.Client, str or DaskWorkers
    shards : str, optional
        A folder that all workers see, or an object store by its address of fsspec (``s3://bucket/folder``), through
        which they exchange files with the driver; by default the index's own folder. It is for one index at a time.
    seconds : float
        How long to wait for the scheduler.
    """
    if isinstance(client, DaskWorkers):
        return client
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingExtra(
            "distributed is not installed; pip install 'manifind[cluster]' installs it with what else a cluster takes."
        ) from error
    if not isinstance(client, str):
        return DaskWorkers(client, shards)
    try:
        return DaskWorkers(Client(client, timeout=seconds, set_as_default=False), shards, own=True)
    except (OSError, ValueError) as error:
        raise Unavailable(f"no scheduler of Dask answers at {client}; start one with `dask scheduler`.") from error


class DaskWorkers:
    """Workers that a client of Dask reaches."""

    def __init__(self, client: Any, shards: str | None = None, *, own: bool = False) -> None:
        self._client, self._own = client, own
        self._shards = None if shards is None else Shards.given(str(shards))

    def close(self) -> None:
        """Let go of the connection to a scheduler, where it was made here."""
        if self._own:
            self._client.close()

    def _exchange(self, work: Path) -> Shards:
        """Return where files are exchanged for an index that is made in a folder."""
        return Shards(str(work)) if self._shards is None else self._shards

    def finished(self, work: Path) -> None:
        """Remove what was exchanged for an index that is made in a folder, and what was taken in there."""
        exchange = self._exchange(work)
        for name in exchange.names():
            if name.startswith(EXCHANGED):
                exchange.within(name).clear()
        disk.remove_folder(work / TAKEN)

    def machines(self) -> "Counter[str]":
        """Return how many tasks each machine runs at once."""
        running: Counter[str] = Counter()
        for one in self._workers().values():
            running[one["host"]] += one["nthreads"]
        return running

    def threads(self, tasks: int) -> list[int]:
        """Return how many threads each of some tasks may use, in the order in which they are handed out.

        The cores of a machine, of which there are taken to be as many as here, are shared by the tasks that it runs at
        once. The last tasks are too few for all workers, and have more cores each.
        """
        running = self.machines()
        places, cores = sum(running.values()), os.cpu_count() or 1
        last = tasks % places
        alone = max(1, cores // math.ceil(last / len(running))) if last else 0
        return [max(1, cores // max(running.values()))] * (tasks - last) + [alone] * last

    def _workers(self) -> dict[str, Any]:
        found: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        if not found:
            self._client.wait_for_workers(1, timeout=120)
            found = self._client.scheduler_info(n_workers=-1)["workers"]
        return found

    def memory(self) -> int:
        """Return the bytes that the rows of one task may take, on the worker that has least."""
        limits = [one["memory_limit"] // max(1, one["nthreads"]) for one in self._workers().values()]
        given = [limit for limit in limits if limit]
        return int(SHARE * min(given)) if given else 2**30

    def run(self, calls: Sequence[tuple[Any, ...]]) -> Generator[int, None, None]:
        """Hand out tasks, each a function with its arguments, and yield their places as they are done."""
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        futures: dict[Any, int] = {}
        completed, waiting = as_completed(loop=self._client.loop), enumerate(calls)

        def hand_out(count: int) -> None:
            for place, call in itertools.islice(waiting, count):
                future = self._client.submit(*call, pure=False)
                futures[future] = place
                completed.add(future)

        try:
            hand_out(AHEAD)
            for future in completed:
                future.result()
                hand_out(1)
                yield futures.pop(future)
        except KilledWorker as error:
            raise Unavailable("Dask's workers die of a task; see their logs, and give them more memory.") from error
        finally:
            self._client.cancel(list(futures))

    # -- describing ---------------------------------------------------------------------------------------------------

    def described(self, found: Sequence[Found], recipe: Recipe, means: int | None, work: Path) -> Outcomes:
        """Yield what becomes of photos, in their order, as workers describe them."""
        exchange = self._exchange(work).within("described-shards")
        exchange.make()
        describer = recipe.describer
        running = self.machines()
        threads = max(1, (os.cpu_count() or 1) // max(running.values()))
        made_by = tasks.Describing(describer, recipe.backbone, threads, exchange)
        together = max(1, min(PHOTOS, math.ceil(len(found) / (TURNS * sum(running.values())))))
        shards = [found[start : start + together] for start in range(0, len(found), together)]
        names = [
            f"{_digest((recipe.fingerprint, [(one.key, one.size, one.mtime_ns) for one in shard]))}.shard"
            for shard in shards
        ]
        calls = [
            (
                tasks.describe,
                [(one.key, str(one.path), one.size, one.mtime_ns) for one in shard],
                made_by,
                means,
                recipe.geometry,
                exchange,
                name,
            )
            for shard, name in zip(shards, names, strict=True)
        ]
        for place in self._in_order(exchange, names, calls):
            yield from _taken(shards[place], exchange, names[place])
            exchange.remove(names[place])
        exchange.clear()

    def _in_order(self, exchange: Shards, names: Sequence[str], calls: Sequence[tuple[Any, ...]]) -> Iterator[int]:
        """Run the tasks whose files are not there; yield the places of all in order, each as soon as its file is."""
        there = set(exchange.names())
        missing = [place for place, name in enumerate(names) if name not in there]
        done = set(range(len(names))) - set(missing)
        with closing(self.run([calls[place] for place in missing])) as finished:
            for place in range(len(names)):
                while place not in done:
                    done.add(missing[next(finished)])
                yield place

    # -- whitening ----------------------------------------------------------------------------------------------------

    def sums(self, raw: Journal, parts: Sequence[Sequence[Run]], around: DoubleArray) -> Iterator[Sums]:
        """Yield the sums of the rows of each part of a journal, as workers add them up."""
        seen = whitening.Raw.of(raw, self._exchange(raw.files[0].parent.parent))
        said = _digest(parts)
        names = [f"sums-{said}-{place}.npy" for place in range(len(parts))]
        calls = [
            (whitening.add_up, seen, part, around, threads, name)
            for part, threads, name in zip(parts, self.threads(len(parts)), names, strict=True)
        ]
        for place in self._in_order(seen.shards, names, calls):
            yield whitening.read_sums(seen.shards, names[place], parts[place])

    def whitened(self, raw: Journal, recipe: Recipe, groups: Sequence[Sequence[Run]]) -> Iterator[list[Regions]]:
        """Yield the photos of each group whitened, as workers come to them."""
        seen = whitening.Raw.of(raw, self._exchange(raw.files[0].parent.parent))
        assert recipe.describer.whitening is not None  # noqa: S101 (it was just learnt)
        learnt = whitening.KeptWhitening.of(recipe.describer.whitening, seen.shards)
        names = [f"whitened-{_digest((recipe.fingerprint, group))}.npy" for group in groups]
        calls = [
            (whitening.whiten, seen, group, learnt, recipe.means, threads, name)
            for group, threads, name in zip(groups, self.threads(len(groups)), names, strict=True)
        ]
        for place in self._in_order(seen.shards, names, calls):
            yield whitening.read_whitened(seen.shards, names[place])
            seen.shards.remove(names[place])
        seen.shards.clear()

    # -- comparing ----------------------------------------------------------------------------------------------------

    def rows(self, vectors: Vectors, file: Path) -> Rows:
        """Return vectors that lie in a file, as rows that workers compare with each other."""
        n, d = vectors.shape
        file = file.resolve()  # a worker has another working folder
        fits = n * (DESCENT * d + DESCENT_BYTES) <= self.memory() / SHARE
        return (DescendingRows if fits and compiled() else DaskRows)(self, vectors, file, self._exchange(file.parent))


def _taken(shard: Sequence[Found], exchange: Shards, name: str) -> Outcomes:
    said, vectors, boxes, local = tasks.read_described(exchange, name)
    row = feature = 0
    for one, became in zip(shard, said, strict=True):
        if isinstance(became[0], str):
            # A shard that an earlier version left behind does not say whether the reason is temporary.
            yield one, Unreadable(became[0], temporary=became[1:] == [True])
        else:
            width, height, count, features = became
            own, points = slice(row, row + count), local[feature : feature + features]
            yield one, Described(width, height, vectors[own].astype(np.float32), boxes[own], points)
            row, feature = row + count, feature + features


def _digest(said: Any) -> str:
    """Return a name for what is said, by which a file is found again."""
    return hashlib.sha256(repr(said).encode("utf-8", "surrogateescape")).hexdigest()[:32]
