"""Ports of this machine, where servers of tests listen."""

import random
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

PATIENCE = 300.0
"""Seconds that a test waits for a process that it started: the machine may be busy, and a test that hangs must end."""


def taken(port: int) -> bool:
    """Say whether somebody listens on a port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """Return a port that nobody listens on, and below those that a system hands out by itself meanwhile."""
    while True:
        port = random.randint(22_000, 32_000)  # noqa: S311
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_for(port: int, process: "subprocess.Popen[Any]", log: Path) -> None:
    """Wait until a server that was started answers on its port."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        if taken(port):
            return
        time.sleep(0.1)
    raise AssertionError(f"nobody answers on port {port}: {log.read_text()[-2000:]}")
