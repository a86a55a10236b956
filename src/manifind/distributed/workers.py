"""Dask's workers, for the long parts of an index build: extracting, whitening and comparing regions.

The driver, which is the process that builds the index, submits tasks (`tasks`) and reads the files that they write into
the index's folder, which every worker must see under the same path. Finished work is in these files: a lost worker
costs the tasks it had begun, and a lost driver costs nothing that was finished.
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

from manifind.distributed import tasks
from manifind.distributed.exchange import ExchangeDir
from manifind.distributed.knn_builder import RESULTS, DaskKnnBuilder
from manifind.errors import MissingExtraError, UnreadableImageError
from manifind.features import Regions
from manifind.features.moments import DoubleArray, Sums
from manifind.index.build.gather import ExtractedPhoto, Outcomes
from manifind.index.build.journal import Journal
from manifind.index.build.learning import Run
from manifind.index.storage.build_config import BuildConfig
from manifind.io import ListedFile
from manifind.kernels import KnnGraphBuilder, compiled
from manifind.remote.store import StoreUnavailableError
from manifind.storage import disk
from manifind.types import Vectors

EXCHANGE_PREFIXES = ("described-", "learning-", "tiles-", "descent-", "following-")
"""How the names of folders begin in which files are exchanged."""
MAX_SUBMITTED_TASKS = 1024
"""Tasks that are handed out at a time: the scheduler need not know of all there will be."""
MAX_TASK_PHOTOS, MIN_WORKER_TASKS = 32, 4
"""Photos that a task extracts at most, and tasks that each worker gets at least where there are photos for them."""
ROWS_MEMORY_SHARE = 0.25
"""The part of a worker's memory that the rows of a task may take; comparing them takes as much again, and lists."""
NN_DESCENT_DIMENSION_BYTES, NN_DESCENT_ROW_BYTES = 5, 4_000
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
        raise MissingExtraError(
            "distributed is not installed; pip install 'manifind[cluster]' installs it with what else a cluster takes."
        ) from error
    if not isinstance(client, str):
        return DaskWorkers(client, shards)
    try:
        return DaskWorkers(Client(client, timeout=seconds, set_as_default=False), shards, owns_client=True)
    except (OSError, ValueError) as error:
        raise StoreUnavailableError(
            f"no scheduler of Dask answers at {client}; start one with `dask scheduler`."
        ) from error


