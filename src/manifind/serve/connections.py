"""How many connections there may be, and how large the head of a request.

uvicorn accepts connections until the process has no more files to open. Here the connection that was silent longest
closes when one more than `Settings.connections` comes. uvicorn also reads a header without an end for as long as the
client sends it; here the connection closes after `Settings.head_bytes`. Slow clients are left to a reverse proxy.
"""

import asyncio
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from manifind.serve.settings import Settings

RESERVED_FILES = 128
"""Open files that are left to photos and the index."""

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:  # on other Pythons than CPython: h11 bounds heads itself
    HttpToolsProtocol = None  # type: ignore[assignment, misc]


def _max_open_files() -> int:
    """Return how many files this process may have open."""
    try:
        import resource
    except ImportError:
        return 2**31
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def limited_protocol(settings: Settings) -> type[asyncio.Protocol]:
    """Return the protocol class that speaks HTTP on each connection of a service."""
    if HttpToolsProtocol is None:
        return AutoHTTPProtocol
    max_connections = max(1, min(settings.connections, _max_open_files() - RESERVED_FILES))

    class LimitedProtocol(HttpToolsProtocol):
        """HTTP on one connection, within limits."""

        def __init__(self, config: Config, **others: Any) -> None:
            super().__init__(config=config, **others)
            self._unparsed = 0
            """Bytes since the parser last finished a head, a piece of a body or a message."""
            self._last_active = self.loop.time()

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > max_connections and not self._close_idlest():
                transport.close()

        def _close_idlest(self) -> bool:
            """Close the connection that was silent longest and has no request under way; False where all have one."""
            idle = [
                one
                for one in self.connections
                if isinstance(one, LimitedProtocol)
                and one is not self
                and (one.cycle is None or one.cycle.response_complete)
            ]
            if not idle:
                return False
            min(idle, key=lambda one: one._last_active).transport.abort()
            return True

        def data_received(self, data: bytes) -> None:
            self._last_active = self.loop.time()
            self._unparsed += len(data)
            super().data_received(data)
            if self._unparsed > settings.head_bytes and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

        def on_headers_complete(self) -> None:
            self._unparsed = 0
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._unparsed = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._unparsed = 0
            super().on_message_complete()

    return LimitedProtocol
