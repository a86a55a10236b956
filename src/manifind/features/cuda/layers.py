"""An ONNX file as a chain of convolution layers, read without the library `onnx`.

Three kinds of convolution are known, of which MobileNetV2 and its likes are made: a first one over all colours, 3 × 3;
depthwise filters of a single channel, 3 × 3; and products, 1 × 1. The output of a layer may be clipped, and may have
the output of an earlier layer added.

An ONNX file is a message of protocol buffers: fields one after the other, each with its number and either a whole
number, 4 or 8 bytes, or a run of bytes, which may be a message itself. The few fields that a network of convolutions
takes are read, and all others skipped.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInputError
from manifind.types import FloatArray

FIRST, FILTER, PRODUCT = "first", "filter", "product"

Field = tuple[int, int | memoryview]
Numbers = npt.NDArray[Any]

KINDS = {
    number: np.dtype(kind)
    for number, kind in {
        1: "<f4", 2: "u1", 3: "i1", 4: "<u2", 5: "<i2", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8"
    }.items()
}  # fmt: skip
"""The NumPy type of a tensor's elements, by ONNX's number for the type."""
VARINT, EIGHT, RUN, FOUR = 0, 1, 2, 5


@dataclass(frozen=True)
class Operation:
    """One step of a network."""

    kind: str
    """``"Conv"``, ``"Clip"`` and so on."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True)
class Graph:
    """A network as its file has it."""

    operations: tuple[Operation, ...]
    tensors: dict[str, Numbers]
    """The numbers that come with it, by name."""


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


def read_graph(path: Path) -> Graph:
    """Read the network in an ONNX file; `InvalidInputError` where it is none or is cut short."""
    try:
        model = _messages(memoryview(path.read_bytes()))
        (graph,) = model[7]
        fields = _messages(graph)
        tensors = dict(_tensor(one) for one in fields.get(5, []))
        return Graph(tuple(_operation(one) for one in fields.get(1, [])), tensors)
    except (KeyError, IndexError, ValueError, TypeError, OverflowError, struct.error) as error:
        raise InvalidInputError(f"{path} cannot be read as an ONNX file ({error}); export it again.") from error


def _operation(message: Any) -> Operation:
    fields = _messages(message)
    attributes = dict(_attribute(one) for one in fields.get(5, []))
    names = [tuple(_text(one) for one in fields.get(number, [])) for number in (1, 2)]
    return Operation(_text(fields[4][0]), names[0], names[1], attributes)


def _attribute(message: Any) -> tuple[str, Any]:
    """Return the name and the value of an attribute: a number, a text, a tensor or a list of whole numbers."""
    fields = _messages(message)
    value: Any = None
    if 2 in fields:
        (value,) = struct.unpack("<f", fields[2][0])
    elif 3 in fields:
        value = _signed(fields[3][0])
    elif 4 in fields:
        value = _text(fields[4][0])
    elif 5 in fields:
        value = _tensor(fields[5][0])[1]
    elif 8 in fields:
        value = _whole_numbers(fields[8])
    return _text(fields[1][0]), value


def _tensor(message: Any) -> tuple[str, Numbers]:
    fields = _messages(message)
    kind, shape = KINDS[int(fields[2][0])], _whole_numbers(fields.get(1, []))
    name = _text(fields[8][0]) if 8 in fields else ""
    if 9 in fields:
        numbers = np.frombuffer(fields[9][0], kind)
    elif 4 in fields:
        numbers = np.frombuffer(b"".join(bytes(one) for one in fields[4]), "<f4").astype(kind)
    else:
        numbers = np.array(_whole_numbers(fields.get(7, fields.get(5, []))), kind)
    return name, numbers.reshape(shape)


def _messages(data: Any) -> dict[int, list[Any]]:
    """Return the fields of a message by number, in order."""
    fields: dict[int, list[Any]] = {}
    for number, value in _fields(data):
        fields.setdefault(number, []).append(value)
    return fields


def _fields(data: memoryview) -> Iterator[Field]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, form = key >> 3, key & 7
        if form == VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if form == RUN:
            size, at = _varint(data, at)
        elif form in (FOUR, EIGHT):
            size = 4 if form == FOUR else 8
        else:
            raise ValueError(f"a field is of the unknown form {form}")
        if at + size > len(data):
            raise ValueError("it is cut short")
        yield number, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a whole number of seven bits a byte, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _whole_numbers(values: list[Any]) -> list[int]:
    """Return whole numbers, which come one by one or packed into runs."""
    numbers = []
    for value in values:
        if isinstance(value, int):
            numbers.append(_signed(value))
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            numbers.append(_signed(number))
    return numbers


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _text(data: Any) -> str:
    return bytes(data).decode()
