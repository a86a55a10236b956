"""The backend on a torch device: "cuda", or "cpu" where tests run it without a GPU and without Triton."""

from typing import Any

import scipy.sparse as sp
import torch

from manifind.kernels.api import Backend
from manifind.kernels.cuda import affinity
from manifind.kernels.cuda.rows import TorchVectorSet
from manifind.kernels.cuda.system import TorchOperator
from manifind.types import FloatArray, IntArray, Vectors


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
        return affinity.mutual_affinity(ids, similarities, gamma, self.device, normalised=normalised)
