"""How fast one GPU extracts photos at three scales and finds their local features: from pixels, and from files.

    python benchmarks/gpu_photos.py

``gpu.py`` prints the same lines in its table. Files are decoded by the processor meanwhile, which also finds local
features in some lines, for comparison. Photos are blots of all sizes, made from a fresh seed; descriptors are compared
with onnxruntime's, and features with the processor's, in the same run. Needs ``manifind[torch]`` and a GPU.

Data: made here, photos of 1024 × 768 and 4000 × 3000, three scales.
"""

import io
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from gpu_network import Pixels, TorchNetwork, blots
from manifind.features import SCALES, RegionExtractor, load_extractor
from manifind.features.backbone import available_cores
from manifind.features.cuda.layers import Layer
from manifind.geometry import extract
from manifind.geometry.cuda.octaves import SCALES as OCTAVE_SCALES
from manifind.geometry.cuda.octaves import Octaves, blurs
from manifind.geometry.cuda.sift import Finder, detection_sizes
from manifind.index.build.extractor_factory import place_on_device
from manifind.index.build.gather import extract_locally
from manifind.index.storage.local_features import LOCAL_FEATURES
from manifind.io import ListedFile, list_photos

SMALL, LARGE = (768, 1024), (3000, 4000)
BATCH = 20
STARTED = 200
"""Photos that are extracted before time is taken: the processes that read have started by then."""
MEMORY = 2**31
"""For photos that are read ahead."""

Row = tuple[str, float, float, float | None, str]
"""What was done, its time, the floor, PyTorch's time, and a note."""


@contextmanager
def files(pictures: list[Pixels], count: int) -> Iterator[list[ListedFile]]:
    """Give JPEG files of pictures in turn, links to the same few."""
    with tempfile.TemporaryDirectory() as folder:
        for number, picture in enumerate(pictures):
            content = io.BytesIO()
            Image.fromarray(picture).save(content, "JPEG", quality=90)
            (Path(folder) / f"{number}.jpg").write_bytes(content.getvalue())
        for number in range(len(pictures), count):
            os.link(Path(folder) / f"{number % len(pictures)}.jpg", Path(folder) / f"{number}.jpg")
        yield [one for one in list_photos(folder) if isinstance(one, ListedFile)]


def from_files(pictures: list[Pixels], count: int, extractor: RegionExtractor, *, local: bool) -> tuple[float, float]:
    """Return the seconds a photo, once all has started and with the start."""
    with files(pictures, count) as found:
        begun = started = time.perf_counter()
        outcomes = extract_locally(found, extractor, None, LOCAL_FEATURES if local else None, memory=MEMORY)
        for number, _ in enumerate(outcomes, 1):
            if number == STARTED:
                started = time.perf_counter()
        done = time.perf_counter()
    return (done - started) / (count - STARTED), (done - begun) / count