class DaskWorkers:
    """Workers that a client of Dask reaches."""

    def __init__(self, client: Any, shards: str | None = None, *, owns_client: bool = False) -> None:
        self._client, self._owns_client = client, owns_client
        self._shards = None if shards is None else ExchangeDir.open(str(shards))

    def close(self) -> None:
        """Close the connection to a scheduler, if it was opened here."""
        if self._owns_client:
            self._client.close()

    def _exchange(self, work: Path) -> ExchangeDir:
        """Return the folder of exchanged files for an index that is built in `work`."""
        return ExchangeDir(str(work)) if self._shards is None else self._shards

    def clean_up(self, work: Path) -> None:
        """Remove the exchanged files and the results of an index that is built in `work`."""
        exchange = self._exchange(work)
        for name in exchange.names():
            if name.startswith(EXCHANGE_PREFIXES):
                exchange.within(name).clear()
        disk.remove_folder(work / RESULTS)

    def machines(self) -> "Counter[str]":
        """Return how many tasks each machine runs at once."""
        running: Counter[str] = Counter()
        for worker in self._workers().values():
            running[worker["host"]] += worker["nthreads"]
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
        known: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        if not known:
            self._client.wait_for_workers(1, timeout=120)
            known = self._client.scheduler_info(n_workers=-1)["workers"]
        return known

    def memory(self) -> int:
        """Return the bytes that the rows of one task may take, on the worker that has least."""
        limits = [worker["memory_limit"] // max(1, worker["nthreads"]) for worker in self._workers().values()]
        limits = [limit for limit in limits if limit]
        return int(ROWS_MEMORY_SHARE * min(limits)) if limits else 2**30

    def run(self, calls: Sequence[tuple[Any, ...]]) -> Generator[int, None, None]:
        """Submit tasks, each a function with its arguments, and yield their positions as they finish."""
        from distributed.scheduler import KilledWorker

        from distributed import as_completed

        futures: dict[Any, int] = {}
        completed, waiting = as_completed(loop=self._client.loop), enumerate(calls)

        def submit(count: int) -> None:
            for place, call in itertools.islice(waiting, count):
                future = self._client.submit(*call, pure=False)
                futures[future] = place
                completed.add(future)

        try:
            submit(MAX_SUBMITTED_TASKS)
            for future in completed:
                future.result()
                submit(1)
                yield futures.pop(future)
        except KilledWorker as error:
            raise StoreUnavailableError(
                "Dask's workers die of a task; see their logs, and give them more memory."
            ) from error
        finally:
            self._client.cancel(list(futures))

    # -- extraction ---------------------------------------------------------------------------------------------------

    def extract(
        self, found: Sequence[ListedFile], config: BuildConfig, regions_per_image: int | None, work: Path
    ) -> Outcomes:
        """Yield the extracted photos, or their errors, in the order of `found`."""
        exchange = self._exchange(work).within("described-shards")
        exchange.make()
        extractor = config.extractor
        running = self.machines()
        threads = max(1, (os.cpu_count() or 1) // max(running.values()))
        spec = tasks.ExtractorSpec(extractor, config.backbone, threads, exchange)
        size = max(1, min(MAX_TASK_PHOTOS, math.ceil(len(found) / (MIN_WORKER_TASKS * sum(running.values())))))
        shards = [found[start : start + size] for start in range(0, len(found), size)]
        names = [
            f"{_digest((config.fingerprint, [(file.key, file.size, file.mtime_ns) for file in shard]))}.shard"
            for shard in shards
        ]
        calls = [
            (
                tasks.extract_regions,
                [(file.key, str(file.path), file.size, file.mtime_ns) for file in shard],
                spec,
                regions_per_image,
                config.local_features,
                exchange,
                name,
            )
            for shard, name in zip(shards, names, strict=True)
        ]
        for place in self._run_in_order(exchange, calls):
            yield from _read_outcomes(shards[place], exchange, names[place])
            exchange.remove(names[place])
        exchange.clear()

    def _run_in_order(self, exchange: ExchangeDir, calls: Sequence[tuple[Any, ...]]) -> Iterator[int]:
        """Run the tasks whose files do not exist; yield the positions of all in order, each once its file exists."""
        done: set[int] = set()
        with closing(tasks.run_missing(self, exchange, calls)) as finished:
            for place in range(len(calls)):
                while place not in done:
                    done.add(next(finished))
                yield place

    # -- whitening ----------------------------------------------------------------------------------------------------

    def sum_rows(self, raw: Journal, parts: Sequence[Sequence[Run]], around: DoubleArray) -> Iterator[Sums]:
        """Yield the sums of the rows of each part of a journal, as workers add them up."""
        seen = tasks.JournalFiles.of(raw, self._exchange(raw.files[0].parent.parent))
        digest = _digest(parts)
        names = [f"sums-{digest}-{place}.npy" for place in range(len(parts))]
        calls = [
            (tasks.sum_rows, seen, part, around, threads, seen.exchange, name)
            for part, threads, name in zip(parts, self.threads(len(parts)), names, strict=True)
        ]
        for place in self._run_in_order(seen.exchange, calls):
            yield tasks.read_sums(seen.exchange, names[place], parts[place])

    def whiten(self, raw: Journal, config: BuildConfig, groups: Sequence[Sequence[Run]]) -> Iterator[list[Regions]]:
        """Yield the photos of each group whitened, as workers come to them."""
        seen = tasks.JournalFiles.of(raw, self._exchange(raw.files[0].parent.parent))
        assert config.extractor.whitening is not None  # noqa: S101 (it was just learnt)
        learnt = tasks.WhiteningFile.of(config.extractor.whitening, seen.exchange)
        names = [f"whitened-{_digest((config.fingerprint, group))}.npy" for group in groups]
        calls = [
            (tasks.whiten, seen, group, learnt, config.regions_per_image, threads, seen.exchange, name)
            for group, threads, name in zip(groups, self.threads(len(groups)), names, strict=True)
        ]
        for place in self._run_in_order(seen.exchange, calls):
            yield tasks.read_whitened(seen.exchange, names[place])
            seen.exchange.remove(names[place])
        seen.exchange.clear()

    # -- comparing ----------------------------------------------------------------------------------------------------

    def knn_builder(self, vectors: Vectors, file: Path) -> KnnGraphBuilder:
        """Return a builder of the k-NN graph of vectors that lie in a file, whose work workers do."""
        n, d = vectors.shape
        file = file.resolve()  # a worker has another working folder
        fits = n * (NN_DESCENT_DIMENSION_BYTES * d + NN_DESCENT_ROW_BYTES) <= self.memory() / ROWS_MEMORY_SHARE
        exchange = self._exchange(file.parent)
        return DaskKnnBuilder(self, vectors, file, exchange, has_nn_descent=fits and compiled())


def _read_outcomes(shard: Sequence[ListedFile], exchange: ExchangeDir, name: str) -> Outcomes:
    summaries, vectors, boxes, local = tasks.read_extracted(exchange, name)
    row = feature = 0
    for file, summary in zip(shard, summaries, strict=True):
        if isinstance(summary[0], str):
            # A shard that an earlier version left behind does not say whether the reason is temporary.
            yield file, UnreadableImageError(summary[0], temporary=summary[1:] == [True])
        else:
            width, height, count, features = summary
            rows, points = slice(row, row + count), local[feature : feature + features]
            yield file, ExtractedPhoto(width, height, vectors[rows].astype(np.float32), boxes[rows], points)
            row, feature = row + count, feature + features


def _digest(value: Any) -> str:
    """Return a digest of plain values for the name of a file."""
    return hashlib.sha256(repr(value).encode("utf-8", "surrogateescape")).hexdigest()[:32]
