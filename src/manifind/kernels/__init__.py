"""The few hot loops, on arrays that were checked by their callers.

`nearest` and `nearest_others` (exact search by inner product), `similarities` (re-scoring given pairs),
`conjugate_gradient` and `iterate` (the two solvers, many right-hand sides in one pass), `solve_locally` (the first of
them, in detail near y alone), `mutual_affinity` and `restrict` (the matrix of a graph, and of a part of it). Each has
a plain twin, in `manifind.kernels.plain` or for the last two in `manifind.graph`, that says the same in the fewest
words, and is tested against it. The loops that measurement singled out are in a compiled core (``core/``, by way of
`manifind.kernels.native`); all else, and everything where the core could not be compiled, is NumPy, SciPy and faiss.
"""

from manifind.kernels.local import is_divided, prepare_locally, solve_locally
from manifind.kernels.native import compiled, mutual_affinity, restrict, system
from manifind.kernels.nearest import descend, nearest, nearest_others, similarities
from manifind.kernels.solve import Solution, conjugate_gradient, iterate
from manifind.kernels.threads import set_threads, thread_count

__all__ = [
    "Solution",
    "compiled",
    "conjugate_gradient",
    "descend",
    "is_divided",
    "iterate",
    "mutual_affinity",
    "nearest",
    "nearest_others",
    "prepare_locally",
    "restrict",
    "set_threads",
    "similarities",
    "solve_locally",
    "system",
    "thread_count",
]
