"""Dask's scheduler and two workers, each a process of its own on an address of its own, which can be killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from distributed import Client
from tests.distributed.ports import PATIENCE, free_port, wait_for
from tests.distributed.slow_tasks import tasks_to_do, tasks_under_way

REPOSITORY = Path(__file__).resolve().parents[2]
HOSTS = ("127.0.0.2", "127.0.0.3")
QUIETLY = ("--no-dashboard", "--no-show", "--no-jupyter")


class DaskCluster:
    """A scheduler on 127.0.0.1, workers on 127.0.0.2 and 127.0.0.3."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **(environment or {})}
        """What processes that take part are started with."""
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self._started: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "DaskCluster":
        try:
            scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", str(self.port), *QUIETLY)
            wait_for(self.port, scheduler, self.folder / "dask.log")
            self.workers = [self._start_worker(host) for host in HOSTS]
            with self._client() as client:
                client.wait_for_workers(len(HOSTS), timeout=PATIENCE)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
        for process in self._started:
            process.wait()

    def replace_killed_workers(self) -> None:
        """Start a worker in place of each that was killed."""
        killed = [number for number, worker in enumerate(self.workers) if worker.poll() is not None]
        for number in killed:
            self.workers[number] = self._start_worker(HOSTS[number])
        if killed:
            with self._client() as client:
                client.wait_for_workers(len(HOSTS), timeout=PATIENCE)

    def _start_worker(self, host: str) -> "subprocess.Popen[bytes]":
        """Start a worker of one thread."""
        options = ["--host", host, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "2GiB"]
        return self._start("worker", self.address, *options, "--local-directory", str(self.folder))

    def kill(self, worker: int) -> None:
        """Kill a worker, as a power cut does."""
        self.workers[worker].send_signal(signal.SIGKILL)
        self.workers[worker].wait()

    def until_nothing_is_handed_out(self) -> None:
        """Wait until the scheduler has noticed that nobody waits for any task."""
        until = time.monotonic() + PATIENCE
        with self._client() as client:
            while client.run_on_scheduler(tasks_to_do):
                assert time.monotonic() < until, "the tasks are not given up"
                time.sleep(0.1)

    def until_idle(self) -> None:
        """Wait until no worker has anything to do any more, whether somebody waits for it or not."""
        until = time.monotonic() + PATIENCE
        idle = 0
        with self._client() as client:
            while idle < 2:  # what a worker is told to leave, it may begin until it hears of that
                assert time.monotonic() < until, "the workers are not done"
                busy = client.run_on_scheduler(tasks_to_do) or any(client.run(tasks_under_way).values())
                idle = 0 if busy else idle + 1
                time.sleep(0.1)

    def _client(self) -> "Client":
        return Client(self.address, timeout=PATIENCE, set_as_default=False)

    def _start(self, *command: str) -> "subprocess.Popen[bytes]":
        with (self.folder / "dask.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "dask", *command],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**self.environment, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "9"},
            )
        self._started.append(process)
        return process
