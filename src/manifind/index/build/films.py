"""The films of a folder, as the frames that an index is to hold.

A frame is a photo of the index like any other: its key says its film and its time, its content is that of the film at
that time. A film whose size and time are as they were is not looked at again; one that was renamed is looked through
once more, and none of its frames is extracted again.
"""

import hashlib
from collections.abc import Collection
from dataclasses import replace
from itertools import count
from pathlib import Path

from manifind.errors import UnreadableImageError
from manifind.index.storage.catalogue import Photos, SkippedRecord, SkipReason
from manifind.io import Found, content_hash
from manifind.io.video import MOST, STEP, at_time, length

Frame = tuple[Found, str]
"""A frame, and what tells its content."""


def frames_of(
    film: Found, seconds: float, before: Photos | None, removed: Collection[str] = ()
) -> list[Frame] | SkippedRecord:
    """Return the frames of a film, one every so many seconds; or why it is passed over.

    Parameters
    ----------
    film : Found
        The file.
    seconds : float
        Between two frames.
    before : Photos, optional
        What the index has by now.
    removed : collection of str
        The keys of frames that were removed by hand; their contents do not matter.
    """
    every = round(seconds / STEP)
    known = None if before is None else _as_they_were(film, every, before, removed)
    if known is not None:
        return known
    old = None if before is None else before.skipped_of(film.key)
    if old is not None and old.sha256 is not None and (old.bytes, old.mtime_ns) == (film.size, film.mtime_ns):
        return old  # as unreadable as it was
    try:
        digest = content_hash(film.path)
        times = range(0, length(film.path), every)
    except UnreadableImageError as error:
        stamp = (None, None, None) if error.temporary else (_stamp(film, error), film.size, film.mtime_ns)
        return SkippedRecord(film.key, SkipReason.UNREADABLE, error.reason, *stamp)
    if len(times) > MOST:
        detail = f"a film of {len(times):,} frames; the most are {MOST:,}: give more --frames"
        return SkippedRecord(film.key, SkipReason.UNREADABLE, detail)
    return [(_frame(film, tenths), hashlib.sha256(f"{digest} {tenths}".encode()).hexdigest()) for tenths in times]


def _as_they_were(film: Found, every: int, before: Photos, removed: Collection[str]) -> list[Frame] | None:
    """Return the frames that the index has of a film; None where it has none, or the file is another by now."""
    frames: list[Frame] = []
    for tenths in count(0, every):
        frame = _frame(film, tenths)
        old = before.of_key(frame.key) or before.skipped_of(frame.key)
        if old is None:
            return frames or None
        if frame.key not in removed and (old.sha256 is None or (old.bytes, old.mtime_ns) != (film.size, film.mtime_ns)):
            return None
        frames.append((frame, old.sha256 or ""))
    return None


def _frame(film: Found, tenths: int) -> Found:
    path = Path(at_time(str(film.path), tenths))
    return replace(film, key=at_time(film.key, tenths), path=path, film=False)


def _stamp(film: Found, error: UnreadableImageError) -> str:
    """Return what a broken film is remembered by, so that it is not looked at again while it is the same."""
    return hashlib.sha256(f"{film.size} {film.mtime_ns} {error.reason}".encode()).hexdigest()
