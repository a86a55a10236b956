"""A server of Milvus in a process group of its own, which can be killed and started again."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from manifind.remote.store import Address, StoreUnavailableError, store_at
from tests.distributed.ports import PATIENCE, free_port, taken, wait_for

PROGRAM = Path(sys.executable).with_name("milvus-server")
ETCD, MANAGEMENT = 2380, 9091
"""Ports that this server takes whatever it is told."""
LEASE = "common.session.ttl=10"
"""Seconds for which a server that was killed is held to be alive by the next, which waits until they are over."""


class MilvusServer:
    """The server of the package `milvus`, on a port and with data of its own."""

    def __init__(self, folder: Path) -> None:
        if not PROGRAM.exists():
            pytest.skip("the package milvus, which has a server, is not installed (Linux on x86_64 alone has it)")
        if shutil.disk_usage(folder).free < 2**30:
            pytest.skip("there is less than 1 GiB of disk for a server of Milvus")
        if not _until_free(30):  # one that was killed a moment ago may still have them
            pytest.skip("another Milvus or etcd runs on this machine, which has room for one")
        self.folder, self.port = folder, 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it on a port that is free now, and wait until it answers."""
        self.port = free_port()
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                [PROGRAM, "--data", self.folder / "data", "--proxy-port", str(self.port), "--extra-config", LEASE],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            wait_for(self.port, self._process, self.folder / "log")
            self._until_it_answers()
        except BaseException:
            self.kill()
            raise

    def _until_it_answers(self) -> None:
        """Wait until it can say what it has: it listens before all its parts are there."""
        until = time.monotonic() + PATIENCE
        with closing(store_at(Address.parse(f"milvus://127.0.0.1:{self.port}/nobody?timeout={PATIENCE:.0f}"))) as store:
            while True:
                try:
                    store.names()
                except StoreUnavailableError:
                    assert time.monotonic() < until, (self.folder / "log").read_text()[-2000:]
                    time.sleep(0.2)
                else:
                    return

    def kill(self) -> None:
        """Kill it with all its processes, as a power cut does."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            _until_free(PATIENCE)  # it has let go of them, and of its files, before another takes them


def _until_free(seconds: float) -> bool:
    """Wait for the ports that every server takes; say whether they are free."""
    until = time.monotonic() + seconds
    while occupied := taken(ETCD) or taken(MANAGEMENT):
        if time.monotonic() > until:
            break
        time.sleep(0.1)
    return not occupied
