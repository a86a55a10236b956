import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.datasets import load_sample_image

from manifind.errors import DamagedError, InvalidInputError, MissingExtraError
from manifind.features import Backbone, BackboneSpec, OnnxBackbone, load_backbone
from manifind.features.backbone import NETWORKS, network_input
from manifind.networks import multiplies_bytes
from tests.features.photo_files import noise

REFERENCE = Path(__file__).with_name("mobilenet_v2_reference.npz")
"""A small photo and torch's features of it, written by ``tools/export_mobilenet_v2.py``."""


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return load_backbone(threads=1)


@pytest.fixture(scope="module")
def reference() -> dict[str, npt.NDArray[Any]]:
    with np.load(REFERENCE) as arrays:
        return dict(arrays)


def cosines(first: npt.NDArray[np.float32], second: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    products = (first * second).sum(axis=0)
    return np.asarray(products / np.linalg.norm(first, axis=0) / np.linalg.norm(second, axis=0))


def test_the_shipped_network_gives_the_features_that_torch_gives(reference: dict[str, npt.NDArray[Any]]) -> None:
    features = load_backbone("mobilenet_v2", threads=1).features(reference["photo"])
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, reference["features_half"], atol=1e-4)
    assert cosines(features, reference["features"]).min() > 0.9998


def test_the_network_in_whole_numbers_is_near_the_one_it_was_made_from() -> None:
    """What stands for a photo is a mean over many cells: there the rounding of each is evened out."""
    photo = np.asarray(load_sample_image("china.jpg"))
    exact, rounded = (load_backbone(name, threads=1).features(photo) for name in ("mobilenet_v2", "mobilenet_v2_int8"))
    assert exact.shape == rounded.shape
    assert cosines(*(each.reshape(1280, -1) for each in (exact, rounded))).mean() > 0.85
    assert cosines(*(np.cbrt((each**3).mean(axis=(1, 2))) for each in (exact, rounded))) > 0.98


def test_a_processor_is_taken_to_overflow_unless_it_says_otherwise(tmp_path: Path) -> None:
    for number, (flags, expected) in enumerate((("fpu avx2", False), ("fpu avx512_vnni", True))):
        (tmp_path / str(number)).write_text(f"flags : {flags}\n")
        assert multiplies_bytes(tmp_path / str(number)) is expected
    assert not multiplies_bytes(tmp_path / "none")


@pytest.mark.parametrize("name", ["mobilenet_v2", "mobilenet_v2_int8"])
def test_the_shipped_networks_say_what_they_are(name: str) -> None:
    spec = load_backbone(name, threads=1).spec
    assert (spec.name, spec.channels, spec.stride, spec.long_side) == (name, 1280, 32, 768)
    assert (spec.colour_order, spec.output, len(spec.sha256)) == ("rgb", "features", 64)
    np.testing.assert_allclose(np.array(spec.mean) / 255, [0.485, 0.456, 0.406])
    np.testing.assert_allclose(np.array(spec.std) / 255, [0.229, 0.224, 0.225])


def test_its_licence_and_provenance_are_beside_it() -> None:
    assert "Redistribution and use" in (NETWORKS / "LICENSE-torchvision").read_text()
    assert "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889" in (NETWORKS / "README.md").read_text()


@pytest.mark.parametrize("size", [(32, 32), (33, 64), (65, 97), (1, 200), (224, 160)])
def test_photos_of_any_size_give_a_cell_for_every_begun_stride(backbone: OnnxBackbone, size: tuple[int, int]) -> None:
    expected = -(-size[0] // 32), -(-size[1] // 32)
    assert backbone.features(noise(*size)).shape == (1280, *expected)


def test_the_number_of_threads_does_not_matter(backbone: OnnxBackbone) -> None:
    photo = noise(100, 130)
    np.testing.assert_allclose(load_backbone(threads=2).features(photo), backbone.features(photo), atol=1e-4)


@pytest.mark.parametrize("order", ["rgb", "bgr"])
def test_the_network_sees_scaled_values_in_its_order_of_colours(order: str) -> None:
    spec = BackboneSpec("any", 4, 8, mean=(127, 10, 0), std=(128, 1, 255), colour_order=order)
    photo = noise(5, 7)
    seen = network_input(photo, spec)
    ordered = photo if order == "rgb" else photo[:, :, ::-1]
    expected = (ordered.astype(np.float64) - spec.mean) / spec.std
    assert seen.shape == (1, 3, 5, 7)
    np.testing.assert_allclose(seen[0], expected.transpose(2, 0, 1), rtol=1e-6)


@pytest.mark.parametrize(
    "photo",
    [
        np.zeros((4, 4, 3), np.float32),
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        [[[0, 0, 0]]],
        "photo.jpg",
        None,
    ],
)
def test_what_is_not_a_photo_is_refused_in_one_sentence(backbone: OnnxBackbone, photo: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"^photo [^\n]*; give an RGB array \(height, width, 3\) of uint8\.$"):
        backbone.features(photo)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"stride": 0}, "stride is 0"),
        ({"mean": (1.0, 2.0)}, r"mean is \(1.0, 2.0\); give three numbers"),
        ({"std": (0.229, 0.224, 0.225)}, "multiply those for values of 0 to 1 by 255"),
        ({"colour_order": "hsv"}, "choose one of 'rgb', 'bgr'"),
        ({"name": ""}, "give it a word"),
        ({"long_side": 4}, "long_side is 4"),
    ],
)
def test_a_spec_that_cannot_be_is_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInputError, match=named):
        BackboneSpec(**{"name": "any", "channels": 4, "stride": 8, **wrong})


