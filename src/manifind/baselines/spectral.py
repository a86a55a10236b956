"""Diffusion on few eigenvectors: S ≈ UΛUᵀ off line, two thin products on line.

(I − αS)^−1 is a function of S, and a function of a symmetric matrix acts on its eigenvalues alone: with
h(λ) = (1 − α) / (1 − αλ), f = U h(Λ) Uᵀ y. h falls off fast below λ = 1, so that the eigenvectors of the largest
eigenvalues, the smooth functions on the graph, carry most of f. The others are taken as of eigenvalue 0, which leaves
(1 − α) y of what y puts on them; with all eigenvectors f is exact.

`decompose` finds them once, whatever α will be, in each connected component by itself: nothing flows between them, and
the eigenvalue 1 comes once with each. It costs some eighty products of S with a block of somewhat more than `rank`
columns and a few factorisations of that block, with about 16 · n · rank bytes of scratch; what is kept is 4 · n · rank
bytes. On line a query costs one pass over the eigenvectors of the components that it meets.

References
----------
Iscen, Avrithis, Tolias, Furon, Chum: Fast Spectral Ranking for Similarity Search. CVPR 2018. Chosen here: a component's
share of the eigenvectors is its share of the regions, but never below `LEAST`; the eigenvectors of large ones come from
subspace iteration with Chebyshev polynomials (Zhou, Saad, Tiago, Chelikowsky 2006) in place of random projections; and
what is left out is taken at eigenvalue 0 rather than dropped.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.diffusion import Seed
from manifind.kernels import dense_columns
from manifind.kernels.cpu.block_cg import multiply
from manifind.types import FloatArray, IntArray, Progress

DENSE = 4
"""Up to this many times the rank, a graph is decomposed as a dense matrix."""
DEGREE = 20
"""Products with S in each polynomial."""
ROUNDS = 4
"""Polynomials at most; each is followed by a projection."""
ENOUGH = 1e-3
"""Residual ‖Su − λu‖ of the eigenvectors that are kept, at which they are good enough."""
LEAST = 16
"""Eigenvectors of a component, if it has as many regions."""


class Spectrum(NamedTuple):
    """The largest eigenvalues of a component and their eigenvectors."""

    rows: npt.NDArray[np.intp]
    """(m,) the regions of the component, ascending."""
    values: FloatArray
    """(r,), descending."""
    vectors: FloatArray
    """(m, r), orthonormal columns."""


class Spectra(NamedTuple):
    """The spectrum of each component of a graph."""

    component: IntArray
    """(n,) the component of each region."""
    parts: dict[int, Spectrum]
    """By component, those of more than one region."""


def decompose(S: sp.csr_array, rank: int = 1000, *, progress: Progress | None = None) -> Spectra:
    """Return the largest eigenvalues of each component of S, some `rank` in all, with eigenvectors.

    Parameters
    ----------
    S : (n, n) CSR, float32, symmetric, of spectrum within [−1, 1]
    rank : int
        With n of them nothing is left out.
    progress : callable, optional
        Called with the regions done and the regions in all, after each round on a large component.
    """
    from scipy.sparse.csgraph import connected_components  # with scipy.linalg, a tenth of a second to import

    n = S.shape[0]
    count, component = connected_components(S, directed=False)
    order = np.argsort(component, kind="stable")
    ends = np.cumsum(np.bincount(component, minlength=count))
    blocks = sp.csr_array(S[order][:, order])
    parts = {}
    for label, (start, end) in enumerate(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)):
        size = end - start
        if size > 1:
            rank_of_part = min(size, max(LEAST, math.ceil(rank * size / n)))
            report = None if progress is None else partial(_within, progress, start, size, n)
            parts[label] = Spectrum(order[start:end], *_largest(blocks[start:end, start:end], rank_of_part, report))
    if progress is not None:
        progress(n, n)
    return Spectra(component.astype(np.int32), parts)


def combine(spectra: Spectra, seeds: Sequence[Seed], alpha: float) -> FloatArray:
    """Return the scores (n, b) of queries that put these seeds on the graph."""
    y = dense_columns(seeds, len(spectra.component))
    scores = y * np.float32(1 - alpha)
    for label in np.unique(np.concatenate([spectra.component[seed.regions] for seed in seeds])).tolist():
        if label in spectra.parts:
            rows, values, vectors = spectra.parts[label]
            beyond = (1 - alpha) / (1 - alpha * values) - (1 - alpha)
            y_of_part = y[rows]
            met = np.flatnonzero(y_of_part.any(axis=1))
            scores[rows] += vectors @ (beyond[:, None] * (vectors[met].T @ y_of_part[met])).astype(np.float32)
    return scores


def _within(progress: Progress, start: int, size: int, n: int, done: float) -> None:
    progress(start + int(done * size), n)


def _largest(S: sp.csr_array, rank: int, progress: Callable[[float], None] | None) -> tuple[FloatArray, FloatArray]:
    """Return the `rank` largest eigenvalues of a connected graph, descending, with eigenvectors."""
    n = S.shape[0]
    if n <= DENSE * rank:
        from scipy.linalg import eigh

        values, vectors = eigh(S.toarray().astype(np.float64), subset_by_index=(n - rank, n - 1))
        return values[::-1].astype(np.float32), np.ascontiguousarray(vectors[:, ::-1], np.float32)
    block = np.random.default_rng(0).standard_normal((n, rank + max(16, rank // 10)), np.float32)
    damped = 0.5
    for done in range(1, ROUNDS + 1):
        block = np.linalg.qr(_filter(S, block, damped))[0]
        along = multiply(S, block)
        values, turn = np.linalg.eigh((block.T @ along).astype(np.float64))
        turn = turn[:, ::-1].astype(np.float32)
        values, block, along = values[::-1], block @ turn, along @ turn
        along -= block * values.astype(np.float32)
        worst = float(np.sqrt(np.einsum("ij,ij->j", along, along)[:rank].max()))
        damped = min(float(values[-1]), 0.999)
        if progress is not None:
            progress(done / ROUNDS)
        if worst <= ENOUGH:
            break
    return values[:rank].astype(np.float32), np.ascontiguousarray(block[:, :rank])


def _filter(S: sp.csr_array, block: FloatArray, damped: float) -> FloatArray:
    """Apply the Chebyshev polynomial that stays small for eigenvalues in [−1, damped] and grows fast above."""
    half = (damped + 1) / 2
    centre = (damped - 1) / 2
    # The recurrence is scaled so that eigenvalue 1 keeps its size, or float32 would overflow.
    scale = first = half / (1 - centre)
    before, now = block, multiply(S, block)
    now -= np.float32(centre) * block
    now *= np.float32(scale / half)
    for _ in range(DEGREE - 1):
        following = 1 / (2 / first - scale)
        further = multiply(S, now)
        further -= np.float32(centre) * now
        further *= np.float32(2 * following / half)
        further -= np.float32(scale * following) * before
        before, now, scale = now, further, following
    return now
