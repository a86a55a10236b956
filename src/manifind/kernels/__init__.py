"""The few hot loops behind two protocols, `Rows` and `System`, which each device implements (`backend`).

`manifind.kernels.cpu` implements them with the compiled core (``core/``), or with NumPy, SciPy and faiss where there is
none; `manifind.kernels.cuda` with torch and Triton, on a GPU. `manifind.kernels.plain` has the plain twins: the same
answers in the fewest words, for tests and for readers.
"""

from manifind.kernels.agreement import agreement
from manifind.kernels.backend import (
    AUTO,
    CPU,
    CUDA,
    DEVICES,
    FLOOR,
    PRECISE,
    SCRATCH,
    Backend,
    Choosing,
    Descending,
    Dividing,
    Following,
    Joining,
    Pool,
    Pooling,
    RestrictingToRuns,
    Rows,
    SearchingRuns,
    Seeded,
    SelfComparing,
    Solution,
    System,
    as_rows,
    backend,
)
from manifind.kernels.bits import nearest_bits
from manifind.kernels.kernel import kernel
from manifind.kernels.local_features import CONTRAST, local_features
from manifind.kernels.machine import compiled, machine
from manifind.kernels.threads import set_threads, thread_count

__all__ = [
    "AUTO",
    "CONTRAST",
    "CPU",
    "CUDA",
    "DEVICES",
    "FLOOR",
    "PRECISE",
    "SCRATCH",
    "Backend",
    "Choosing",
    "Descending",
    "Dividing",
    "Following",
    "Joining",
    "Pool",
    "Pooling",
    "RestrictingToRuns",
    "Rows",
    "SearchingRuns",
    "Seeded",
    "SelfComparing",
    "Solution",
    "System",
    "agreement",
    "as_rows",
    "backend",
    "compiled",
    "kernel",
    "local_features",
    "machine",
    "nearest_bits",
    "set_threads",
    "thread_count",
]
