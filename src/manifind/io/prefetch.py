"""Reads photos, and extracts their regions if asked for, ahead of the consumer.

Decoding takes about as long as the network does and runs beside it: Pillow lets go of the interpreter while it decodes.
How far ahead depends on memory: a photo's header says what decoding takes, and a photo waits until that much is free.
"""

import ctypes
import threading
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
from manifind.io.scan import ListedFile

ByteArray = npt.NDArray[np.uint8]
Extracted = TypeVar("Extracted")
Read = TypeVar("Read", bound=Photo)
Outcome = TypeVar("Outcome")

MEMORY = 2**28
"""Bytes that photos read ahead may take by default."""
MAX_WAITING = 8
"""Photos for each thread that may wait for extraction on a device: the more wait, the larger its batches."""
LARGE_SHARE = 2**26
"""Bytes of a share from which it is worth a few milliseconds to hand its memory back to the system."""


class BudgetClosedError(Exception):
    """The budget was closed while a thread waited for a share."""


class MemoryBudget:
    """Bytes shared out to threads in the order of their tickets 0, 1, 2, …: what is shared in order never locks up.

    A share may be larger than the whole: it is given out when nothing else is.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._held: dict[int, int] = {}
        self._ended: set[int] = set()
        self._turn = 0
        self._closed = False
        self._changed = threading.Condition()

    def admit(self, ticket: int, share: int) -> None:
        """Wait for this ticket's turn, and for a share of so many bytes."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._turn == ticket and self._fits(share)))
            if self._closed:
                raise BudgetClosedError
            self._held[ticket] = share
            self._ended.add(ticket)
            self._advance()

    def keep(self, ticket: int, share: int) -> None:
        """Keep only so many bytes of a ticket's share; a ticket that was never admitted gives its turn away."""
        if self._held.get(ticket, 0) >= LARGE_SHARE:
            _trim_heap()
        with self._changed:
            self._held[ticket] = share
            if ticket >= self._turn:
                self._ended.add(ticket)
            self._advance()

    def release(self, ticket: int) -> None:
        """Give back all that a ticket holds."""
        with self._changed:
            self._held.pop(ticket, None)
            self._changed.notify_all()

    def close(self) -> None:
        """Turn away all waiting threads, now and later."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _fits(self, share: int) -> bool:
        return not any(self._held.values()) or sum(self._held.values()) + share <= self.total

    def _advance(self) -> None:
        while self._turn in self._ended:
            self._ended.remove(self._turn)
            self._turn += 1
        self._changed.notify_all()


def _trim_heap() -> None:
    """Hand freed memory back to the system: the C library keeps what a thread freed for that thread."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def extract_ahead(
    files: Iterable[ListedFile],
    extract: Callable[[ByteArray], Extracted],
    *,
    threads: int,
    long_side: int | None = None,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
    memory: int = MEMORY,
) -> Generator[tuple[ListedFile, Photo | UnreadableImageError, Extracted | None], None, None]:
    """Read photos and extract their regions, each photo in one of several threads; yield them in the order given.

    Cores are used better by so many photos at once than by one photo on all of them, whose parts wait for each other.
    A photo that cannot be read, gone meanwhile or broken, comes as its `UnreadableImageError`, with None for its
    regions. An error of `extract` is raised when its turn comes. Closing the generator (`contextlib.closing` does it
    whatever happens) stops the reading: what has begun is finished and dropped, nothing more is begun.

    Parameters
    ----------
    files : iterable of ListedFile
        The photos; at most two for each thread are taken ahead.
    extract : callable
        Called with the pixels of a photo, in several threads at once.
    threads : int
        How many photos are worked on at once.
    long_side, max_pixels, max_bytes
        As for `read_photo`.
    memory : int
        Bytes that all photos read, being read or handed out last may take together; a photo that takes more is read
        while no other is held.
    """
    threads = check_int(threads, "threads")
    budget = MemoryBudget(check_int(memory, "memory"))
    read = _reader_within(budget, _reader(long_side, max_pixels, max_bytes))

    def work(file: ListedFile, ticket: int) -> tuple[Photo | UnreadableImageError, Extracted | None]:
        photo = read(file, ticket)
        return photo, None if isinstance(photo, UnreadableImageError) else extract(photo.pixels)

    with closing(_ahead(iter(files), threads, 2 * threads, work, budget)) as outcomes:
        for file, (photo, extracted) in outcomes:
            yield file, photo, extracted


