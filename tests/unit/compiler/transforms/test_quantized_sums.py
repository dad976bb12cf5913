import numpy as np
import pytest

from fakes.graphs import assert_stays, ops, parse, run
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.transforms import DecomposeQuantization, EliminateDead

P = [DecomposeQuantization(), EliminateDead()]
EVERY = np.arange(65536, dtype=np.uint16)


def quantized_sum(
    left=(0.02, 119), right=(0.0084, 0), out=(0.0122, 0), *, dtype="u8", cut="", extra=""
):
    """Two tensors of bytes with all their pairs, added up and quantized."""
    lines = [
        f"%s{i}: f32[] = constant {{value = f32[] [{scale}]}}"
        f" %z{i}: {dtype}[] = constant {{value = {dtype}[] [{zero}]}}"
        for i, (scale, zero) in enumerate((left, right, out))
    ]
    lines += [
        f"%f{i}: f32[256, 256] = dequantize_linear(%{name}, %s{i}, %z{i}) {{axis = 0}}"
        for i, name in enumerate("ab")
    ]
    lines.append("%t: f32[256, 256] = add(%f0, %f1)")
    if cut:
        lines.append(f"%r: f32[256, 256] = {cut}(%t)")
    total = "%r" if cut else "%t"
    lines.append(f"%y: {dtype}[256, 256] = quantize_linear({total}, %s2, %z2) {{axis = 0}}")
    return (
        f"graph @g(%a: {dtype}[256, 256], %b: {dtype}[256, 256]) {{"
        f" {' '.join(lines)} return %y{extra} }}"
    )


def pairs(dtype):
    high, low = (EVERY >> 8).astype(np.uint8), (EVERY & 255).astype(np.uint8)
    return [part.view(dtype).reshape(256, 256) for part in (high, low)]


def last_scale(graph):
    (node,) = (n for n in graph.nodes if n.op == "quantize_linear")
    maker = node.operands[1].node
    assert maker is not None
    return float(maker.attributes["value"])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cut": "relu"},
        {"left": (0.031, 0), "right": (0.007, 255), "out": (0.025, 131)},
        {"left": (0.02, -3), "right": (0.013, 5), "out": (0.0171, -128), "dtype": "i8"},
        {"left": (0.001, 7), "right": (0.002, 9), "out": (1.7, 100)},
    ],
)
def test_sums_of_bytes_are_quantized_without_a_quotient_and_every_pair_has_its_byte(
    changes,
):
    text = quantized_sum(**changes)
    graph = run(P, text)
    assert last_scale(graph) == 1
    given = pairs(np.int8 if changes.get("dtype") == "i8" else np.uint8)
    want = evaluate(parse(text), given)[0]
    np.testing.assert_array_equal(evaluate(graph, given)[0], want)


def test_sums_that_no_factors_nearby_round_alike_keep_their_quotient():
    text = quantized_sum(left=(3.1, 7), right=(0.002, 9), out=(1.7, 100))
    assert last_scale(run(P, text)) == np.float32(1.7)


def test_scales_that_meet_in_the_middle_between_bytes_keep_their_ties():
    # Half of the sums lie exactly between two bytes; f32 holds these factors.
    text = quantized_sum(left=(0.5, 3), right=(0.25, 0), out=(1.0 * 2, 1))
    graph = run(P, text)
    given = pairs(np.uint8)
    np.testing.assert_array_equal(
        evaluate(graph, given)[0], evaluate(parse(text), given)[0]
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"out": (1.0, 0)},  # nothing to leave out
        {"out": (1e-30, 0)},
        {"left": (1e30, 0)},
    ],
)
def test_other_scales_stay_as_they_are(changes):
    before = run(P, quantized_sum(**changes))
    assert last_scale(before) == np.float32(changes.get("out", (0.0122, 0))[0])


def test_a_sum_that_is_read_elsewhere_is_quantized_as_it_is():
    text = quantized_sum(extra=", %t")
    assert last_scale(run(P, text)) == np.float32(0.0122)


def test_sums_of_floats_stay():
    assert_stays(
        [DecomposeQuantization()],
        "graph @g(%a: f32[3, 4], %b: f32[3, 4]) { %s: f32[] = constant {value = f32[] [0.5]}"
        " %t: f32[3, 4] = add(%a, %b) %y: u8[3, 4] = quantize_linear(%t, %s) {axis = 0} return %y }",
    )


def test_what_is_left_is_two_products_and_a_sum():
    assert [op for op in ops(run(P, quantized_sum(left=(0.02, 0)))) if op != "constant"] == [
        "cast", "cast", "mul", "mul", "add", "quantize_linear",
    ]  # fmt: skip
