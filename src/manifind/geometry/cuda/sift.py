"""RootSIFT of many photos at once on a GPU: the features of the processor (`geometry.sift`) but for rounding."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from manifind.geometry import sift
from manifind.geometry.cuda.octaves import LAYERS, SCALES, Octaves, Sizes, blurs
from manifind.geometry.extraction import GRID, KINDS, resized_size
from manifind.geometry.packing import (
    DESCRIPTOR_BYTES,
    FEATURE_BYTES,
    GEOMETRY_BYTES,
    OCTAVES,
    QUANTIZATION_LEVELS,
    STEPS_PER_OCTAVE,
    Packed,
)
from manifind.geometry.sift import DIMENSION
from manifind.kernels import CONTRAST
from manifind.kernels.cuda.transfer import to_device, to_host
from manifind.types import Tensor

KIND = "sift"
PIXELS = 2**25
"""Pixels of the first scale, of all photos together, that are worked on at once."""
BLOCK, CANDIDATES = 1024, 128
"""Pixels and possible points that a program works on together."""
ORIENTATION_LAUNCH, DESCRIPTOR_LAUNCH = (128, 4), (64, 2)
"""Pixels around a point that a program works on together, and the warps of the program, where it finds out how the
point gets its orientation and where it gets its descriptor."""
BINS = 36
MIN_PEAK_RATIO = 0.8
"""A turn counts if it has so much of the strongest."""
MAX_COMPONENT = 0.2
"""The largest part of a descriptor's length that one of its numbers may be."""


class Found(NamedTuple):
    """The features of photos on the device, one photo after the other, the strongest of each first."""

    of: Tensor
    """(m,): the photo of each."""
    points: Tensor
    """(m, 2): x and y in pixels of the photo."""
    scales: Tensor
    angles: Tensor
    descriptors: Tensor
    """(m, 128), unit rows."""


class Finder:
    """Finds the features of photos that are on a device.

    Parameters
    ----------
    most : int
        Features of a photo at most.
    long_side, max_enlargement
        As for `extract`.
    """

    kind = KIND

    def __init__(self, most: int, long_side: int | None = None, max_enlargement: float = 1.0) -> None:
        self.most = most
        self.long_side = long_side or KINDS[KIND].long_side
        self.max_enlargement = max_enlargement

    def __call__(self, pixels: Tensor, sizes: Sizes) -> list[Packed]:
        """Return the features of photos as an index keeps them.

        Parameters
        ----------
        pixels : (rows, 3) uint8 tensor
            The pixels of all photos, one photo after the other.
        sizes : (photos, 2) array
            The height and the width of each.
        """
        # Packed features have no size of their own: those of an enlarged photo are those of the photo.
        pixels, sizes = enlarge(pixels, sizes, self.long_side, self.max_enlargement)
        ends = np.cumsum([0, *sizes.prod(axis=1)]).tolist()
        features: list[Packed] = []
        for first, last in _runs(detection_sizes(sizes, self.long_side)[1].prod(axis=1).tolist()):
            run_sizes = sizes[first:last]
            found = self.find(pixels[ends[first] : ends[last]], run_sizes)
            in_pixels = to_device(np.ascontiguousarray(run_sizes[:, ::-1]), pixels.device, dtype=np.float64)
            rows = to_host(pack_features(*found[1:], in_pixels[found.of], KIND))
            counts = to_host(torch.bincount(found.of, minlength=len(run_sizes)))
            features += [part.copy() for part in np.split(rows, np.cumsum(counts)[:-1])]
        return features

    def find(self, pixels: Tensor, sizes: Sizes) -> Found:
        """Return the features of photos, which are as for a call."""
        pixels, device = pixels.contiguous(), pixels.device
        small, first = detection_sizes(sizes, self.long_side)
        octaves = Octaves(first, (small != first).any(axis=1))
        if not octaves.sizes:
            return _nothing(device)
        scales, masks = _pyramid(pixels, sizes, small, octaves)
        positions = masks.nonzero()[:, 0]
        if not len(positions):
            return _nothing(device)
        of, points, places = _refine_extrema(scales, positions, octaves)
        by = to_device(small[:, ::-1] / sizes[:, ::-1], device, dtype=np.float32)
        at = points[:, :2] / by[of]
        in_pixels = to_device(np.ascontiguousarray(sizes[:, ::-1]), device, dtype=np.float64)
        cell = (at / in_pixels[of] * GRID).clamp(0, GRID - 1).long()
        chosen = spread(of, cell[:, 0] * GRID + cell[:, 1], points[:, 3], len(sizes), self.most, GRID**2)
        features, angles = _assign_orientations(scales, chosen, points, places)
        descriptors = _descriptors(scales, features, angles, points, places)
        own = of[features]
        return Found(own, at[features], points[features, 2] / by.mean(dim=1)[own], angles, descriptors)


