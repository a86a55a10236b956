"""ONNX files are read as the library `onnx` reads them, and what is none is refused."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from manifind.errors import InvalidInputError
from manifind.features.backbone import NETWORKS
from manifind.features.cuda.layers import read_graph

SHIPPED = NETWORKS / "mobilenet_v2.onnx"


@pytest.mark.parametrize("name", ["mobilenet_v2", "mobilenet_v2_int8"])
def test_operations_and_numbers_are_those_that_onnx_reads(name: str) -> None:
    graph, known = read_graph(NETWORKS / f"{name}.onnx"), onnx.load(NETWORKS / f"{name}.onnx").graph
    assert [(one.kind, one.inputs, one.outputs) for one in graph.operations] == [
        (node.op_type, tuple(node.input), tuple(node.output)) for node in known.node
    ]
    assert [one.attributes for one in graph.operations] == [
        {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute} for node in known.node
    ]
    assert list(graph.tensors) == [each.name for each in known.initializer]
    for each in known.initializer:
        np.testing.assert_array_equal(graph.tensors[each.name], numpy_helper.to_array(each))


def test_numbers_that_are_not_raw_are_read_too(tmp_path: Path) -> None:
    """Lists of numbers, negative ones, texts, and a tensor as an attribute."""
    tensors = [
        onnx.helper.make_tensor("floats", onnx.TensorProto.FLOAT, [2, 2], [1.5, -2, 3, 4]),
        onnx.helper.make_tensor("whole", onnx.TensorProto.INT64, [3], [-1, 0, 2**40]),
    ]
    value = onnx.helper.make_tensor("", onnx.TensorProto.INT32, [], [-7])
    node = onnx.helper.make_node("Odd", ["a"], ["b"], by=0.25, axis=-2, mode="linear", sizes=[1, -3], value=value)
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "odd", [], [], tensors))
    (tmp_path / "odd.onnx").write_bytes(model.SerializeToString())
    graph = read_graph(tmp_path / "odd.onnx")
    assert graph.tensors["floats"].tolist() == [[1.5, -2], [3, 4]]
    assert graph.tensors["whole"].tolist() == [-1, 0, 2**40]
    told = graph.operations[0].attributes
    assert (told["by"], told["axis"], told["mode"], told["sizes"]) == (0.25, -2, "linear", [1, -3])
    assert told["value"] == -7


@given(st.binary(max_size=200), st.integers(0, 2**16))
def test_what_is_no_onnx_file_is_refused_in_a_sentence(tmp_path_factory: pytest.TempPathFactory, rubbish, cut) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("files") / "file.onnx"
    for content in (rubbish, SHIPPED.read_bytes()[:cut], SHIPPED.read_bytes()[:cut] + rubbish):
        path.write_bytes(content)
        with pytest.raises(InvalidInputError, match="cannot be read as an ONNX file"):
            read_graph(path)
