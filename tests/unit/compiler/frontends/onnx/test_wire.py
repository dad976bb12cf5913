import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tilewright.compiler.frontends.onnx.wire import DETACH_BYTES, MalformedError, detach

BIG = np.arange(1000, dtype=np.float32)
SMALL = np.arange(3, dtype=np.float32)


def model() -> onnx.ModelProto:
    constant = helper.make_node(
        "Constant", [], ["c"], value=numpy_helper.from_array(BIG + 1, "v")
    )
    add = helper.make_node("Add", ["w", "c"], ["y"])
    graph = helper.make_graph(
        [constant, add],
        "g",
        [],
        [helper.make_tensor_value_info("y", 1, [1000])],
        [numpy_helper.from_array(BIG, "w"), numpy_helper.from_array(SMALL, "s")],
    )
    return helper.make_model(graph)


def references(tensor: onnx.TensorProto) -> dict[str, str]:
    return {e.key: e.value for e in tensor.external_data}


def test_large_tensors_become_references_into_the_original_bytes() -> None:
    data = model().SerializeToString()
    found = detach(memoryview(data), "token")
    parsed = onnx.ModelProto.FromString(found.skeleton)
    tensors = [parsed.graph.initializer[0], parsed.graph.node[0].attribute[0].t]
    assert found.count == 2
    assert len(found.skeleton) < 1000
    for tensor, expected in zip(tensors, [BIG, BIG + 1], strict=True):
        entry = references(tensor)
        assert entry["location"] == "token"
        start, size = int(entry["offset"]), int(entry["length"])
        np.testing.assert_array_equal(
            np.frombuffer(data[start : start + size], np.float32), expected
        )


def test_everything_but_large_tensors_survives_unchanged() -> None:
    original = model()
    found = detach(memoryview(original.SerializeToString()), "token")
    parsed = onnx.ModelProto.FromString(found.skeleton)
    assert parsed.graph.initializer[1] == original.graph.initializer[1]
    assert parsed.graph.node[1] == original.graph.node[1]
    assert parsed.graph.output == original.graph.output
    assert [t.name for t in parsed.graph.initializer] == ["w", "s"]


def test_a_model_without_large_tensors_is_copied_byte_for_byte() -> None:
    small = model()
    del small.graph.initializer[0]
    small.graph.node[0].attribute[0].t.raw_data = bytes(DETACH_BYTES - 1)
    data = small.SerializeToString()
    assert detach(memoryview(data), "token").skeleton == data


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 12,
        b"\x3a\xff\xff\xff\xff\x0f",
        b"\x0b\x0c",
        b"\x3a\x05\x01",
        b"\x09\x00",
        bytes(1 << 24),
        b"\x08\x0a\x3a\x80\x80\x80\x08" + bytes(1 << 24),
    ],
    ids=[
        "endless varint",
        "length past the end",
        "groups",
        "cut short",
        "cut fixed64",
        "a hole",
        "a graph of holes",
    ],
)
def test_bytes_that_are_no_protobuf_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        detach(memoryview(data), "token")
