"""Photo -> regions on a GPU: resizing, the network at every scale, pooling and whitening, for many photos at once."""

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch

from manifind.errors import InvalidInputError
from manifind.features.backbone import OnnxBackbone, Photo, available_cores, check_photo
from manifind.features.cuda.batches import Batches
from manifind.features.cuda.images import Pictures, Sizes, Starts, stack_layouts, to_device
from manifind.features.cuda.layers import read_layers
from manifind.features.cuda.network import Maps, Network
from manifind.features.extractor import RegionExtractor, Regions
from manifind.features.grid import region_grid, rescale_boxes, to_pixels
from manifind.features.whitening import Whitening
from manifind.types import FloatArray, IntArray, Tensor

PIXELS, ROOMY = 2**24, 2**35
"""Pixels, at all scales together, seen at once, and the bytes of memory from which a device sees twice as many.
Starting kernels is work for the processor, which takes as long for many photos as for few."""
STREAMS = 2
"""Batches that are on their way at once: while one is seen, the next goes to the device."""
BLOCK = 256
"""Pixels that a program resizes."""
CELLS, CHANNELS = 8, 128
"""Cells and channels that a program pools together."""
POOLINGS = ("gem", "mac", "spoc")

ExtractLocal = Callable[[Tensor, Sizes], Sequence[Any]]
"""Takes the pixels of photos on the device, (rows, 3), and their sizes, and returns what it makes of each photo."""
Answer = tuple[FloatArray, Any]
"""The vectors of a photo's regions, and what was made of the photo beside."""


class Job(NamedTuple):
    """A photo whose regions are to be extracted."""

    pixels: Tensor
    """(height · width, 3) uint8, where the copy engine reaches it."""
    size: tuple[int, int]
    seen: tuple[tuple[int, int], ...]
    """The size at which the network sees it, then its size at each scale."""
    boxes: tuple[IntArray, ...]
    """On the map of each scale, in cells."""

    @property
    def area(self) -> int:
        """Pixels that the network sees."""
        return sum(height * width for height, width in self.seen[1:])


class CudaExtractor(RegionExtractor):
    """Extracts regions on a GPU, for several threads at once.

    Its regions equal those of the original extractor but for rounding, and it has the same fingerprint.
    """

    uses_device = True
    _batch_extractor: "BatchExtractor"

    @classmethod
    def of(
        cls, extractor: RegionExtractor, device: str = "cuda", extract_local: ExtractLocal | None = None
    ) -> "CudaExtractor":
        """Return the same extractor on a GPU; raise `InvalidInputError` where the GPU lacks a part of it."""
        backbone = extractor.backbone
        if not isinstance(backbone, OnnxBackbone):
            raise InvalidInputError(f"backbone {backbone.spec.name} is not in an ONNX file")
        if extractor.pooling not in POOLINGS:
            raise InvalidInputError(f"pooling {extractor.pooling} is none of {', '.join(POOLINGS)}")
        try:
            layers = read_layers(backbone.path, backbone.spec.output)
        except InvalidInputError as error:
            raise InvalidInputError(f"of backbone {backbone.spec.name}, {error}") from error
        placed = cls(backbone, extractor.whitening, **extractor.settings)
        placed.extract_local = extract_local
        placed._batch_extractor = BatchExtractor(Network(layers, backbone.spec, torch.device(device)), placed)
        return placed

    def with_whitening(self, whitening: Whitening | None) -> "CudaExtractor":
        """Return an extractor that differs from this one in its whitening alone."""
        placed = CudaExtractor(self.backbone, whitening, **self.settings)
        placed.extract_local = self.extract_local
        placed._batch_extractor = BatchExtractor(self._batch_extractor.network, placed)
        return placed

    def for_threads(self) -> tuple[RegionExtractor, int]:
        """Return this extractor, and for how many threads: those that decode, and those that wait for the GPU."""
        return self, 3 * available_cores() + 16

    def close(self) -> None:
        """Give back what is held on the device; the extractor cannot be used afterwards."""
        self._batch_extractor.close()

    def extract(self, photo: Photo, *, scale: float | None = None) -> Regions:
        """Extract the regions of one upright RGB photo, (h, w, 3) uint8."""
        return self.begin(photo, scale=scale)()

    def begin(self, photo: Photo, *, scale: float | None = None) -> Callable[[], Regions]:
        """Begin the extraction of a photo; return a function that waits for its regions."""
        job, boxes = self._job(check_photo(photo), scale)
        wait = self._batch_extractor.begin(job, whitened=True)

        def regions() -> Regions:
            vectors, local = wait()
            return Regions(vectors, boxes, local)

        return regions

    def extract_unwhitened(self, photo: Photo) -> FloatArray:
        """Return the (r, C) unit vectors of a photo's regions before whitening."""
        return self._batch_extractor.begin(self._job(check_photo(photo), None)[0], whitened=False)()[0]

    def _job(self, photo: Photo, scale: float | None) -> tuple[Job, FloatArray]:
        """Return what there is to do for a photo, and its regions in pixels."""
        size = photo.shape[0], photo.shape[1]
        height, width = self.seen_size(*size, scale=scale)
        scaled = tuple((self._side(height * scale), self._side(width * scale)) for scale in self.scales)
        network = self._batch_extractor.network
        maps = [tuple(network.levels(np.array([one]))[-1][0].tolist()) for one in scaled]
        cells = _grid(*maps[0], self.grid_levels, self.overlap)
        boxes = tuple(rescale_boxes(cells, maps[0], own) for own in maps)
        pixels = _reachable(photo, self._batch_extractor.network.device)
        return Job(pixels, size, ((height, width), *scaled), boxes), to_pixels(cells, maps[0], size)


