"""A network of convolutions as a chain of layers, read from its ONNX file.

Three kinds of convolution are known, of which MobileNetV2 and its likes are made: a first one over all colours, 3 × 3;
filters of a single channel, 3 × 3; and products, 1 × 1. What a layer gives may be clipped, and may have what an earlier
layer gave added to it.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from manifind.errors import InvalidInputError
from manifind.features.onnx_file import Numbers, Operation, read_graph
from manifind.types import FloatArray

FIRST, FILTER, PRODUCT = "first", "filter", "product"


@dataclass(frozen=True)
class Layer:
    """A convolution and what follows it."""

    kind: str
    """``"first"``, ``"filter"`` or ``"product"``."""
    weight: FloatArray
    """(out, 3, 3, 3), (out, 1, 3, 3) or (out, in)."""
    bias: FloatArray
    stride: int = 1
    clip: tuple[float, float] | None = None
    """What its output is clipped to."""
    added: int | None = None
    """The layer whose output is added to its own."""


def read_layers(path: Path, output: str) -> list[Layer]:
    """Return the layers up to an output; `InvalidInputError` says what of the network is not known here."""
    graph = read_graph(path)
    layers: list[Layer] = []
    made: dict[str, int] = {}
    """Which layer a tensor comes from; what has not come to its last step yet is not here."""
    numbers = dict(graph.tensors)
    last = ""
    for step in graph.operations:
        if step.kind == "Cast" and step.inputs[0] in numbers:
            numbers[step.outputs[0]] = numbers[step.inputs[0]].astype(np.float32)
            continue
        if step.kind == "Conv" and (step.inputs[0] == last or not layers):
            layers.append(_convolution(step, numbers, first=not layers))
        elif step.kind == "Clip" and step.inputs[0] == last and layers[-1].clip is None and layers[-1].added is None:
            low, high = (float(numbers[name]) for name in step.inputs[1:])
            layers[-1] = replace(layers[-1], clip=(low, high))
        elif step.kind == "Add" and last in step.inputs and layers[-1].clip is None and layers[-1].added is None:
            (other,) = (name for name in step.inputs if name != last)
            if other not in made:
                raise unknown(step)
            layers[-1] = replace(layers[-1], added=made[other])
        else:
            raise unknown(step)
        last = step.outputs[0]
        made[last] = len(layers) - 1
        if last == output:
            return layers
    raise InvalidInputError(f"{path} has no output {output!r}; read the one that it has.")


def unknown(step: Operation) -> InvalidInputError:
    """Return what to raise at a step that no layer here does."""
    return InvalidInputError(f"its step {step.outputs[0]!r} ({step.kind}) is none of those that the GPU runs")


def _convolution(step: Operation, numbers: dict[str, Numbers], *, first: bool) -> Layer:
    weight = numbers.get(step.inputs[1])
    bias = numbers.get(step.inputs[2]) if len(step.inputs) > 2 else None
    if weight is None or bias is None or weight.ndim != 4:
        raise unknown(step)
    out, of_group, *sides = weight.shape
    attributes = step.attributes
    pads, strides = attributes.get("pads", [0] * 4), attributes.get("strides", [1, 1])
    even = set(attributes.get("dilations", [1])) == {1} and "auto_pad" not in attributes and len(set(strides)) == 1
    groups = attributes.get("group", 1)
    weight, bias = weight.astype(np.float32), bias.astype(np.float32)
    if even and sides == [1, 1] and groups == 1 and strides[0] == 1 and set(pads) == {0} and not first:
        return Layer(PRODUCT, weight.reshape(out, of_group), bias)
    if even and sides == [3, 3] and set(pads) == {1} and strides[0] in (1, 2):
        if first and groups == 1 and of_group == 3:
            return Layer(FIRST, weight, bias, strides[0])
        if not first and groups == out and of_group == 1:
            return Layer(FILTER, weight, bias, strides[0])
    raise unknown(step)