def begin_ahead(
    files: Iterable[ListedFile],
    read: Callable[[ListedFile, Admit], Read],
    begin: Callable[[Read], Callable[[], Extracted]],
    *,
    threads: int,
    memory: int = MEMORY,
) -> Generator[tuple[ListedFile, Read | UnreadableImageError, Extracted | None], None, None]:
    """Read photos in several threads, begin the extraction of each, and yield them in the order given.

    For extraction on a device, in batches: only the consumer of the generator waits for the results.

    Parameters
    ----------
    files, memory
        As for `extract_ahead`.
    read : callable
        Called with a file, and with what it must call with the bytes that reading will take before it takes them.
        Returns what was read, which has `pixels`, or raises `UnreadableImageError`.
    begin : callable
        Called with what was read; returns a function that waits for the result.
    threads : int
        How many photos are read at once.
    """
    threads = check_int(threads, "threads")
    budget = MemoryBudget(check_int(memory, "memory"))
    read_within = _reader_within(budget, read)

    def work(file: ListedFile, ticket: int) -> tuple[Read | UnreadableImageError, Callable[[], Extracted] | None]:
        photo = read_within(file, ticket)
        return photo, None if isinstance(photo, UnreadableImageError) else begin(photo)

    with closing(_ahead(iter(files), threads, MAX_WAITING * threads, work, budget)) as outcomes:
        for file, (photo, finish) in outcomes:
            yield file, photo, None if finish is None else finish()


def _reader(long_side: int | None, max_pixels: int, max_bytes: int) -> Callable[[ListedFile, Admit], Photo]:
    """Return what reads a photo as `read_photo` does, its options checked."""
    options: dict[str, Any] = {
        "long_side": None if long_side is None else check_int(long_side, "long_side"),
        "max_pixels": check_int(max_pixels, "max_pixels"),
        "max_bytes": check_int(max_bytes, "max_bytes"),
    }
    return lambda file, admit: read_photo(file.path, admit=admit, **options)


def _reader_within(
    budget: MemoryBudget, read: Callable[[ListedFile, Admit], Read]
) -> Callable[[ListedFile, int], Read | UnreadableImageError]:
    """Return what reads a photo within the budget, on which its pixels stay until they are released."""

    def read_within(file: ListedFile, ticket: int) -> Read | UnreadableImageError:
        held_bytes = 0
        try:
            photo = read(file, lambda needed: budget.admit(ticket, needed))
            held_bytes = photo.pixels.nbytes
        except UnreadableImageError as error:
            # A new one: the traceback of the old holds on to the bytes and half a photo.
            return UnreadableImageError(error.reason, error.name, temporary=error.temporary, code=error.code)
        else:
            return photo
        finally:
            budget.keep(ticket, held_bytes)

    return read_within


def _ahead(
    files: Iterator[ListedFile],
    threads: int,
    depth: int,
    work: Callable[[ListedFile, int], Outcome],
    budget: MemoryBudget,
) -> Generator[tuple[ListedFile, Outcome], None, None]:
    pool = ThreadPoolExecutor(threads, thread_name_prefix="read-ahead")
    waiting: deque[tuple[int, ListedFile, Future[Outcome]]] = deque()
    try:
        for ticket, file in enumerate(files):
            waiting.append((ticket, file, pool.submit(work, file, ticket)))
            if len(waiting) > depth:
                yield from _pop_first(waiting, budget)
        while waiting:
            yield from _pop_first(waiting, budget)
    finally:
        budget.close()
        pool.shutdown(cancel_futures=True)


def _pop_first(
    waiting: deque[tuple[int, ListedFile, Future[Outcome]]], budget: MemoryBudget
) -> Iterator[tuple[ListedFile, Outcome]]:
    """Hand out the photo that was begun first; its memory is free once the next is asked for."""
    ticket, file, future = waiting.popleft()
    yield file, future.result()
    budget.release(ticket)
