"""The compiled core; ``core/module.cpp`` has what each takes, checked there.

Every call lets other threads run, and hears Ctrl-C within some 50 ms: a handler that raises ends it. What it was to
fill is then not to be used; what it was given is as before. A search in steps that was ended so refuses to go on.
"""

from collections.abc import Sequence

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
    """Rows in a byte a value (four where `low_precision` is false), for searching queries in them, exactly.

    `search` is given the same `vectors` again, for scoring what the rounding leaves in doubt.
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

def nearest(
    vectors: Vectors,
    queries: FloatArray,
    rows: IntArray | None,
    memory: int,
    threads: int,
    ids: IntArray,
    similarities: FloatArray,
) -> None:
    """Find the k most similar of `vectors` for each query, best first and equals by id, keeping nothing.

    Rows are compressed as they are come to, which costs about as much as some 20 queries. With ascending `rows` only
    these are searched, and ids are places in them. Candidates take about `memory` bytes.
    """

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
    precise: bool = False,
) -> None:
    """Solve (I − αS) f = (1 − α) y by conjugate gradient, all columns in one pass over S.

    With `precise` vectors are float64 and agree with any float64 solver; a graph of up to some 10,000 regions wants it,
    where rounding in float32 grows to 0.5 % of the scores. Without it vectors are float32 and directions are rounded to
    bfloat16: many columns are three times as fast, and scores differ from float64's by some 0.1 % of the best while the
    residual is still percents. Either way a column gets the same answer alone and among others, to the last bit,
    provided that `S` and `order` are the same.
    """

def divide(S: Matrix, size: int, most: int, part: IntArray) -> int: ...
def mutual_affinity(
    ids: IntArray, similarities: FloatArray, gamma: float, slack: float, normalised: bool, threads: int
) -> tuple[Starts, IntArray, FloatArray, FloatArray]: ...
def breadth_first(S: Matrix, order: IntArray) -> None: ...
def reorder(
    S: Matrix, order: IntArray, threads: int, starts: Starts, columns: IntArray, values: FloatArray
) -> None: ...
def restrict(S: Matrix, degrees: FloatArray, rows: IntArray, threads: int) -> tuple[Starts, IntArray, FloatArray]: ...

class LocalFeatures:
    """The points of a grey photo by SIFT; `describe` says how the chosen are turned and what surrounds them.

    A row of `points` is x, y, size and strength. `describe` returns which point each feature is of, its angle in
    radians, and its descriptor by RootSIFT, a unit row.
    """

    def __init__(self, grey: npt.NDArray[np.uint8], doubled: bool, contrast: float) -> None: ...
    def points(self) -> FloatArray: ...
    def describe(self, chosen: IntArray) -> tuple[IntArray, FloatArray, FloatArray]: ...

def agreement(
    pairs: npt.NDArray[np.float64],
    anchors: Starts,
    guesses: npt.NDArray[np.float64],
    box: Sequence[float],
    tolerances: Sequence[float],
    loose: float,
    turned: float,
    scaled: float,
    refined: int,
    homography: int,
    rounds: int,
    stretch: float,
    enlarged: float,
    least: int,
) -> tuple[npt.NDArray[np.float64], IntArray, int] | None:
    """Return the map (3, 3) that most pairs agree with, their places and how many count; ``core/agreement.h``."""

def counts_bits() -> bool:
    """Say whether `nearest_bits` may be called on this machine."""

def nearest_bits(
    queries: npt.NDArray[np.uint8], rows: npt.NDArray[np.uint8], k: int, threads: int
) -> tuple[IntArray, IntArray]:
    """Return the k rows of 32 bytes that differ from each query in the fewest bits, and in how many."""
