"""Reads photos, and extracts their regions if asked for, ahead of the consumer.

Decoding takes about as long as the network does and runs beside it: Pillow lets go of the interpreter while it decodes.
How far ahead is a matter of memory: what a photo takes is known from its header, and it waits until that much is free.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from manifind.checks import check_int
from manifind.errors import UnreadableImageError
from manifind.io.image import Photo, read_photo
from manifind.io.limits import MAX_BYTES, MAX_PIXELS, Admit
from manifind.io.memory_budget import Budget
from manifind.io.scan import Found

ByteArray = npt.NDArray[np.uint8]
Extracted = TypeVar("Extracted")
Read = TypeVar("Read", bound=Photo)
Outcome = TypeVar("Outcome")

MEMORY = 2**28
"""Bytes that photos read ahead may take by default."""
WAITING = 8
"""Photos for each thread that may wait for extraction on a device: the more wait, the larger its batches."""


def read_ahead(
    found: Iterable[Found],
    *,
    threads: int = 2,
    depth: int = 8,
    long_side: int | None = None,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
    memory: int = MEMORY,
) -> Generator[tuple[Found, Photo | UnreadableImageError], None, None]:
    """Read photos in several threads, and yield each with what became of it, in the order given.

    A photo that cannot be read, gone meanwhile or broken, comes as its `UnreadableImageError`. Closing the generator
    (`contextlib.closing` does it whatever happens) stops the reading: what has begun is finished and dropped, nothing
    more is begun.

    Parameters
    ----------
    found : iterable of Found
        The photos; taken one by one, `depth` ahead at most.
    threads : int
        How many photos are read at once.
    depth : int
        How many photos at most are read, or being read, beyond the one handed out.
    long_side, max_pixels, max_bytes
        As for `read_photo`.
    memory : int
        Bytes that all photos read, being read or handed out last may take together; a photo that takes more is read
        while no other is held.
    """
    budget = Budget(check_int(memory, "memory"))
    work = _within(budget, _reader(long_side, max_pixels, max_bytes))
    return _ahead(iter(found), check_int(threads, "threads"), check_int(depth, "depth"), work, budget)


def extract_ahead(
    found: Iterable[Found],
    extract: Callable[[ByteArray], Extracted],
    *,
    threads: int,
    long_side: int | None = None,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
    memory: int = MEMORY,
) -> Generator[tuple[Found, Photo | UnreadableImageError, Extracted | None], None, None]:
    """Read photos and extract their regions, each photo in one of several threads; yield them in the order given.

    Cores are used better by so many photos at once than by one photo on all of them, whose parts wait for each other.
    A photo that cannot be read yields None for its regions. An error of `extract` is raised when its turn comes.

    Parameters
    ----------
    found, long_side, max_pixels, max_bytes, memory
        As for `read_ahead`.
    extract : callable
        Called with the pixels of a photo, in several threads at once.
    threads : int
        How many photos are worked on at once.
    """
    threads = check_int(threads, "threads")
    budget = Budget(check_int(memory, "memory"))
    read = _within(budget, _reader(long_side, max_pixels, max_bytes))

    def work(one: Found, ticket: int) -> tuple[Photo | UnreadableImageError, Extracted | None]:
        photo = read(one, ticket)
        return photo, None if isinstance(photo, UnreadableImageError) else extract(photo.pixels)

    with closing(_ahead(iter(found), threads, 2 * threads, work, budget)) as outcomes:
        for one, (photo, extracted) in outcomes:
            yield one, photo, extracted


def begin_ahead(
    found: Iterable[Found],
    read: Callable[[Found, Admit], Read],
    begin: Callable[[Read], Callable[[], Extracted]],
    *,
    threads: int,
    memory: int = MEMORY,
) -> Generator[tuple[Found, Read | UnreadableImageError, Extracted | None], None, None]:
    """Read photos in several threads, begin the extraction of each, and yield them in the order given.

    For extraction on a device, in batches: only the consumer of the generator waits for the results.

    Parameters
    ----------
    found, memory
        As for `read_ahead`.
    read : callable
        Called with a file, and with what it must call with the bytes that reading will take before it takes them.
        Returns what was read, which has `pixels`, or raises `UnreadableImageError`.
    begin : callable
        Called with what was read; returns a function that waits for the result.
    threads : int
        How many photos are read at once.
    """
    threads = check_int(threads, "threads")
    budget = Budget(check_int(memory, "memory"))
    within = _within(budget, read)

    def work(one: Found, ticket: int) -> tuple[Read | UnreadableImageError, Callable[[], Extracted] | None]:
        photo = within(one, ticket)
        return photo, None if isinstance(photo, UnreadableImageError) else begin(photo)

    with closing(_ahead(iter(found), threads, WAITING * threads, work, budget)) as outcomes:
        for one, (photo, finish) in outcomes:
            yield one, photo, None if finish is None else finish()


def _reader(long_side: int | None, max_pixels: int, max_bytes: int) -> Callable[[Found, Admit], Photo]:
    """Return what reads a photo as `read_photo` does, its options checked."""
    options: dict[str, Any] = {
        "long_side": None if long_side is None else check_int(long_side, "long_side"),
        "max_pixels": check_int(max_pixels, "max_pixels"),
        "max_bytes": check_int(max_bytes, "max_bytes"),
    }
    return lambda one, admit: read_photo(one.path, admit=admit, **options)


def _within(
    budget: Budget, read: Callable[[Found, Admit], Read]
) -> Callable[[Found, int], Read | UnreadableImageError]:
    """Return what reads a photo within the budget, on which its pixels stay until they are released."""

    def held(one: Found, ticket: int) -> Read | UnreadableImageError:
        held_bytes = 0
        try:
            photo = read(one, lambda needed: budget.admit(ticket, needed))
            held_bytes = photo.pixels.nbytes
        except UnreadableImageError as error:
            # A new one: the traceback of the old holds on to the bytes and half a photo.
            return UnreadableImageError(error.reason, error.name, temporary=error.temporary)
        else:
            return photo
        finally:
            budget.keep(ticket, held_bytes)

    return held


def _ahead(
    found: Iterator[Found], threads: int, depth: int, work: Callable[[Found, int], Outcome], budget: Budget
) -> Generator[tuple[Found, Outcome], None, None]:
    pool = ThreadPoolExecutor(threads, thread_name_prefix="read-ahead")
    waiting: deque[tuple[int, Found, Future[Outcome]]] = deque()
    try:
        for ticket, one in enumerate(found):
            waiting.append((ticket, one, pool.submit(work, one, ticket)))
            if len(waiting) > depth:
                yield from _handed_out(waiting, budget)
        while waiting:
            yield from _handed_out(waiting, budget)
    finally:
        budget.close()
        pool.shutdown(cancel_futures=True)


def _handed_out(waiting: deque[tuple[int, Found, Future[Outcome]]], budget: Budget) -> Iterator[tuple[Found, Outcome]]:
    """Hand out the photo that was begun first; its memory is free once the next is asked for."""
    ticket, one, future = waiting.popleft()
    yield one, future.result()
    budget.release(ticket)
