"""Contractions of quantized tensors multiply bytes, and mean what they meant."""

import numpy as np
import pytest

from fakes.graphs import assert_becomes, assert_stays, only, ops, parse, run
from tilewright.base import dtypes
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.passes import run_passes
from tilewright.compiler.transforms import (
    DecomposeQuantization,
    EliminateDead,
    FoldConstants,
    QuantizeContractions,
)

P = [FoldConstants(keep_bytes=True), QuantizeContractions()]
RNG = np.random.default_rng(0)


def listed(name, dtype, values, shape=""):
    """A constant of `values` as text."""
    text = ", ".join(str(v) for v in np.ravel(values))
    return f" %{name}: {dtype}[{shape}] = constant {{value = {dtype}[{shape}] [{text}]}}"


def numbers(name, dtype, *shape, low=-128, high=128):
    if dtype in ("i4", "u4"):
        low, high = -8, 8
    if dtype.startswith("u"):
        low, high = 0, high - low
    values = RNG.integers(low, high, shape)
    return listed(name, dtype, values, ", ".join(map(str, shape)))


def weights(dtype, *shape, zero=None, per_axis=None):
    """`%b`: a matrix or filters as floats, from bytes."""
    count = 1 if per_axis is None else shape[per_axis]
    size = "" if per_axis is None else str(count)
    text = numbers("wq", dtype, *shape)
    text += listed("ws", "f32", [0.01 * (i + 1) for i in range(count)], size)
    operands = "%wq, %ws"
    if zero is not None:
        text += listed("wz", dtype, np.resize(zero, count), size)
        operands += ", %wz"
    sizes = ", ".join(map(str, shape))
    axis = 0 if per_axis is None else per_axis
    return f"{text} %b: f32[{sizes}] = dequantize_linear({operands}) {{axis = {axis}}}"


def data(dtype, *shape, zero=3, scale=0.05, name="x"):
    """`%a`: an input of bytes as floats."""
    sizes = ", ".join(map(str, shape))
    return (
        listed("xs", "f32", [scale]) + listed("xz", dtype, [zero])
        + f" %a: f32[{sizes}] = dequantize_linear(%{name}, %xs, %xz)"
    )  # fmt: skip


def product(left, right, zero=3, per_axis=None, right_zero=None):
    return (
        f"graph @g(%x: {left}[3, 6]) {{"
        + data(left, 3, 6, zero=zero)
        + weights(right, 6, 5, per_axis=per_axis, zero=right_zero)
        + " %y: f32[3, 5] = matmul(%a, %b) return %y }"
    )


def contraction(graph):
    """The types of the operands and the result of the only product."""
    (node,) = (n for n in graph.nodes if n.op in ("matmul", "conv"))
    return [v.type.dtype.name for v in (*node.operands, node.result)]


# --- forms -----------------------------------------------------------------------------------


