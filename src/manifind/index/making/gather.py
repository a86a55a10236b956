"""Which photos an index is to have, and the descriptions of those that it does not know.

A photo whose size and time are as they were is the same; else its content decides. Content that is known, here or by an
earlier run that was interrupted, is not described again, wherever the file has gone and whatever it is called now.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manifind.compact import compact
from manifind.describe import (
    Describer,
    Found,
    Photo,
    Regions,
    Unreadable,
    content_hash,
    describe_ahead,
)
from manifind.describe.ahead import begin_ahead
from manifind.describe.backbone import available_cores
from manifind.describe.films import file_of
from manifind.geometry.packing import Packed
from manifind.index.making.films import frames_of
from manifind.index.making.journal import NO_FEATURES, Journal
from manifind.index.making.readers import Readers
from manifind.index.making.wanted import Wanted
from manifind.index.state.catalogue import REMOVED, SAME, ImageRecord, Photos, SkippedRecord
from manifind.index.state.kept import Keeping, keep
from manifind.types import FloatArray, StageProgress

CHANGED = "changed while it was being read; the next run takes it"


@dataclass(frozen=True)
class Plan:
    """What is known of the photos that an index is to hold, before any is described."""

    known: list[ImageRecord]
    """The photos that are described already. They are numbered later."""
    new: list[tuple[Found, str]]
    """Files to describe, with their content hashes."""
    skipped: list[SkippedRecord]


def plan(
    wanted: Wanted, journal: Journal, before: Photos | None, report: StageProgress, frames: float | None = None
) -> Plan:
    """Look at the files, and find out which of them are to be described; of films, a frame every `frames` seconds."""
    known, new, skipped = list(wanted.unread), [], list(wanted.skipped)
    first_of = {image.sha256: image.key for image in known}
    for one, content in _looked_at(wanted, before, report, frames, skipped):
        try:
            old = None if before is None else before.of_key(one.key) or before.skipped_of(one.key)
            same = old is not None and (old.bytes, old.mtime_ns) == (one.size, one.mtime_ns)
            digest = content or (old.sha256 if old is not None and same else None) or content_hash(one.path)
        except Unreadable as error:
            skipped.append(SkippedRecord(one.key, error.reason))
            continue
        if digest in first_of:
            skipped.append(_passed_over(one, f"{SAME}{first_of[digest]}", digest))
            continue
        if same and isinstance(old, SkippedRecord) and old.same_as is None:
            skipped.append(old)  # as unreadable as it was
            continue
        first_of[digest] = one.key
        described = (None if before is None else before.of_content(digest)) or journal.get(digest)
        if described is None:
            new.append((one, digest))
        else:
            known.append(_record(one, digest, described.width, described.height))
    return Plan(known, new, skipped)


def _looked_at(
    wanted: Wanted, before: Photos | None, report: StageProgress, frames: float | None, skipped: list[SkippedRecord]
) -> Iterator[tuple[Found, str | None]]:
    """Yield the photos wanted, those of films with their contents; what is passed over is added to `skipped`."""
    for done, one in enumerate(wanted.found, 1):
        if frames is None or not one.film:
            yield one, None
        elif isinstance(found := frames_of(one, frames, before, wanted.removed), SkippedRecord):
            skipped.append(found)
        else:
            for frame, content in found:
                if frame.key in wanted.removed:
                    skipped.append(SkippedRecord(frame.key, REMOVED))
                else:
                    yield frame, content
        report("files", done, len(wanted.found))


class Described(NamedTuple):
    """A photo that was read and described."""

    width: int
    height: int
    vectors: FloatArray
    boxes: FloatArray
    local: Packed
    """Its local features, where they are kept."""


Outcomes = Generator[tuple[Found, Described | Unreadable], None, None]
"""What became of photos, in the order in which they were given."""


Seen = tuple[Regions, Packed]
"""A photo's regions in pixels as it was read, and its local features."""


def seen(pixels: npt.NDArray[np.uint8], describer: Describer, keeping: Keeping | None) -> Seen:
    """Describe a photo; `keeping` is what is kept of its local features, if anything."""
    return describer.describe(pixels), NO_FEATURES if keeping is None else keep(pixels, keeping).rows


def outcome(photo: Photo, found: Seen, means: int | None) -> Described:
    """Return a photo that was described, in pixels of its file."""
    regions, local = reduced(found[0], means), found[1]
    height, width, _ = photo.pixels.shape
    enlarged = np.array([photo.width / width, photo.height / height] * 2, np.float32)
    return Described(photo.width, photo.height, regions.vectors, regions.boxes * enlarged, local)


