"""Chains of elementwise steps between bytes are looked up, and mean what they meant."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from fakes.graphs import assert_stays, copy_of, only, ops, parse, run
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.passes import run_passes
from tilewright.compiler.transforms import Simplify, TabulateBytes, tabulate_bytes


def scalar(name, dtype, value):
    return f" %{name}: {dtype}[] = constant {{value = {dtype}[] [{value}]}}"


def step(name, dtype, op, operands, shape="N, 7", attributes=""):
    return f" %{name}: {dtype}[{shape}] = {op}({operands}) {attributes}"


def opened(name, x, shape="N, 7"):
    """A tensor of bytes as floats around 119."""
    return (
        step(f"{name}_wide", "f32", "cast", f"%{x}", shape, "{dtype = f32}")
        + step(f"{name}_shifted", "f32", "sub", f"%{name}_wide, %middle", shape)
        + step(name, "f32", "mul", f"%{name}_shifted, %scale", shape)
    )


NUMBERS = (
    scalar("middle", "f32", 119.0)
    + scalar("scale", "f32", 0.0206)
    + scalar("root", "f32", 1.4142135)
    + scalar("small", "f32", 0.0078)
    + scalar("zero", "u8", 127)
)


def activation(byte="u8", shape="N, 7"):
    """erf(x / sqrt 2) of bytes, quantized, times what it is of, quantized again."""
    return (
        f"graph @g<N: 0..>(%q: {byte}[{shape}]) {{{NUMBERS}"
        + opened("x", "q", shape)
        + step("d", "f32", "div", "%x, %root", shape)
        + step("e", "f32", "erf", "%d", shape)
        + step("eq", "u8", "quantize_linear", "%e, %small, %zero", shape)
        + opened("f", "eq", shape)
        + step("p", "f32", "mul", "%x, %f", shape)
        + step("y", "u8", "quantize_linear", "%p, %scale, %zero", shape)
        + " return %y }"
    )


def every(dtype, *shape):
    """All bytes, and some of them again."""
    return np.resize(np.arange(256, dtype=np.uint8), shape).view(dtype)


@pytest.mark.parametrize(
    ("byte", "shape"), [("u8", "N, 7"), ("i8", "N, 7"), ("u8", "41, 7")]
)
def test_a_chain_between_bytes_is_one_table(byte, shape):
    graph = parse(activation(byte, shape))
    before = copy_of(graph)
    result = run_passes(graph, [TabulateBytes()])
    assert result.modified
    assert ops(graph) == ["table_lookup"]
    x = every(np.dtype("uint8" if byte == "u8" else "int8"), 41, 7)
    np.testing.assert_array_equal(evaluate(graph, [x])[0], evaluate(before, [x])[0])
    assert len(np.unique(evaluate(before, [x])[0])) > 50


def test_one_division_is_no_table():
    assert_stays(
        [TabulateBytes()],
        f"graph @g<N: 0..>(%q: u8[N, 7]) {{{NUMBERS}"
        + opened("x", "q")
        + step("y", "u8", "quantize_linear", "%x, %small, %zero")
        + " return %y }",
    )


def test_bytes_of_two_tensors_are_no_table():
    text = (
        f"graph @g<N: 0..>(%q: u8[N, 7], %r: u8[N, 7]) {{{NUMBERS}"
        + opened("x", "q")
        + opened("w", "r")
        + step("d", "f32", "erf", "%x")
        + step("s", "f32", "div", "%d, %w")
        + step("y", "u8", "quantize_linear", "%s, %small, %zero")
        + " return %y }"
    )
    assert_stays([TabulateBytes()], text)


def test_numbers_of_columns_are_no_table():
    columns = ", ".join(str(float(i)) for i in range(1, 8))
    text = (
        f"graph @g<N: 0..>(%q: u8[N, 7]) {{{NUMBERS}"
        f" %line: f32[7] = constant {{value = f32[7] [{columns}]}}"
        + opened("x", "q")
        + step("d", "f32", "div", "%x, %line")
        + step("e", "f32", "erf", "%d")
        + step("y", "u8", "quantize_linear", "%e, %small, %zero")
        + " return %y }"
    )
    assert_stays([TabulateBytes()], text)


def test_bytes_on_the_way_that_others_read_have_a_table_too():
    text = activation().replace("return %y", "return %y, %eq")
    graph = parse(text)
    before = copy_of(graph)
    run_passes(graph, [TabulateBytes()])
    assert ops(graph) == ["table_lookup"] * 2
    x = every(np.dtype("uint8"), 37, 7)
    for old, new in zip(evaluate(before, [x]), evaluate(graph, [x]), strict=True):
        np.testing.assert_array_equal(new, old)


def test_a_chain_begins_behind_what_a_sum_makes():
    """Bytes that are made of two tensors are where a table begins."""
    text = activation().replace("(%q: u8[N, 7])", "(%a: f32[N, 7], %b: f32[N, 7])")
    made = step("s", "f32", "add", "%a, %b") + step(
        "q", "u8", "quantize_linear", "%s, %scale, %zero"
    )
    graph = parse(text.replace(NUMBERS, NUMBERS + made))
    run_passes(graph, [TabulateBytes()])
    assert ops(graph) == ["add", "quantize_linear", "table_lookup"]


def test_a_cast_of_what_is_looked_up_is_another_table():
    values = ", ".join(map(str, range(255, -1, -1)))
    text = (
        "graph @g<N: 0..>(%q: u8[N, 7]) {"
        f" %t: u8[256] = constant {{value = u8[256] [{values}]}}"
        " %y: u8[N, 7] = table_lookup(%q, %t) %z: i16[N, 7] = cast(%y) {dtype = i16}"
    )
    graph = run([Simplify()], f"{text} return %z }}")
    # The wider table is made by `fold_constants`.
    assert ops(graph) == ["cast", "table_lookup"]
    assert only(graph, "cast").result.type.shape == (256,)
    assert_stays([Simplify()], f"{text} return %y, %z }}")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("shape", [(5, 7, 33), (1, 1, 1), (0, 3, 3)])
def test_a_quantized_activation_of_a_model_is_looked_up(shape):
    """`Sigmoid` in both forms of bytes, after a sum that is rounded to bytes."""
    nodes, held = [], []
    steps = [("a", "x", 0.02, np.uint8(119)), ("b", "s", 0.0039, np.int8(-128))]
    for name, source, scale, zero in steps:
        held += [numpy_helper.from_array(np.float32(scale), f"{name}s"),
                 numpy_helper.from_array(np.asarray(zero), f"{name}z")]  # fmt: skip
        if name == "b":
            nodes.append(helper.make_node("Sigmoid", ["af"], ["s"]))
        nodes.append(
            helper.make_node(
                "QuantizeLinear", [source, f"{name}s", f"{name}z"], [f"{name}q"]
            )
        )
        nodes.append(
            helper.make_node(
                "DequantizeLinear", [f"{name}q", f"{name}s", f"{name}z"], [f"{name}f"]
            )
        )
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape[1:]])],
        [helper.make_tensor_value_info("bq", TensorProto.INT8, None)], held,
    )  # fmt: skip
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    program = tw.compile(model)
    assert any("table_lookup" in kernel.name for kernel in program.kernels)
    x = np.random.default_rng(3).normal(0, 1.5, shape).astype(np.float32)
    odd = np.array([np.nan, np.inf, -np.inf], np.float32)[: x.size]
    x.reshape(-1)[: odd.size] = odd
    with np.errstate(invalid="ignore"):
        a = np.clip(np.rint(x / np.float32(0.02)) + 119, 0, 255)
    a = np.where(np.isnan(x), 0, a).astype(np.float32)
    s = 1 / (1 + np.exp(-((a - 119) * np.float32(0.02)).astype(np.float64)))
    expected = np.clip(np.rint(s.astype(np.float32) / np.float32(0.0039)) - 128, -128, 127)
    np.testing.assert_array_equal(program(x), expected.astype(np.int8))


def chain_of(opened_up):
    """q of `opened_up` pairs of a sum and a tangent over bytes."""
    steps, last = [], "x"
    for i in range(opened_up):
        steps.append(step(f"a{i}", "f32", "add", f"%{last}, %small"))
        steps.append(step(f"t{i}", "f32", "tanh", f"%a{i}"))
        last = f"t{i}"
    return (
        f"graph @g<N: 0..>(%q: u8[N, 7]) {{{NUMBERS}"
        + opened("x", "q")
        + "".join(steps)
        + step("y", "u8", "quantize_linear", f"%{last}, %scale, %zero")
        + " return %y }"
    )


def test_a_chain_as_long_as_no_activation_is_one_table():
    graph = parse(chain_of(29))
    before = copy_of(graph)
    run_passes(graph, [TabulateBytes()])
    assert ops(graph) == ["table_lookup"]
    x = every(np.dtype("uint8"), 41, 7)
    np.testing.assert_array_equal(evaluate(graph, [x])[0], evaluate(before, [x])[0])


@pytest.mark.parametrize("count", [33, 200, pytest.param(2500, marks=pytest.mark.slow)])
def test_longer_chains_stay_as_they_are(count):
    """They were walked by recursion, one frame a step and more, which Python ends."""
    graph = parse(chain_of(count))
    nodes = ops(graph)
    assert not run_passes(graph, [TabulateBytes()]).modified
    assert ops(graph) == nodes


def test_a_table_begins_at_bytes_that_are_near_enough():
    """Behind what is too long for one table lie bytes that begin the last part of it."""
    text = chain_of(200).replace(
        "return %y",
        opened("z", "y")
        + step("e", "f32", "erf", "%z")
        + step("d", "f32", "div", "%e, %root")
        + step("last", "u8", "quantize_linear", "%d, %small, %zero")
        + " return %last",
    )
    graph = parse(text)
    run_passes(graph, [TabulateBytes()])
    assert ops(graph)[-2:] == ["quantize_linear", "table_lookup"]
    assert ops(graph).count("tanh") == 200


def test_what_is_read_twice_is_gone_through_once(monkeypatch):
    """Twenty sums of a value with itself have a million ways to the bytes."""
    met = []
    count = tabulate_bytes._is_step
    monkeypatch.setattr(tabulate_bytes, "_is_step", lambda n: met.append(n) or count(n))
    sums = "".join(step(f"s{i + 1}", "f32", "add", f"%s{i}, %s{i}") for i in range(20))
    graph = parse(
        f"graph @g<N: 0..>(%q: u8[N, 7]) {{{NUMBERS}"
        + opened("x", "q")
        + step("e", "f32", "erf", "%x")
        + step("s0", "f32", "div", "%e, %root")
        + sums
        + step("y", "u8", "quantize_linear", "%s20, %small, %zero")
        + " return %y }"
    )
    run_passes(graph, [TabulateBytes()])
    assert ops(graph) == ["table_lookup"]
    assert len(met) == len(set(met))
