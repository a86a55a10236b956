"""The GPU's backend: torch, with Triton kernels where torch's own are far from what the machine can do.

Nothing of torch is imported before `make` is called, or before `unavailable_reason` has seen that there is a GPU.
"""

import importlib.util
from pathlib import Path

from manifind.errors import InvalidInputError, ManifindError, MissingExtraError
from manifind.kernels.api import Backend

TORCH, TRITON = (2, 8), (3, 4)
"""The oldest that serve: from these on, tiles are described to the GPU's copy engine from the host."""
DRIVERS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")
"""One of these is there where a GPU is; asking the driver itself takes torch, which takes seconds to import."""


def gpu_here() -> bool:
    """Return whether this machine has a GPU, whatever may keep it from being used."""
    return any(Path(one).exists() for one in DRIVERS)


def unavailable_reason() -> ManifindError | None:
    """Return why this backend cannot work here, as the error to raise, or None."""
    install = "pip install 'manifind[torch]'"
    if importlib.util.find_spec("torch") is None:
        return MissingExtraError(f"device 'cuda' needs torch; {install}.")
    if not gpu_here():
        return InvalidInputError("device is 'cuda' but there is no NVIDIA GPU here; use device='cpu'.")
    import torch

    if _numbers(torch.__version__) < TORCH:
        return MissingExtraError(
            f"device 'cuda' needs torch {_dotted(TORCH)}, and {torch.__version__} is here; {install} -U."
        )
    if not torch.cuda.is_available():
        return InvalidInputError(
            "device is 'cuda' but torch sees no GPU (torch.cuda.is_available()); use device='cpu'."
        )
    if importlib.util.find_spec("triton") is None:
        return MissingExtraError("device 'cuda' needs Triton; pip install triton.")
    import triton

    if _numbers(triton.__version__) < TRITON:
        return MissingExtraError(
            f"device 'cuda' needs Triton {_dotted(TRITON)}, and {triton.__version__} is here; pip install -U triton."
        )
    if torch.cuda.get_device_capability() < (8, 0):
        return InvalidInputError(
            f"device is 'cuda' but {torch.cuda.get_device_name()} is older than the kernels take (compute capability "
            "8.0); use device='cpu'."
        )
    return None


def make() -> Backend:
    """Return this backend, or raise what is lacking."""
    reason = unavailable_reason()
    if reason is not None:
        raise reason
    from manifind.kernels.cuda.torch_backend import TorchBackend

    return TorchBackend("cuda")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
