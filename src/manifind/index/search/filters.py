"""Filters of a search: a folder of the collection, and dates."""

from manifind.errors import InvalidInputError
from manifind.index.storage.dates import check_date, date_of, is_within
from manifind.index.storage.snapshot import AnySnapshot, Snapshot


def excluded_images(
    snapshot: AnySnapshot, folder: str | None = None, since: str | None = None, until: str | None = None
) -> frozenset[int]:
    """Return the numbers of the images outside a folder, or outside two dates, both included.

    Dates may be years, months or days: ``2019``, ``2019-07``, ``2019-07-04``. The first filter by date reads the heads
    of all image files.
    """
    if folder is None and since is None and until is None:
        return frozenset()
    for name, value in (("since", since), ("until", until)):
        if value is not None:
            check_date(value, name)
    if not isinstance(folder, str | None):
        raise InvalidInputError(f"folder is {folder!r}; give its path below the collection's root.", code="folder")
    if not isinstance(snapshot, Snapshot):
        raise InvalidInputError(
            "a collection in a store cannot be filtered by folder or date; search all of it.", code="filter-in-store"
        )
    below = f"{folder.rstrip('/')}/" if folder else ""
    excluded = {record.number for record in snapshot.catalogue.images if not record.key.startswith(below)}
    if since is not None or until is not None:
        excluded |= {number for number, date in enumerate(dates_of(snapshot)) if not is_within(date, since, until)}
    return frozenset(excluded)


def dates_of(snapshot: Snapshot) -> list[str]:
    """Return when each photo of a snapshot was taken; read once, and kept with the snapshot."""
    with snapshot.cache.lock:
        if snapshot.cache.dates is None:
            root = snapshot.manifest.root
            snapshot.cache.dates = [date_of(root, record) for record in snapshot.catalogue.images]
        return snapshot.cache.dates
