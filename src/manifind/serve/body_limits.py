"""Bodies of requests while they arrive: counted together, and in time.

A body takes memory from its first byte on, long before anybody can tell what is in it. All bodies together may take so
many bytes. Where they would take more, the one that has been arriving for longest is given up: somebody who means to
send a photo sends it at once, and whoever sends a little now and then holds nobody else up.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Message, Receive

from manifind.serve.errors import ServiceError


class BodyLimits:
    """The bodies of all requests that are under way.

    Parameters
    ----------
    most_bytes : int
        What they may take together.
    seconds : float
        How long a body may take to arrive.
    """

    def __init__(self, most_bytes: int, seconds: float) -> None:
        self._most = most_bytes
        self._seconds = seconds
        self._bytes = 0
        self._arriving: dict[Body, None] = {}
        """In the order in which they began."""

    @contextmanager
    def body(self, limit: int) -> Iterator["Body"]:
        """Hold room for the body of a request, of at most `limit` bytes, until the request is answered."""
        body = Body(self, limit, asyncio.get_running_loop().time() + self._seconds)
        try:
            yield body
        finally:
            self.arrived(body)
            self._bytes -= body.bytes

    def arrived(self, body: "Body") -> None:
        """Note that a body is whole: it is not given up any more."""
        self._arriving.pop(body, None)

    def add(self, body: "Body", size: int) -> None:
        """Count bytes of a body; those that began before it make room."""
        self._arriving.setdefault(body)
        body.bytes += size
        self._bytes += size
        while self._bytes > self._most:
            oldest = next(iter(self._arriving))
            self.arrived(oldest)
            if oldest is body:
                raise ServiceError(
                    503, "The service has more to take in than it can hold; try again.", {"Retry-After": "2"}
                )
            self._bytes -= oldest.bytes
            oldest.bytes = 0
            oldest.give_up()

    def late(self) -> ServiceError:
        """Say that a body did not arrive in time."""
        return ServiceError(408, f"The body did not arrive within {self._seconds:g} seconds; send it again.")


class Body:
    """The body of one request."""

    def __init__(self, all_of_them: BodyLimits, limit: int, deadline: float) -> None:
        self.bytes = 0
        self._all = all_of_them
        self._limit = limit
        self._deadline = deadline
        self._taken = 0
        self._whole = self._given_up = False
        self._clock: asyncio.Timeout | None = None

    def give_up(self) -> None:
        """Wait for it no longer."""
        self._given_up = True
        if self._clock is not None:
            self._clock.reschedule(asyncio.get_running_loop().time())

    async def next(self, receive: Receive) -> Message:
        """Return the next message of a request; raise `ServiceError` where its body is too large, or late."""
        if self._whole:
            return await receive()
        if self._given_up:
            raise self._all.late()
        try:
            async with asyncio.timeout_at(self._deadline) as self._clock:
                message = await receive()
        except TimeoutError:
            self._given_up = True
            raise self._all.late() from None
        finally:
            self._clock = None
        size = len(message.get("body", b""))
        self._taken += size
        if self._taken > self._limit:
            raise too_large(self._limit)
        if self._given_up:
            raise self._all.late()
        self._all.add(self, size)
        if not message.get("more_body", False):
            self._whole = True
            self._all.arrived(self)
        return message


def too_large(limit: int) -> ServiceError:
    """Say that a body is larger than what its route takes."""
    return ServiceError(413, f"The body is larger than {limit / 1e6:g} million bytes; send less.")