def test_a_name_that_is_neither_a_network_nor_a_file_is_refused_with_the_choices() -> None:
    with pytest.raises(InvalidInputError, match=r"'resnet' is neither a file nor one of 'mobilenet_v2'"):
        load_backbone("resnet")


def test_a_file_that_is_not_a_network_is_refused(tmp_path: Path) -> None:
    (tmp_path / "words.onnx").write_text("not a network")
    with pytest.raises(InvalidInputError, match=r"words\.onnx is not an ONNX network"):
        load_backbone(tmp_path / "words.onnx")
    with pytest.raises(FileNotFoundError, match=r"none\.onnx does not exist"):
        OnnxBackbone(tmp_path / "none.onnx")


def test_a_file_that_is_not_the_one_declared_is_damaged(tmp_path: Path, backbone: OnnxBackbone) -> None:
    copy = shutil.copy(NETWORKS / "mobilenet_v2.onnx", tmp_path / "copy.onnx")
    assert OnnxBackbone(copy, backbone.spec).spec == backbone.spec
    with pytest.raises(DamagedError, match="is not the network it was"):
        OnnxBackbone(copy, dataclasses.replace(backbone.spec, sha256="0" * 64))


def test_the_json_file_beside_a_network_goes_before_what_it_says_itself(tmp_path: Path) -> None:
    copy = Path(shutil.copy(NETWORKS / "mobilenet_v2.onnx", tmp_path / "mine.onnx"))
    beside = tmp_path / "mine.onnx.json"
    beside.write_text(json.dumps({"name": "mine", "mean": [127] * 3, "std": [128] * 3, "long_side": 512}))
    spec = load_backbone(copy).spec
    assert (spec.name, spec.mean, spec.std, spec.long_side) == ("mine", (127, 127, 127), (128, 128, 128), 512)
    for content, named in [
        ({"stride": 16}, "declared with stride 16 but has 32"),
        ({"strides": 32}, "'strides'; a backbone has name, channels"),
        ({"output": "logits"}, "no output 'logits'; choose one of 'features'"),
        ({"std": 1}, "std is 1; give three numbers"),
        ([1, 2], "not a JSON object"),
    ]:
        beside.write_text(json.dumps(content))
        with pytest.raises(InvalidInputError, match=named):
            load_backbone(copy)


Node = tuple[str, list[str], str, dict[str, Any]]


