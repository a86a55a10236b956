"""The one place where a network is loaded into onnxruntime, which is told to keep to itself before it is imported.

Recent releases of onnxruntime for Linux write a device's id and a queue of events below ``~/.cache/Microsoft`` as soon
as they are imported, and send them. Only the environment stops that in time; the function that is offered for it helps
where somebody else has imported onnxruntime before.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime

from manifind.errors import InvalidInputError

if hasattr(onnxruntime, "disable_telemetry_events"):
    onnxruntime.disable_telemetry_events()


def load_session(path: Path, threads: int) -> Any:
    """Return an onnxruntime session of the network in an ONNX file, run on the CPU by so many threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Threads that wait in a loop take the cores from those who read photos meanwhile.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not multiplies_bytes():
        # A slower product of 8-bit numbers, with the results that all other processors have.
        options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class of its own for each kind, all below Exception
        raise InvalidInputError(f"{path} is not an ONNX network that can be run ({first_line(error)}).") from error


@cache
def multiplies_bytes(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor is known to add up products of 8-bit numbers without overflow (VNNI)."""
    try:
        return "vnni" in cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def first_line(error: Exception) -> str:
    """Return what an error of another library says, short enough for a sentence."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
