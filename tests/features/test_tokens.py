"""Networks that give tokens: told from others, measure_patches, and run as a map."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from manifind.errors import InvalidInputError
from manifind.features import OnnxBackbone, RegionExtractor, load_backbone
from manifind.features.backbone import absolute_source
from manifind.features.tokens import measure_patches, tokens_to_map


def network(side: int, leading: int, channels: int = 2) -> Any:
    """A network whose tokens say where they are: the row and the column of the patch; others are −1."""

    def run(batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        rows, columns = batch.shape[2] // side, batch.shape[3] // side
        places = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), -1).reshape(-1, 2)
        tokens = np.concatenate([np.full((leading, 2), -1), places])[None]
        return np.tile(tokens, (1, 1, channels // 2)).astype(np.float32)

    return run


@pytest.mark.parametrize("side", [7, 8, 14, 16, 28, 32])
@pytest.mark.parametrize("leading", [0, 1, 5])
def test_two_runs_tell_the_patch_and_the_tokens_before_them(side: int, leading: int) -> None:
    assert measure_patches(network(side, leading, 6), "a network") == (side, leading, 6)


def test_a_map_has_each_token_at_its_place_and_no_others() -> None:
    made = tokens_to_map(network(14, 5)(np.zeros((1, 3, 42, 70))), 42, 70, 14)
    assert made.shape == (1, 2, 3, 5)
    np.testing.assert_array_equal(made[0, 0], np.repeat(np.arange(3)[:, None], 5, axis=1))
    np.testing.assert_array_equal(made[0, 1], np.repeat(np.arange(5)[None], 3, axis=0))
    with pytest.raises(InvalidInputError, match="too few"):
        tokens_to_map(np.zeros((1, 14, 2)), 42, 70, 14)


@pytest.mark.parametrize("tokens", [[50, 50], [50, 57], [10, 500]])
def test_outputs_that_are_no_tokens_of_patches_are_refused(tokens: list[int]) -> None:
    lengths = iter(tokens)
    with pytest.raises(InvalidInputError, match="tokens"):
        measure_patches(lambda _: np.zeros((1, next(lengths), 4)), "a network")


def onnx_of_tokens(path: Path, side: int, channels: int, leading: int) -> npt.NDArray[np.float32]:
    """Write a network that projects patches and puts tokens before them, and return its weights."""
    onnx = pytest.importorskip("onnx", reason="writing a network needs onnx")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    weights = np.random.default_rng(0).normal(size=(channels, 3, side, side)).astype(np.float32)
    constants = {
        "w": weights,
        "before": np.ones((1, leading, channels), np.float32),
        "flat": np.array([0, channels, -1]),
    }
    nodes = [
        helper.make_node("Conv", ["photo", "w"], ["cells"], strides=[side, side]),
        helper.make_node("Reshape", ["cells", "flat"], ["columns"]),
        helper.make_node("Transpose", ["columns"], ["patches"], perm=[0, 2, 1]),
        helper.make_node("Concat", ["before", "patches"], ["tokens"], axis=1),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "tokens",
        [value("photo", onnx.TensorProto.FLOAT, [1, 3, "height", "width"])],
        [value("tokens", onnx.TensorProto.FLOAT, [1, "count", channels])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return weights


def test_an_onnx_file_of_tokens_is_a_backbone(tmp_path: Path) -> None:
    weights = onnx_of_tokens(tmp_path / "tokens.onnx", 14, 6, 5)
    backbone = OnnxBackbone(tmp_path / "tokens.onnx", threads=1)
    assert (backbone.spec.patch, backbone.spec.stride, backbone.spec.channels) == (14, 14, 6)
    photo = np.random.default_rng(1).integers(0, 256, (42, 70, 3), dtype=np.uint8)
    seen = ((photo - np.array(backbone.spec.mean)) / np.array(backbone.spec.std)).transpose(2, 0, 1)
    patches = seen.reshape(3, 3, 14, 5, 14).transpose(1, 3, 0, 2, 4).reshape(15, -1)
    expected = (patches @ weights.reshape(6, -1).T).T.reshape(6, 3, 5)
    np.testing.assert_allclose(backbone.features(photo), expected, rtol=1e-3, atol=1e-3)
    with pytest.raises(InvalidInputError, match="patches of 14 pixels"):
        backbone.features(photo[:40])


def test_an_extractor_shows_it_whole_patches_and_takes_the_mean(tmp_path: Path) -> None:
    onnx_of_tokens(tmp_path / "tokens.onnx", 14, 6, 1)
    extractor = RegionExtractor(OnnxBackbone(tmp_path / "tokens.onnx", threads=1), long_side=140, scales=(1.0, 0.7))
    assert extractor.pooling == "spoc"
    assert extractor.seen_size(100, 200) == (70, 140)
    regions = extractor.extract(np.random.default_rng(2).integers(0, 256, (100, 203, 3), dtype=np.uint8))
    assert regions.vectors.shape[1] == 6
    np.testing.assert_allclose(np.linalg.norm(regions.vectors, axis=1), 1, atol=1e-5)
    assert extractor.fingerprint()["backbone"]["patch"] == 14


def test_a_folder_called_as_a_network_that_comes_along_does_not_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mobilenet_v2").mkdir()
    (tmp_path / "mobilenet_v2" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert isinstance(load_backbone("mobilenet_v2", threads=1), OnnxBackbone)
    assert absolute_source("mobilenet_v2") == "mobilenet_v2"
    assert absolute_source("./mobilenet_v2") == str(tmp_path / "mobilenet_v2")
