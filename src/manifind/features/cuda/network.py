"""A chain of layers, run on pictures of any sizes together by kernels on a GPU.

What a layer gives is rounded to half precision. The filters of single channels stay in float32, weights and
sums: they cancel out on even areas, and rounding would be all that is left there.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from manifind.features.backbone import BackboneSpec
from manifind.features.cuda.images import Pictures, Sizes, few_lengths, half_sizes
from manifind.features.cuda.layers import FILTER, FIRST, PRODUCT, Layer
from manifind.types import Tensor

INFINITE = (-np.inf, np.inf)
ROUNDED = torch.float16
"""What layers give is rounded to this."""
CELLS, CHANNELS = 64, 32
"""Cells and channels of a program that filters."""
CELLS_OF_FIRST = 64


class Maps(NamedTuple):
    """What a network made of pictures."""

    cells: Tensor
    """(rows and more, channels), not yet clipped."""
    clip: tuple[float, float]
    """What they are still to be clipped to."""


class Network:
    """Layers with their numbers on a device.

    Parameters
    ----------
    layers : sequence of Layer
    spec : BackboneSpec
        How the network wants its input scaled.
    device : torch.device
    """

    def __init__(self, layers: Sequence[Layer], spec: BackboneSpec, device: Any) -> None:
        self.layers, self.device = list(layers), device
        mean, std = (np.array(values)[:: 1 if spec.colour_order == "rgb" else -1] for values in (spec.mean, spec.std))
        self.scaling = torch.tensor([*mean, *(1 / std)], dtype=torch.float32, device=device)
        self._weights = [self._on_device(layer, spec) for layer in layers]
        added = {layer.added for layer in layers}
        self._lazily = [
            number not in added and (number == len(layers) - 1 or layers[number + 1].kind == FILTER)
            for number in range(len(layers))
        ]
        """Whether the reader of a layer's output clips it."""
        self._kept = [number in added for number in range(len(layers))]

    def _on_device(self, layer: Layer, spec: BackboneSpec) -> tuple[Tensor, Tensor]:
        weight, bias = torch.from_numpy(layer.weight), torch.from_numpy(layer.bias)
        if layer.kind == PRODUCT:
            return weight.T.contiguous().to(self.device, ROUNDED), bias.to(self.device, ROUNDED)
        if layer.kind == FIRST and spec.colour_order == "bgr":
            weight = weight.flip(1)
        # The place and the colour first, the channel last.
        return weight.permute(2, 3, 1, 0).contiguous().to(self.device), bias.to(self.device)

    def levels(self, sizes: Sizes) -> list[Sizes]:
        """Return the sizes of pictures before the first layer, and after every one that makes them smaller."""
        levels = [sizes]
        for layer in self.layers:
            if layer.stride > 1:
                levels.append(half_sizes(levels[-1], layer.stride))
        return levels

    def run(self, pixels: Tensor, levels: Sequence[Pictures]) -> Maps:
        """Return the maps of pictures of uint8 pixels (rows, 3); `levels` are laid out as `levels` says."""
        from manifind.features.cuda import cells

        given: list[Tensor] = []
        values, clip, level = pixels, INFINITE, 0
        for number, (layer, (weight, bias)) in enumerate(zip(self.layers, self._weights, strict=True)):
            before = levels[level]
            level += layer.stride > 1
            after = levels[level]
            layer_clip = layer.clip or INFINITE
            if layer.kind == PRODUCT:
                values = torch.addmm(bias, values, weight)
                if layer.added is not None:
                    values += given[layer.added]
                clip = layer_clip
                if layer.clip and not self._lazily[number]:
                    values, clip = values.clamp_(*layer_clip), INFINITE
            else:
                rows, channels = after.rows, len(layer.weight)
                # What is beyond the last row means nothing, and is never read back.
                out = torch.empty((few_lengths(rows), channels), dtype=ROUNDED, device=values.device)
                if layer.kind == FIRST:
                    cells.first[(-(-rows // CELLS_OF_FIRST),)](
                        values, out, after.of, after.table, before.table, weight, bias, self.scaling, *layer_clip, rows,
                        CHANNELS=channels, WIDE=1 << (channels - 1).bit_length(), STRIDE=layer.stride,
                        BLOCK=CELLS_OF_FIRST, num_warps=4,
                    )  # fmt: skip
                else:
                    cells.depthwise[(-(-rows // CELLS), -(-channels // CHANNELS))](
                        values, out, after.of, after.table, before.table, weight, bias, *clip, *layer_clip, rows,
                        channels, STRIDE=layer.stride, BLOCK=CELLS, WIDE=CHANNELS, num_warps=4,
                    )  # fmt: skip
                values, clip = out, INFINITE
            given.append(values if self._kept[number] else None)
        return Maps(values, clip)
