"""Who owns the cores.

faiss's OpenMP pool is the one that users already know how to set (``OMP_NUM_THREADS``, ``faiss.omp_set_num_threads``),
so its size is the number of threads for everything here. Loops of our own never call BLAS, and so never meet its pool.
"""

import faiss


def thread_count() -> int:
    """Return how many threads a call may use: as many as faiss does."""
    return int(faiss.omp_get_max_threads())
