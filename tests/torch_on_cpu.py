"""The backend of the GPU, run by torch on the processor: all of it but the Triton kernels."""

import torch

from manifind.kernels.cuda.torch_backend import TorchBackend

torch.set_num_threads(1)  # what is small is slower on many


def make() -> TorchBackend:
    return TorchBackend("cpu")
