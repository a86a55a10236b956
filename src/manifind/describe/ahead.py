"""Photos read ahead of whoever describes them.

Decoding takes about as long as the network does and runs beside it: Pillow lets go of the interpreter while it decodes.
How far ahead is a matter of memory: what a photo takes is known from its header, and it waits until that much is free.
"""

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from manifind.checks import whole_number
from manifind.describe.budget import Budget
from manifind.describe.folder import Found
from manifind.describe.limits import MAX_BYTES, MAX_PIXELS
from manifind.describe.photos import Photo, read_photo
from manifind.errors import Unreadable

MEMORY = 2**28
"""Bytes that photos read ahead may take unless told otherwise."""


def read_ahead(
    found: Iterable[Found],
    *,
    threads: int = 2,
    depth: int = 8,
    long_side: int | None = None,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
    memory: int = MEMORY,
) -> Generator[tuple[Found, Photo | Unreadable], None, None]:
    """Read photos in several threads, and yield each with what became of it, in the order given.

    A photo that cannot be read, gone meanwhile or broken, comes as its `Unreadable`. Closing the generator
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
    threads = whole_number(threads, "threads")
    depth = whole_number(depth, "depth")
    long_side = None if long_side is None else whole_number(long_side, "long_side")
    limits = {"max_pixels": whole_number(max_pixels, "max_pixels"), "max_bytes": whole_number(max_bytes, "max_bytes")}
    budget = Budget(whole_number(memory, "memory"))
    return _read_ahead(iter(found), threads, depth, {"long_side": long_side, **limits}, budget)


def _read_ahead(
    found: Iterator[Found], threads: int, depth: int, options: dict[str, Any], budget: Budget
) -> Generator[tuple[Found, Photo | Unreadable], None, None]:
    def outcome(one: Found, ticket: int) -> Photo | Unreadable:
        kept = 0
        try:
            photo = read_photo(one.path, admit=lambda needed: budget.admit(ticket, needed), **options)
            kept = photo.pixels.nbytes
        except Unreadable as error:
            # A new one: the traceback of the old holds on to the bytes and half a photo.
            return Unreadable(error.reason, error.name)
        else:
            return photo
        finally:
            budget.keep(ticket, kept)

    pool = ThreadPoolExecutor(threads, thread_name_prefix="read-ahead")
    waiting: deque[tuple[int, Found, Future[Photo | Unreadable]]] = deque()
    try:
        for ticket, one in enumerate(found):
            waiting.append((ticket, one, pool.submit(outcome, one, ticket)))
            if len(waiting) > depth:
                yield from _handed_out(waiting, budget)
        while waiting:
            yield from _handed_out(waiting, budget)
    finally:
        budget.close()
        pool.shutdown(cancel_futures=True)


def _handed_out(
    waiting: deque[tuple[int, Found, Future[Photo | Unreadable]]], budget: Budget
) -> Iterator[tuple[Found, Photo | Unreadable]]:
    """Hand out the photo that was begun first; its memory is free once the next is asked for."""
    ticket, one, future = waiting.popleft()
    yield one, future.result()
    budget.release(ticket)