def described_here(
    found: Sequence[Found], describer: Describer, means: int | None, keeping: Keeping | None, **limits: int
) -> Outcomes:
    """Describe photos in this process; `limits` are `describe_ahead`'s."""
    look = _seen_apart if describer.apart else _seen_here
    with closing(look(found, describer, keeping, **limits)) as photos:
        for one, photo, regions in photos:
            if isinstance(photo, Unreadable) or regions is None:
                assert isinstance(photo, Unreadable)  # noqa: S101 (every other is described)
                yield one, photo
            else:
                yield one, outcome(photo, regions, means)


Looks = Generator[tuple[Found, Photo | Unreadable, Seen | None], None, None]
"""Photos as they were read, and what was seen in each; None where it cannot be read."""


def _seen_here(found: Sequence[Found], describer: Describer, keeping: Keeping | None, **limits: int) -> Looks:
    """Describe photos on the cores of the processor, each by the thread that reads it."""
    side_by_side, threads = describer.for_threads()
    limits = {**limits, "threads": threads, "long_side": describer.long_side}
    return describe_ahead(found, partial(seen, describer=side_by_side, keeping=keeping), **limits)


def _seen_apart(found: Sequence[Found], describer: Describer, keeping: Keeping | None, **limits: int) -> Looks:
    """Describe photos where the cores of the processor are free: these read photos, in processes of their own."""
    memory = {"memory": limits.pop("memory")} if "memory" in limits else {}
    left = describer.beside is not None
    reading = Readers(describer.seen_size, keeping, left=left, long_side=describer.long_side, **limits)
    begin = lambda photo: describer.begin(photo.pixels)  # noqa: E731
    with (
        reading as readers,
        closing(begin_ahead(found, readers.read, begin, threads=available_cores(), **memory)) as photos,
    ):
        for one, photo, regions in photos:
            if isinstance(photo, Unreadable) or regions is None:
                yield one, photo, None
            else:
                yield one, photo, (regions, regions.beside if photo.local is None else photo.local)


def described(
    chosen: Plan,
    outcomes: Outcomes,
    journal: Journal,
    report: StageProgress,
    growing: Callable[[list[ImageRecord]], None] | None = None,
) -> tuple[list[ImageRecord], list[SkippedRecord]]:
    """Take what became of the new photos of a plan into the journal.

    Return all photos, numbered in the order of their keys, and what is passed over. `growing` is called after each new
    photo with all that are described; the list goes on to grow.
    """
    images, skipped = list(chosen.known), list(chosen.skipped)
    hashes = {one.key: digest for one, digest in chosen.new}
    report("photos", 0, len(chosen.new))
    with closing(outcomes) as photos:
        for done, (one, photo) in enumerate(photos, 1):
            if isinstance(photo, Unreadable):
                # What an extra or more memory could read is tried again, and what may have been torn while it was read.
                lasting = as_listed(one, gone=False) and not photo.temporary
                known = _passed_over(one, photo.reason, hashes[one.key])
                skipped.append(known if lasting else SkippedRecord(one.key, photo.reason))
            elif not as_listed(one):
                skipped.append(SkippedRecord(one.key, CHANGED))
            else:
                digest = hashes[one.key]
                journal.append(digest, *photo)
                images.append(_record(one, digest, photo.width, photo.height))
                if growing is not None:
                    growing(images)
            report("photos", done, len(chosen.new))
    return _numbered(images), sorted(skipped, key=lambda one: one.key)


def _passed_over(one: Found, reason: str, digest: str) -> SkippedRecord:
    """Remember of a file that is passed over what it was, so that it need not be read again while it is the same."""
    return SkippedRecord(one.key, reason, digest, one.size, one.mtime_ns)


def as_listed(one: Found, *, gone: bool = True) -> bool:
    """Whether a file is still the one that was listed and hashed.

    `gone` is the answer for a file that is no longer there.
    """
    try:
        status = file_of(one.path).stat()
    except OSError:
        return gone  # what was read was read
    return (status.st_size, status.st_mtime_ns) == (one.size, one.mtime_ns)


def reduced(regions: Regions, means: int | None) -> Regions:
    """Put the means of a mixture in place of the regions. The box of a mean is that of the region most like it."""
    if means is None:
        return regions
    fewer = compact(regions.vectors, np.zeros(len(regions.vectors), np.int32), regions_per_image=means)
    likeness = fewer.vectors @ regions.vectors.T
    likeness[fewer.row_of != np.arange(len(fewer.vectors))[:, None]] = -np.inf
    return Regions(fewer.vectors, regions.boxes[likeness.argmax(axis=1)])


def _record(one: Found, digest: str, width: int, height: int) -> ImageRecord:
    return ImageRecord(-1, one.key, digest, one.size, one.mtime_ns, width, height)


def _numbered(images: Iterable[ImageRecord]) -> list[ImageRecord]:
    return [replace(image, number=number) for number, image in enumerate(sorted(images, key=lambda image: image.key))]
