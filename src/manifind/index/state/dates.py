"""When photos were taken: what their EXIF says, or when their files were changed last where it does not."""

from datetime import UTC, datetime
from pathlib import Path

from manifind.describe import key_to_path
from manifind.describe.taken import taken
from manifind.errors import InvalidInput
from manifind.index.state.catalogue import ImageRecord


def date_of(root: Path, record: ImageRecord) -> str:
    """Return when a photo was taken, as ``2019-07-04T12:33:05``; the head of its file is read."""
    try:
        when = taken(key_to_path(root, record.key)).when
    except InvalidInput:  # a key that no file can have
        when = None
    moment = when or datetime.fromtimestamp(record.mtime_ns / 1e9, UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="seconds")


def is_within(date: str, since: str | None, until: str | None) -> bool:
    """Say whether a moment lies between two dates, both included; dates may be years, months or days."""
    return (since is None or date[: len(since)] >= since) and (until is None or date[: len(until)] <= until)
