"""A service in a thread of the test's own process, on a port of its own."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx
import uvicorn

from manifind.index import Index
from manifind.serve import Settings, create_app
from manifind.serve.run import configured


@contextmanager
def running(index: Index | Sequence[Index], settings: Settings | None = None) -> Iterator[str]:
    """Serve an index, or several, while the block runs; gives the address.

    Geometry has time, however busy the machine is.
    """
    settings = settings or Settings(verify_seconds=20)
    config = configured(create_app(index, settings), settings)
    config.host, config.port, config.timeout_graceful_shutdown = "127.0.0.1", 0, 5
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started:
        assert thread.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    while httpx.get(f"{address}/api/ready").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
