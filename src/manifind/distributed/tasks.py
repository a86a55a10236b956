"""Tasks of workers: functions of names and numbers, each of which writes one file when it is done (`file_task`).

A file that exists is complete (`exchange`). For a whitening, the driver adds up the sums of the parts, D² numbers each.
The parts are those of one process (`manifind.index.build.learning`), and so are the numbers, to the bit.
"""

import hashlib
import io
import json
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from functools import lru_cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manifind import kernels
from manifind.distributed.exchange import ArrayFile, ExchangeDir, npy_files
from manifind.errors import UnreadableImageError
from manifind.features import RegionExtractor, Regions, Whitening, load_extractor
from manifind.features.moments import DoubleArray, Sums
from manifind.geometry.packing import Packed
from manifind.index.build.gather import extract_features, scale_to_file
from manifind.index.build.journal import NO_FEATURES, Journal
from manifind.index.build.learning import Run, in_blocks, whitened
from manifind.index.storage.local_features import LocalFeatureConfig
from manifind.io import ListedFile, read_photo
from manifind.kernels import backend
from manifind.storage import disk
from manifind.types import FloatArray, IntArray

if TYPE_CHECKING:
    from manifind.distributed.workers import DaskWorkers

MAX_ID = 2**31 - 1


def file_task(compute: Callable[..., Iterable[disk.Bytes]]) -> Callable[..., bool]:
    """Make a task of a function that returns the content of a file.

    The task takes the function's arguments, an `ExchangeDir` and a name. It writes the file and returns True; where the
    file exists, because its worker or the driver was lost after writing it, it returns False.
    """

    @wraps(compute)
    def task(*arguments: Any) -> bool:
        *given, exchange, name = arguments
        if exchange.exists(name):
            return False
        exchange.write(name, compute(*given))
        return True

    return task


def run_missing(
    executor: "DaskWorkers", exchange: ExchangeDir, calls: Sequence[tuple[Any, ...]]
) -> Generator[int, None, None]:
    """Run the tasks whose files do not exist; yield the positions of all tasks, each once its file exists."""
    existing = set(exchange.names())
    missing = [position for position, call in enumerate(calls) if call[-1] not in existing]
    yield from sorted(set(range(len(calls))) - set(missing))
    if missing:
        with closing(executor.run([calls[position] for position in missing])) as finished:
            for done in finished:
                yield missing[done]


@file_task
def find_neighbours(vectors: ArrayFile, spans: Sequence[tuple[int, int]], k: int, threads: int) -> Iterable[disk.Bytes]:
    """Return the `k` nearest rows among some spans of a file of vectors, for each of their rows.

    The file has the lists of all rows one after the other, ids and similarities; fewer than k where there are fewer
    other rows.
    """
    kernels.set_threads(threads)
    parts = [vectors[start:end] for start, end in spans]
    rows = np.concatenate(parts) if len(parts) > 1 else parts[0]  # a single part is mapped, not copied
    numbers = np.concatenate([np.arange(start, end) for start, end in spans])
    ids, similarities = backend().vector_set(rows).self_join(min(k, len(rows) - 1))
    return disk.npy(np.stack([numbers[ids].astype(np.int32), similarities.view(np.int32)]))


@file_task
def nn_descent(vectors: ArrayFile, k: int, seed: int, threads: int) -> Iterable[disk.Bytes]:
    """Return nearly the `k` nearest other rows of each row of a file of vectors, by NN-Descent."""
    kernels.set_threads(threads)
    ids, similarities = backend().vector_set(vectors[:]).nn_descent(k, seed=seed)
    return disk.npy(np.stack([ids, similarities.view(np.int32)]))


@file_task
def merge_neighbours(
    exchange: ExchangeDir, files: Sequence[tuple[str, int]], start: int, size: int, k: int
) -> Iterable[disk.Bytes]:
    """Merge the lists that several tasks found for one block of rows: best first, of equals the lowest id first.

    `files` are those of `find_neighbours`, each with the offset of the block's first row.
    """
    keys = []
    for number, (name, offset) in enumerate(files):
        lists = exchange.array(name)[:, offset : offset + size]
        ids, bits = lists[0].astype(np.int64), lists[1].astype(np.int64)
        # One number for both: the larger the better, and of equally similar rows the lower id is the larger number.
        key = (np.where(bits >= 0, bits, bits ^ 0x7FFFFFFF) << 32) | (MAX_ID - ids)
        if number:  # every task found the neighbours within the block
            key[(ids >= start) & (ids < start + size)] = np.iinfo(np.int64).min
        keys.append(key)
    candidates = np.concatenate(keys, axis=1)
    width = candidates.shape[1]
    best = candidates if width <= k else np.partition(candidates, width - k, axis=1)[:, width - k :]
    best = -np.sort(-best, axis=1)
    ids, bits = MAX_ID - (best & MAX_ID), best >> 32
    return disk.npy(np.stack([ids, np.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)]).astype(np.int32))


def read_lists(exchange: ExchangeDir, name: str) -> tuple[IntArray, FloatArray]:
    """Return the ids and similarities that a task wrote."""
    lists = exchange.array(name)
    return lists[0], np.ascontiguousarray(lists[1]).view(np.float32)


