"""Who owns the cores: one number for the core, faiss and BLAS.

It is what `set_threads` said, or ``MANIFIND_THREADS``, or else what faiss would take: ``OMP_NUM_THREADS``, or all
cores. The core is told at each call. faiss and BLAS have pools of their own, which are set to the same size; nothing
here calls one of them while another is at work.

A forked process has none of its parent's threads, and OpenMP waits for them for ever: it uses one thread. Whoever wants
more starts processes afresh (``multiprocessing`` with ``spawn``).
"""

import os
import sys

import faiss
from threadpoolctl import threadpool_limits

from manifind.checks import whole_number
from manifind.errors import InvalidInput

_chosen: int | None = None


def set_threads(threads: int) -> None:
    """Use so many threads from now on, in the core, faiss and BLAS alike."""
    global _chosen
    _chosen = whole_number(threads, "threads")
    faiss.omp_set_num_threads(_chosen)
    threadpool_limits(_chosen, user_api="blas")


def thread_count() -> int:
    """Return how many threads a call may use."""
    if _chosen is None:
        return int(faiss.omp_get_max_threads())
    # OpenMP keeps the number by thread: one that was started since still has its own.
    if faiss.omp_get_max_threads() != _chosen:
        faiss.omp_set_num_threads(_chosen)
    return _chosen


def _from_environment() -> None:
    given = os.environ.get("MANIFIND_THREADS")
    if given is None:
        return
    if not given.isdecimal() or int(given) < 1:
        raise InvalidInput(f"MANIFIND_THREADS is {given!r}; give a whole number of threads, 1 or more, or unset it.")
    set_threads(int(given))


def _alone_after_a_fork() -> None:
    global _chosen
    _chosen = 1
    loaded = sys.modules.get("faiss")
    if loaded is not None:
        loaded.omp_set_num_threads(1)


_from_environment()
os.register_at_fork(after_in_child=_alone_after_a_fork)
