"""Dask's workers, for the long parts of making an index: describing photos, and comparing all pairs of regions.

The driver, which is the process that makes the index, hands out tasks (`tasks`) and takes in the files that they write
into the index's folder, which every worker must see under the same path. Work that is done is in these files: a worker
that is lost costs the tasks it had begun, and a driver that is lost costs nothing that was finished.
"""

import hashlib
import math
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from manifind.cluster import planes, tasks
from manifind.cluster.store import Unavailable
from manifind.describe import Found, Unreadable
from manifind.errors import MissingExtra
from manifind.index.gather import Described, Outcomes
from manifind.index.recipe import Recipe
from manifind.kernels import SCRATCH, Rows, backend
from manifind.storage import disk
from manifind.types import FloatArray, IntArray, Progress

PHOTOS = 32
"""Photos that a task describes."""
SHARE = 0.25
"""The part of a worker's memory that the rows of a task may take; comparing them takes as much again, and lists."""


def workers(client: Any, *, seconds: float = 20) -> "DaskWorkers":
    """Return the workers of a client of Dask, or of the scheduler at an address if it answers within some seconds."""
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingExtra(
            "distributed is not installed; pip install 'manifind[cluster]' installs it with what else a cluster takes."
        ) from error
    if not isinstance(client, str):
        return DaskWorkers(client)
    try:
        return DaskWorkers(Client(client, timeout=seconds, set_as_default=False))
    except (OSError, ValueError) as error:
        raise Unavailable(f"no scheduler of Dask answers at {client}; start one with `dask scheduler`.") from error