@file_task
def extract_regions(
    found: Sequence[tuple[str, str, int, int]],
    spec: "ExtractorSpec",
    regions_per_image: int | None,
    local_features: LocalFeatureConfig | None,
) -> Iterable[disk.Bytes]:
    """Extract photos: for each its size, regions and boxes, or why it cannot be read."""
    extractor = spec.extractor()
    summaries: list[Any] = []
    vectors: list[Any] = []
    boxes: list[Any] = []
    local: list[Any] = []
    for key, path, size, mtime_ns in found:
        file = ListedFile(key, Path(path), size, mtime_ns)
        try:
            photo = read_photo(file.path, long_side=extractor.long_side)
        except UnreadableImageError as error:
            summaries.append([error.reason, error.temporary])
        else:
            extracted = scale_to_file(
                photo, extract_features(photo.pixels, extractor, local_features), regions_per_image
            )
            summaries.append([extracted.width, extracted.height, len(extracted.vectors), len(extracted.local)])
            vectors.append(extracted.vectors)
            boxes.append(extracted.boxes)
            local.append(extracted.local)
    content = io.BytesIO()
    d = extractor.dimension
    np.save(content, np.concatenate([np.empty((0, d), np.float32), *vectors]).astype(np.float16))
    np.save(content, np.concatenate([np.empty((0, 4), np.float32), *boxes]).astype(np.float32))
    np.save(content, np.concatenate([NO_FEATURES, *local]))
    return [json.dumps(summaries).encode(), b"\n", content.getvalue()]


def read_extracted(exchange: ExchangeDir, name: str) -> tuple[list[Any], npt.NDArray[np.float16], FloatArray, Packed]:
    """Return what `extract_regions` wrote: a line a photo, and the regions of those that could be read."""
    stream = io.BytesIO(exchange.read(name))
    summaries = json.loads(stream.readline())
    vectors, boxes, local = (np.load(stream, allow_pickle=False) for _ in range(3))
    return summaries, vectors, boxes, local


class WhiteningFile(NamedTuple):
    """A whitening in a file: it is too large to travel with each task."""

    exchange: ExchangeDir
    name: str

    @classmethod
    def of(cls, whitening: Whitening, exchange: ExchangeDir) -> "WhiteningFile":
        """Write a whitening for all to see."""
        kept = cls(exchange, f"whitening-{whitening.sha256[:32]}.npy")
        if not exchange.exists(kept.name):
            exchange.write(kept.name, npy_files(whitening.mean, whitening.project))
        return kept

    def read(self) -> Whitening:
        """Return the whitening."""
        mean, project = self.exchange.arrays(self.name, 2)
        return Whitening(mean, project)


class ExtractorSpec:
    """An extractor for other processes: the name of its network and its settings, or a custom extractor itself."""

    def __init__(self, extractor: RegionExtractor, backbone: str | None, threads: int, exchange: ExchangeDir) -> None:
        self._own = extractor if backbone is None else None
        self._backbone, self._settings = backbone, dict(extractor.settings)
        here = extractor.whitening if backbone is not None else None
        self._whitening = None if here is None else WhiteningFile.of(here, exchange)
        self._name = json.dumps(extractor.fingerprint(), sort_keys=True)
        self._threads = threads

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExtractorSpec) and self._name == other._name

    def __hash__(self) -> int:
        return hash(self._name)

    def extractor(self) -> RegionExtractor:
        """Return the extractor, made once in each process."""
        kernels.set_threads(self._threads)
        return _loaded(self) if self._own is None else self._own


@lru_cache(maxsize=2)
def _loaded(spec: ExtractorSpec) -> RegionExtractor:
    whitening = None if spec._whitening is None else spec._whitening.read()
    return load_extractor(spec._backbone or "", whitening=whitening, **spec._settings)


class JournalFiles(NamedTuple):
    """The vectors before whitening and the boxes of all photos, in two files, and where tasks write."""

    vectors: ArrayFile
    boxes: ArrayFile
    exchange: ExchangeDir

    @classmethod
    def of(cls, journal: Journal, exchange: ExchangeDir) -> "JournalFiles":
        """Return a journal as workers see it."""
        digest = hashlib.sha256(journal.fingerprint.encode())
        for content in journal.contents():
            digest.update(content.encode())
        exchange = exchange.within(f"learning-{digest.hexdigest()[:32]}")
        exchange.make()
        (vectors, boxes), files = journal.arrays(), journal.files
        return cls(ArrayFile.share(vectors, files[0], exchange), ArrayFile.share(boxes, files[1], exchange), exchange)


@file_task
def sum_rows(raw: JournalFiles, part: Sequence[Run], around: DoubleArray, threads: int) -> Iterable[disk.Bytes]:
    """Add up the rows of some runs."""
    kernels.set_threads(threads)
    sums = Sums.of(in_blocks(raw.vectors, part), around)
    return npy_files(sums.total, sums.squares)


def read_sums(exchange: ExchangeDir, name: str, part: Sequence[Run]) -> Sums:
    """Return what `sum_rows` wrote."""
    total, squares = exchange.arrays(name, 2)
    return Sums(sum(end - first for first, end in part), total, squares)


@file_task
def whiten(
    raw: JournalFiles, photos: Sequence[Run], whitening: WhiteningFile, regions_per_image: int | None, threads: int
) -> Iterable[disk.Bytes]:
    """Whiten a group of photos."""
    kernels.set_threads(threads)
    group = whitened(whitening.read(), raw.vectors, raw.boxes, photos, regions_per_image)
    counts = np.array([len(photo.boxes) for photo in group])
    vectors = np.concatenate([photo.vectors for photo in group]).astype(np.float16)
    return npy_files(counts, vectors, np.concatenate([photo.boxes for photo in group]))


def read_whitened(exchange: ExchangeDir, name: str) -> list[Regions]:
    """Return the photos that `whiten` wrote."""
    counts, vectors, boxes = exchange.arrays(name, 3)
    ends = np.cumsum(counts)[:-1]
    photos = zip(np.split(vectors.astype(np.float32), ends), np.split(boxes, ends), strict=True)
    return [Regions(*photo) for photo in photos]
