"""Extraction on one GPU by the Triton kernels, and by torch alone: in half precision, channels last, compiled or not.

    python benchmarks/gpu_network.py

The twin is a plain torch module of the same layers, BatchNorm folded, with torch's own resizing and pooling around it.
Batches are of photos of one size, torch's best case, and of photos of different sizes, which torch sees one by one.
Descriptors are compared with onnxruntime's. Needs ``manifind[torch]`` and a GPU.

Data: made here, 20 photos a batch, three scales.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from manifind.features import BackboneSpec, RegionExtractor, load_extractor
from manifind.features.cuda import on_gpu
from manifind.features.cuda.images import stack_layouts
from manifind.features.cuda.layers import FILTER, PRODUCT, Layer
from manifind.features.extractor import SCALES
from manifind.features.grid import region_grid, rescale_boxes

BATCH = 20
REPEATS = 20
CONTRAST = 50
"""The standard deviation of grey values: such pictures have as many local features as are kept."""
SIZES = [(768, 1024), (1024, 768), (683, 1024), (1024, 683), (576, 1024), (1024, 576), (900, 1024), (1024, 900)]


Pixels = npt.NDArray[np.uint8]


def blots(height: int, width: int, generator: Any) -> Pixels:
    """Make a picture of blots of all sizes, the larger the stronger, with the contrast of photos."""
    made = torch.zeros(1, 3, height, width, device="cuda")
    for side in (1, 2, 4, 8, 16, 32, 64, 128):
        some = torch.randn(1, 3, -(-height // side), -(-width // side), device="cuda", generator=generator)
        made += side**0.7 * torch.nn.functional.interpolate(some, (height, width), mode="nearest")
    made = 128 + CONTRAST * (made - made.mean()) / made.std()
    pixels: Pixels = made[0].permute(1, 2, 0).clamp(0, 255).byte().contiguous().cpu().numpy()
    return pixels


class TorchNetwork(torch.nn.Module):  # type: ignore[misc]
    """The layers as torch's convolutions: uint8 photos (n, 3, height, width) -> maps."""

    def __init__(self, layers: Sequence[Layer], spec: BackboneSpec) -> None:
        super().__init__()
        self.layers = list(layers)
        mean, std = (torch.tensor(values, device="cuda").view(1, 3, 1, 1) for values in (spec.mean, spec.std))
        self.mean, self.std = mean, std
        self.kernels = []
        for layer in layers:
            weight = layer.weight[:, :, None, None] if layer.kind == PRODUCT else layer.weight
            last = torch.from_numpy(weight).cuda().half().contiguous(memory_format=torch.channels_last)
            self.kernels.append((last, torch.from_numpy(layer.bias).cuda().half()))

    def forward(self, photos: Any) -> Any:
        """Return the maps (n, channels, rows, columns)."""
        made = ((photos.float() - self.mean) / self.std).half().contiguous(memory_format=torch.channels_last)
        given: list[Any] = []
        for layer, (weight, bias) in zip(self.layers, self.kernels, strict=True):
            groups = len(weight) if layer.kind == FILTER else 1
            pad = int(layer.kind != PRODUCT)
            made = torch.nn.functional.conv2d(made, weight, bias, layer.stride, pad, groups=groups)
            made = made if layer.added is None else made + given[layer.added]
            made = made if layer.clip is None else made.clamp(*layer.clip)
            given.append(made)
        return made


class TorchExtractor:
    """Photos of one size on the device -> the descriptors of their regions, by torch alone."""

    def __init__(self, network: Any, extractor: RegionExtractor) -> None:
        self.network, self.extractor = network, extractor
        whitening: Any = extractor.whitening
        self.mean = torch.from_numpy(whitening.mean).cuda()
        self.project = torch.from_numpy(whitening.project).cuda()

    def extract(self, photos: Any) -> Any:
        """Return (n, regions, dimensions)."""
        extractor, total = self.extractor, None
        height, width = extractor.seen_size(*photos.shape[2:])
        seen = resize(photos, height, width)
        cells: Any = None
        first: Any = None
        for scale in extractor.scales:
            maps = self.network(resize(seen, extractor._side(height * scale), extractor._side(width * scale)))
            size = maps.shape[2], maps.shape[3]
            if cells is None:
                cells, first = region_grid(*size, levels=extractor.grid_levels, overlap=extractor.overlap), size
            units = unit(gem(maps, rescale_boxes(cells, first, size)))
            total = units if total is None else total + units
        return unit((unit(total) - self.mean) @ self.project)


