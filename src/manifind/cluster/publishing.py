"""An index on disk → a collection in a store.

Rows are written for the next generation, which nobody sees until its document is there. What an interrupted run wrote
is found and kept: rows are compared by digest, and only those that are new or have changed are sent. Adding a photo
changes the rows of the photos it is linked with, and no other; so an index that was added to, or removed from, is
published by sending the difference. One process at a time may publish to a collection.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.cluster.generations import GRACE, Published, forget_before, new_stamp
from manifind.cluster.packing import Edges, Numbers, PackedPhoto, digest, number_of, pack, pack_features, row_number
from manifind.cluster.store import Row, Store, Versions
from manifind.compact import compact
from manifind.errors import InvalidInput
from manifind.index import Generation, Index
from manifind.index.asking.evidence import unlikely_similarity
from manifind.layout import aggregate_one
from manifind.types import FloatArray, StageProgress

DESCRIPTORS = 5
"""Mixture means that a photo is found by: ``benchmarks/shortlists.py`` has what they were chosen by."""

BLOCK_BYTES = 2**23
"""Rows sent at a time."""


@dataclass(frozen=True)
class Sent:
    """What publishing did, in photos."""

    generation: int
    added: int
    changed: int
    removed: int
    kept: int
    found: int
    """Of the added and changed: rows that an interrupted run had written."""


def publish(
    index: Index,
    store: Store,
    *,
    descriptors: int = DESCRIPTORS,
    grace: float = GRACE,
    progress: StageProgress | None = None,
) -> Sent:
    """Bring a collection to the state of an index.

    Parameters
    ----------
    index : Index
        On disk.
    store : Store
    descriptors : int
        How many means of its regions a photo is found by; 0 for its global descriptor.
    grace : float
        Seconds between the moment at which the new generation becomes visible and the removal of rows that it has no
        more. Less than the default is for collections that nobody is searching.
    progress : callable, optional
        Called with "rows", how many photos were looked at, and how many there are.
    """
    now = index.state
    if not isinstance(now, Generation):
        raise InvalidInput(f"{index.where} lies in a store already; publish an index on disk.")
    now.check_ids()
    store.create(now.dimension, len(now.catalogue))
    before = Published.read(store)
    if before is not None and before.dimension != now.dimension:
        raise InvalidInput(
            f"the collection has descriptors of {before.dimension} dimensions and the index of {now.dimension}; "
            "publish it under another name."
        )
    generation = 1 if before is None else before.number + 1
    there = _tidied(store, before)
    visible = there.born < generation
    old = _by_photo(there, visible)
    mine = _by_photo(there, ~visible)
    sent = _send(now, store, generation, descriptors, old, mine, progress)
    gone = np.array(sorted(set(old) - sent.photos), np.int64)
    superseded = np.array([old[int(photo)][0] for photo in [*gone, *sent.changed]], np.int64)
    facts = {**index.info(), "path": str(index.path.resolve())}
    next_one = _described(now, facts, generation, descriptors, sent.row_bytes, superseded)
    if before is not None and not (len(superseded) or sent.added) and _says_the_same(before, next_one):
        return Sent(before.number, 0, 0, 0, sent.kept, 0)
    store.settle()
    next_one.write(store)
    if len(superseded):
        time.sleep(grace)
        store.remove(superseded)
    forget_before(store, generation)
    return Sent(generation, sent.added, len(sent.changed), len(gone), sent.kept, sent.found)


def _described(
    now: Generation, facts: dict[str, Any], number: int, descriptors: int, row_bytes: int, superseded: Numbers
) -> Published:
    """Return what the new generation of a collection says of itself."""
    return Published(
        number=number,
        stamp=new_stamp(),
        photos=len(now.catalogue),
        regions=len(now.boxes),
        dimension=now.dimension,
        descriptors=descriptors,
        source=now.stamp,
        row_bytes=row_bytes,
        manifest=replace(now.manifest, unlikely=unlikely_similarity(now)),
        facts=facts,
        whitening=now.whitening,
        superseded=superseded,
        features=now.local is not None,
    )


def _says_the_same(before: Published, after: Published) -> bool:
    return (before.manifest.fields, before.facts) == (after.manifest.fields, after.facts)


@dataclass
class _Sending:
    photos: set[int]
    changed: list[int]
    added: int = 0
    kept: int = 0
    found: int = 0
    row_bytes: int = 0


def _send(
    now: Generation,
    store: Store,
    generation: int,
    descriptors: int,
    old: dict[int, tuple[int, int]],
    mine: dict[int, tuple[int, int]],
    progress: StageProgress | None,
) -> _Sending:
    """Send the rows of photos that are new or have changed."""
    sending, waiting, total, size = _Sending(set(), []), [], 0, 0
    stale = []
    for done, (photo, packed, beside, vectors) in enumerate(_rows(now, descriptors), 1):
        if photo in sending.photos:
            raise InvalidInput("two photos have keys of the same number, which happens once in a lifetime; rename one.")
        sending.photos.add(photo)
        total += len(packed)
        own = digest(packed + vectors.tobytes() + beside)
        if photo in old and old[photo][1] == own:
            sending.kept += 1
        else:
            sending.added += photo not in old
            if photo in old:
                sending.changed.append(photo)
            if photo in mine and mine[photo][1] == own:
                sending.found += 1
            else:
                if photo in mine:  # of an index that was changed since
                    stale.append(mine[photo][0])
                waiting.append(Row(row_number(photo, generation), photo, generation, own, vectors, packed, beside))
                size += len(packed) + len(beside)
        if size > BLOCK_BYTES:
            size = 0
            _put(store, waiting, stale)
        if progress is not None:
            progress("rows", done, len(now.catalogue))
    for photo, (number, _) in mine.items():
        if photo not in sending.photos or (photo in old and photo not in sending.changed):
            stale.append(number)
    _put(store, waiting, stale)
    sending.row_bytes = total // max(1, len(now.catalogue))
    return sending


def _put(store: Store, waiting: list[Row], stale: list[int]) -> None:
    store.remove(np.array(stale, np.int64))
    store.put(waiting)
    waiting.clear()
    stale.clear()


def _tidied(store: Store, before: Published | None) -> Versions:
    """Return the rows that are there, once those are gone that the visible generation has no more."""
    there = Versions.joined(list(store.versions()))
    if before is None:
        return there
    gone = np.isin(there.numbers, before.superseded)
    store.remove(there.numbers[gone])
    return Versions(*(column[~gone] for column in there))


def _by_photo(rows: Versions, chosen: npt.NDArray[np.bool_]) -> dict[int, tuple[int, int]]:
    """Return the number and the digest of the chosen rows by photo."""
    numbers, photos, _, digests = (column[chosen].tolist() for column in rows)
    return {photo: (number, own) for number, photo, own in zip(numbers, photos, digests, strict=True)}


def _rows(now: Generation, descriptors: int) -> Iterator[tuple[int, bytes, bytes, FloatArray]]:
    """Yield each photo's number, packed row, what lies beside it, and the descriptors that it is found by."""
    manifold, catalogue = now.manifold, now.catalogue
    starts, S = manifold.layout_.starts, manifold.S_
    numbers: Numbers = np.array([number_of(one.key) for one in catalogue.images], np.int64)
    roots = np.sqrt(manifold.degrees_, dtype=np.float64)
    for record in catalogue.images:
        rows = now.regions_of(record.number)
        edges = slice(int(S.indptr[rows.start]), int(S.indptr[rows.stop]))
        counts = np.diff(S.indptr[rows.start : rows.stop + 1])
        targets = S.indices[edges]
        images = np.searchsorted(starts, targets, side="right") - 1
        # S = D^−1/2 A D^−1/2: the affinity itself does not depend on who else is in a shortlist.
        affinities = S.data[edges] * np.repeat(roots[rows], counts) * roots[targets]
        vectors = np.asarray(manifold.vectors_[rows])
        said = {
            "key": record.key,
            "sha256": record.sha256,
            "bytes": record.bytes,
            "mtime_ns": record.mtime_ns,
            "width": record.width,
            "height": record.height,
        }
        copies = catalogue.copies_of(record.sha256)
        packed = pack(
            PackedPhoto(
                vectors.astype(np.float16),
                np.asarray(now.boxes[rows], np.float32),
                np.asarray(manifold.weights_[rows], np.float32),
                Edges(
                    counts.astype(np.int32),
                    numbers[images],
                    (targets - starts[images]).astype(np.int32),
                    affinities.astype(np.float32),
                ),
                {**said, "copies": list(copies)} if copies else said,
            )
        )
        beside = b"" if now.local is None else pack_features(now.local.of_photo(record).rows)
        yield int(numbers[record.number]), packed, beside, found_by(vectors.astype(np.float32), descriptors)


def found_by(regions: FloatArray, descriptors: int) -> FloatArray:
    """Return the descriptors that a photo is found by, or that a query asks with."""
    if descriptors == 0:
        return aggregate_one(regions)
    if len(regions) <= descriptors:
        return regions
    return compact(regions, np.zeros(len(regions), np.int32), regions_per_image=descriptors).vectors
