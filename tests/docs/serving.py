"""A service as the pages start it, on a port that is free."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

PATIENCE = 120.0
"""Seconds that a test waits for what should come at once: the machine may be busy, and a test that hangs must end."""


@contextmanager
def service(words: list[str]) -> Iterator[str]:
    """Start ``manifind serve …`` and yield its address once it is ready."""
    program = [sys.executable, "-m", "manifind.cli", *words[1:], "--port", "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:  # noqa: S603
        try:
            yield _ready(process)
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        if found:
            break
    else:
        raise AssertionError("the service ended before it said where it is.")
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with urlopen(f"{found[0]}/api/ready", timeout=PATIENCE) as answer:  # noqa: S310
                assert answer.status == 200
                return found[0]
        except OSError:
            assert time.monotonic() < until, "the service is not ready."
            time.sleep(0.1)


def served(words: list[str]) -> None:
    """Start a service and end it."""
    with service(words):
        pass
