"""Photos read ahead of whoever describes them.

Decoding takes about as long as the network does and runs beside it: Pillow lets go of the interpreter while it decodes.
"""

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from manifind.checks import whole_number
from manifind.describe.folder import Found
from manifind.describe.photos import MAX_PIXELS, Photo, read_photo
from manifind.errors import Unreadable


def read_ahead(
    found: Iterable[Found],
    *,
    threads: int = 2,
    depth: int = 8,
    long_side: int | None = None,
    max_pixels: int = MAX_PIXELS,
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
        How many photos at most are read, or being read, beyond the one handed out: this bounds the memory.
    long_side, max_pixels
        As for `read_photo`.
    """
    threads = whole_number(threads, "threads")
    depth = whole_number(depth, "depth")
    long_side = None if long_side is None else whole_number(long_side, "long_side")
    max_pixels = whole_number(max_pixels, "max_pixels")
    return _read_ahead(iter(found), threads, depth, long_side, max_pixels)


def _read_ahead(
    found: Iterator[Found], threads: int, depth: int, long_side: int | None, max_pixels: int
) -> Generator[tuple[Found, Photo | Unreadable], None, None]:
    def outcome(one: Found) -> Photo | Unreadable:
        try:
            return read_photo(one.path, max_pixels=max_pixels, long_side=long_side)
        except Unreadable as error:
            # A new one: the traceback of the old holds on to the bytes and half a photo.
            return Unreadable(error.reason, error.name)

    pool = ThreadPoolExecutor(threads, thread_name_prefix="read-ahead")
    waiting: deque[tuple[Found, Future[Photo | Unreadable]]] = deque()
    try:
        for one in found:
            waiting.append((one, pool.submit(outcome, one)))
            if len(waiting) > depth:
                yield _next(waiting)
        while waiting:
            yield _next(waiting)
    finally:
        pool.shutdown(cancel_futures=True)


def _next(waiting: deque[tuple[Found, Future[Photo | Unreadable]]]) -> tuple[Found, Photo | Unreadable]:
    one, future = waiting.popleft()
    return one, future.result()
