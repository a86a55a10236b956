"""What a worker does: functions of names and numbers, each of which writes one file when it is done.

A task that is done again, because its worker was lost or the driver was, finds the file and leaves it. A file that is
there is whole (`shards`).
"""

import io
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind import kernels
from manifind.cluster.shards import Plain, Shards
from manifind.cluster.whitening import KeptWhitening
from manifind.describe import Describer, Found, Unreadable, load_describer, read_photo
from manifind.geometry.packing import Packed
from manifind.graph.neighbours import nearest_others
from manifind.index.making.gather import outcome, seen
from manifind.index.making.journal import NO_FEATURES
from manifind.index.state.kept import Keeping
from manifind.kernels import Descending, backend
from manifind.storage import disk
from manifind.types import FloatArray, IntArray

LARGEST = 2**31 - 1


def find_neighbours(
    vectors: Plain, spans: Sequence[tuple[int, int]], k: int, threads: int, shards: Shards, name: str
) -> bool:
    """Find the `k` nearest rows among some spans of a file of vectors, for each of their rows; say whether it was done.

    The file gets the lists of all rows one after the other, ids and similarities; fewer than k where there are fewer
    other rows.
    """
    if shards.exists(name):
        return False
    kernels.set_threads(threads)
    parts = [vectors[start:end] for start, end in spans]
    rows = np.concatenate(parts) if len(parts) > 1 else parts[0]  # one alone is mapped, and not held
    own = np.concatenate([np.arange(start, end) for start, end in spans])
    ids, similarities = nearest_others(backend().rows(rows), min(k, len(rows) - 1))
    lists = np.stack([own[ids].astype(np.int32), similarities.view(np.int32)])
    shards.write(name, disk.npy(lists))
    return True


def descend(vectors: Plain, k: int, seed: int, threads: int, shards: Shards, name: str) -> bool:
    """Find nearly the `k` nearest other rows of each row of a file of vectors by NN-Descent."""
    if shards.exists(name):
        return False
    kernels.set_threads(threads)
    rows = backend().rows(vectors[:])
    assert isinstance(rows, Descending)  # noqa: S101 (whoever hands this out has the same core)
    ids, similarities = rows.descend(k, seed=seed)
    shards.write(name, disk.npy(np.stack([ids, similarities.view(np.int32)])))
    return True


def merge_neighbours(
    files: Sequence[tuple[str, int]], start: int, size: int, k: int, shards: Shards, name: str
) -> bool:
    """Merge the lists that several tasks found for one block of rows: best first, of equals the lowest id first.

    Parameters
    ----------
    files
        Of `find_neighbours`, each with the place in it where the block begins.
    start, size, k
        The first row of the block, how many it has, and neighbours to keep.
    shards, name
        Where all these files are, and the one to write.
    """
    if shards.exists(name):
        return False
    keys = []
    for place, (one, at) in enumerate(files):
        found = shards.array(one)[:, at : at + size]
        ids, bits = found[0].astype(np.int64), found[1].astype(np.int64)
        # One number for both: the larger the better, and of equally similar rows the lower id is the larger number.
        key = (np.where(bits >= 0, bits, bits ^ 0x7FFFFFFF) << 32) | (LARGEST - ids)
        if place:  # neighbours within the block were found by every task
            key[(ids >= start) & (ids < start + size)] = np.iinfo(np.int64).min
        keys.append(key)
    every = np.concatenate(keys, axis=1)
    width = every.shape[1]
    best = every if width <= k else np.partition(every, width - k, axis=1)[:, width - k :]
    best = -np.sort(-best, axis=1)
    ids, bits = LARGEST - (best & LARGEST), best >> 32
    merged = np.stack([ids, np.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)]).astype(np.int32)
    shards.write(name, disk.npy(merged))
    return True


def read_lists(shards: Shards, name: str) -> tuple[IntArray, FloatArray]:
    """Return the lists that `merge_neighbours` wrote."""
    found = shards.array(name)
    return found[0], np.ascontiguousarray(found[1]).view(np.float32)


def describe(
    found: Sequence[tuple[str, str, int, int]],
    made_by: "Describing",
    means: int | None,
    keeping: Keeping | None,
    shards: Shards,
    name: str,
) -> bool:
    """Describe photos into a file: for each its size, regions and boxes, or why it cannot be read."""
    if shards.exists(name):
        return False
    describer = made_by.describer()
    said: list[Any] = []
    vectors: list[Any] = []
    boxes: list[Any] = []
    local: list[Any] = []
    for key, path, size, mtime_ns in found:
        one = Found(key, Path(path), size, mtime_ns)
        try:
            photo = read_photo(one.path, long_side=describer.long_side)
        except Unreadable as error:
            said.append([error.reason, error.temporary])
        else:
            became = outcome(photo, seen(photo.pixels, describer, keeping), means)
            said.append([became.width, became.height, len(became.vectors), len(became.local)])
            vectors.append(became.vectors)
            boxes.append(became.boxes)
            local.append(became.local)
    content = io.BytesIO()
    d = describer.dimension
    np.save(content, np.concatenate([np.empty((0, d), np.float32), *vectors]).astype(np.float16))
    np.save(content, np.concatenate([np.empty((0, 4), np.float32), *boxes]).astype(np.float32))
    np.save(content, np.concatenate([NO_FEATURES, *local]))
    shards.write(name, [json.dumps(said).encode(), b"\n", content.getvalue()])
    return True


def read_described(shards: Shards, name: str) -> tuple[list[Any], npt.NDArray[np.float16], FloatArray, Packed]:
    """Return what `describe` wrote: a line a photo, and the regions of those that could be read."""
    stream = io.BytesIO(shards.read(name))
    said = json.loads(stream.readline())
    vectors, boxes, local = (np.load(stream, allow_pickle=False) for _ in range(3))
    return said, vectors, boxes, local


class Describing:
    """A describer that travels: by the name of its network and its settings, or as it is where it is somebody's own."""

    def __init__(self, describer: Describer, backbone: str | None, threads: int, shards: Shards) -> None:
        self._own = describer if backbone is None else None
        self._backbone, self._settings = backbone, dict(describer.settings)
        here = describer.whitening if backbone is not None else None
        self._whitening = None if here is None else KeptWhitening.of(here, shards)
        self._name = json.dumps(describer.fingerprint(), sort_keys=True)
        self._threads = threads

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Describing) and self._name == other._name

    def __hash__(self) -> int:
        return hash(self._name)

    def describer(self) -> Describer:
        """Return the describer, made once in each process."""
        kernels.set_threads(self._threads)
        return _loaded(self) if self._own is None else self._own


@lru_cache(maxsize=2)
def _loaded(made_by: Describing) -> Describer:
    whitening = None if made_by._whitening is None else made_by._whitening.read()
    return load_describer(made_by._backbone or "", whitening=whitening, **made_by._settings)
