"""An index on disk → a collection in a store.

Rows are written for the next generation, which nobody sees before its document exists. Rows that an interrupted run
wrote are kept: rows are compared by digest, and only new or changed ones are sent. Adding a photo changes the rows of
the photos linked with it, and no other; so an index that was added to, or removed from, is published by sending the
difference. One process at a time may publish to a collection.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInputError
from manifind.gmm import compact
from manifind.groups import aggregate_one
from manifind.index import Index, Snapshot
from manifind.index.search.confidence import unrelated_similarity
from manifind.remote.generations import GRACE_SECONDS, Published, delete_before, new_stamp
from manifind.remote.row_format import (
    Edges,
    Numbers,
    PackedPhoto,
    digest,
    pack,
    pack_features,
    photo_number,
    row_number,
)
from manifind.remote.store import Row, Store, Versions
from manifind.types import FloatArray, StageProgress

DEFAULT_DESCRIPTORS = 5
"""Mixture means that a photo is found by: ``benchmarks/stores.py shortlists`` has what they were chosen by."""

MAX_UPLOAD_BYTES = 2**23
"""Bytes of rows sent at a time."""


@dataclass(frozen=True)
class PublishReport:
    """What publishing did, in photos."""

    generation: int
    added: int
    changed: int
    removed: int
    unchanged: int
    resumed: int
    """Of the added and changed: rows that an interrupted run had written."""


def publish(
    index: Index,
    store: Store,
    *,
    descriptors: int = DEFAULT_DESCRIPTORS,
    grace: float = GRACE_SECONDS,
    progress: StageProgress | None = None,
) -> PublishReport:
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
    snapshot = index.state
    if not isinstance(snapshot, Snapshot):
        raise InvalidInputError(f"{index.where} lies in a store already; publish an index on disk.")
    snapshot.check_ids()
    store.create(snapshot.dimension, len(snapshot.catalogue))
    before = Published.read(store)
    if before is not None and before.dimension != snapshot.dimension:
        raise InvalidInputError(
            f"the collection has descriptors of {before.dimension} dimensions and the index of {snapshot.dimension}; "
            "publish it under another name."
        )
    generation = 1 if before is None else before.number + 1
    versions = _remove_tombstones(store, before)
    visible = versions.generation < generation
    old = _by_photo(versions, visible)
    pending = _by_photo(versions, ~visible)
    sent = _upload_rows(snapshot, store, generation, descriptors, old, pending, progress)
    gone = np.array(sorted(set(old) - sent.photos), np.int64)
    tombstones = np.array([old[int(photo)][0] for photo in [*gone, *sent.changed]], np.int64)
    facts = {**index.info(), "path": str(index.path.resolve())}
    following = _next_generation(snapshot, facts, generation, descriptors, sent.row_bytes, tombstones)
    if before is not None and not (len(tombstones) or sent.added) and _same_facts(before, following):
        return PublishReport(before.number, 0, 0, 0, sent.unchanged, 0)
    store.build_index()
    following.write(store)
    if len(tombstones):
        time.sleep(grace)
        store.remove(tombstones)
    delete_before(store, generation)
    return PublishReport(generation, sent.added, len(sent.changed), len(gone), sent.unchanged, sent.resumed)


def _next_generation(
    snapshot: Snapshot, facts: dict[str, Any], number: int, descriptors: int, row_bytes: int, tombstones: Numbers
) -> Published:
    """Return what the new generation of a collection says of itself."""
    return Published(
        number=number,
        stamp=new_stamp(),
        photos=len(snapshot.catalogue),
        regions=len(snapshot.boxes),
        dimension=snapshot.dimension,
        descriptors=descriptors,
        source=snapshot.stamp,
        row_bytes=row_bytes,
        manifest=replace(snapshot.manifest, null_similarity=unrelated_similarity(snapshot)),
        facts=facts,
        whitening=snapshot.whitening,
        tombstones=tombstones,
        features=snapshot.local is not None,
    )


def _same_facts(before: Published, after: Published) -> bool:
    return (before.manifest.fields, before.facts) == (after.manifest.fields, after.facts)


@dataclass
class _Upload:
    photos: set[int]
    changed: list[int]
    added: int = 0
    unchanged: int = 0
    resumed: int = 0
    row_bytes: int = 0


def _upload_rows(
    snapshot: Snapshot,
    store: Store,
    generation: int,
    descriptors: int,
    old: dict[int, tuple[int, int]],
    pending: dict[int, tuple[int, int]],
    progress: StageProgress | None,
) -> _Upload:
    """Send the rows of photos that are new or have changed."""
    upload, waiting, total, size = _Upload(set(), []), [], 0, 0
    stale = []
    for done, (photo, packed, blob, vectors) in enumerate(_rows(snapshot, descriptors), 1):
        if photo in upload.photos:
            raise InvalidInputError(
                "two photos have keys of the same number, which happens once in a lifetime; rename one."
            )
        upload.photos.add(photo)
        total += len(packed)
        row_digest = digest(packed + vectors.tobytes() + blob)
        if photo in old and old[photo][1] == row_digest:
            upload.unchanged += 1
        else:
            upload.added += photo not in old
            if photo in old:
                upload.changed.append(photo)
            if photo in pending and pending[photo][1] == row_digest:
                upload.resumed += 1
            else:
                if photo in pending:  # of an index that was changed since
                    stale.append(pending[photo][0])
                waiting.append(Row(row_number(photo, generation), photo, generation, row_digest, vectors, packed, blob))
                size += len(packed) + len(blob)
        if size > MAX_UPLOAD_BYTES:
            size = 0
            _flush(store, waiting, stale)
        if progress is not None:
            progress("rows", done, len(snapshot.catalogue))
    for photo, (number, _) in pending.items():
        if photo not in upload.photos or (photo in old and photo not in upload.changed):
            stale.append(number)
    _flush(store, waiting, stale)
    upload.row_bytes = total // max(1, len(snapshot.catalogue))
    return upload


def _flush(store: Store, waiting: list[Row], stale: list[int]) -> None:
    store.remove(np.array(stale, np.int64))
    store.upsert(waiting)
    waiting.clear()
    stale.clear()


def _remove_tombstones(store: Store, before: Published | None) -> Versions:
    """Remove the rows that the visible generation no longer has; return the others."""
    there = Versions.concat(list(store.versions()))
    if before is None:
        return there
    gone = np.isin(there.numbers, before.tombstones)
    store.remove(there.numbers[gone])
    return Versions(*(column[~gone] for column in there))


def _by_photo(rows: Versions, chosen: npt.NDArray[np.bool_]) -> dict[int, tuple[int, int]]:
    """Return the number and the digest of the chosen rows by photo."""
    numbers, photos, _, digests = (column[chosen].tolist() for column in rows)
    return {photo: (number, row_digest) for number, photo, row_digest in zip(numbers, photos, digests, strict=True)}


def _rows(snapshot: Snapshot, descriptors: int) -> Iterator[tuple[int, bytes, bytes, FloatArray]]:
    """Yield each photo's number, packed row, what lies beside it, and the descriptors that it is found by."""
    manifold, catalogue = snapshot.manifold, snapshot.catalogue
    starts, S = manifold.layout_.starts, manifold.S_
    numbers: Numbers = np.array([photo_number(photo.key) for photo in catalogue.images], np.int64)
    roots = np.sqrt(manifold.degrees_, dtype=np.float64)
    for record in catalogue.images:
        rows = snapshot.regions_of(record.number)
        edges = slice(int(S.indptr[rows.start]), int(S.indptr[rows.stop]))
        counts = np.diff(S.indptr[rows.start : rows.stop + 1])
        targets = S.indices[edges]
        images = np.searchsorted(starts, targets, side="right") - 1
        # S = D^−1/2 A D^−1/2: the affinity itself does not depend on who else is in a shortlist.
        affinities = S.data[edges] * np.repeat(roots[rows], counts) * roots[targets]
        vectors = np.asarray(manifold.vectors_[rows])
        metadata = {
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
                np.asarray(snapshot.boxes[rows], np.float32),
                np.asarray(manifold.weights_[rows], np.float32),
                Edges(
                    counts.astype(np.int32),
                    numbers[images],
                    (targets - starts[images]).astype(np.int32),
                    affinities.astype(np.float32),
                ),
                {**metadata, "copies": list(copies)} if copies else metadata,
            )
        )
        blob = b"" if snapshot.local is None else pack_features(snapshot.local.of_photo(record).rows)
        yield int(numbers[record.number]), packed, blob, shortlist_descriptors(vectors.astype(np.float32), descriptors)


def shortlist_descriptors(regions: FloatArray, descriptors: int) -> FloatArray:
    """Return the descriptors that a photo is found by, or that a query asks with."""
    if descriptors == 0:
        return aggregate_one(regions)
    if len(regions) <= descriptors:
        return regions
    return compact(regions, np.zeros(len(regions), np.int32), regions_per_image=descriptors).vectors