class DaskWorkers:
    """Workers that a client of Dask reaches."""

    def __init__(self, client: Any) -> None:
        self._client = client

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
            self._client.wait_for_workers(1, timeout=60)
            found = self._client.scheduler_info(n_workers=-1)["workers"]
        return found

    def memory(self) -> int:
        """Return the bytes that the rows of one task may take, on the worker that has least."""
        limits = [one["memory_limit"] // max(1, one["nthreads"]) for one in self._workers().values()]
        given = [limit for limit in limits if limit]
        return int(SHARE * min(given)) if given else 2**30

    def run(self, calls: Sequence[tuple[Any, ...]]) -> Any:
        """Hand out tasks, each a function with its arguments, and yield their places as they are done."""
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        futures = {self._client.submit(*call, pure=False): place for place, call in enumerate(calls)}
        try:
            for future in as_completed(futures, loop=self._client.loop):
                future.result()
                yield futures[future]
        except KilledWorker as error:
            raise Unavailable("Dask's workers die of a task; see their logs, and give them more memory.") from error
        finally:
            self._client.cancel(list(futures))

    # -- describing ---------------------------------------------------------------------------------------------------

    def described(self, found: Sequence[Found], recipe: Recipe, means: int | None, work: Path) -> Outcomes:
        """Yield what becomes of photos, in their order, as workers describe them."""
        folder = work / "shards"
        disk.make_own_folder(folder)
        describer = recipe.describer
        threads = max(1, (os.cpu_count() or 1) // max(self.machines().values()))
        made_by = tasks.Describing(describer, recipe.backbone, describer.settings, threads)
        shards = [found[start : start + PHOTOS] for start in range(0, len(found), PHOTOS)]
        files = [folder / f"{_name(recipe.fingerprint, shard)}.shard" for shard in shards]
        calls = [
            (
                tasks.describe,
                [(one.key, str(one.path), one.size, one.mtime_ns) for one in shard],
                made_by,
                means,
                recipe.geometry,
                str(file),
            )
            for shard, file in zip(shards, files, strict=True)
        ]
        missing = [place for place, file in enumerate(files) if not file.exists()]
        done = set(range(len(files))) - set(missing)
        finished = self.run([calls[place] for place in missing])
        for place, (shard, file) in enumerate(zip(shards, files, strict=True)):
            while place not in done:
                done.add(missing[next(finished)])
            yield from _taken(shard, file)
            disk.remove(file)
        disk.remove_folder(folder)

    # -- comparing ----------------------------------------------------------------------------------------------------

    def rows(self, vectors: FloatArray, file: Path) -> Rows:
        """Return vectors that lie in a file, as rows that workers compare with each other."""
        return DaskRows(self, vectors, file)


def _taken(shard: Sequence[Found], file: Path) -> Outcomes:
    said, vectors, boxes, local = tasks.read_described(file)
    row = feature = 0
    for one, became in zip(shard, said, strict=True):
        if len(became) == 1:
            yield one, Unreadable(became[0])
        else:
            width, height, count, features = became
            own, points = slice(row, row + count), local[feature : feature + features]
            yield one, Described(width, height, vectors[own].astype(np.float32), boxes[own], points)
            row, feature = row + count, feature + features


def _name(fingerprint: str, shard: Sequence[Found]) -> str:
    said = repr((fingerprint, [(one.key, one.size, one.mtime_ns) for one in shard]))
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:32]


class DaskRows:
    """Vectors in a file: searched here, and compared with each other by workers."""

    def __init__(self, by: DaskWorkers, vectors: FloatArray, file: Path) -> None:
        self._by, self._vectors, self._file = by, vectors, file
        self._here: Rows = backend().rows(vectors)

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows there are, and of how many dimensions."""
        n, d = self._vectors.shape
        return n, d

    def take(self, rows: "np.ndarray[Any, np.dtype[np.integer[Any]]]") -> FloatArray:
        """Return some rows."""
        return self._here.take(rows)

    def nearest(
        self, queries: FloatArray, k: int, *, among: IntArray | None = None, memory: int = SCRATCH
    ) -> tuple[IntArray, FloatArray]:
        """Find the `k` most similar rows of each query, here."""
        return self._here.nearest(queries, k, among=among, memory=memory)

    def nearest_others(
        self,
        k: int,
        *,
        memory: int = SCRATCH,  # noqa: ARG002 (workers have their own)
        progress: Progress | None = None,
    ) -> tuple[IntArray, FloatArray]:
        """Find the `k` most similar other rows of each row: every pair of blocks meets in one task of a worker."""
        n, d = self.shape
        if isinstance(self._vectors, np.memmap):
            self._vectors.flush()
        folder, q = self._begun(f"tiles-{self._digest()}-{k}-")
        disk.make_own_folder(folder)
        starts, lines = planes.blocks(n, q).tolist(), planes.lines(q)
        shape, total = (n, d), 2 * len(lines)
        tiles = [str(folder / f"tile-{number}.npy") for number in range(len(lines))]
        spans = [[(starts[point], starts[point + 1]) for point in line] for line in lines]
        missing = [(own, tile) for own, tile in zip(spans, tiles, strict=True) if not Path(tile).exists()]
        found = [
            (tasks.find_neighbours, str(self._file), shape, own, k, threads, tile)
            for (own, tile), threads in zip(missing, self._by.threads(len(missing)), strict=True)
        ]
        for done, _ in enumerate(self._by.run(found), len(lines) - len(found) + 1):
            _report(progress, done, total, n)
        # The lists of one task alone are the lists.
        merged = [str(folder / f"block-{point}.npy") for point in range(len(lines))] if q else tiles
        calls = []
        for point, file in enumerate(merged):
            parts = []
            for line, own, tile in zip(lines, spans, tiles, strict=True):
                if point in line:
                    before = own[: line.index(point)]
                    parts.append((tile, sum(end - start for start, end in before)))
            size = starts[point + 1] - starts[point]
            calls.append((tasks.merge_neighbours, parts, starts[point], size, k, file))
        calls = [call for call in calls if not Path(call[-1]).exists()]
        for done, _ in enumerate(self._by.run(calls), total - len(calls) + 1):
            _report(progress, done, total, n)
        ids, similarities = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
        for point, file in enumerate(merged):
            own_rows = slice(starts[point], starts[point + 1])
            ids[own_rows], similarities[own_rows] = tasks.read_lists(Path(file))
        return ids, similarities

    def _begun(self, name: str) -> tuple[Path, int]:
        """Return the folder of the tiles and the order of their plane: that of a run before, where its tasks fit."""
        (n, d), memory = self.shape, self._by.memory()
        for folder in sorted(self._file.parent.glob(f"{name}*")):
            before = int(folder.name.removeprefix(name))
            if planes.rows_of_task(n, before) * 4 * d <= memory:
                return folder, before
        q = planes.order_for(n, 4 * d, memory, len(self._by.machines()))
        return self._file.parent / f"{name}{q}", q

    def _digest(self) -> str:
        """Return what tells these vectors from others."""
        digest = hashlib.blake2b(digest_size=12)
        for start in range(0, len(self._vectors), 2**14):
            digest.update(np.ascontiguousarray(self._vectors[start : start + 2**14]).data)
        return digest.hexdigest()


def _report(progress: Progress | None, done: int, total: int, n: int) -> None:
    if progress is not None:
        progress(done * n // total, n)
