"""The compiled core; ``core/module.cpp`` has what each takes, checked there."""

import numpy as np
import numpy.typing as npt

from manifind.types import FloatArray, IntArray, Vectors

Starts = npt.NDArray[np.int64]

class Matrix:
    def __init__(self, starts: Starts, columns: IntArray, values: FloatArray) -> None: ...

class LocalSolver:
    def __init__(self, S: Matrix, order: IntArray, starts: Starts, root: FloatArray, flow: Matrix) -> None: ...
    def solve(
        self,
        rows: IntArray,
        values: FloatArray,
        alpha: float,
        max_iter: int,
        tol: float,
        budget: int,
        most: int,
        first: int,
        f: FloatArray,
    ) -> tuple[int, float, int]: ...

class NeighbourSearch:
    searched_again: int
    def __init__(
        self,
        vectors: Vectors,
        precision: str,
        deviations: float,
        memory: int,
        threads: int,
        ids: IntArray,
        similarities: FloatArray,
    ) -> None: ...
    def step(self) -> int: ...

class NeighbourDescent:
    def __init__(self, vectors: Vectors, seed: int, threads: int, ids: IntArray, similarities: FloatArray) -> None: ...
    def step(self) -> int: ...

class CompressedRows:
    def __init__(self, vectors: Vectors, deviations: float, threads: int) -> None: ...
    def search(
        self, vectors: Vectors, queries: FloatArray, threads: int, ids: IntArray, similarities: FloatArray
    ) -> None: ...

def level() -> str: ...
def low_precision() -> bool: ...
def levels() -> list[str]: ...
def use_level(name: str) -> None: ...
def solve(
    S: Matrix,
    order: IntArray | None,
    y: FloatArray,
    alpha: float,
    max_iter: int,
    tol: float,
    threads: int,
    f: FloatArray,
    iterations: IntArray,
    residuals: FloatArray,
) -> None: ...
def divide(S: Matrix, size: int, most: int, part: IntArray) -> int: ...
def mutual_affinity(
    ids: IntArray, similarities: FloatArray, gamma: float, slack: float, normalised: bool, threads: int
) -> tuple[Starts, IntArray, FloatArray, FloatArray]: ...
def breadth_first(S: Matrix, order: IntArray) -> None: ...
def reorder(S: Matrix, order: IntArray, starts: Starts, columns: IntArray, values: FloatArray) -> None: ...
def restrict(S: Matrix, degrees: FloatArray, rows: IntArray, threads: int) -> tuple[Starts, IntArray, FloatArray]: ...
