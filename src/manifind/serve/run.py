"""The server: addresses, the token that others must show, limits of connections and of the log.

uvicorn accepts connections until the process has no more files to open, and reads a header without an end for as long
as the client sends it. Here the connection that was silent longest closes when one more than `Settings.connections`
comes, and a connection closes after `Settings.head_bytes` of a head. Slow clients are left to a reverse proxy. Of
messages that are alike, the log has a few a minute.
"""

import asyncio
import ipaddress
import logging
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from manifind.errors import InvalidInputError
from manifind.index import Index
from manifind.kernels import AUTO
from manifind.serve.app import SetupApp, create_app
from manifind.serve.errors import ServiceError
from manifind.serve.resources import Settings

BACKLOG = 2048
RESERVED_FILES = 128
"""Open files that are left to photos and the index."""

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:  # on other Pythons than CPython: h11 bounds heads itself
    HttpToolsProtocol = None  # type: ignore[assignment, misc]


def serve(
    index: Index | Path | None,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    open_to_all: bool = False,
    settings: Settings | None = None,
    started: Callable[[str], None] | None = None,
    device: str = AUTO,
) -> None:
    """Serve an index until interrupted.

    Parameters
    ----------
    index : Index, Path or None
        An index; or a folder of photos, whose index is made while the page shows how far it is and searches what is
        there so far; or None, and the page asks for a folder.
    host, port
        Where to listen; port 0 takes any that is free.
    open_to_all : bool
        Listen elsewhere than on this machine without demanding a token.
    settings : Settings, optional
    started : callable, optional
        Called with the page's address when the service listens.
    device : str
        What makes and searches an index that is not there yet.
    """
    settings = settings or Settings()
    here = is_loopback(host)
    if index is None and not here:
        raise InvalidInputError(
            f"host is {host}, and a folder is chosen only on this machine; give INDEX, or leave --host out."
        )
    if not here:
        if settings.token is None and not open_to_all:
            raise InvalidInputError(
                f"host is {host}, which others can reach: give a token with --token or MANIFIND_TOKEN "
                f"({secrets.token_urlsafe(16)} say), or insist with --open-to-all."
            )
        settings = replace(settings, hosts=None)
    listening = _listen(host, port)
    address = address_shown(host, listening.getsockname()[1], settings.token)
    app: ASGIApp
    if index is None or isinstance(index, Path):
        app = SetupApp(settings, index, device=device)
    else:
        app = create_app(index, settings)
    config = configured(app, settings)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if started is not None and self.started:
                started(address)

    limit_logs()
    with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=event_loop()) as runner:
        runner.run(Server(config).serve([listening]))


def configured(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """Return how the server that carries a service is set up: within the service's limits."""
    return uvicorn.Config(
        app,
        http=limited_protocol(settings),
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=10,
        ws="none",
        h11_max_incomplete_event_size=settings.head_bytes,
    )


def event_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the loop that the service runs on: uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_shown(host: str, port: int, token: str | None) -> str:
    """Return what a browser is given to open: by the machine's name where the host stands for all of its addresses."""
    name = socket.gethostname() if _is_any(host) else host
    bracketed = f"[{name}]" if ":" in name else name
    return f"http://{bracketed}:{port}/" + ("" if token is None else f"?token={quote(token, safe='')}")


def _is_any(host: str) -> bool:
    """Say whether the address stands for all that the machine has: nobody can open that one."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(where)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise InvalidInputError(
            f"{host} port {port} cannot be listened on ({error.strerror}); choose another."
        ) from error
    return listening


# -- connections -------------------------------------------------------------------------------------------------------


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
            self._last_active = time.perf_counter()  # the loop's own clock stands while it accepts many

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            n_open = sum(not connection.transport.is_closing() for connection in self.connections)
            if n_open > max_connections and not self._close_idlest():
                transport.close()

        def _close_idlest(self) -> bool:
            """Close the connection that was silent longest and has no request under way; False where all have one."""
            idle = [
                connection
                for connection in self.connections
                if isinstance(connection, LimitedProtocol)
                and connection is not self
                and not connection.transport.is_closing()
                and (connection.cycle is None or connection.cycle.response_complete)
            ]
            if not idle:
                return False
            min(idle, key=lambda connection: connection._last_active).transport.abort()
            return True

        def data_received(self, data: bytes) -> None:
            self._last_active = time.perf_counter()
            self._unparsed += len(data)
            super().data_received(data)
            if self._unparsed > settings.head_bytes and not self.transport.is_closing():
                self.send_400_response("its head is too large")

        def send_400_response(self, msg: str) -> None:
            """Answer what is no HTTP as every error is answered, and hang up."""
            sentence = f"The request cannot be read: {msg.rstrip('.').lower()}; check the client."
            body = ServiceError(400, sentence).response().body
            head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head.encode("ascii") + bytes(body))
            self.transport.close()

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


# -- the log -----------------------------------------------------------------------------------------------------------

MAX_ALIKE = 5
"""Messages of a kind that are written in `LOG_SECONDS`."""
LOG_SECONDS = 60.0
MAX_KINDS = 200
LOGGERS = ("asyncio", "uvicorn", "uvicorn.error", "manifind.serve")
"""Loggers that anybody on the network can make write."""


class RateLimitFilter(logging.Filter):
    """Lets a few messages of each kind through in a minute; the kind is the message's text in the program."""

    def __init__(
        self, few: int = MAX_ALIKE, seconds: float = LOG_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._few, self._seconds, self._clock = few, seconds, clock
        self._kinds: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """When each kind's minute began, and how many there were in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a message; the first after some that were not says how many those were."""
        now = self._clock()
        # Messages that were formatted before they came here differ in their figures and in their ends.
        words = "".join(letter for letter in str(record.msg)[:60] if not letter.isdigit())
        kind = f"{record.name} {record.levelno} {words}"
        began, count = self._kinds.pop(kind, (now, 0))
        if now - began > self._seconds:
            missed = max(0, count - self._few)
            if missed:
                record.msg = f"{record.msg} (and {missed} like it that were not written)"
            began, count = now, 0
        self._kinds[kind] = began, count + 1
        if len(self._kinds) > MAX_KINDS:
            self._kinds.popitem(last=False)
        return count < self._few


def limit_logs() -> None:
    """Limit the rate of what the `LOGGERS` write, once."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(known, RateLimitFilter) for known in logger.filters):
            logger.addFilter(RateLimitFilter())
