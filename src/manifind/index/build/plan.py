"""Which photos an index is to contain: all of a folder, more, or fewer; films count as their frames.

A frame is a photo of the index like any other: its key has its film and its time, its content is that of the film at
that time. A film of unchanged size and time is not read again. A film that was renamed is read once more, and none of
its frames is extracted again.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.index.storage.catalogue import ImageRecord, Photos, SkippedRecord, SkipReason
from manifind.index.storage.snapshot import Snapshot
from manifind.io import ListedFile, SkippedFile, content_hash, key_of, list_photos
from manifind.io.files import modified_ns, read_head
from manifind.io.ignore import FileRules, excluded_part
from manifind.io.image import photo_format
from manifind.io.video import FRAME_STEP, MAX_FRAMES, frame_key, split_frame_key, video_format, video_length


@dataclass(frozen=True)
class PendingChanges:
    """How many photos of a folder differ from its index; a film counts as one."""

    new: int = 0
    changed: int = 0
    moved: int = 0
    """Photos of the same size and time under another name."""
    gone: int = 0

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.new or self.changed or self.moved or self.gone)


@dataclass(frozen=True)
class SyncPlan:
    """What an index is to contain."""

    found: list[ListedFile]
    """Files to look at, by key."""
    skipped: list[SkippedRecord]
    """What is skipped without a look, and why."""
    unread: list[ImageRecord]
    """Photos of the index that stay as they are, without a look at their files."""
    removed: frozenset[str] = frozenset()
    """The keys of what was removed by hand: frames of films that are to be found are not taken for it."""


def plan_folder(
    root: Path, removed: Iterable[str] = (), *, films: bool = False, files: FileRules | None = None
) -> SyncPlan:
    """Plan an index of the photos below a folder.

    `removed` are keys of photos to leave out; with `films`, the frames of films are photos too.
    """
    if not root.is_dir():
        raise InvalidInputError(f"{root} is not a folder", remedy="give the folder that holds the photos")
    by_hand = frozenset(removed)
    files_to_read, skipped = [], []
    for file in list_photos(root, films=films, files=files):
        if isinstance(file, SkippedFile):
            skipped.append(SkippedRecord(file.key, SkipReason.UNREADABLE, file.reason))
        elif file.key in by_hand:
            skipped.append(SkippedRecord(file.key, SkipReason.REMOVED))
        else:
            files_to_read.append(file)
    if not files_to_read and not skipped:
        raise InvalidInputError(f"{root} has no photos", remedy="give a folder with at least one")
    return SyncPlan(files_to_read, skipped, [], by_hand)


def plan_sync(snapshot: Snapshot, root: Path | None = None, files: FileRules | None = None) -> SyncPlan:
    """Plan the photos of the index's folder as they are now.

    `root` is the folder, where it is another one by now; `files` says which files count, where that is to change.
    """
    folder = _root(snapshot) if root is None else root
    try:
        wanted = plan_folder(
            folder,
            removed_keys(snapshot.catalogue.skipped),
            films=snapshot.manifest.frames is not None,
            files=files or snapshot.manifest.files,
        )
        # A folder that cannot be listed at the moment is not one whose photos are gone.
        closed = tuple(f"{record.key}/" for record in wanted.skipped)
        unread = [image for image in snapshot.catalogue.images if image.key.startswith(closed)] if closed else []
        return replace(wanted, unread=unread)
    except InvalidInputError as error:
        remedy = "is its disk there? The index stays as it was"
        raise InvalidInputError(error.problem, remedy=remedy, code=error.code) from error


def compare_folder(snapshot: Snapshot) -> PendingChanges:
    """Compare the index's folder with the index by names, sizes and times; no photo is decoded."""
    planned = plan_sync(snapshot)
    there = {_whole(record.key): (record.bytes, record.mtime_ns) for record in snapshot.catalogue.images}
    skipped = {_whole(record.key): (record.bytes, record.mtime_ns) for record in snapshot.catalogue.skipped}
    listed = {record.key: (record.size, record.mtime_ns) for record in planned.found}
    unread = {_whole(record.key) for record in planned.unread}
    # What was skipped without being read, for lack of memory or rights, is not counted again and again.
    new = {
        key for key, stat in listed.items() if key not in there and skipped.get(key, stat) not in (stat, (None, None))
    }
    new |= listed.keys() - there.keys() - skipped.keys()
    changed = sum(listed[key] != stat for key, stat in there.items() if key in listed)
    gone = there.keys() - listed.keys() - unread
    moved = (Counter(listed[key] for key in new) & Counter(there[key] for key in gone)).total()
    return PendingChanges(len(new) - moved, changed, moved, len(gone) - moved)


def plan_addition(snapshot: Snapshot, paths: Sequence[Path]) -> SyncPlan:
    """Plan what the index has and the photos at `paths`: files or folders below that of the index."""
    root = _root(snapshot)
    listed: dict[str, ListedFile] = {}
    skipped = {file.key: file for file in snapshot.catalogue.skipped}
    for path in paths:
        for file in _below(root, path, films=snapshot.manifest.frames is not None, files=snapshot.manifest.files):
            skipped.pop(file.key, None)
            if isinstance(file, ListedFile):
                listed[file.key] = file
            else:
                skipped[file.key] = SkippedRecord(file.key, SkipReason.UNREADABLE, file.reason)
    skipped = {key: file for key, file in skipped.items() if _whole(key) not in listed}
    unread = [
        image for image in snapshot.catalogue.images if _whole(image.key) not in listed and image.key not in skipped
    ]
    return SyncPlan([listed[key] for key in sorted(listed)], list(skipped.values()), unread)


