"""A chain of layers by torch's own convolutions, on the processor: what the network on a GPU is compared with."""

from collections.abc import Sequence
from typing import Any

import torch

from manifind.features.backbone import BackboneSpec
from manifind.features.cuda.layers import FILTER, PRODUCT, Layer
from manifind.features.cuda.network import INFINITE
from manifind.types import Tensor


def in_torch(layers: Sequence[Layer], spec: BackboneSpec, photo: Tensor, kind: Any = torch.float32) -> Tensor:
    """Return the map (channels, height, width) of one photo (height, width, 3) by torch's own convolutions.

    Products and what layers give are rounded to `kind`, as `manifind.features.cuda.network.Network` rounds them.
    """
    convolve = torch.nn.functional.conv2d
    colours = photo.flip(2) if spec.colour_order == "bgr" else photo
    made = ((colours.float() - torch.tensor(spec.mean)) / torch.tensor(spec.std)).permute(2, 0, 1)[None]
    given: list[Tensor] = []
    for layer in layers:
        weight, bias = torch.from_numpy(layer.weight), torch.from_numpy(layer.bias)
        if layer.kind == PRODUCT:
            weight, bias = weight[:, :, None, None].to(kind).float(), bias.to(kind).float()
        groups = len(weight) if layer.kind == FILTER else 1
        made = convolve(made, weight, bias, layer.stride, padding=int(layer.kind != PRODUCT), groups=groups)
        if layer.added is not None:
            made = made.to(kind).float() + given[layer.added]
        made = made.clamp(*(layer.clip or INFINITE)).to(kind).float()
        given.append(made)
    return made[0]
