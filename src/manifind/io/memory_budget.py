"""Memory shared out to threads in the order of their tickets.

What is given out in order never locks up: the first in order is served first. What a thread has freed is not
yet free for another: the C library keeps it for that thread. After a large share, `malloc_trim` returns it.
"""

import ctypes
import threading

LARGE = 2**26
"""Bytes of a share from which it is worth a few milliseconds to hand its memory back to the system."""


class Closed(Exception):
    """The budget was closed while a thread waited for a share."""


class Budget:
    """So many bytes, given out ticket by ticket: 0 first, then 1, and so on, none left out.

    One share alone may be larger than the whole: it is given out when nothing else is.
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
                raise Closed
            self._held[ticket] = share
            self._ended.add(ticket)
            self._advance()

    def keep(self, ticket: int, share: int) -> None:
        """Keep only so many bytes of a ticket's share; a ticket that was never admitted gives its turn away."""
        if self._held.get(ticket, 0) >= LARGE:
            _let_go()
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


def _let_go() -> None:
    """Hand freed memory back to the system, where the C library is one that can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
