"""A service in a thread of the test's own process, on a port of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import uvicorn

from manifind.index import Index
from manifind.serve import Settings, create_app
from manifind.serve.run import configured
from tests.serve.asking import PATIENCE, get, wait_for


def patient(**own: Any) -> Settings:
    """Return settings of a test's own, of a service that has time for all else, however busy the machine is."""
    limits = ("time_limit", "file_seconds", "deadline_seconds", "body_seconds")
    return Settings(**{**dict.fromkeys(limits, PATIENCE), **own})


@contextmanager
def running(index: Index, settings: Settings | None = None) -> Iterator[str]:
    """Serve an index while the block runs; gives the address."""
    settings = settings or patient()
    with answering(create_app(index, settings), settings) as address:
        wait_for(lambda: _ready(address))
        yield address


def _ready(address: str) -> bool:
    """Say whether a service is ready; one that allows no delay may hang up on a client that a busy machine holds up."""
    with suppress(httpx.TransportError):
        return get(f"{address}/api/ready").status_code == 200
    return False


@contextmanager
def answering(app: Any, settings: Settings) -> Iterator[str]:
    """Serve an application while the block runs; gives the address."""
    config = configured(app, settings)
    config.host, config.port, config.timeout_graceful_shutdown = "127.0.0.1", 0, 5
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started or not thread.is_alive())
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()
