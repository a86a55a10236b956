"""A server of S3, through which workers and their driver exchange files."""

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.distributed.dask_cluster import REPOSITORY
from tests.distributed.ports import wait_for

CLIENT = REPOSITORY / ".venv" / "s3"
"""Where ``scripts/s3`` installs the server and what reaches it."""
IN_VENV = Path(sys.prefix) == REPOSITORY / ".venv"


def environment(port: int) -> dict[str, str]:
    """Return what processes are started with that reach the server at a port."""
    if IN_VENV:
        CLIENT.mkdir(exist_ok=True)  # Python looks again only into folders that were there when it started
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "anybody",
        "AWS_SECRET_ACCESS_KEY": "anything",
        "AWS_DEFAULT_REGION": "us-east-1",
        "PYTHONPATH": os.pathsep.join([str(CLIENT), str(REPOSITORY)]),
    }


class Server:
    """A server of S3."""

    def __init__(self, address: str, log: Path) -> None:
        self.address, self.log = address, log

    def names(self) -> list[str]:
        """Return the names of all files of the bucket."""
        try:
            with urllib.request.urlopen(f"{self.address}/bucket?list-type=2") as told:  # noqa: S310
                return re.findall(r"<Key>(.*?)</Key>", told.read().decode())
        except urllib.error.HTTPError:  # there is no bucket yet
            return []

    def written(self) -> list[str]:
        """Return the names of all files that were ever written."""
        return re.findall(r'"PUT /bucket/(\S+) HTTP', self.log.read_text())


@contextmanager
def running(port: int, log: Path) -> Iterator[Server]:
    """Run a server at a port, or skip the test where none can be installed."""
    if not IN_VENV:
        pytest.skip("tests do not run in the .venv of the repository, beside which scripts/s3 installs a server of S3")
    script = REPOSITORY / "scripts" / "s3"
    installed = subprocess.run([script, "--install"], capture_output=True, text=True, check=False)  # noqa: S603
    if installed.returncode:
        pytest.skip(f"a server of S3 cannot be installed here: {installed.stderr.splitlines()[-1]}")
    with log.open("wb") as stream, subprocess.Popen([script, str(port)], stdout=stream, stderr=stream) as process:  # noqa: S603
        try:
            wait_for(port, process, log)
            yield Server(f"http://127.0.0.1:{port}", log)
        finally:
            process.kill()
