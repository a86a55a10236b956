"""The backend on a torch device: "cuda", or "cpu" where tests run it without a GPU and without Triton."""

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from manifind.kernels.api import Backend
from manifind.kernels.cuda.rows import TorchVectorSet
from manifind.kernels.cuda.system import TorchOperator
from manifind.kernels.cuda.transfer import to_device, to_host
from manifind.types import FloatArray, IntArray, Tensor, Vectors


class TorchBackend(Backend):
    """The work of a backend on one torch device."""

    name = "cuda"

    def __init__(self, device: str) -> None:
        self.device: Any = torch.device(device)

    def vector_set(self, vectors: Vectors) -> TorchVectorSet:
        """Return descriptors as the device searches them; they are copied to it when they are first searched."""
        return TorchVectorSet(vectors, self.device)

    def operator(self, S: sp.csr_array, degrees: FloatArray | None = None, *, reorder: bool = True) -> TorchOperator:
        """Return a copy of a matrix as the device solves on it."""
        return TorchOperator.of(S, degrees, self.device, reorder=reorder)

    def mutual_graph(
        self,
        ids: IntArray,
        similarities: FloatArray,
        gamma: float,
        *,
        slack: float,  # noqa: ARG002 (each pair is looked up in the other's list)
        normalised: bool,
    ) -> tuple[sp.csr_array, FloatArray]:
        """Return the affinity of mutual neighbours, or S, and the degrees."""
        return mutual_affinity(ids, similarities, gamma, self.device, normalised=normalised)


ENTRIES = 2**26
"""Entries of the lists that are sorted or looked up at a time."""


def mutual_affinity(
    ids: IntArray, similarities: FloatArray, gamma: float, device: Any, *, normalised: bool
) -> tuple[sp.csr_array, FloatArray]:
    """Return the affinity (eq. 1, 5, 6) or S (eq. 2), and the degrees. Meanwhile some 24 bytes an entry are held."""
    n = len(ids)
    if ids.size and (ids.min() < -1 or ids.max() >= n):
        raise ValueError("ids lead out of the lists")
    keys, values = _sorted_lists(ids, similarities, gamma, device)
    keep = _mutual(keys, values, n)
    rows = torch.div(keys[keep], n + 1, rounding_mode="floor")
    columns = (keys[keep] - rows * (n + 1)).int()
    values = values[keep]
    del keys, keep
    degrees = torch.zeros(n, dtype=torch.float64, device=values.device).index_add_(0, rows, values.double())
    if normalised:
        scale = torch.where(degrees > 0, degrees.rsqrt(), 0.0)
        # In float64: the error of an entry of S comes back a hundredfold in f where α is 0.99.
        for start in range(0, len(values), ENTRIES):
            some = slice(start, start + ENTRIES)
            values[some] = (values[some] * (scale[rows[some]] * scale[columns[some].long()])).float()
    starts = torch.zeros(n + 1, dtype=torch.int64, device=values.device)
    torch.cumsum(torch.bincount(rows, minlength=n), dim=0, out=starts[1:])
    indptr = to_host(starts)
    if len(columns) <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    A = sp.csr_array((to_host(values), to_host(columns), indptr), shape=(n, n))
    A.has_canonical_format = True
    return A, to_host(degrees.float())


def _sorted_lists(ids: IntArray, similarities: FloatArray, gamma: float, device: Any) -> tuple[Tensor, Tensor]:
    """Return a number for each entry of the lists, ascending by row and then by id, and its affinity.

    Where a list names a row several times, only the least of its affinities counts. A place that names nobody gets the
    id n and no affinity.
    """
    n, k = ids.shape
    keys = torch.empty(n * k, dtype=torch.int64, device=device)
    values = torch.empty(n * k, dtype=torch.float32, device=device)
    step = max(1, ENTRIES // max(1, k))
    for start in range(0, n if k else 0, step):
        block = slice(start, start + step)
        listed = to_device(ids[block], device, dtype=np.int64)
        own = torch.arange(start, start + len(listed), device=device)[:, None]
        affinities = to_device(similarities[block], device, dtype=np.float32).clamp_min_(0).pow_(gamma)
        affinities[(listed < 0) | (listed == own)] = 0
        listed[listed < 0] = n
        by_affinity = affinities.argsort(dim=1)
        listed, affinities = listed.gather(1, by_affinity), affinities.gather(1, by_affinity)
        listed, order = listed.sort(dim=1, stable=True)
        affinities = affinities.gather(1, order)
        affinities[:, 1:][listed[:, 1:] == listed[:, :-1]] = 0
        at = slice(start * k, start * k + listed.numel())
        keys[at], values[at] = (own * (n + 1) + listed).view(-1), affinities.view(-1)
    return keys, values


def _mutual(keys: Tensor, values: Tensor, n: int) -> Tensor:
    """Return which entries are in the other row's list too, and lower each affinity to the lesser of the two."""
    keep = torch.zeros(len(keys), dtype=torch.bool, device=keys.device)
    lesser = values.clone()
    for start in range(0, len(keys), ENTRIES):
        some = slice(start, start + ENTRIES)
        rows = torch.div(keys[some], n + 1, rounding_mode="floor")
        turned = (keys[some] - rows * (n + 1)) * (n + 1) + rows
        at = torch.searchsorted(keys, turned).clamp_max_(len(keys) - 1)
        other = torch.where(keys[at] == turned, values[at], 0.0)
        lesser[some] = torch.minimum(values[some], other)
        keep[some] = lesser[some] > 0
    values.copy_(lesser)
    return keep
