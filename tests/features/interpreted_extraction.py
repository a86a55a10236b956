"""The kernels of region extraction in Triton's interpreter: run with TRITON_INTERPRET=1, by `test_cuda_extractor`."""

import warnings

import numpy as np
import torch

from manifind.features.backbone import BackboneSpec, Photo
from manifind.features.cuda.extractor import BatchExtractor, Job
from manifind.features.cuda.layers import FILTER, FIRST, PRODUCT, Layer
from manifind.features.cuda.network import Network
from manifind.features.extractor import RegionExtractor, resized
from manifind.features.grid import region_grid, rescale_boxes
from manifind.features.pooling import pool
from manifind.features.whitening import unit_rows
from manifind.types import FloatArray
from tests.features.in_torch import in_torch

warnings.simplefilter("ignore")

RNG = np.random.default_rng(5)


def numbers(*shape: int) -> FloatArray:
    return (RNG.normal(size=shape) / 2).astype(np.float32)


LAYERS = [
    Layer(FIRST, numbers(6, 3, 3, 3), numbers(6), 2, (0.0, 6.0)),
    Layer(FILTER, numbers(6, 1, 3, 3), numbers(6), 1, (0.0, 2.0)),
    Layer(PRODUCT, numbers(40, 6), numbers(40), 1, (0.0, 6.0)),
    Layer(FILTER, numbers(40, 1, 3, 3), numbers(40), 2, (0.0, 6.0)),
    Layer(PRODUCT, numbers(5, 40), numbers(5)),
    Layer(PRODUCT, numbers(9, 5), numbers(9), 1, (0.0, 6.0)),
    Layer(FILTER, numbers(9, 1, 3, 3), numbers(9)),
    Layer(PRODUCT, numbers(5, 9), numbers(5), added=4),
    Layer(PRODUCT, numbers(12, 5), numbers(12), 1, (0.0, 6.0)),
]
"""Every kind of layer, clipped and not, with another added and not, as MobileNetV2 has them."""


class InTorch:
    """The same network, photo by photo."""

    def __init__(self, spec: BackboneSpec) -> None:
        self.spec = spec

    def features(self, photo: Photo) -> FloatArray:
        made: FloatArray = in_torch(LAYERS, self.spec, torch.tensor(photo), torch.float16).numpy()
        return made


def across_then_down(photo: Photo, height: int, width: int) -> Photo:
    """Resize by Pillow, one direction after the other: which of them it takes first depends on its release."""
    return resized(resized(photo, photo.shape[0], width), height, width)


def job(photo: Photo, scales: list[tuple[int, int]], seen: tuple[int, int], network: Network) -> Job:
    maps = [tuple(network.levels(np.array([one]))[-1][0].tolist()) for one in scales]
    grid = region_grid(*maps[0])
    boxes = tuple(rescale_boxes(grid, maps[0], own) for own in maps)
    return Job(torch.tensor(photo).reshape(-1, 3), (photo.shape[0], photo.shape[1]), (seen, *scales), boxes)


def compare(order: str, pooling: str, p: float) -> None:
    """Photos of several sizes together give what each gives alone, by Pillow, torch and NumPy."""
    spec = BackboneSpec("small", 12, 4, (120.0, 110.0, 100.0), (60.0, 55.0, 50.0), order, long_side=64)
    backbone = InTorch(spec)
    network = Network(LAYERS, spec, torch.device("cpu"))
    solver = BatchExtractor(network, RegionExtractor(backbone, pooling=pooling, p=p))
    coarse = [RNG.integers(0, 256, (*size, 3)).astype(np.uint8) for size in ((4, 5), (6, 3))]
    photos = [resized(one, *size) for one, size in zip(coarse, ((23, 31), (40, 18)), strict=True)]
    scales = [[(19, 27), (11, 13)], [(44, 20), (19, 9)]]
    seen = [(19, 27), (44, 20)]
    jobs = [job(*given, network) for given in zip(photos, scales, seen, strict=True)]
    made = solver.extract_batch(jobs, whitened=False)[0].numpy()
    truth = []
    for photo, sizes, first, one in zip(photos, scales, seen, jobs, strict=True):
        whole = across_then_down(photo, *first)
        pictures = [across_then_down(whole, *size) for size in sizes]
        maps = [backbone.features(picture) for picture in pictures]
        vectors = [unit_rows(pool(each, boxes, pooling, p=p)) for each, boxes in zip(maps, one.boxes, strict=True)]
        truth.append(unit_rows(np.sum(vectors, axis=0)))
    np.testing.assert_allclose(made, np.concatenate(truth), atol=2e-3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    compare("rgb", "gem", 3.0)
    compare("bgr", "gem", 2.5)
    compare("rgb", "mac", 3.0)
    compare("rgb", "spoc", 3.0)
