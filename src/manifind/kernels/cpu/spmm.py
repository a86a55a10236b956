"""The product of a sparse matrix with many columns, a strip of columns on each thread."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.kernels.threads import thread_count

STRIP_COLUMNS = 32
"""Columns that are multiplied together, while they are in cache."""

MAX_SERIAL_PRODUCTS = 2**20
"""Products of two numbers that take less time than threads take to start."""


def multiply(S: sp.csr_array, x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Return Sx, (n, b), in the precision of x; SciPy has a faster loop for a single column than for a block of one."""
    product = np.empty(x.shape, x.dtype)
    if x.shape[1] == 1:
        product[:, 0] = S @ x[:, 0]
        return product

    def strip(start: int) -> None:
        columns = slice(start, start + STRIP_COLUMNS)
        product[:, columns] = S @ np.ascontiguousarray(x[:, columns])

    starts = range(0, x.shape[1], STRIP_COLUMNS)
    if len(starts) == 1 or S.nnz * x.shape[1] <= MAX_SERIAL_PRODUCTS:
        for start in starts:
            strip(start)
        return product
    with ThreadPoolExecutor(thread_count()) as pool:
        list(pool.map(strip, starts))
    return product
