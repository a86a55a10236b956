"""Dask's scheduler and two workers, each a process of its own on an address of its own, which can be killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


class DaskCluster:
    """A scheduler on 127.0.0.1, workers on 127.0.0.2 and 127.0.0.3."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self._started: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "DaskCluster":
        self._start(
            "scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard", "--no-show", "--no-jupyter"
        )
        self._wait()
        self.workers = [self.add_worker(host) for host in ("127.0.0.2", "127.0.0.3")]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
        for process in self._started:
            process.wait()

    def add_worker(self, host: str) -> "subprocess.Popen[bytes]":
        """Start one more worker, of one thread."""
        options = ["--host", host, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "2GiB"]
        return self._start("worker", self.address, *options, "--local-directory", str(self.folder))

    def kill(self, worker: int) -> None:
        """Kill a worker, as a power cut does."""
        self.workers[worker].send_signal(signal.SIGKILL)
        self.workers[worker].wait()

    def _start(self, *command: str) -> "subprocess.Popen[bytes]":
        with (self.folder / "dask.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "dask", *command],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "9"},
            )
        self._started.append(process)
        return process

    def _wait(self) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError(f"Dask's scheduler does not start: {(self.folder / 'dask.log').read_text()[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