def save_network(path: Path, nodes: list[Node], **tensors: Any) -> Path:
    """Write an ONNX network: nodes of (operator, inputs, output, attributes), and the shapes of input and outputs."""
    onnx = pytest.importorskip("onnx", reason="making networks for this test needs onnx")
    helper, kind = onnx.helper, tensors.pop("kind", onnx.TensorProto.FLOAT)
    weights = np.random.default_rng(0).normal(size=(5, 3, 4, 4)).astype(onnx.helper.tensor_dtype_to_np_dtype(kind))
    infos = {name: helper.make_tensor_value_info(name, kind, shape) for name, shape in tensors.items()}
    graph = helper.make_graph(
        [helper.make_node(operator, inputs, [output], **attributes) for operator, inputs, output, attributes in nodes],
        "network",
        [infos.pop("photo")],
        list(infos.values()),
        [onnx.numpy_helper.from_array(weights, "weights")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


CONV: Node = ("Conv", ["photo", "weights"], "map", {"strides": [4, 4]})
FREE = ["b", 3, "h", "w"]


def test_anybodys_network_is_measured_where_it_says_nothing(tmp_path: Path) -> None:
    path = save_network(tmp_path / "mine.onnx", [CONV], photo=FREE, map=["b", 5, "y", "x"])
    backbone = load_backbone(path)
    assert (backbone.spec.name, backbone.spec.channels, backbone.spec.stride) == ("mine", 5, 4)
    assert backbone.spec.mean == (123.675, 116.28, 103.53)
    photo = noise(8, 12)
    seen = network_input(photo, backbone.spec)[0]
    weights = np.random.default_rng(0).normal(size=(5, 3, 4, 4))
    expected = np.einsum("chywx,ocyx->ohw", seen.reshape(3, 2, 4, 3, 4), weights)
    np.testing.assert_allclose(backbone.features(photo), expected, rtol=1e-3, atol=1e-4)


def test_a_network_in_half_precision_runs(tmp_path: Path) -> None:
    path = save_network(tmp_path / "half.onnx", [CONV], kind=10, photo=FREE, map=["b", 5, "y", "x"])
    features = load_backbone(path).features(noise(16, 16))
    assert features.dtype == np.float32
    assert features.shape == (5, 4, 4)


def test_of_several_outputs_the_map_is_taken(tmp_path: Path) -> None:
    pooled = ("ReduceMean", ["map"], "vector", {"axes": [2, 3], "keepdims": 0})
    finer: Node = ("Relu", ["photo"], "finer", {})
    path = save_network(
        tmp_path / "two.onnx", [CONV, pooled, finer], photo=FREE, vector=["b", 5], map=["b", 5, "y", "x"], finer=FREE
    )
    assert load_backbone(path).spec.output == "map"
    (tmp_path / "two.onnx.json").write_text('{"output": "finer"}')
    assert (load_backbone(path).spec.output, load_backbone(path).spec.stride) == ("finer", 1)
    (tmp_path / "two.onnx.json").write_text('{"output": "vector"}')
    with pytest.raises(InvalidInputError, match="leave out the layers from global pooling on"):
        load_backbone(path)


def test_a_network_without_a_map_of_its_photo_is_refused_in_one_sentence(tmp_path: Path) -> None:
    flat: Node = ("Flatten", ["map"], "vector", {})
    mean: Node = ("GlobalAveragePool", ["map"], "one", {})
    cases: dict[str, tuple[list[Node], dict[str, Any], str]] = {
        "flat": ([CONV, flat], {"photo": FREE, "vector": ["b", "n"]}, "leave out the layers from global pooling on"),
        "one": ([CONV, mean], {"photo": FREE, "one": ["b", 5, 1, 1]}, "grows with the photo is needed"),
        "fixed": ([CONV], {"photo": [1, 3, 224, 224], "map": [1, 5, 56, 56]}, "224 by 224 pixels only"),
        "grey": (
            [("Relu", ["photo"], "map", {})],
            {"photo": ["b", 1, "h", "w"], "map": ["b", 1, "h", "w"]},
            "an input",
        ),
        "last": ([("Relu", ["photo"], "map", {})], {"photo": ["b", "h", "w", 3], "map": ["b", "h", "w", 3]}, "takes"),
    }
    for name, (nodes, tensors, named) in cases.items():
        path = save_network(tmp_path / f"{name}.onnx", nodes, **tensors)
        with pytest.raises(InvalidInputError, match=named) as refused:
            load_backbone(path)
        assert "\n" not in str(refused.value)


def test_the_tool_exports_what_torch_computes() -> None:
    """The tool on a network of random weights, which no batch normalisation leaves as they are."""
    torch = pytest.importorskip("torch", reason="the export needs torch")
    pytest.importorskip("onnx", reason="the export needs onnx")
    from tools.export_mobilenet_v2 import mobilenet_v2, run_onnx, run_torch, to_onnx

    torch.manual_seed(0)
    network = mobilenet_v2()
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(layer.weight, 0.5, 1.5)
            torch.nn.init.normal_(layer.bias, 0.3)
            torch.nn.init.normal_(layer.running_mean, 0, 0.1)
            torch.nn.init.uniform_(layer.running_var, 0.5, 1.5)
    # The paper's table: 2.2 million weights in the convolutions that are kept.
    assert sum(weight.numel() for weight in network.parameters()) == 2_223_872
    model = to_onnx(network, half=False)
    for size in [(2, 64, 96), (1, 33, 40)]:
        batch = np.random.default_rng(1).normal(size=(size[0], 3, *size[1:])).astype(np.float32)
        np.testing.assert_allclose(run_onnx(model, batch), run_torch(network, batch), atol=1e-4)
    assert to_onnx(network, half=True).SerializeToString() == to_onnx(network, half=True).SerializeToString()


def test_without_torch_the_line_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import manifind.features

    monkeypatch.delitem(sys.modules, "manifind.features.torch_backbone", raising=False)
    monkeypatch.delattr(manifind.features, "torch_backbone", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'manifind\[torch\]'"):
        _ = manifind.features.TorchBackbone
