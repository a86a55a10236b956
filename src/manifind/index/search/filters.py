"""Filters of a search: a folder of the collection, dates, and named photos."""

import re
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from manifind.errors import InvalidInputError
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.snapshot import AnySnapshot, Snapshot
from manifind.io import key_to_path
from manifind.io.exif import read_exif


def excluded_images(
    snapshot: AnySnapshot,
    folder: str | None = None,
    since: str | None = None,
    until: str | None = None,
    keys: Collection[str] | None = None,
) -> frozenset[int]:
    """Return the numbers of the images outside a folder, outside two dates (both included), or not among `keys`.

    Dates may be years, months or days: ``2019``, ``2019-07``, ``2019-07-04``. The first filter by date reads the heads
    of all image files.
    """
    if folder is None and since is None and until is None and keys is None:
        return frozenset()
    for name, value in (("since", since), ("until", until)):
        if value is not None:
            check_date(value, name)
    if not isinstance(folder, str | None):
        raise InvalidInputError(f"folder is {folder!r}; give its path below the collection's root.", code="folder")
    if not isinstance(snapshot, Snapshot):
        raise InvalidInputError("a collection in a store cannot be filtered; search all of it.", code="filter-in-store")
    below = f"{folder.rstrip('/')}/" if folder else ""
    excluded = {record.number for record in snapshot.catalogue.images if not record.key.startswith(below)}
    if since is not None or until is not None:
        excluded |= {number for number, date in enumerate(dates_of(snapshot)) if not is_within(date, since, until)}
    if keys is not None:
        if isinstance(keys, str):
            raise InvalidInputError(f"keys is one, {keys[:80]!r}; give a list.", code="keys")
        records = (snapshot.catalogue.photo_of(key) for key in keys)
        excluded |= set(range(len(snapshot.catalogue))) - {one.number for one in records if one is not None}
    return frozenset(excluded)


def dates_of(snapshot: Snapshot) -> list[str]:
    """Return when each photo of a snapshot was taken; read once, and kept with the snapshot."""
    dates = snapshot.cache.dates
    if dates is None:  # without the lock: searches need it, and a disk may hold this up
        root = snapshot.manifest.root
        dates = snapshot.cache.dates = [date_of(root, record) for record in snapshot.catalogue.images]
    return dates


DATE = re.compile(r"^\d{4}(-\d\d(-\d\d)?)?$", re.ASCII)
"""A year, a month or a day."""


def check_date(value: object, name: str) -> str:
    """Return `value` if it is a year, a month or a day."""
    if isinstance(value, str) and DATE.fullmatch(value):
        return value
    raise InvalidInputError(f"{name} is {value!r}; give a year, a month or a day: 2019-07-04, say.", code="date")


def date_of(root: Path, record: ImageRecord) -> str:
    """Return when a photo was taken, as ``2019-07-04T12:33:05``; the head of its file is read."""
    try:
        taken_at = read_exif(key_to_path(root, record.key)).taken_at
    except InvalidInputError:  # a key that no file can have
        taken_at = None
    moment = taken_at or datetime.fromtimestamp(record.mtime_ns / 1e9, UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="seconds")


def is_within(date: str, since: str | None, until: str | None) -> bool:
    """Say whether a moment lies between two dates, both included; dates may be years, months or days."""
    return (since is None or date[: len(since)] >= since) and (until is None or date[: len(until)] <= until)