def enlarge(pixels: Tensor, sizes: Sizes, long_side: int, max_enlargement: float) -> tuple[Tensor, Sizes]:
    """Return the pixels (rows, 3) and sizes of photos, the smaller ones enlarged as `extract` enlarges them."""
    larger = np.array(
        [
            resized_size(width, height, max(long_side, width, height), max_enlargement)[::-1]
            for height, width in sizes.tolist()
        ]
    )
    if (larger == sizes).all():
        return pixels, sizes
    photos = list(pixels.split(sizes.prod(axis=1).tolist()))
    for number in np.flatnonzero((larger != sizes).any(axis=1)).tolist():
        planes = photos[number].view(*sizes[number].tolist(), 3).permute(2, 0, 1)[None].float()
        # Anti-aliasing also selects Pillow's cubic kernel.
        planes = torch.nn.functional.interpolate(planes, larger[number].tolist(), mode="bicubic", antialias=True)
        photos[number] = planes[0].round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).reshape(-1, 3)
    return torch.cat(photos), larger


def detection_sizes(sizes: Sizes, long_side: int = KINDS[KIND].long_side) -> tuple[Sizes, Sizes]:
    """Return the sizes to which photos are reduced, and those of detection: small photos are doubled."""
    small = np.array([resized_size(width, height, long_side)[::-1] for height, width in sizes.tolist()])
    return small, np.where(small.prod(axis=1, keepdims=True) <= sift.MAX_DOUBLED_PIXELS, 2 * small - 1, small)


def _runs(areas: Sequence[int]) -> list[tuple[int, int]]:
    """Return where runs of photos that are worked on at once begin and end."""
    runs, first, room = [], 0, PIXELS
    for number, area in enumerate(areas):
        if area > room and number > first:
            runs.append((first, number))
            first, room = number, PIXELS
        room -= area
    return [*runs, (first, len(areas))]


def _nothing(device: Any) -> Found:
    none = torch.empty(0, device=device)
    return Found(none.long(), none.view(0, 2), none, none, none.view(0, DIMENSION))


