"""Which device does the work: what is chosen, what is said where it cannot, and what one built another searches."""

import importlib.util
import logging
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from manifind import InvalidInputError, ManifindError, Manifold, MissingExtraError, kernels
from manifind.kernels import cuda
from manifind.kernels.api import BACKENDS
from tests.collections_of_regions import make


def test_auto_never_fails_and_says_what_it_chose(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cuda, "unavailable_reason", lambda: InvalidInputError("there is no GPU."))
    with caplog.at_level(logging.INFO, "manifind"):
        assert kernels.backend("auto").name == "cpu"
    assert "device: cpu, because there is no GPU." in caplog.text


def test_auto_does_not_import_torch_where_there_is_no_gpu() -> None:
    if any(Path(one).exists() for one in cuda.DRIVERS):
        pytest.skip("there is a GPU")
    lines = "import sys; from manifind.kernels import backend; backend('auto'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", lines], check=False).returncode == 0  # noqa: S603


def test_without_torch_the_line_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"needs torch; pip install 'manifind\[torch\]'"):
        kernels.backend("cuda")


def test_without_a_gpu_the_processor_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(cuda, "DRIVERS", ())
    with pytest.raises(InvalidInputError, match="no NVIDIA GPU here; use device='cpu'"):
        kernels.backend("cuda")


def test_a_torch_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(cuda, "DRIVERS", (str(tmp_path),))
    old = types.ModuleType("torch")
    old.__version__ = "2.6.1+cu118"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", old)
    with pytest.raises(MissingExtraError, match=r"needs torch 2.8, and 2.6.1\+cu118 is here"):
        kernels.backend("cuda")


def pretended(gpu: bool = True, capability: tuple[int, int] = (9, 0)) -> types.ModuleType:
    """Return a torch that sees a GPU, or none."""
    torch = types.ModuleType("torch")
    seen = types.SimpleNamespace(
        is_available=lambda: gpu, get_device_capability=lambda: capability, get_device_name=lambda: "an old one"
    )
    torch.__version__, torch.cuda = "2.9.0", seen  # type: ignore[attr-defined]
    return torch


@pytest.mark.parametrize(
    ("torch", "triton", "said"),
    [
        (pretended(gpu=False), "3.5.0", "torch sees no GPU"),
        (pretended(), None, "needs Triton; pip install triton"),
        (pretended(), "3.3.1", r"needs Triton 3.4, and 3.3.1 is here; pip install -U triton"),
        (pretended(capability=(7, 5)), "3.5.0", "an old one is older than the kernels take"),
    ],
)
def test_what_else_keeps_a_gpu_from_being_used_is_said_and_auto_takes_the_processor(
    torch: types.ModuleType,
    triton: str | None,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "triton" and triton is None else object()
    )
    monkeypatch.setattr(cuda, "DRIVERS", (str(tmp_path),))
    monkeypatch.setitem(sys.modules, "torch", torch)
    there = types.ModuleType("triton")
    there.__version__ = triton or ""  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", there)
    with pytest.raises(ManifindError, match=said):
        kernels.backend("cuda")
    with caplog.at_level(logging.INFO, "manifind"):
        assert kernels.backend("auto").name == "cpu"
    assert "device: cpu, because" in caplog.text


def test_the_device_is_checked_and_not_saved() -> None:
    collection = make("clusters", images=12, most_regions=4, d=8, seed=1)
    with pytest.raises(InvalidInputError, match="device is 'abacus'; choose one of 'auto', 'cpu', 'cuda'"):
        Manifold(device="abacus").fit(collection.vectors)
    fitted = Manifold(k=4, device="cpu").fit(collection.vectors, collection.image_of)
    assert "device" not in fitted.to_arrays()[0]


@pytest.mark.parametrize(("builds", "searches"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_what_one_device_built_another_searches(
    builds: str, searches: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    if cuda.unavailable_reason() is not None:
        monkeypatch.setitem(BACKENDS, "cuda", "tests.torch_on_cpu")
    collection = make("clusters", images=40, most_regions=5, d=12, seed=1)
    built = Manifold(k=8, query_k=6, device=builds).fit(collection.vectors, collection.image_of)
    built.save(tmp_path / "saved")
    loaded = Manifold.load(tmp_path / "saved", device=searches)
    assert loaded.device == searches
    for query in collection.queries[:3]:
        for shortlist in (None, 15):
            here, there = built.search(query, shortlist=shortlist), loaded.search(query, shortlist=shortlist)
            scores = dict(zip(there.images.tolist(), there.scores.tolist(), strict=True))
            np.testing.assert_allclose(
                [scores[image] for image in here.images.tolist()], here.scores, atol=1e-4 * float(here.scores[0])
            )
