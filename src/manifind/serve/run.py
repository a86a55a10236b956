"""Running the service: addresses, the token that others must show, and the server."""

import asyncio
import ipaddress
import logging
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import uvicorn
from starlette.types import ASGIApp

from manifind.errors import InvalidInputError
from manifind.index import Index
from manifind.kernels import CPU
from manifind.serve.app import create_app
from manifind.serve.connections import limited_protocol
from manifind.serve.log_rate_limit import limit_logs
from manifind.serve.settings import Settings
from manifind.serve.setup_app import SetupApp

BACKLOG = 2048


def serve(
    index: Index | Path | None,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    open_to_all: bool = False,
    settings: Settings | None = None,
    started: Callable[[str], None] | None = None,
    device: str = CPU,
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
    made: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return made


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_shown(host: str, port: int, token: str | None) -> str:
    """Return what a browser is given to open: by the machine's name where the host stands for all of its addresses."""
    name = socket.gethostname() if _is_any(host) else host
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}/" + ("" if token is None else f"?token={quote(token, safe='')}")


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
