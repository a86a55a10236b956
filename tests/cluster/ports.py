"""Ports of this machine, where servers of tests listen."""

import socket
import subprocess
import time
from pathlib import Path
from typing import Any


def taken(port: int) -> bool:
    """Say whether somebody listens on a port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, process: "subprocess.Popen[Any]", log: Path, seconds: float = 90) -> None:
    """Wait until a server that was started answers on its port."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        if taken(port):
            return
        time.sleep(0.1)
    raise AssertionError(f"nobody answers on port {port}: {log.read_text()[-2000:]}")