@pytest.mark.thinned(5)
@pytest.mark.parametrize("left", ["u8", "i8"])
@pytest.mark.parametrize("right", ["u8", "i8"])
@pytest.mark.parametrize("per_axis", [None, 1])
@pytest.mark.parametrize("right_zero", [None, [0], [128, 7, 3, 100, 20]])
def test_products_of_any_signs_and_zero_points(left, right, per_axis, right_zero):
    if right == "i8" and right_zero is not None:
        right_zero = [z // 2 for z in right_zero]
    if per_axis is None and right_zero is not None:
        right_zero = right_zero[:1]
    graph = run(P, product(left, right, per_axis=per_axis, right_zero=right_zero))
    assert contraction(graph) == ["u8", "i8", "i32"]


@pytest.mark.parametrize("right", ["i4", "u4"])
@pytest.mark.parametrize("per_axis", [None, 1])
@pytest.mark.parametrize("right_zero", [None, [3, 0, 7, 1, 2]])
def test_known_integers_of_four_bits_are_multiplied_as_bytes(right, per_axis, right_zero):
    zero = right_zero if per_axis or right_zero is None else right_zero[:1]
    graph = run(P, product("u8", right, per_axis=per_axis, right_zero=zero))
    assert contraction(graph) == ["u8", "i8", "i32"]


@pytest.mark.parametrize("zero", [0, 128])
def test_a_symmetric_left_operand_needs_no_correction(zero):
    graph = run(P, product("u8", "i8", zero=zero))
    assert ("sub" in ops(graph)) == (zero != 0)


def test_weights_around_a_zero_point_are_bytes_without_it_where_that_fits():
    text = product("u8", "u8", right_zero=[128])
    assert "reduce_sum" not in ops(run(P, text))


def image(
    left, right, *, groups=1, channels=4, filters=6, zero=3, right_zero=None, more=""
):
    depth = channels // groups
    return (
        f"graph @g(%x: {left}[2, {channels}, 5, 6]) {{"
        + data(left, 2, channels, 5, 6, zero=zero)
        + weights(right, filters, depth, 3, 3, per_axis=0, zero=right_zero)
        + more
        + f" %y: f32[2, {filters}, 5, 3] = conv(%a, %b{', %c' if more else ''})"
        f" {{strides = [1, 2], pads = [1, 1, 1, 1], dilations = [], groups = {groups},"
        ' layout = "NCHW"} return %y }'
    )


@pytest.mark.parametrize("left", ["u8", "i8"])
@pytest.mark.parametrize("right", ["u8", "i8"])
@pytest.mark.parametrize("groups", [1, 2])
def test_padding_of_a_convolution_stands_for_zero(left, right, groups):
    right_zero = [128] if right == "u8" else None
    graph = run(P, image(left, right, groups=groups, right_zero=right_zero))
    assert contraction(graph) == ["u8", "i8", "i32"]
    assert only(graph, "pad").operands[1] is not None


def test_rows_are_summed_where_weights_do_not_fit_without_their_zero_point():
    graph = run(P, image("u8", "u8", right_zero=[7, 250, 0, 3, 90, 255]))
    assert [n.op for n in graph.nodes].count("conv") == 2


def test_groups_whose_weights_do_not_fit_stay_floats():
    graph = run(P, image("u8", "u8", groups=2, right_zero=[0]))
    assert contraction(graph) == ["f32", "f32", "f32"]


def test_a_filter_for_every_channel_may_be_wider():
    text = image("u8", "u8", groups=4, filters=4, right_zero=[0])
    assert contraction(run(P, text)) == ["u8", "i16", "i32"]


def test_a_bias_in_whole_steps_is_part_of_the_sum():
    scale = np.float32(0.05) * np.float32([0.01 * (i + 1) for i in range(6)])
    exact = (np.arange(-3, 3).astype(np.float32) * scale).tolist()
    for bias, floats in ((exact, 0), ([0.123] * 6, 1)):
        text = image("u8", "i8", more=listed("c", "f32", bias, "6"))
        graph = run(P, text)
        added = [n.result.type.dtype for n in graph.nodes if n.op == "add"]
        assert added.count(dtypes.f32) == floats


def test_two_computed_operands_change_their_sign_where_they_are_quantized():
    graph = run(
        P,
        "graph @g(%x: f32[2, 3, 4], %w: f32[2, 5, 4]) {"
        + listed("s", "f32", [0.02]) + listed("z", "u8", [120])
        + " %p: u8[2, 3, 4] = quantize_linear(%x, %s, %z)"
        " %q: u8[2, 5, 4] = quantize_linear(%w, %s, %z)"
        " %a: f32[2, 3, 4] = dequantize_linear(%p, %s, %z)"
        " %c: f32[2, 5, 4] = dequantize_linear(%q, %s, %z)"
        " %b: f32[2, 4, 5] = transpose(%c) {perm = [0, 2, 1]}"
        " %y: f32[2, 3, 5] = matmul(%a, %b) return %y }",
    )  # fmt: skip
    assert contraction(graph) == ["u8", "i8", "i32"]
    made = [n.result.type.dtype.name for n in graph.nodes if n.op == "quantize_linear"]
    assert sorted(made) == ["i8", "u8"]


def test_integers_around_zero_points_that_a_call_brings():
    graph = run(
        P,
        "graph @g(%x: u8[3, 6], %z: u8[]) {"
        + numbers("w", "i8", 6, 5)
        + " %xw: i32[3, 6] = cast(%x) {dtype = i32} %zw: i32[] = cast(%z) {dtype = i32}"
        " %a: i32[3, 6] = sub(%xw, %zw) %b: i32[6, 5] = cast(%w) {dtype = i32}"
        " %y: i32[3, 5] = matmul(%a, %b) return %y }",
    )
    assert contraction(graph) == ["u8", "i8", "i32"]


@pytest.mark.parametrize(
    "text",
    [
        # a scale along the sum does not leave it
        product("u8", "i8").replace("%ws: f32[] = constant {value = f32[] [0.01]}",
            "%ws: f32[6] = constant {value = f32[6] [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}"),
        # only one is quantized
        "graph @g(%a: f32[3, 6]) {" + weights("i8", 6, 5)
        + " %y: f32[3, 5] = matmul(%a, %b) return %y }",
    ],
)  # fmt: skip
def test_other_products_stay_floats(text):
    assert contraction(run(P, text)) == ["f32", "f32", "f32"]


@pytest.mark.parametrize("bounds", ["%lo, %hi", "%lo, _", "_, %hi", "%hi, %lo"])
def test_quantization_to_fewer_bits_changes_its_sign_where_it_is_made(bounds):
    bounds = bounds.removesuffix(", _")
    text = (
        "graph @g(%x: f32[3, 6]) {" + listed("s", "f32", [0.25]) + listed("z", "i8", [1])
        + listed("lo", "i8", [-7]) + listed("hi", "i8", [6])
        + " %q: i8[3, 6] = quantize_linear(%x, %s, %z)"
        f" %c: i8[3, 6] = clip(%q, {bounds}) %a: f32[3, 6] = dequantize_linear(%c, %s, %z)"
        + weights("i8", 6, 5) + " %y: f32[3, 5] = matmul(%a, %b) return %y }"
    )  # fmt: skip
    graph = run(P, text)
    assert contraction(graph) == ["u8", "i8", "i32"]
    assert only(graph, "quantize_linear").result.type.dtype is dtypes.u8
    assert ops(graph)[:3] == ["quantize_linear", "clip", "matmul"]
    x = np.linspace(-4, 4, 18, dtype=np.float32).reshape(3, 6)
    x[0, :3] = np.nan, np.inf, -np.inf
    (found,), (wanted,) = evaluate(graph, [x]), evaluate(parse(text), [x])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


# --- halves ----------------------------------------------------------------------------------


def halves(dtype, *, scale=0.0625, steps=(0.5, 0.25, 2.0, 0.125, 1.0), bias=False):
    """A product of a table of bytes, as 16-bit floats have it."""
    text = (
        "graph @g(%x: u8[3, 6]) {" + listed("xs", dtype, [scale]) + listed("xz", "u8", [3])
    )
    text += f" %a: {dtype}[3, 6] = dequantize_linear(%x, %xs, %xz)"
    text += numbers("wq", "i8", 6, 5) + listed("ws", dtype, steps, "5")
    text += f" %b: {dtype}[6, 5] = dequantize_linear(%wq, %ws) {{axis = 1}}"
    text += f" %p: {dtype}[3, 5] = matmul(%a, %b)"
    text += listed("c", dtype, [1.5, -2, 0, 3, 7], "5") if bias else ""
    text += f" %y: {dtype}[3, 5] = add(%p, %c) return %y }}" if bias else " return %p }"
    return text


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("bias", [False, True])
def test_halves_that_bytes_stand_for_are_multiplied_as_bytes(dtype, bias):
    # Powers of two as scales: operands, and sums until they are rounded, are exact either way.
    graph = run(P, halves(dtype, bias=bias))
    assert contraction(graph) == ["u8", "i8", "i32"]


def test_sums_of_bytes_are_nearer_than_those_of_rounded_halves():
    text = halves("f16", scale=0.0517, steps=(0.0101, 0.0203, 0.0307, 0.0409, 0.0501))
    before = parse(text)
    x = RNG.integers(0, 256, (3, 6)).astype(np.uint8)
    values = {n.results[0].name: n.attributes.get("value") for n in before.nodes}
    wide = {k: v.astype(np.float64) for k, v in values.items() if v is not None}
    exact = (x.astype(np.float64) - 3) * wide["xs"] @ (wide["wq"] * wide["ws"])
    graph = parse(text)
    run_passes(graph, P)
    assert contraction(graph) == ["u8", "i8", "i32"]
    ((found,), (old,)) = evaluate(graph, [x]), evaluate(before, [x])
    np.testing.assert_allclose(found, exact, rtol=2**-11, atol=1e-6)
    np.testing.assert_allclose(found, old.astype(np.float64), rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize(
    "changes", [{"scale": 257.0}, {"steps": (1.0, 1.0, 260.0, 1.0, 1.0)}, {"scale": "nan"}]
)
def test_halves_that_may_be_infinite_stay(changes):
    graph = parse(halves("f16", **changes))
    run_passes(graph, P)
    assert contraction(graph) == ["f16", "f16", "f16"]


def test_a_scale_of_halves_that_a_call_brings_may_make_infinities():
    text = halves("f16").replace(
        "graph @g(%x: u8[3, 6]) {", "graph @g(%x: u8[3, 6], %xs: f16[]) {"
    )
    graph = parse(text.replace(listed("xs", "f16", [0.0625]), ""))
    run_passes(graph, P)
    assert contraction(graph) == ["f16", "f16", "f16"]


# --- conversions and moves -------------------------------------------------------------------

SCALE = listed("s", "f32", [0.5]) + listed("z", "u8", [7])


@pytest.mark.parametrize(
    ("move", "shape"),
    [
        ("transpose(%a) {perm = [1, 0]}", "4, 3"),
        ("reshape(%a) {shape = [2, 6]}", "2, 6"),
        ("pad(%a) {pads = [0, 1, 0, 1]}", "3, 6"),
        ("concat(%a, %a) {axis = 1}", "3, 8"),
    ],
)
def test_bytes_are_moved_and_not_what_they_stand_for(move, shape):
    text = (
        "graph @g(%x: u8[3, 4]) {" + SCALE
        + " %a: f32[3, 4] = dequantize_linear(%x, %s, %z)"
        f" %y: f32[{shape}] = {move} return %y }}"
    )  # fmt: skip
    found = ops(run(P, text))
    assert found.index("dequantize_linear") == len(found) - 1


def test_the_largest_of_bytes_stands_for_the_largest():
    text = (
        "graph @g(%x: u8[1, 2, 5, 5]) {" + SCALE
        + " %a: f32[1, 2, 5, 5] = dequantize_linear(%x, %s, %z)"
        " %m: f32[1, 2, 2, 2] = max_pool(%a) {kernel = [2, 2], strides = [2, 2]}"
        " %y: u8[1, 2, 2, 2] = quantize_linear(%m, %s, %z) return %y }"
    )  # fmt: skip
    assert ops(run(P, text)) == ["max_pool"]


def test_a_scale_below_zero_turns_the_order():
    text = (
        "graph @g(%x: u8[1, 2, 5, 5]) {"
        + SCALE.replace("0.5", "-0.5")
        + " %a: f32[1, 2, 5, 5] = dequantize_linear(%x, %s, %z)"
        " %y: f32[1, 2, 2, 2] = max_pool(%a) {kernel = [2, 2], strides = [2, 2]} return %y }"
    )
    assert ops(run(P, text)) == ["dequantize_linear", "max_pool"]


def test_a_scale_that_a_call_brings_may_turn_the_order():
    text = (
        "graph @g(%x: u8[1, 2, 5, 5], %s: f32[]) { %a: f32[1, 2, 5, 5] = dequantize_linear(%x, %s)"
        " %y: f32[1, 2, 2, 2] = max_pool(%a) {kernel = [2, 2], strides = [2, 2]} return %y }"
    )
    assert ops(run(P, text)) == ["dequantize_linear", "max_pool"]


@pytest.mark.parametrize(("other", "stays"), [("0.5", False), ("0.25", True)])
def test_bytes_quantized_by_the_same_scale_are_what_they_were(other, stays):
    text = (
        "graph @g(%x: u8[3, 4]) {" + SCALE + listed("t", "f32", [other])
        + " %a: f32[3, 4] = dequantize_linear(%x, %s, %z)"
        " %y: u8[3, 4] = quantize_linear(%a, %t, %z) return %y }"
    )  # fmt: skip
    assert ("quantize_linear" in ops(run(P, text))) == stays


def test_scales_along_an_axis_move_with_it():
    text = (
        "graph @g(%x: u8[3, 4]) {"
        + listed("s", "f32", [0.5, 0.25, 2.0, 1.0], "4")
        + " %a: f32[3, 4] = dequantize_linear(%x, %s) {axis = 1}"
        " %y: f32[4, 3] = transpose(%a) {perm = [1, 0]} return %y }"
    )
    graph = run(P, text)
    assert ops(graph) == ["transpose", "dequantize_linear"]
    assert only(graph, "dequantize_linear").operands[1].type.shape == (4, 1)


def test_dequantizing_by_one_scale_is_arithmetic():
    assert_becomes(
        [DecomposeQuantization(), EliminateDead()],
        "graph @g(%x: u8[3, 4]) {" + SCALE
        + " %y: f32[3, 4] = dequantize_linear(%x, %s, %z) return %y }",
        "graph @g(%x: u8[3, 4]) { %s: f32[] = constant {value = f32[] [0.5]}"
        " %a: f32[3, 4] = cast(%x) {dtype = f32}"
        " %z: f32[] = constant {value = f32[] [7.0]} %b: f32[3, 4] = sub(%a, %z)"
        " %y: f32[3, 4] = mul(%b, %s) return %y }",
    )  # fmt: skip


def requantization(*, factor="0.02", scale="0.5", integer="i32", shape=""):
    count = f"{shape}" if shape else ""
    values = ", ".join([factor] * (int(shape) if shape else 1))
    return (
        f"graph @g(%x: {integer}[3, 5]) {{"
        f" %f: f32[{count}] = constant {{value = f32[{count}] [{values}]}}"
        + listed("s", "f32", [scale]) + listed("z", "u8", [7])
        + " %w: f32[3, 5] = cast(%x) {dtype = f32} %m: f32[3, 5] = mul(%w, %f)"
        " %y: u8[3, 5] = quantize_linear(%m, %s, %z) return %y }"
    )  # fmt: skip


@pytest.mark.parametrize("shape", ["", "5"])
def test_sums_are_quantized_by_one_factor(shape):
    passes = [DecomposeQuantization(), EliminateDead()]
    graph = run(passes, requantization(shape=shape))
    scales = [
        np.unique(array).tolist()
        for n in graph.nodes
        if n.op == "constant" and (array := n.attributes["value"]).dtype == np.float32
    ]
    assert sorted(scales) == [[np.float32(0.02 / 0.5)], [1.0]]
    x = RNG.integers(-9000, 9000, (3, 5), np.int32)
    x[0] = 0, 2**31 - 1, -(2**31), 12, -13  # no number is between two bytes
    want = np.clip(np.rint(x * 0.04) + 7, 0, 255)
    np.testing.assert_array_equal(evaluate(graph, [x])[0], want)


@pytest.mark.parametrize(
    "changes",
    [
        {"scale": "1.0"},
        {"integer": "f16"},
        {"factor": "1e-30"},
        {"factor": "1e-30", "scale": "1e30"},
        {"factor": "0.0"},
    ],
)
def test_other_factors_stay_as_they_are(changes):
    assert_stays([DecomposeQuantization()], requantization(**changes))


def test_dequantizing_by_several_scales_stays():
    assert_stays(
        [DecomposeQuantization()],
        "graph @g(%x: u8[3, 4], %s: f32[4]) {"
        " %y: f32[3, 4] = dequantize_linear(%x, %s) {axis = 1} return %y }",
    )


def test_weights_of_bytes_are_not_made_wider_before_contractions_saw_them():
    text = "graph @g() {" + weights("i8", 6, 5) + " return %b }"
    assert ops(run([FoldConstants(keep_bytes=True)], text)) == ["dequantize_linear"]
    assert ops(run([FoldConstants()], text)) == []


def test_a_graph_without_quantization_is_left_alone():
    graph = parse("graph @g(%a: f32[3, 4], %b: f32[4, 5]) {"
                  " %y: f32[3, 5] = matmul(%a, %b) return %y }")  # fmt: skip
    assert ops(graph) == ["matmul"]
    assert_stays(
        [QuantizeContractions()],
        "graph @g(%a: f32[3, 4], %b: f32[4, 5]) {"
        " %y: f32[3, 5] = matmul(%a, %b) return %y }",
    )
