"""Who owns the cores: one number for the core, faiss and BLAS.

It is what `set_threads` said, or ``MANIFIND_THREADS``, or else ``OMP_NUM_THREADS``, or else all cores that this process
may run on. The environment is read once, when manifind is imported: a library may change it later for the processes
that it starts (Dask sets ``OMP_NUM_THREADS`` to 1). The core is told at each call. faiss and BLAS have pools of their
own, which are set to the same size once they are there; nothing here calls one of them while another is at work.

A forked process has none of its parent's threads, and OpenMP waits for them for ever: it uses one thread. Whoever wants
more starts processes afresh (``multiprocessing`` with ``spawn``).
"""

import os
import sys

from manifind.checks import check_int
from manifind.errors import InvalidInputError

_chosen: int | None = None
_said = os.environ.get("OMP_NUM_THREADS", "")


def set_threads(threads: int) -> None:
    """Use so many threads from now on, in the core, faiss and BLAS alike."""
    from threadpoolctl import threadpool_limits

    global _chosen
    _chosen = check_int(threads, "threads")
    threadpool_limits(_chosen, user_api="blas")
    _tell_faiss(_chosen)


def thread_count() -> int:
    """Return how many threads a call may use."""
    if _chosen is None:
        return _usual()
    # OpenMP keeps the number by thread: a thread that was started since still has its own.
    _tell_faiss(_chosen)
    return _chosen


def _tell_faiss(threads: int) -> None:
    faiss = sys.modules.get("faiss")
    if faiss is not None and faiss.omp_get_max_threads() != threads:
        faiss.omp_set_num_threads(threads)


def _usual() -> int:
    if _said.isdecimal() and int(_said) > 0:
        return int(_said)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _from_environment() -> None:
    given = os.environ.get("MANIFIND_THREADS")
    if given is None:
        return
    if not given.isdecimal() or int(given) < 1:
        raise InvalidInputError(
            f"MANIFIND_THREADS is {given!r}; give a whole number of threads, 1 or more, or unset it."
        )
    set_threads(int(given))


def _alone_after_a_fork() -> None:
    global _chosen
    _chosen = 1
    _tell_faiss(1)


_from_environment()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alone_after_a_fork)
