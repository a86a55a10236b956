"""A whitening learnt and applied by tasks: each adds up, or whitens, some rows of the journal of vectors.

The driver adds up the sums of the parts, D² numbers each, and takes whitened photos into the index's journal as they
come: it holds the vectors of one task. The parts are those of one process (`index.making.learning`), and so are
the numbers, to the bit.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from manifind import kernels
from manifind.cluster.shards import Plain, Shards
from manifind.describe import Regions, Whitening
from manifind.describe.moments import DoubleArray, Sums
from manifind.index.making.journal import Journal
from manifind.index.making.learning import Run, in_blocks, whitened


class KeptWhitening(NamedTuple):
    """A whitening in a file: it is too large to travel with each task."""

    shards: Shards
    name: str

    @classmethod
    def of(cls, whitening: Whitening, shards: Shards) -> "KeptWhitening":
        """Write a whitening for all to see."""
        kept = cls(shards, f"whitening-{whitening.sha256[:32]}.npy")
        if not shards.exists(kept.name):
            shards.write_arrays(kept.name, (whitening.mean, whitening.project))
        return kept

    def read(self) -> Whitening:
        """Return the whitening."""
        mean, project = self.shards.arrays(self.name, 2)
        return Whitening(mean, project)


class Raw(NamedTuple):
    """The vectors before whitening and the boxes of all photos, in two files, and where tasks write."""

    vectors: Plain
    boxes: Plain
    shards: Shards

    @classmethod
    def of(cls, journal: Journal, exchange: Shards) -> "Raw":
        """Return a journal as workers see it."""
        digest = hashlib.sha256(journal.fingerprint.encode())
        for content in journal.contents():
            digest.update(content.encode())
        shards = exchange.within(f"learning-{digest.hexdigest()[:32]}")
        shards.make()
        (vectors, boxes), files = journal.arrays(), journal.files
        return cls(Plain.seen(vectors, files[0], shards), Plain.seen(boxes, files[1], shards), shards)


def add_up(raw: Raw, part: Sequence[Run], around: DoubleArray, threads: int, name: str) -> bool:
    """Add up the rows of some runs into a file; say whether it was done."""
    if raw.shards.exists(name):
        return False
    kernels.set_threads(threads)
    sums = Sums.of(in_blocks(raw.vectors, part), around)
    raw.shards.write_arrays(name, (sums.total, sums.squares))
    return True


def read_sums(shards: Shards, name: str, part: Sequence[Run]) -> Sums:
    """Return what `add_up` wrote."""
    total, squares = shards.arrays(name, 2)
    return Sums(sum(end - first for first, end in part), total, squares)


def whiten(raw: Raw, photos: Sequence[Run], learnt: KeptWhitening, means: int | None, threads: int, name: str) -> bool:
    """Whiten a group of photos into a file; say whether it was done."""
    if raw.shards.exists(name):
        return False
    kernels.set_threads(threads)
    found = whitened(learnt.read(), raw.vectors, raw.boxes, photos, means)
    counts = np.array([len(one.boxes) for one in found])
    vectors = np.concatenate([one.vectors for one in found]).astype(np.float16)
    raw.shards.write_arrays(name, (counts, vectors, np.concatenate([one.boxes for one in found])))
    return True


def read_whitened(shards: Shards, name: str) -> list[Regions]:
    """Return the photos that `whiten` wrote."""
    counts, vectors, boxes = shards.arrays(name, 3)
    ends = np.cumsum(counts)[:-1]
    photos = zip(np.split(vectors.astype(np.float32), ends), np.split(boxes, ends), strict=True)
    return [Regions(*own) for own in photos]
