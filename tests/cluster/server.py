"""A server of Milvus in a process group of its own, which can be killed and started again."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from manifind.cluster.store import Address, store_at
from tests.cluster.ports import free_port, taken, wait_for

PROGRAM = Path(sys.executable).with_name("milvus-server")
SECONDS = 90
ETCD, MANAGEMENT = 2380, 9091
"""Ports that this server takes whatever it is told."""


class MilvusServer:
    """The server of the package `milvus`, on a port and with data of its own."""

    def __init__(self, folder: Path) -> None:
        if not PROGRAM.exists():
            pytest.skip("the package milvus, which has a server, is not installed (Linux on x86_64 alone has it)")
        if shutil.disk_usage(folder).free < 2**30:
            pytest.skip("there is less than 1 GiB of disk for a server of Milvus")
        if taken(ETCD) or taken(MANAGEMENT):
            pytest.skip("another Milvus or etcd runs on this machine, which has room for one")
        self.folder, self.port = folder, 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it on a port that is free now, and wait until it answers."""
        self.port = free_port()
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                [PROGRAM, "--data", self.folder / "data", "--proxy-port", str(self.port)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            wait_for(self.port, self._process, self.folder / "log", SECONDS)
            store_at(Address.of(f"milvus://127.0.0.1:{self.port}/nobody?timeout={SECONDS}")).close()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Kill it with all its processes, as a power cut does."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
