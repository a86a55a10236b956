"""The compiled core: search and diffusion; ``core/module.cpp`` checks all arguments.

Calls release the interpreter's lock, and Ctrl-C interrupts them within some 50 ms. Output arrays of an interrupted call
are undefined, inputs are unchanged. An interrupted stepwise search cannot be continued.
"""

import numpy as np
import numpy.typing as npt

from manifind.types import FloatArray, IntArray, Vectors

Starts = npt.NDArray[np.int64]

class Matrix:
    """A symmetric matrix in CSR."""

    def __init__(self, starts: Starts, columns: IntArray, values: FloatArray) -> None: ...

class OrderedMatrix:
    """A copy of a matrix for many solutions in float32, in breadth-first order."""

    def __init__(self, S: Matrix, threads: int) -> None: ...

class TwoLevelSolver:
    def __init__(self, S: Matrix, order: IntArray, starts: Starts, root: FloatArray, coarse_matrix: Matrix) -> None: ...
    def solve(
        self,
        rows: IntArray,
        values: FloatArray,
        alpha: float,
        max_iter: int,
        tol: float,
        max_entries: int,
        max_aggregates: int,
        refine_after: int,
        f: FloatArray,
    ) -> tuple[int, float, int]: ...

class SelfJoin:
    rescanned_rows: int
    def __init__(
        self,
        vectors: Vectors,
        memory: int,
        threads: int,
        ids: IntArray,
        similarities: FloatArray,
    ) -> None: ...
    def step(self) -> int: ...

class NNDescent:
    def __init__(self, vectors: Vectors, seed: int, threads: int, ids: IntArray, similarities: FloatArray) -> None: ...
    def step(self) -> int: ...

class QuantizedMatrix:
    """Rows quantized to one byte a value (four without int8 products), for exact k-NN search.

    `search` takes the same `vectors` again, for rescoring.
    """

    def __init__(self, vectors: Vectors, threads: int) -> None: ...
    def search(
        self,
        vectors: Vectors,
        queries: FloatArray,
        rows: IntArray | None,
        memory: int,
        threads: int,
        ids: IntArray,
        similarities: FloatArray,
    ) -> None: ...

def knn_search(
    vectors: Vectors,
    queries: FloatArray,
    rows: IntArray | None,
    memory: int,
    threads: int,
    ids: IntArray,
    similarities: FloatArray,
) -> None:
    """Find the k most similar of `vectors` for each query, best first, ties by id, without keeping anything.

    Rows are quantized during the search, which costs about as much as 20 queries. With ascending `rows` only these are
    searched, and ids are indices into them. Candidates take about `memory` bytes.
    """

def level() -> str: ...
def has_int8_dot() -> bool: ...
def levels() -> list[str]: ...
def use_gather(choice: bool | None) -> None: ...
def use_level(name: str) -> None: ...
def solve(
    S: Matrix | OrderedMatrix,
    y: FloatArray,
    alpha: float,
    max_iter: int,
    tol: float,
    threads: int,
    f: FloatArray,
    iterations: IntArray,
    residuals: FloatArray,
    use_float64: bool = False,
) -> None:
    """Solve (I − αS) f = (1 − α) y by conjugate gradient, all columns in one pass over S.

    With `use_float64` vectors are float64 and agree with any float64 solver; graphs of up to some 10,000 regions need
    it, where float32 rounding grows to 0.5 % of the scores. Otherwise vectors are float32 and directions bfloat16: many
    columns are three times as fast, and scores differ from float64's by some 0.1 % of the best while the residual is
    still some percent. Either way a column has bitwise the same solution alone and in a batch, on the same kind of
    matrix.
    """

def aggregate(S: Matrix, target_size: int, max_size: int, aggregate_of: IntArray) -> int: ...
def mutual_affinity(
    ids: IntArray, similarities: FloatArray, gamma: float, slack: float, normalised: bool, threads: int
) -> tuple[Starts, IntArray, FloatArray, FloatArray]: ...
def reorder(
    S: Matrix, order: IntArray, threads: int, starts: Starts, columns: IntArray, values: FloatArray
) -> None: ...
def restrict(S: Matrix, degrees: FloatArray, rows: IntArray, threads: int) -> tuple[Starts, IntArray, FloatArray]: ...
