"""The few hot loops, on arrays that were checked by their callers.

`nearest` (exact inner-product search), `similarities` (re-scoring given pairs), `conjugate_gradient` and `iterate`
(the two solvers, many right-hand sides in one pass). Each has a plain twin in `manifind.kernels.plain` that says the
same in the fewest words, and is tested against it.
"""

from manifind.kernels.nearest import nearest, similarities
from manifind.kernels.solve import Solution, conjugate_gradient, iterate
from manifind.kernels.threads import thread_count

__all__ = ["Solution", "conjugate_gradient", "iterate", "nearest", "similarities", "thread_count"]