def resize(photos: Any, height: int, width: int) -> Any:
    """Return photos of another size, smoothed, as Pillow's bicubic resizing does but for rounding."""
    if photos.shape[2:] == (height, width):
        return photos
    made = torch.nn.functional.interpolate(photos.float(), (height, width), mode="bicubic", antialias=True)
    return made.round().clamp(0, 255).to(torch.uint8)


def gem(maps: Any, boxes: Any) -> Any:
    """Return the generalised means of boxes, p = 3: sums over boxes are one product with their masks."""
    masks = np.zeros((len(boxes), *maps.shape[2:]), np.float32)
    for mask, (x0, y0, x1, y1) in zip(masks, boxes.tolist(), strict=True):
        mask[y0:y1, x0:x1] = 1 / ((x1 - x0) * (y1 - y0))
    held = torch.from_numpy(masks).cuda().flatten(1)
    powers = maps.permute(0, 2, 3, 1).flatten(1, 2).float().clamp_min(0) ** 3
    return (held @ powers) ** (1 / 3)


def unit(vectors: Any) -> Any:
    """Return rows at unit norm."""
    return torch.nn.functional.normalize(vectors, dim=-1)


def measure(work: Callable[[], Any]) -> float:
    """Return the median milliseconds of some work, after it was done three times."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return 1e3 * float(np.median(taken))


def report(name: str, work: Callable[[], Any], note: Callable[[Any], str]) -> None:
    """Print the time of a photo, or why there is none."""
    try:
        said = note(work()) if note is not str else ""
        print(f"{name:60}{measure(work) / BATCH:8.3f} ms a photo  {said}", flush=True)
    except Exception as error:  # a compiler that fails is a result, too
        print(f"{name:60}  failed: {type(error).__name__} {str(error)[:160]}", flush=True)


def compare(case: str, sizes: Sequence[tuple[int, int]], networks: dict[str, Any], here: Any, there: Any) -> None:
    """Print the times of photos of some sizes, alike or not, and the least cosine with onnxruntime's descriptors."""
    generator = torch.Generator("cuda").manual_seed(7)
    photos = [blots(*size, generator) for size in sizes]
    truth = np.concatenate([here.extract(photo).vectors for photo in photos[:8]])
    on_device = [torch.from_numpy(photo).cuda().permute(2, 0, 1)[None] for photo in photos]
    groups = [torch.cat(on_device)] if len(set(sizes)) == 1 else on_device

    def cosine(vectors: Any) -> str:
        made = vectors.float().cpu().numpy().reshape(-1, vectors.shape[-1])[: len(truth)]
        return f"cosine ≥ {(made * truth).sum(axis=1).min():.6f}"

    solver = there._batch_extractor
    jobs = [there._job(photo, None)[0] for photo in photos]
    given = torch.cat([job.pixels.cuda() for job in jobs])
    pixels, seen = solver._resize_photos(jobs, given)
    sizes_of_levels, starts = solver._levels(seen)
    levels = stack_layouts(sizes_of_levels, starts, solver.network.device)
    report(f"{case}, network alone, Triton", lambda: solver.network.run(pixels, levels), str)
    inputs = [
        resize(group, here._side(height * scale), here._side(width * scale))
        for group in groups
        for height, width in [here.seen_size(*group.shape[2:])]
        for scale in here.scales
    ]
    for name, made in networks.items():
        report(f"{case}, network alone, torch {name}", partial(list_of, made, inputs), str)
    report(f"{case}, all, Triton", lambda: solver.vectors(jobs, given, whitened=True), cosine)
    for name, made in networks.items():
        extractor = TorchExtractor(made, here)
        report(
            f"{case}, all, torch {name}",
            partial(list_of, extractor.extract, groups),
            lambda m: cosine(torch.cat([one.flatten(0, 1) for one in m])),
        )


def list_of(work: Callable[[Any], Any], inputs: Sequence[Any]) -> list[Any]:
    """Return what some work makes of each input."""
    return [work(one) for one in inputs]


def main() -> None:
    """Print the table."""
    here = load_extractor(scales=list(SCALES))
    there: Any = on_gpu(here)
    twin = TorchNetwork(there._batch_extractor.network.layers, here.backbone.spec).eval()
    mixed = [*itertools.islice(itertools.cycle(SIZES), BATCH)]
    with torch.inference_mode():
        compare("sizes", mixed, {"eager": twin}, here, there)
        alike = {"eager": twin, "compiled": torch.compile(twin, dynamic=False)}
        compare("one size", [SIZES[0]] * BATCH, alike, here, there)


if __name__ == "__main__":
    main()