def plan_removal(snapshot: Snapshot, keys: Sequence[str]) -> SyncPlan:
    """Plan what the index has without these photos."""
    gone = dict.fromkeys(keys)
    unknown = [key for key in gone if snapshot.catalogue.of_key(key) is None]
    if unknown:
        shown = ", ".join(map(repr, unknown[:3]))
        raise InvalidInputError(
            f"{len(unknown)} of the keys are not in the index, {shown} first; give keys of its photos."
        )
    unread = [image for image in snapshot.catalogue.images if image.key not in gone]
    if not unread:
        raise InvalidInputError("keys are all photos of the index; remove its folder instead.")
    return SyncPlan([], snapshot.catalogue.skipped + [SkippedRecord(key, SkipReason.REMOVED) for key in gone], unread)


def removed_keys(skipped: Iterable[SkippedRecord]) -> list[str]:
    """Return the keys of photos that `plan_removal` left out."""
    return [record.key for record in skipped if record.code is SkipReason.REMOVED]


def check_list(values: Iterable[Any], name: str) -> list[Any]:
    """Return a list; a single string is an error, as it would become a list of letters."""
    if isinstance(values, str | bytes | os.PathLike):
        raise InvalidInputError(f"{name} is one, {os.fspath(values)!r}; give a list.")
    return list(values)


def _root(snapshot: Snapshot) -> Path:
    root = snapshot.manifest.root
    if not root.is_dir():
        raise InvalidInputError(f"{root}, the folder of the photos, is not there; give the one that it is now.")
    return root


def _whole(key: str) -> str:
    """Return the key of the file that a photo is in: that of its film if it is a frame."""
    frame = split_frame_key(key)
    return key if frame is None else frame[0]


def _below(root: Path, path: Path, *, films: bool, files: FileRules) -> Iterator[ListedFile | SkippedFile]:
    """List a photo, or the photos of a folder, below the root; a path may be taken from there."""
    full = Path(os.path.normpath(path.absolute() if path.is_absolute() or path.exists() else root / path))
    if not full.is_relative_to(root) and (root / path).exists():
        full = Path(os.path.normpath(root / path))
    if not full.exists():
        raise InvalidInputError(f"{path} does not exist; give the path of a photo.")
    if not full.is_relative_to(root):
        full = full.resolve()
    key = "" if full == root else key_of(root, full)
    if any(part.startswith(".") for part in full.relative_to(root).parts):
        raise InvalidInputError(f"{path} is hidden, or lies in a hidden folder, and those are skipped; rename it.")
    if (part := excluded_part(root, full, files)) is not None:
        raise InvalidInputError(
            f"{part} is left out by a pattern or as a link; `manifind info` tells by which.", code="excluded"
        )
    if full.is_dir():
        for file in list_photos(full, films=films, files=files, base=root):
            yield replace(file, key=f"{key}/{file.key}" if key else file.key)
    else:
        status = full.stat()
        try:
            head = read_head(full)
        except UnreadableImageError as error:
            yield SkippedFile(key, error.reason)
            return
        film = films and photo_format(head) is None and video_format(head, full.name) is not None
        yield ListedFile(key, full, status.st_size, modified_ns(status), film)


Frame = tuple[ListedFile, str]
"""A frame, and what tells its content."""


def frames_of(
    film: ListedFile, seconds: float, before: Photos | None, removed: Collection[str] = ()
) -> list[Frame] | SkippedRecord:
    """Return the frames of a film, one every so many seconds; or why it is skipped.

    `before` is what the index has by now. The contents of frames in `removed`, the keys that were removed by hand, do
    not matter.
    """
    every = round(seconds / FRAME_STEP)
    known = None if before is None else _as_they_were(film, every, before, removed)
    if known is not None:
        return known
    old = None if before is None else before.skipped_of(film.key)
    if old is not None and old.sha256 is not None and (old.bytes, old.mtime_ns) == (film.size, film.mtime_ns):
        return old  # as unreadable as it was
    try:
        digest = content_hash(film.path)
        times = range(0, video_length(film.path), every)
    except UnreadableImageError as error:
        stamp = (None, None, None) if error.temporary else (_stamp(film, error), film.size, film.mtime_ns)
        return SkippedRecord(film.key, SkipReason.UNREADABLE, error.reason, *stamp)
    if len(times) > MAX_FRAMES:
        detail = f"a film of {len(times):,} frames; the most are {MAX_FRAMES:,}: give more --frames"
        return SkippedRecord(film.key, SkipReason.UNREADABLE, detail)
    return [(_frame(film, tenths), hashlib.sha256(f"{digest} {tenths}".encode()).hexdigest()) for tenths in times]


def _as_they_were(film: ListedFile, every: int, before: Photos, removed: Collection[str]) -> list[Frame] | None:
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


def _frame(film: ListedFile, tenths: int) -> ListedFile:
    path = Path(frame_key(str(film.path), tenths))
    return replace(film, key=frame_key(film.key, tenths), path=path, film=False)


def _stamp(film: ListedFile, error: UnreadableImageError) -> str:
    """Return what a broken film is remembered by, so that it is not looked at again while it is the same."""
    return hashlib.sha256(f"{film.size} {film.mtime_ns} {error.reason}".encode()).hexdigest()
