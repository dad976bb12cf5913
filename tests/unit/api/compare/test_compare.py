"""Comparisons: equal ones are equal, and a fault is found where it was put."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes.small_models import save
from tilewright.api.compare import sides
from tilewright.base.errors import InputError, UserError
from tilewright.compiler.graph import evaluator
from tilewright.compiler.graph.ir import Graph, Node

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[N, 6] x, float[6] b) => (float[N, 6] y, float[N] rows) {
    [first] a = Add(x, b)
    [left] l = Relu(a)
    [right] r = Sigmoid(a)
    [deep] d = Tanh(l)
    [deeper] e = Exp(d)
    [joined] j = Mul(e, r)
    [last] y = Sub(j, x)
    [sums] rows = ReduceSum <keepdims = 0> (y, axes)
}"""


def model() -> onnx.ModelProto:
    proto = onnx.parser.parse_model(MODEL)
    axes = onnx.numpy_helper.from_array(np.array([1]), "axes")
    proto.graph.initializer.append(axes)
    return proto


def break_node(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the oracles of these nodes give something else."""

    def evaluate(graph: Graph, inputs: object) -> list[np.ndarray]:
        whole = evaluator.evaluate_node

        def wrong(node: Node, operands: Sequence[object], dims: object) -> list[np.ndarray]:
            results = whole(node, operands, dims)
            is_broken = node.location.name in names and node.op != "constant"
            return [r + np.float32(0.5) for r in results] if is_broken else results

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(evaluator, "evaluate_node", wrong)
            return evaluator.evaluate(graph, inputs)

    monkeypatch.setattr(sides, "evaluate", evaluate)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("against", ["oracle", "onnxruntime", "O0", "x86_64-v2"])
def test_ways_that_agree_are_equal(against: str) -> None:
    found = tw.compare(model(), against, dims={"N": 5})
    assert found
    assert [output.name for output in found.outputs] == ["y", "rows"]
    assert found.outputs[0].size == 30
    assert found.finding is None
    assert "equal within tolerance" in str(found)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", ["first", "left", "right", "deeper", "joined", "last"])
def test_the_first_node_that_differs_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_node(monkeypatch, name)
    found = tw.compare(model(), dims={"N": 3})
    assert not found
    assert found.finding is not None
    assert found.finding.location.endswith(f"node '{name}'")
    assert found.finding.is_confirmed
    assert f"node '{name}'" in str(found)


def test_of_two_faults_one_behind_the_other_the_first_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_node(monkeypatch, "deep", "last")
    finding = tw.compare(model()).finding
    assert finding is not None
    assert finding.location.endswith("'deep'")
    assert finding.op == "tanh"


def test_little_memory_takes_more_rounds_and_finds_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_node(monkeypatch, "left")
    rounds = []
    for limit in (1, 1 << 20):
        finding = tw.compare(model(), dims={"N": 7}, limit_bytes=limit).finding
        assert finding is not None
        assert finding.location.endswith("'left'")
        rounds.append(finding.rounds)
    assert rounds[0] > rounds[1]


def test_inputs_may_be_given() -> None:
    x, b = np.ones((2, 6), np.float32), np.zeros(6, np.float32)
    for inputs in ([x, b], {"b": b, "x": x}):
        assert tw.compare(model(), inputs=inputs).outputs[0].size == 12
    for inputs in ([x], [x, b, b], x):
        with pytest.raises(InputError, match="expected 2: x, b"):
            tw.compare(model(), inputs=inputs)
    with pytest.raises(InputError, match=r"there is no input 'c'\nhint: inputs: x, b"):
        tw.compare(model(), inputs={"x": x, "c": b})
    with pytest.raises(UserError, match="dims go with random inputs"):
        tw.compare(model(), inputs=[x, b], dims={"N": 3})


def test_artifacts_are_compared_by_their_outputs(tmp_path: Path) -> None:
    path = save(model(), tmp_path / "m.onnx")
    tw.compile(path).save(tmp_path / "m.vmfb")
    tw.compile(path, opt_level=0).save(tmp_path / "o.vmfb")
    for a, b in (("m.vmfb", "o.vmfb"), ("m.vmfb", "m.onnx"), ("m.onnx", "m.vmfb")):
        assert tw.compare(tmp_path / a, tmp_path / b, dims={})


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    path = save(model(), tmp_path / "m.onnx")
    tw.compile(path).save(tmp_path / "m.vmfb")
    other = onnx.parser.parse_model(MODEL.replace("rows", "sums2"))
    other.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "axes"))
    save(other, tmp_path / "other.onnx")
    for a, b, message in (
        (path, "nonsense", "no file, level or target"),
        (path, "none.vmfb", "no such file"),
        (tmp_path / "m.vmfb", "oracle", "the inside of an artifact is not known"),
        (path, tmp_path / "other.onnx", "are not the same"),
    ):
        with pytest.raises(UserError, match=message):
            tw.compare(a, b)
    with pytest.raises(UserError, match="'opt_level' has no effect"):
        tw.compare(tmp_path / "m.vmfb", path, opt_level=0)
    graph = tw.compile(path).compiled.graph
    with pytest.raises(UserError, match="not graphs"):
        tw.compare(graph, "onnxruntime")


def test_a_comparison_tells_what_begins() -> None:
    class Heard:
        def __init__(self) -> None:
            self.phases: list[str] = []

        def phase(self, name: str) -> None:
            self.phases.append(name)

        def advance(self, done: int, total: int) -> None: ...

    heard = Heard()
    assert tw.compare(model(), progress=heard)
    assert heard.phases == ["import", "run g", "run oracle"]
    with pytest.raises(UserError, match="progress"):
        tw.compare(model(), progress="yes")


COUNTED = """<ir_version: 10, opset_import: ["": 21]>
g (float[N] x) => (float[K] y) {
    [edge] edge = Constant <value_float = -0.5> ()
    [shifted] s = Sub(x, edge)
    [mask] m = Greater(x, s)
    [kept] k = NonZero(s)
    flat = Constant <value_ints = [-1]> ()
    [places] p = Reshape(k, flat)
    [taken] t = Gather(x, p)
    [last] y = Exp(t)
}"""
COUNTED_INPUT = np.array([-0.5, 1, 0, -0.5, 2], np.float32)


@pytest.mark.parametrize("against", ["oracle", "onnxruntime"])
def test_sizes_that_depend_on_data_are_no_hindrance(against: str) -> None:
    counted = onnx.parser.parse_model(COUNTED)
    found = tw.compare(counted, against, inputs=[COUNTED_INPUT])
    assert found
    assert found.outputs[0].size == 3


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["shifted", "taken", "last"])
def test_a_fault_is_found_where_a_size_depends_on_data(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_node(monkeypatch, name)
    counted = onnx.parser.parse_model(COUNTED)
    finding = tw.compare(counted, inputs=[COUNTED_INPUT], limit_bytes=1).finding
    assert finding is not None
    assert finding.location.endswith(f"node '{name}'")


def test_onnxruntime_gets_the_values_of_inputs_that_are_constants() -> None:
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[6] x, int64[2] s, float k, float[1] b) => (float[A, B] y)
    <float[1] b = {1.0}> { r = Reshape(x, s) m = Mul(r, k) y = Add(m, b) }"""
    values = {"s": np.array([2, 3]), "k": 2.5, "b": [4.0]}
    proto = onnx.parser.parse_model(text)
    assert tw.compare(proto, "onnxruntime", input_values=values)
    assert [each.name for each in proto.graph.input] == ["x", "s", "k", "b"]


def test_what_onnxruntime_does_not_run_is_said() -> None:
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (bfloat16[2] x) => (bfloat16[2] y) { y = Relu(x) }"""
    with pytest.raises(
        UserError, match=r"g: onnxruntime does not run it: .*NOT_IMPLEMENTED"
    ):
        tw.compare(onnx.parser.parse_model(text), "onnxruntime")
    stablehlo = (
        b"func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    )
    with pytest.raises(UserError, match="runs ONNX models, not StableHLO"):
        tw.compare(stablehlo, "onnxruntime")


@pytest.mark.needs_torch
def test_modules_of_torch_are_exported_with_their_arguments() -> None:
    import torch

    linear = torch.nn.Linear(3, 4).eval()
    found = tw.compare(linear, "O0", args=(torch.ones(2, 3),))
    assert found
    assert found.outputs[0].size == 8
    with pytest.raises(UserError, match="are for modules of torch"):
        tw.compare(model(), args=(1,))
