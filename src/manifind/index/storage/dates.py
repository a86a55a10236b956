"""When photos were taken: what their EXIF says, or when their files were changed last where it does not."""

import re
from datetime import UTC, datetime
from pathlib import Path

from manifind.errors import InvalidInputError
from manifind.index.storage.catalogue import ImageRecord
from manifind.io import key_to_path
from manifind.io.exif import read_exif

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
