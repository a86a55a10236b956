"""Connections: how many there may be, and how long each may keep the service waiting.

A connection costs a file and some memory before anything was asked on it. The service holds so many of them at a time;
where there are more, the one on which nothing has been asked for longest makes room, then the one whose request has
been arriving for longest. A head must arrive in time and be of a reasonable size: whatever comes in is counted until it
turns out to be a request, or a part of one. An answer must be read in time.
"""

import asyncio
import json
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from manifind.serve.settings import Settings

FILES = 128
"""Open files that are left to photos and the index."""

REFUSED_SECONDS = 0.5
"""How long whatever else comes is passed over once a request was refused: so long a client has to read why."""

LINGER_SECONDS = 5.0
"""How long the rest of a body is read that was answered before it was whole: a client reads its answer afterwards."""

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:  # on other Pythons than CPython: h11 bounds heads itself, and the rest is left to it
    HttpToolsProtocol = None  # type: ignore[assignment, misc]


def _open_files() -> int:
    """Return how many files this process may have open; where nothing bounds it, more than anybody opens."""
    try:
        import resource
    except ImportError:
        return 2**31
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def protocol(settings: Settings) -> type[asyncio.Protocol]:
    """Return what speaks HTTP on each connection of a service."""
    if HttpToolsProtocol is None:
        return AutoHTTPProtocol
    most = max(1, min(settings.connections, _open_files() - FILES))

    class Connection(HttpToolsProtocol):
        """HTTP on one connection, within limits."""

        def __init__(self, config: Config, **others: Any) -> None:
            super().__init__(config=config, **others)
            self._loose = 0
            """Bytes that came in and were no part of a request yet."""
            self._moved = False
            self._in_body = self._refused = False
            self._since = self.loop.time()
            """When it last came to rest."""
            self._timer: asyncio.TimerHandle | None = None
            self._unread: asyncio.TimerHandle | None = None

        # -- how many there are ---------------------------------------------------------------------------------------

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > most and not self._make_room():
                self._refuse(503, b"Service Unavailable", "The service has too many connections; try again.")
                return
            self._within(settings.head_seconds)

        def _make_room(self) -> bool:
            others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
            resting = [one for one in others if not one._busy]
            held = resting or [one for one in others if one._in_body]
            if not held:
                return False
            min(held, key=lambda one: one._since).transport.abort()
            return True

        @property
        def _busy(self) -> bool:
            """Whether a request is under way."""
            return self.cycle is not None and not self.cycle.response_complete

        # -- what comes in --------------------------------------------------------------------------------------------

        def data_received(self, data: bytes) -> None:
            if self._refused:
                return
            self._moved = False
            super().data_received(data)
            self._loose = 0 if self._moved else self._loose + len(data)
            if self._refused or self.transport.is_closing():
                return
            if self._loose > settings.head_bytes:
                self._refuse(431, b"Request Header Fields Too Large", "The head of the request is too large.")
            elif not self._busy and self._timer is None:
                self._within(settings.head_seconds)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._since = self.loop.time()

        def on_headers_complete(self) -> None:
            self._moved = self._in_body = True
            self._stop("_timer")
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._moved = True
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._moved, self._in_body = True, False
            if not self._busy:
                self._stop("_timer")
            super().on_message_complete()

        # -- what goes out --------------------------------------------------------------------------------------------

        def on_response_complete(self) -> None:
            self._since = self.loop.time()
            super().on_response_complete()
            if self._in_body and not self._busy:
                self._within(LINGER_SECONDS)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stop("_unread")
            self._unread = self.loop.call_later(settings.write_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            self._stop("_unread")
            super().resume_writing()

        def timeout_keep_alive_handler(self) -> None:
            self.transport.abort() if self.transport.get_write_buffer_size() else self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop("_timer")
            self._stop("_unread")
            super().connection_lost(exc)

        # -- time -----------------------------------------------------------------------------------------------------

        def _within(self, seconds: float) -> None:
            """Hang up unless something comes of it in time."""
            self._stop("_timer")
            self._timer = self.loop.call_later(seconds, self.transport.close)

        def _stop(self, name: str) -> None:
            timer = getattr(self, name)
            if timer is not None:
                timer.cancel()
                setattr(self, name, None)

        def send_400_response(self, msg: str) -> None:
            self._refuse(400, b"Bad Request", f"{msg.rstrip('.')}.")

        def _refuse(self, status: int, words: bytes, sentence: str) -> None:
            """Say why, and hang up; not before the client has had a moment to read it."""
            body = json.dumps({"error": sentence}).encode()
            head = (
                b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            )
            self.transport.write(head % (status, words, len(body)) + body)
            if status == 503:
                self.transport.close()
                return
            self._refused = True
            self.transport.write_eof()
            self._within(REFUSED_SECONDS)

    return Connection
