"""The writer killed, the disk full or failing, at every point where the index reaches the disk."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

STEPS = {"kill": 3, "torn": 7, "interrupt": 5, "ENOSPC": 7, "EIO": 9}
"""Every so many points are tried; ``python tests/index/crash.py OPERATION,OPERATION kill 1`` tries all."""


@pytest.mark.parametrize("operation", ["create", "add", "remove", "sync", "retrain_whitening", "supplement"])
def test_an_index_survives_whatever_happens_to_its_writer(operation: str) -> None:
    """It opens, passes its check, answers as the old generation or the new, and the next run completes."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    steps = ",".join(map(str, STEPS.values()))
    done = subprocess.run(  # noqa: S603
        [sys.executable, ROOT / "tests" / "index" / "crash.py", operation, ",".join(STEPS), steps],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads(done.stdout)
    for fault, step in STEPS.items():
        seen = results[f"{operation} {fault}"]
        assert seen["points"] > 100 // step - 2, fault
        assert seen["old"] > seen["new"] // 2, fault
        if fault in ("kill", "torn"):
            assert seen["new"] > 0, fault
