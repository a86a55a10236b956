"""The hot loops behind three abstract classes (`api`), which each device implements.

`manifind.kernels.cpu` implements them with the compiled core (``core/``), or with NumPy, SciPy and faiss where there is
none; `manifind.kernels.cuda` with torch and Triton, on a GPU. `manifind.kernels.reference` has the plain twin of each,
for tests and readers.
"""

from manifind.kernels.api import (
    AUTO,
    CPU,
    CUDA,
    DEVICES,
    EXACT,
    FLOAT64_MAX_REGIONS,
    JOIN_BLOCK_ROWS,
    MAX_BATCH,
    MIN_RESIDUAL,
    NN_DESCENT,
    NO_NEIGHBOUR,
    SCRATCH_BYTES,
    Backend,
    KnnGraphBuilder,
    Neighbours,
    Operator,
    Pool,
    Seeds,
    Solution,
    VectorSet,
    as_vector_set,
    backend,
    batch_size,
    dense_columns,
    pooled_solution,
)
from manifind.kernels.features import CONTRAST, detect_keypoints, knn_hamming, ransac
from manifind.kernels.kernel import kernel
from manifind.kernels.machine import compiled, features_compiled, machine
from manifind.kernels.threads import set_threads, thread_count

__all__ = [
    "AUTO",
    "CONTRAST",
    "CPU",
    "CUDA",
    "DEVICES",
    "EXACT",
    "FLOAT64_MAX_REGIONS",
    "JOIN_BLOCK_ROWS",
    "MAX_BATCH",
    "MIN_RESIDUAL",
    "NN_DESCENT",
    "NO_NEIGHBOUR",
    "SCRATCH_BYTES",
    "Backend",
    "KnnGraphBuilder",
    "Neighbours",
    "Operator",
    "Pool",
    "Seeds",
    "Solution",
    "VectorSet",
    "as_vector_set",
    "backend",
    "batch_size",
    "compiled",
    "dense_columns",
    "detect_keypoints",
    "features_compiled",
    "kernel",
    "knn_hamming",
    "machine",
    "pooled_solution",
    "ransac",
    "set_threads",
    "thread_count",
]