def floor(layers: list[Layer], sizes: list[tuple[int, int]], copy: float, half: float) -> float:
    """Return the least time for a photo: what layers give written and read once, or their products."""
    moved = operations = 0
    for size in sizes:
        height, width = size
        moved += 2 * 3 * height * width
        for layer in layers:
            height, width = (-(-side // layer.stride) for side in (height, width))
            cells, channels = height * width, len(layer.weight)
            moved += 2 * 2 * cells * channels
            operations += 2 * cells * layer.weight.size
    return max(moved / copy, operations / half)


def by_torch(layers: list[Layer], sizes: list[tuple[int, int]], extractor: RegionExtractor) -> float:
    """Return the seconds a photo of the network alone by torch's convolutions, in half precision, channels last."""
    network = TorchNetwork(layers, extractor.backbone.spec)
    inputs = [torch.randint(256, (BATCH, 3, *size), dtype=torch.uint8, device="cuda") for size in sizes]
    with torch.inference_mode():
        return timed(lambda: [network(photos) for photos in inputs]) / BATCH


def floor_of_features(octaves: Octaves, copy: float) -> float:
    """Return the least time for a photo's local features: every scale written and read once."""
    return 2 * 4 * OCTAVE_SCALES * octaves.begins[-1] / copy


def pyramid_by_torch(octaves: Octaves) -> float:
    """Return the seconds a photo of blurring alone by torch's convolutions, in float32."""
    convolve, pad = torch.nn.functional.conv2d, torch.nn.functional.pad
    bells = []
    for radius, (row, _) in zip(*blurs(), strict=True):
        half = torch.from_numpy(row[: radius + 1]).cuda()
        bells.append((radius, torch.cat([half.flip(0)[:-1], half])))

    def blurred(picture: Any, number: int) -> Any:
        radius, bell = bells[number]
        down = convolve(pad(picture, (0, 0, radius, radius), "reflect"), bell.view(1, 1, -1, 1))
        return convolve(pad(down, (radius, radius, 0, 0), "reflect"), bell.view(1, 1, 1, -1))

    first = torch.rand(BATCH, 1, *octaves.first[0].tolist(), device="cuda")

    def run() -> None:
        picture = blurred(first, 0)
        for _ in octaves.sizes:
            scales = [picture]
            for number in range(1, OCTAVE_SCALES):
                scales.append(blurred(scales[-1], number))
            picture = scales[3][:, :, ::2, ::2].contiguous()

    with torch.inference_mode():
        return timed(run) / BATCH


def timed(work: Any) -> float:
    """Return the mean time of some work on the device, after it was done a few times."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(10):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / 10


def agreement(pictures: list[Pixels]) -> tuple[float, float]:
    """Return which share of the processor's features the GPU finds, and the least cosine of their descriptors."""
    found, least = [], 1.0
    for picture in pictures:
        here = extract(picture, kind=LOCAL_FEATURES.kind, max_keypoints=LOCAL_FEATURES.max_keypoints)
        pixels = torch.from_numpy(picture.reshape(-1, 3)).cuda()
        there = Finder(LOCAL_FEATURES.max_keypoints).find(pixels, np.array([picture.shape[:2]]))
        points, scales, angles, descriptors = (one.cpu().numpy() for one in there[1:])
        apart = np.linalg.norm(here.keypoints[:, None] - points, axis=2)
        turned = np.abs(np.angle(np.exp(1j * (here.orientations[:, None] - angles))))
        same = (apart < 0.05) & (np.abs(np.log2(here.scales[:, None] / scales)) < 0.02) & (turned < 0.02)
        found.append(same.any(axis=1))
        cosines = here.descriptors @ descriptors.T
        least = min(least, float(np.where(same, cosines, -1.0).max(axis=1)[found[-1]].min()))
    return float(np.concatenate(found).mean()), least


def rows(copy: float, half: float, seed: int) -> Iterator[Row]:
    """Describe photos, and yield the lines of the table; `copy` and `half` are what the GPU does a second."""
    generator = torch.Generator("cuda").manual_seed(seed)
    small = [blots(*SMALL, generator) for _ in range(8)]
    large = [blots(*LARGE, generator) for _ in range(3)]
    here = load_extractor(scales=list(SCALES))
    cores = f"{available_cores()} cores read"
    on_processor = LOCAL_FEATURES.available()

    with place_on_device(here, 10**6, "cuda") as there, place_on_device(here, 10**6, "cuda", LOCAL_FEATURES) as finding:
        for picture in small:
            there.extract(picture)
        worst = min(
            float((there.extract(one).vectors * here.extract(one).vectors).sum(axis=1).min()) for one in small[:4]
        )
        solver: Any = there._batch_extractor  # type: ignore[attr-defined]
        job: Any = there._job  # type: ignore[attr-defined]
        jobs = [job(small[number % len(small)], None)[0] for number in range(BATCH)]
        layers, sizes = solver.network.layers, list(jobs[0].seen[1:])
        least, plain = floor(layers, sizes, copy, half), by_torch(layers, sizes, here)
        torch.cuda.empty_cache()
        with torch.inference_mode():
            taken = timed(lambda: solver.extract_batch(jobs, whitened=True)) / BATCH
        note = f"{1 / taken:,.0f} photos a second, cosine with onnxruntime ≥ {worst:.6f}"
        yield "extraction of 1024 × 768, three scales, on device", taken, least, plain, note

        octaves = Octaves(detection_sizes(np.array([SMALL]))[1], np.array([False]))
        plain += pyramid_by_torch(octaves)
        least += floor_of_features(octaves, copy)
        torch.cuda.empty_cache()
        both: Any = finding._batch_extractor  # type: ignore[attr-defined]
        with torch.inference_mode():
            taken = timed(lambda: both.extract_batch(jobs, whitened=True)) / BATCH
        note = f"{1 / taken:,.0f} photos a second"
        if on_processor:
            share, cosine = agreement(small[:4])
            note += f"; {100 * share:.1f} % of the processor's features, cosine ≥ {cosine:.4f}"
        yield f"  … and up to {LOCAL_FEATURES.max_keypoints} local features of each", taken, least, plain, note

        for name, pictures, count in (("1024 × 768", small, 4000), ("4000 × 3000", large, 800)):
            ways = [(f"  … JPEG files of {name}, {cores}", there, False), ("      … and local features", finding, True)]
            if on_processor:
                ways.append(("      … and local features by the processor", there, True))
            for what, extractor, local in ways:
                some = count // 2 if local and extractor is there else count
                taken, whole = from_files(pictures, some, extractor, local=local)
                yield what, taken, 0.0, None, f"{1 / taken:,.0f} photos a second; with the start {1 / whole:,.0f}"


HEAD = f"{'':60}{'time':>12}{'floor':>12}{'PyTorch':>12}"


def printed(row: Row) -> None:
    """Print a line of a table."""
    name, taken, least, torchs, note = row
    by = "" if torchs is None else f"{torchs * 1e3:,.2f} ms"
    at_least = f"{least * 1e3:,.2f} ms" if least else ""
    print(f"{name:60}{taken * 1e3:9,.2f} ms{at_least:>12}{by:>12}  {note}", flush=True)


if __name__ == "__main__":
    import secrets

    from gpu import rates

    measured = rates()
    print(HEAD)
    for one in rows(measured["copy"], measured["half"], secrets.randbits(32)):
        printed(one)
