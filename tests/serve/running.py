"""A service in a thread of the test's own process, on a port of its own."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from manifind.index import Index
from manifind.serve import Settings, create_app
from manifind.serve.run import configured
from tests.serve.asking import wait_for


@contextmanager
def running(index: Index | Sequence[Index], settings: Settings | None = None) -> Iterator[str]:
    """Serve an index, or several, while the block runs; gives the address.

    Geometry has time, however busy the machine is.
    """
    settings = settings or Settings(verify_seconds=20)
    with answering(create_app(index, settings), settings) as address:
        wait_for(lambda: httpx.get(f"{address}/api/ready").status_code == 200)
        yield address


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
        thread.join(20)
        assert not thread.is_alive()