def _pyramid(pixels: Tensor, sizes: Sizes, small: Sizes, octaves: Octaves) -> tuple[Tensor, Tensor]:
    """Return all scales of all octaves, and a mask of the extrema at all layers of all octaves."""
    from manifind.geometry.cuda import points, pyramid

    device = pixels.device
    tables = to_device(octaves.tables, device)
    sources, greys = (to_device(_table(own), device) for own in (sizes, small))
    radii, weights = blurs()
    weights = to_device(weights, device)
    total = octaves.begins[-1]
    scales = torch.empty(SCALES * total, device=device)
    masks = torch.zeros(LAYERS * total, dtype=torch.uint8, device=device)
    between = torch.empty(max(octaves.rows), device=device)
    last = between

    def programs(own: Sizes) -> tuple[int, int]:
        return -(-int(own.prod(axis=1).max()) // BLOCK), len(own)

    def blur(source: Tensor, target: Tensor, octave: int, number: int) -> None:
        grid = programs(octaves.sizes[octave])
        for one, other, down in ((source, between, True), (between, target, False)):
            pyramid.blur[grid](
                one, other, tables[octave], weights[number], RADIUS=radii[number], DOWN=down, BLOCK=BLOCK, num_warps=4
            )

    grey = torch.empty(int(small.prod(axis=1).sum()), dtype=torch.uint8, device=device)
    # Pillow rounds after every step, and so must this: a step more or less decides what a pixel covers.
    pyramid.shrink_to_grey[programs(small)](
        pixels, grey, sources, greys, BLOCK=BLOCK, num_warps=4, enable_fp_fusion=False
    )
    for octave, (own, rows, begin) in enumerate(zip(octaves.sizes, octaves.rows, octaves.begins, strict=False)):
        held = scales[SCALES * begin :]
        layers = [held[number * rows : (number + 1) * rows] for number in range(SCALES)]
        if octave:
            pyramid.halved[programs(own)](last, layers[0], tables[octave - 1], tables[octave], BLOCK=BLOCK, num_warps=4)
        else:
            # The second scale is not made yet: there is room in it.
            pyramid.write_base[programs(own)](grey, layers[1], greys, tables[0], BLOCK=BLOCK, num_warps=4)
            blur(layers[1], layers[0], 0, 0)
        for number in range(1, SCALES):
            blur(layers[number - 1], layers[number], octave, number)
        points.extrema[programs(own)](
            held, masks[LAYERS * begin :], tables[octave], rows, CONTRAST / LAYERS / 2, BLOCK=BLOCK, num_warps=4
        )
        last = layers[LAYERS]
    return scales, masks


def _refine_extrema(scales: Tensor, positions: Tensor, octaves: Octaves) -> tuple[Tensor, Tensor, Tensor]:
    """Return the photo of each extremum, and its point and its place (`points.refine`)."""
    from manifind.geometry.cuda import points

    device = scales.device
    segments = to_device(octaves.segments, device)
    segment_of = torch.searchsorted(segments[:, 0].contiguous(), positions, right=True) - 1
    steps = to_device(np.where(octaves.doubled, 0.5, 1.0), device, dtype=np.float32)
    found = torch.empty((len(positions), 8), device=device)
    places = torch.empty((len(positions), 4), dtype=torch.int32, device=device)
    points.refine[(-(-len(positions) // CANDIDATES),)](
        scales, positions, segment_of, segments, steps, found, places, len(positions), CONTRAST / LAYERS,
        BLOCK=CANDIDATES, num_warps=4,
    )  # fmt: skip
    return segments[segment_of, 7].long(), found, places


def _assign_orientations(scales: Tensor, chosen: Tensor, points: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Return the point of each feature and how it is turned: a point may be turned in several ways.

    The features of a picture are at most as many as points may be chosen of it.
    """
    from manifind.geometry.cuda import surroundings

    bins = torch.empty((chosen.numel(), BINS), device=scales.device)
    surroundings.directions[(chosen.numel(),)](
        scales,
        chosen.view(-1),
        points,
        places,
        bins,
        BLOCK=ORIENTATION_LAUNCH[0],
        WIDE=64,
        num_warps=ORIENTATION_LAUNCH[1],
    )
    angles = peaks(bins)
    there = (angles >= 0).view(len(chosen), -1)
    there &= there.cumsum(dim=1) <= chosen.shape[1]
    at = there.view(-1).nonzero()[:, 0]
    return chosen.view(-1)[at // BINS], angles.view(-1)[at]


def peaks(bins: Tensor) -> Tensor:
    """Return the angle of each bin that is a peak of its histogram of directions, (m, 36); −1 for the others."""

    def neighbour_bin(histogram: Tensor, by: int) -> Tensor:
        return histogram.roll(by, dims=1)

    smooth = (
        (neighbour_bin(bins, 2) + neighbour_bin(bins, -2)) / 16
        + (neighbour_bin(bins, 1) + neighbour_bin(bins, -1)) / 4
        + bins * (6 / 16)
    )
    left, right = neighbour_bin(smooth, 1), neighbour_bin(smooth, -1)
    peak = (smooth > left) & (smooth >= right) & (smooth >= MIN_PEAK_RATIO * smooth.amax(dim=1, keepdim=True))
    between = 0.5 * (left - right) / torch.where(peak, left - 2 * smooth + right, 1.0)
    angle = (torch.arange(BINS, device=bins.device) + between + BINS) % BINS * (2 * np.pi / BINS)
    return torch.where(peak, angle, -1.0)


def _descriptors(scales: Tensor, of: Tensor, angles: Tensor, points: Tensor, places: Tensor) -> Tensor:
    """Return the descriptors of features: the roots of histograms in which no number is too large."""
    from manifind.geometry.cuda import surroundings

    made = torch.empty((len(of), DIMENSION), device=scales.device)
    if not len(of):
        return made
    surroundings.histograms[(len(of),)](
        scales, of, angles, points, places, made, BLOCK=DESCRIPTOR_LAUNCH[0], WIDE=16, num_warps=DESCRIPTOR_LAUNCH[1]
    )
    made = torch.minimum(made, MAX_COMPONENT * made.norm(dim=1, keepdim=True))
    return (made / made.sum(dim=1, keepdim=True).clamp_min(1e-20)).sqrt()


def _table(sizes: Sizes) -> npt.NDArray[np.int32]:
    """Return where pictures start that follow each other, and their sizes."""
    areas = sizes.prod(axis=1)
    return np.column_stack([np.cumsum(areas) - areas, sizes, 0 * areas]).astype(np.int32)


def pack_features(
    points: Tensor, scales: Tensor, angles: Tensor, descriptors: Tensor, sizes: Tensor, kind: str
) -> Tensor:
    """Return features as bytes, (m, 38) uint8; `sizes` is the width and the height of each one's photo, float64."""
    rows = torch.empty((len(points), FEATURE_BYTES), dtype=torch.uint8, device=points.device)
    places = (points.double() / sizes * 65535).round().clamp(0, 65535).int()
    rows[:, 0:4:2], rows[:, 1:4:2] = places % 256, places // 256
    octaves = (scales / sizes.amax(dim=1)).log2() + OCTAVES
    rows[:, 4] = (octaves * STEPS_PER_OCTAVE).round().clamp(0, 255)
    rows[:, 5] = (angles * (256 / (2 * np.pi))).round().long() % 256
    levels = torch.tensor(QUANTIZATION_LEVELS[kind], device=points.device)
    edges = (levels[1:] + levels[:-1]) / 2
    of_level = torch.bucketize(descriptors, edges).view(len(points), DESCRIPTOR_BYTES, -1)
    bits = (len(levels) - 1).bit_length()
    weights = 1 << torch.arange(0, 8, bits, device=points.device)
    rows[:, GEOMETRY_BYTES:] = (of_level * weights).sum(dim=2)
    return rows


def spread(of: Tensor, cell: Tensor, strengths: Tensor, pictures: int, most: int, cells: int) -> Tensor:
    """Return (pictures, most) places of points; −1 where a picture has no more.

    They begin with the strongest of each cell, then comes the second of each, and so on. A point whose strength is not
    above zero is none.

    Parameters
    ----------
    of : (m,) tensor
        The picture of each point.
    cell : (m,) tensor
        The cell that each point lies in.
    strengths : (m,) tensor
    pictures, most, cells : int
        How many pictures there are, how many points of each are taken, and how many cells a picture has.
    """
    device = of.device
    numbers = torch.arange(len(of), device=device)
    # What is no point belongs to a picture after the last.
    of = torch.where(strengths > 0, of.long(), pictures)
    order = torch.sort(-strengths, stable=True).indices
    order = order[torch.sort(of[order], stable=True).indices]
    of, cell = of[order], cell[order].long()
    turn = _places(of * cells + cell, (pictures + 1) * cells, numbers)
    rank = _places(of, pictures + 1, numbers, after=turn)
    taken = (rank < most) & (of < pictures)
    slots = torch.full((pictures * most + 1,), -1, dtype=torch.int64, device=device)
    slots[torch.where(taken, of * most + rank, pictures * most)] = order
    return slots[:-1].view(pictures, most)


def _places(groups: Tensor, count: int, numbers: Tensor, after: Tensor = None) -> Tensor:
    """Return the place of each in its group: in the order given, or those first for which `after` is less."""
    key = groups if after is None else groups * (len(groups) + 1) + after
    first = torch.sort(key, stable=True).indices
    ordered = groups[first]
    starts = torch.searchsorted(ordered, torch.arange(count, device=groups.device))
    places = torch.empty_like(numbers)
    places[first] = numbers - starts[ordered]
    return places
