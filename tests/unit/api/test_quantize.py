"""Models whose weights become 4 or 8 bits, read by this compiler and by onnxruntime."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import numpy_helper

import tilewright as tw
from fakes import onnx_models
from tilewright.base.errors import ModelError, UserError
from tilewright.cli.quantize import command
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.frontends.onnx.quantize_weights import WeightFormat, pack_weights
from tilewright.compiler.graph.evaluator import evaluate

RNG = np.random.default_rng(7)
BODY = """graph (float[M, 50] x) => (float[M, 7] y) {
  h = MatMul(x, w0)
  g = Gemm<transB = 1>(h, w1, b1)
  t = Transpose<perm = [1, 0]>(w2)
  p = MatMul(g, t)
  q = Gemm(p, w3, b3)
  y = MatMul(q, w4)
}"""
SHAPES = {
    "w0": (50, 33), "w1": (20, 33), "b1": (20,), "w2": (9, 20), "w3": (9, 5), "b3": (1, 5),
    "w4": (5, 7),
}  # fmt: skip


def model() -> onnx.ModelProto:
    proto = onnx_models.parse(BODY)
    for name, shape in SHAPES.items():
        array = RNG.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    for number, node in enumerate(proto.graph.node):
        node.name = f"layer.{number}.{node.op_type}"
    return proto


@pytest.mark.slow
@pytest.mark.parametrize("int8_activations", [False, True])
def test_models_permit_that_activations_are_rounded_where_that_is_asked_for(
    int8_activations: bool,
) -> None:
    found = tw.quantize(model(), block=16, int8_activations=int8_activations)
    levels = [
        [a.i for a in node.attribute if a.name == "accuracy_level"]
        for node in found.model.graph.node
        if node.op_type == "MatMulNBits"
    ]
    assert levels == [[4] if int8_activations else []] * 5
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(found.model.SerializeToString())
    x = RNG.standard_normal((3, 50)).astype(np.float32)
    (expected,) = session.run(None, {"x": x})
    scale = np.abs(expected).max()
    off = 2e-2 if int8_activations else 1e-5
    np.testing.assert_allclose(tw.compile(found.model)(x), expected, atol=off * scale)


@pytest.mark.parametrize(
    ("bits", "symmetric", "error"),
    [(4, True, 0.12), (4, False, 0.11), (8, True, 0.008), (8, False, 0.008)],
)
def test_weights_are_rounded_to_what_both_runtimes_read(
    bits: int, error: float, *, symmetric: bool
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    found = tw.quantize(model(), bits=bits, block=16, symmetric=symmetric)
    assert [node.name for node in found.nodes] == [
        "layer.0.MatMul", "layer.1.Gemm", "layer.3.MatMul", "layer.4.Gemm", "layer.5.MatMul",
    ]  # fmt: skip
    assert all(node.error < error for node in found.nodes)
    assert found.after_bytes < found.before_bytes
    onnx.checker.check_model(found.model)
    session = runtime.InferenceSession(found.model.SerializeToString())
    x = RNG.standard_normal((3, 50)).astype(np.float32)
    (expected,) = session.run(None, {"x": x})
    (actual,) = evaluate(load(found.model), [x])
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_no_weight_changes_by_more_than_half_a_step(bits: int, *, symmetric: bool) -> None:
    weights = RNG.standard_normal((11, 70)).astype(np.float32)
    weights[3] = 0
    weights[4] = 5
    weights[5, :16] = 1e-30
    packed = pack_weights(weights, WeightFormat(bits=bits, block=16, symmetric=symmetric))
    wide = np.repeat(np.abs(packed.scale), 16, 1)[:, :70]
    # The range of signed integers has one more below zero, that of zero points is rounded.
    limit = wide * (1.01 if symmetric else 1.0) + 1e-6
    assert (np.abs(packed.real - weights) <= limit).all()
    assert (packed.real[3] == 0).all()
    assert np.median(np.abs(packed.real - weights) / wide) <= 0.5


def test_patterns_choose_products() -> None:
    found = tw.quantize(model(), include=["*Gemm", "layer.0*"], exclude=["*.4.*"])
    assert [node.name for node in found.nodes] == ["layer.0.MatMul", "layer.1.Gemm"]
    assert {node.reason for node in found.kept} == {"not chosen"}
    names = {tensor.name for tensor in found.model.graph.initializer}
    assert {"w2", "w3", "w4"} <= names
    assert not {"w0", "w1"} & names


def test_weights_that_are_not_finite_stay() -> None:
    proto = model()
    broken = np.full((50, 33), np.nan, np.float32)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(broken, "w0"))
    found = tw.quantize(proto)
    assert [(k.name, k.reason) for k in found.kept] == [
        ("layer.0.MatMul", "weights that are not finite")
    ]


def test_what_cannot_be_done_is_said() -> None:
    with pytest.raises(UserError, match=r"no product is called 'layer\.9\*'"):
        tw.quantize(model(), exclude=["layer.9*"])
    with pytest.raises(UserError, match="weights of 3 bits"):
        tw.quantize(model(), bits=3)
    with pytest.raises(UserError, match="blocks of 24 weights"):
        tw.quantize(model(), block=24)
    relu = onnx_models.parse("graph (float[N] x) => (float[N] y) { y = Relu(x) }")
    with pytest.raises(ModelError, match="no product has weights"):
        tw.quantize(relu)


def test_a_model_of_another_format_is_not_to_be_compiled_first(tmp_path: Path) -> None:
    path = tmp_path / "net.mlir"
    path.write_text("func.func @main() { return }")
    with pytest.raises(
        ModelError, match="hint: a StableHLO module is not taken here, only ONNX"
    ):
        tw.quantize(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("q.vmfb", "is no name of an ONNX model, expected one that ends in .onnx"),
        ("q", "is no name of an ONNX model"),
        ("nowhere/q.onnx", "no such folder"),
    ],
)
def test_a_name_for_something_else_is_refused_before_the_work(
    name: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        tw.quantize(tmp_path / "none.onnx", tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_verb_writes_a_file_and_lists_errors(tmp_path: Path) -> None:
    source, target = tmp_path / "m.onnx", tmp_path / "q.onnx"
    source.write_bytes(model().SerializeToString())
    before = source.read_bytes()
    finished = CliRunner().invoke(command, [str(source), "-o", str(target), "--json"])
    assert finished.exit_code == 0, finished.output
    report = json.loads(finished.output)
    assert len(report["nodes"]) == 5
    assert {n.op_type for n in onnx.load(target).graph.node} == {"MatMulNBits", "Add"}
    assert source.read_bytes() == before
    shown = CliRunner().invoke(command, [str(source), "-o", str(target), "--bits=8"])
    assert "5 products" in shown.output
    refused = CliRunner().invoke(command, [str(source), "-o", str(source)])
    assert refused.exit_code != 0
    assert source.read_bytes() == before