class BatchExtractor:
    """Extracts the regions of batches of photos on one device."""

    def __init__(self, network: Network, extractor: RegionExtractor) -> None:
        self.network, self.spec = network, extractor.backbone.spec
        self.pooling, self.p, self.extract_local = extractor.pooling, extractor.p, extractor.extract_local
        self.whitening: tuple[Tensor, Tensor] | None = None
        if extractor.whitening is not None:
            mean, project = extractor.whitening.mean, extractor.whitening.project
            self.whitening = torch.from_numpy(mean).to(network.device), torch.from_numpy(project).to(network.device)
        self._batches = {
            whitened: Batches[Job, Answer](
                partial(self._extract_or_split, whitened=whitened),
                attrgetter("area"),
                largest=_at_once(network.device),
                threads=STREAMS,
            )
            for whitened in (True, False)
        }
        self._of_thread = threading.local()

    def begin(self, job: Job, *, whitened: bool) -> Callable[[], Answer]:
        """Let a photo wait for its turn, and return what waits for the answer.

        Without whitening, no local features are extracted.
        """
        future = self._batches[whitened].submit(job)

        def wait() -> Answer:
            vectors, local = future.result()
            if not np.isfinite(vectors).all():
                raise InvalidInputError(
                    f"backbone {self.spec.name} gave NaN or infinite responses; check the scaling of its input."
                )
            return vectors, local

        return wait

    def close(self) -> None:
        """End the threads, and give back memory that is free on the device."""
        for batches in self._batches.values():
            batches.close()
        if self.network.device.type != "cpu":
            torch.cuda.empty_cache()

    def _extract_or_split(self, jobs: Sequence[Job], *, whitened: bool) -> list[Answer]:
        try:
            with torch.inference_mode(), self._stream():
                made, local = self.extract_batch(jobs, whitened=whitened)
                vectors = made.cpu().numpy()
        except torch.cuda.OutOfMemoryError:
            if len(jobs) == 1:
                raise
            half = len(jobs) // 2
            halves = jobs[:half], jobs[half:]
            return [answer for part in halves for answer in self._extract_or_split(part, whitened=whitened)]
        ends = np.cumsum([len(job.boxes[0]) for job in jobs])
        parts = [vectors[end - len(job.boxes[0]) : end].copy() for job, end in zip(jobs, ends, strict=True)]
        return list(zip(parts, local, strict=True))

    def _stream(self) -> Any:
        """Return what puts the work of this thread beside that of others."""
        device = self.network.device
        if device.type == "cpu":
            return nullcontext()
        if not hasattr(self._of_thread, "stream"):
            self._of_thread.stream = torch.cuda.Stream(device)
        return torch.cuda.stream(self._of_thread.stream)

    def extract_batch(self, jobs: Sequence[Job], *, whitened: bool) -> tuple[Tensor, Sequence[Any]]:
        """Return the descriptors of the regions of all photos, on the device, and what is made of each photo beside."""
        given = torch.empty((sum(len(job.pixels) for job in jobs), 3), dtype=torch.uint8, device=self.network.device)
        for part, job in zip(given.split([len(job.pixels) for job in jobs]), jobs, strict=True):
            part.copy_(job.pixels, non_blocking=True)
        vectors = self.vectors(jobs, given, whitened=whitened)
        if self.extract_local is None or not whitened:
            return vectors, [None] * len(jobs)
        return vectors, self.extract_local(given, np.array([job.size for job in jobs]))

    def vectors(self, jobs: Sequence[Job], given: Tensor, *, whitened: bool) -> Tensor:
        """Return the descriptors of the regions of all photos, one photo after the other, on the device."""
        pixels, seen = self._resize_photos(jobs, given)
        levels = stack_layouts(*self._levels(seen), self.network.device)
        maps = self.network.run(pixels, levels)
        scales = len(jobs[0].boxes)
        pooled = self._pooled(maps, levels[-1], [job.boxes[scale] for scale in range(scales) for job in jobs])
        units = _unit(pooled).view(scales, -1, pooled.shape[1])
        vectors = units[0] if scales == 1 else _unit(units.sum(dim=0))
        if not whitened or self.whitening is None:
            return vectors
        mean, project = self.whitening
        return _unit((vectors - mean) @ project)

    def _resize_photos(self, jobs: Sequence[Job], given: Tensor) -> tuple[Tensor, "NetworkInput"]:
        """Resize photos to what the network sees of them, all scales of the first size first; and say where it lies."""
        from manifind.features.cuda import cells

        device = self.network.device
        sizes = np.array([[job.size, *job.seen] for job in jobs]).transpose(1, 0, 2)
        steps = [(0, 1)]  # from which of `sizes` to which
        steps += [(1, scale) for scale in range(2, len(sizes)) if (sizes[scale] != sizes[1]).any()]
        begins = np.cumsum([0, *(int(sizes[to].prod(axis=1).sum()) for _, to in steps)]).tolist()
        layouts: list[Sizes] = [sizes[0]]
        firsts: list[Starts | int] = [0]
        for (start, end), begin in zip(steps, begins, strict=False):
            layouts += [np.column_stack([sizes[start][:, 0], sizes[end][:, 1]]), sizes[end]]
            firsts += [0, begin]
        source, *made = stack_layouts(layouts, firsts, device)
        pixels = torch.empty((begins[-1], 3), dtype=torch.uint8, device=device)
        where: dict[int, Pictures] = {}

        def resample(one: Tensor, own: Pictures, other: Tensor, target: Pictures, *, down: bool) -> None:
            cells.resample[(-(-target.rows // BLOCK),)](
                one, other, target.of, own.table, target.table, target.rows, int(target.starts[0]),
                DOWN=down, BLOCK=BLOCK, num_warps=4,
            )  # fmt: skip

        for (start, end), across, down in zip(steps, made[::2], made[1::2], strict=True):
            between = torch.empty((across.rows, 3), dtype=torch.uint8, device=device)
            resample(given if start == 0 else pixels, where.get(start, source), between, across, down=False)
            resample(between, across, pixels, down, down=True)
            where[end] = down
        scales = [where.get(scale, where[1]) for scale in range(2, len(sizes))]
        return pixels, NetworkInput(
            np.concatenate([one.sizes for one in scales]), np.concatenate([one.starts for one in scales])
        )

    def _levels(self, seen: "NetworkInput") -> tuple[list[Sizes], list[Starts | int]]:
        sizes = self.network.levels(seen.sizes)
        return sizes, [seen.starts, *([0] * (len(sizes) - 1))]

    def _pooled(self, maps: Maps, pictures: Pictures, boxes: Sequence[IntArray]) -> Tensor:
        """Return the vectors of boxes on each map, (boxes, channels) float32."""
        from manifind.features.cuda import cells

        table = np.zeros((sum(map(len, boxes)), 8), np.int32)
        counts = [len(own) for own in boxes]
        table[:, 0] = np.repeat(pictures.starts, counts)
        table[:, 1] = np.repeat(pictures.sizes[:, 1], counts)
        table[:, 2:6] = np.concatenate(boxes)
        channels = maps.cells.shape[1]
        device = maps.cells.device
        pooled = torch.empty((len(table), channels), device=device)
        p = self.p if self.pooling == "gem" else 1.0
        cells.pool[(len(table), -(-channels // CHANNELS))](
            maps.cells, pooled, to_device(torch.from_numpy(table), device), *maps.clip, p, channels,
            MOST=self.pooling == "mac", POSITIVE=self.pooling == "gem", CUBE=self.pooling == "gem" and p == 3,
            BLOCK=CELLS, WIDE=CHANNELS, num_warps=4,
        )  # fmt: skip
        return pooled.pow_(1 / p) if p != 1 else pooled


class NetworkInput(NamedTuple):
    """What the network sees: the pictures of the first scale, then those of the next."""

    sizes: Sizes
    starts: Starts


def _at_once(device: Any) -> int:
    """Return how many pixels a device sees at once."""
    roomy = device.type != "cpu" and torch.cuda.get_device_properties(device).total_memory >= ROOMY
    return 2 * PIXELS if roomy else PIXELS


def _unit(vectors: Tensor) -> Tensor:
    """Return the rows at unit norm; one of zeros gets all entries equal."""
    norms = vectors.norm(dim=1, keepdim=True)
    silent = norms == 0
    return torch.where(silent, vectors.shape[1] ** -0.5, vectors / torch.where(silent, 1.0, norms))


def _reachable(photo: Photo, device: Any) -> Tensor:
    """Return the pixels, (height · width, 3), where the copy engine reaches them."""
    pixels = torch.empty((photo.shape[0] * photo.shape[1], 3), dtype=torch.uint8, pin_memory=device.type != "cpu")
    pixels.numpy()[...] = photo.reshape(-1, 3)
    return pixels


@lru_cache(maxsize=1024)
def _grid(height: int, width: int, grid_levels: int, overlap: float) -> IntArray:
    return region_grid(height, width, levels=grid_levels, overlap=overlap)
