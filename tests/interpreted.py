"""Triton's kernels without a GPU: a module of tests in a process where Triton interprets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run_interpreted(module: str) -> None:
    """Run a module in a process of its own: Triton decides when it is imported whether it interprets."""
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("triton", reason="Triton is not installed")
    done = subprocess.run(  # noqa: S603 (a module of ours)
        [sys.executable, "-m", module],
        env={**os.environ, "TRITON_INTERPRET": "1"}, cwd=Path(__file__).parents[1],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
