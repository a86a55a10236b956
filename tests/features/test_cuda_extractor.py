"""Region extraction on a GPU: by torch on the processor and in Triton's interpreter where there is none."""

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from manifind.errors import InvalidInputError
from manifind.features import SCALES, RegionExtractor, load_backbone, load_extractor
from manifind.features.backbone import NETWORKS, Photo
from manifind.features.cuda import on_gpu
from manifind.features.cuda.batches import Batches
from manifind.features.cuda.layers import FILTER, PRODUCT, Layer, read_layers
from manifind.index.build import extractor_factory as device
from manifind.index.storage.local_features import LocalFeatureConfig
from manifind.kernels.cuda import unavailable_reason
from manifind.types import FloatArray
from tests.interpreted import run_interpreted

REASON = unavailable_reason()
on_a_gpu = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def photo(height: int, width: int, seed: int = 0) -> Photo:
    """Blots of several sizes."""
    rng, made = np.random.default_rng(seed), np.zeros((height, width, 3), np.float32)
    for side in (4, 16, 64):
        blots = rng.integers(0, 256, (height // side + 2, width // side + 2, 3)).astype(np.uint8)
        made += np.asarray(Image.fromarray(blots).resize((width, height), Image.Resampling.BICUBIC))
    return (made / 3).astype(np.uint8)


def sky(height: int, width: int) -> Photo:
    shade = np.linspace(0, 30, height)[:, None, None]
    made: Photo = (np.array([90, 140, 220]) + shade + np.zeros((1, width, 1))).astype(np.uint8)
    return made


@pytest.fixture(scope="module")
def layers() -> list[Layer]:
    return read_layers(NETWORKS / "mobilenet_v2.onnx", "features")


def test_the_shipped_network_is_a_chain_of_known_layers(layers: list[Layer]) -> None:
    """Sandler et al., 2018, table 2: 17 blocks, 10 of them with their input added, and a stride of 32 in all."""
    assert [layer.kind for layer in layers].count(FILTER) == 17
    assert [layer.kind for layer in layers].count(PRODUCT) == 34
    assert sum(layer.added is not None for layer in layers) == 10
    assert np.prod([layer.stride for layer in layers]) == 32
    assert len(layers[-1].weight) == 1280


def test_a_network_with_other_steps_is_refused_by_the_step(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"its step .* is none of those that the GPU runs"):
        read_layers(NETWORKS / "mobilenet_v2_int8.onnx", "features")
    with pytest.raises(InvalidInputError, match="has no output 'classes'"):
        read_layers(NETWORKS / "mobilenet_v2.onnx", "classes")


class Rounded:
    """The shipped network by torch's own convolutions, rounded to halves where the GPU rounds, or not at all."""

    def __init__(self, layers: list[Layer], *, halves: bool) -> None:
        self.spec, self._layers, self._halves = load_backbone(threads=1).spec, layers, halves

    def features(self, photo: Photo) -> FloatArray:
        torch = pytest.importorskip("torch", reason="torch is not installed")
        from tests.features.in_torch import in_torch

        kind = torch.float16 if self._halves else torch.float32
        made: FloatArray = in_torch(self._layers, self.spec, torch.tensor(photo), kind).numpy()
        return made


@pytest.mark.parametrize(("halves", "far", "far_of_sky"), [(False, 1e-6, 1e-6), (True, 1e-4, 1e-3)])
def test_by_torch_descriptors_are_those_of_onnxruntime(
    layers: list[Layer], halves: bool, far: float, far_of_sky: float
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    by_onnxruntime = load_extractor(threads=1, scales=list(SCALES), long_side=320)
    by_torch = RegionExtractor(Rounded(layers, halves=halves), by_onnxruntime.whitening, **by_onnxruntime.settings)
    for one, most in ((photo(333, 250), far), (sky(200, 311), far_of_sky)):
        cosines = (by_torch.extract(one).vectors * by_onnxruntime.extract(one).vectors).sum(axis=1)
        assert cosines.min() > 1 - most


def test_the_kernels_do_in_the_interpreter_what_torch_pillow_and_numpy_do() -> None:
    run_interpreted("tests.features.interpreted_extraction")


@on_a_gpu
@pytest.mark.parametrize("scales", [(1.0,), SCALES])
def test_on_a_gpu_descriptors_are_those_of_onnxruntime(scales: Sequence[float]) -> None:
    """Photos of many sizes, larger and smaller than what the network sees, brought by many threads."""
    here = load_extractor(scales=list(scales))
    there = on_gpu(here)
    assert there.fingerprint() == here.fingerprint()
    sizes = [(768, 1024), (1500, 900), (333, 500), (90, 120), (3000, 40), (224, 224), (577, 769)]
    photos = [photo(*size, seed) for seed, size in enumerate(sizes)] + [sky(400, 600)]
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(there.extract, photos))
            again = there.extract(photos[0])
            bare = there.extract_unwhitened(photos[1])
        part = there.extract(photos[2][:200], scale=1.5)
    finally:
        there.close()
    for one, made in zip(photos, found, strict=True):
        truth = here.extract(one)
        np.testing.assert_array_equal(made.boxes, truth.boxes)
        assert (made.vectors * truth.vectors).sum(axis=1).min() > 0.999
    np.testing.assert_allclose(again.vectors, found[0].vectors, atol=2e-3)
    assert (bare * here.extract_unwhitened(photos[1])).sum(axis=1).min() > 0.9999
    assert (part.vectors * here.extract(photos[2][:200], scale=1.5).vectors).sum(axis=1).min() > 0.9999


def test_jobs_that_wait_are_done_together_and_a_large_one_alone() -> None:
    done: list[list[int]] = []
    began, go = threading.Event(), threading.Event()

    def work(jobs: Sequence[int]) -> list[int]:
        began.set()
        go.wait(120)
        done.append(list(jobs))
        return [2 * job for job in jobs]

    batches = Batches(work, lambda job: job, largest=10, threads=1)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(batches.answer, 1)
        assert began.wait(120)  # it is on its way, alone
        others = [pool.submit(batches.answer, job) for job in (50, 4, 5, 3)]
        while len(batches._waiting) < 4:
            time.sleep(0.01)
        go.set()
        assert [one.result(120) for one in (first, *others)] == [2, 100, 8, 10, 6]
    batches.close()
    assert sorted(job for some in done for job in some) == [1, 3, 4, 5, 50]
    assert [50] in done
    assert all(sum(some) <= 10 for some in done if some != [50])
    assert len(done) < 5
    with pytest.raises(RuntimeError, match="closed"):
        batches.answer(1)


def test_who_waits_hears_of_an_error_and_the_next_batch_is_done() -> None:
    def work(jobs: Sequence[int]) -> list[int]:
        if 0 in jobs:
            raise ZeroDivisionError
        return list(jobs)

    batches = Batches(work, lambda _: 1, largest=1, threads=2)
    with pytest.raises(ZeroDivisionError):
        batches.answer(0)
    assert batches.answer(7) == 7
    batches.close()


def test_it_is_said_where_regions_are_extracted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(device, "backend", lambda name: SimpleNamespace(name="cuda"))
    extractor = load_extractor(threads=1, pooling="crow")
    pytest.importorskip("torch", reason="torch is not installed")
    with caplog.at_level(logging.INFO, "manifind"):
        with device.place_on_device(extractor, 1000, "cuda") as one:
            assert one is extractor
        with device.place_on_device(load_extractor(threads=1), 3, "auto") as other:
            assert type(other) is RegionExtractor
        with device.place_on_device(extractor, 1000, "cpu"):
            pass
    assert caplog.messages == [
        "regions are extracted on the processor, because pooling crow is none of gem, mac, spoc",
        "regions are extracted on the processor: 3 photos are too few to start the GPU",
    ]


def test_where_a_gpu_extracts_its_network_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "backend", lambda name: SimpleNamespace(name="cuda"))
    assert device.network_for("mobilenet_v2_int8", 1000, "auto") == "mobilenet_v2"
    assert device.network_for("mobilenet_v2_int8", 1000, "cpu") == "mobilenet_v2_int8"
    assert device.network_for("mobilenet_v2_int8", 10, "cuda") == "mobilenet_v2_int8"
    monkeypatch.setattr(device, "backend", lambda name: SimpleNamespace(name="cpu"))
    assert device.network_for("mobilenet_v2_int8", 1000, "auto") == "mobilenet_v2_int8"


def test_the_extractor_on_the_gpu_is_given_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[bool] = []
    made: Any = SimpleNamespace(close=lambda: closed.append(True), extract_local=None)
    monkeypatch.setattr(device, "backend", lambda name: SimpleNamespace(name="cuda"))
    monkeypatch.setattr(device, "on_gpu", lambda extractor, extract_local: made)
    with (
        caplog.at_level(logging.INFO, "manifind"),
        device.place_on_device(load_extractor(threads=1), 64, "cuda") as one,
    ):
        assert one is made
        assert not closed
    assert closed == [True]
    assert caplog.messages == ["regions are extracted on the GPU"]


def test_it_is_said_where_local_features_are_found(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setattr(device, "backend", lambda name: SimpleNamespace(name="cuda"))

    def made(extractor: RegionExtractor, extract_local: Any) -> Any:
        return SimpleNamespace(close=lambda: None, extract_local=extract_local)

    monkeypatch.setattr(device, "on_gpu", made)
    extractor = load_extractor(threads=1)
    with caplog.at_level(logging.INFO, "manifind"):
        with device.place_on_device(extractor, 100, "cuda", LocalFeatureConfig(max_keypoints=60)) as one:
            assert (one.extract_local.kind, one.extract_local.most) == ("sift", 60)  # type: ignore[union-attr]
        with device.place_on_device(extractor, 100, "cuda", LocalFeatureConfig("surf")) as other:
            assert other.extract_local is None
    assert caplog.messages == [
        "regions and local features are extracted on the GPU",
        "local features are found on the processor, because kind surf is none of sift",
        "regions are extracted on the GPU",
    ]
