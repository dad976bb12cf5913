"""`run` compares the results before and after each pass: what is asserted here is the form."""

import numpy as np
import pytest

from fakes.graphs import EVERYTHING_HELD, ops, parse, run
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.passes import PassContext, run_passes
from tilewright.compiler.transforms import (
    FoldConstants,
    LegalizeConvolution,
    QuantizeContractions,
)


def panel(rows, columns, depth, dtype):
    return 4


G = [LegalizeConvolution(choose_panel=panel), FoldConstants()]


def transposed(x, w, y, attributes="", bias=None):
    """A channels-last transposed convolution of weights that are an input, so nothing is folded."""
    third = f", %b: f32[{bias}]" if bias else ""
    operands = "%x, %w, %b" if bias else "%x, %w"
    return (
        f"graph @g<N: 1.., H: 2..>(%x: f32[{x}], %w: f32[{w}]{third}) {{"
        f' %y: f32[{y}] = conv_transpose({operands}) {{layout = "NHWC"{attributes}}}'
        " return %y }"
    )


def convolutions(graph):
    return [n for n in graph.nodes if n.op in ("contract", "matmul")]


def test_phases_that_see_as_many_taps_share_one_convolution():
    attributes = ", strides = [2, 2], pads = [1, 1, 1, 1]"
    graph = run(G, transposed("N, 5, 6, 3", "3, 2, 4, 4", "N, 10, 12, 2", attributes))
    (found,) = convolutions(graph)
    assert found.result.type.shape[1:] == (6, 7, 2 * 2 * 2)
    assert "concat" not in ops(graph)


def test_a_window_as_large_as_its_stride_is_a_matmul():
    graph = run(
        G, transposed("N, 5, 6, 3", "3, 2, 2, 2", "N, 10, 12, 2", ", strides = [2, 2]")
    )
    (found,) = convolutions(graph)
    assert found.op == "matmul"
    assert "slice" not in ops(graph)


def test_phases_with_fewer_taps_have_convolutions_of_their_own():
    attributes = ", strides = [2, 2], pads = [1, 1, 0, 0]"
    graph = run(G, transposed("1, 5, 4, 3", "3, 2, 3, 3", "1, 10, 8, 2", attributes))
    windows = [n.operands[1].type.shape[2:4] for n in convolutions(graph)[:-1]]
    assert windows == [(2, 2), (2, 1), (1, 2)]
    assert convolutions(graph)[-1].op == "matmul"


def test_one_input_place_meets_no_padding():
    graph = run(G, transposed("N, 1, 1, 3", "3, 5, 4, 4", "N, 4, 4, 5"))
    assert [n.op for n in convolutions(graph)] == ["matmul"]
    assert "pad" not in ops(graph)


def test_every_phase_of_single_channels_is_a_depthwise_convolution():
    attributes = ", strides = [2, 2], pads = [1, 1, 1, 1], groups = 3"
    graph = run(G, transposed("1, 5, 6, 3", "3, 1, 4, 4", "1, 10, 12, 3", attributes))
    assert [n.title for n in convolutions(graph)] == ["depthwise_conv"] * 4


def test_a_size_that_is_not_known_stays_open():
    attributes = ", strides = [3, 2], pads = [1, 0, 1, 1]"
    run(G, transposed("N, H, 4, 3", "3, 2, 4, 3", "N, 3*H - 1, 8, 2", attributes))


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("x", "w", "y", "attributes"),
    [
        # output padding, cropping that leaves the input's border unread, phases without taps
        ("1, 3, 5, 4", "4, 3, 3, 2", "1, 6, 11, 3",
         "strides = [2, 2], pads = [1, 0, 1, 0], output_padding = [1, 1]"),
        ("2, 6, 4, 2", "2, 3, 3, 2", "2, 3, 4, 3", "strides = [1, 2], pads = [2, 3, 3, 1]"),
        ("1, 4, 5, 2", "2, 3, 1, 1", "1, 10, 9, 3", "strides = [3, 2]"),
        ("1, 4, 4, 2", "2, 3, 3, 3", "1, 8, 8, 3", "dilations = [2, 2]"),
        ("1, 4, 4, 2", "2, 3, 3, 3", "1, 11, 13, 3", "dilations = [2, 3], strides = [2, 2]"),
        ("1, 3, 4, 2", "2, 3, 4, 2", "1, 18, 17, 3", "dilations = [3, 4], strides = [4, 4]"),
        ("1, 3, 3, 4", "4, 3, 4, 4", "1, 6, 6, 6",
         "strides = [2, 2], pads = [1, 1, 1, 1], groups = 2"),
        ("1, 3, 3, 4", "4, 5, 5, 3", "1, 9, 7, 20", "strides = [2, 2], groups = 4"),
        ("1, 2, 3, 2, 2", "2, 3, 3, 2, 4", "1, 5, 6, 6, 3", "strides = [2, 2, 2]"),
        ("1, 5, 2", "2, 3, 5", "1, 15, 3", "strides = [3], pads = [1, 1]"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("bias", [False, True])
def test_results_stay_the_same(x, w, y, attributes, bias):
    channels = y.split(", ")[-1]
    graph = run(G, transposed(x, w, y, f", {attributes}", channels if bias else None))
    assert "conv_transpose" not in ops(graph)


def test_strides_far_beyond_the_window_are_looked_at_in_no_time():
    """Phases without taps are most of them, and neighbours alike; too many of either stay a nest."""
    wide = transposed("1, 2, 1", "1, 2, 3", "1, 60003, 2", ", strides = [60000]")
    assert "conv_transpose" not in ops(run(G, wide))
    assert "conv_transpose" in ops(
        run(G, wide.replace("60003", "70003").replace("60000", "70000"))
    )
    graph = parse(wide.replace("60003", str(3 + (1 << 40))).replace("60000", str(1 << 40)))
    run_passes(graph, G, PassContext(), held=EVERYTHING_HELD)
    assert "conv_transpose" in ops(graph)


def test_taps_that_stand_alone_make_no_graph_of_thousands():
    """Every tap is a phase between phases without taps: 17 runs on each axis."""
    attributes = ", strides = [64, 64], dilations = [4, 4]"
    graph = run(G, transposed("1, 2, 2, 1", "1, 1, 9, 9", "1, 97, 97, 1", attributes))
    assert "conv_transpose" in ops(graph)


def test_infinities_reach_only_places_whose_window_has_them():
    """Filters of shorter phases padded with zeros would make NaN of them."""
    text = transposed("1, 3, 3, 1", "1, 1, 3, 3", "1, 7, 7, 1", ", strides = [2, 2]")
    inputs = [np.full((1, 3, 3, 1), np.inf, np.float32), np.ones((1, 1, 3, 3), np.float32)]
    (result,) = evaluate(run(G, text), inputs)
    assert np.isposinf(result).all()


# --- of bytes --------------------------------------------------------------------------------

Q = [FoldConstants(keep_bytes=True), QuantizeContractions()]
RNG = np.random.default_rng(0)


def constant(name, dtype, shape, values):
    sizes = ", ".join(map(str, shape))
    listed = ", ".join(str(v) for v in np.ravel(values))
    return f" %{name}: {dtype}[{sizes}] = constant {{value = {dtype}[{sizes}] [{listed}]}}"


def of_bytes(
    x, w, y, attributes="", *, left="u8", right="i8", zero=3, right_zero=0, axis=None,
    relu=False, stored="u8",
):  # fmt: skip
    """A transposed convolution of bytes; the result is quantized where there is a type to store it in."""
    low = 0 if right == "u8" else -128
    count = 1 if axis is None else w[axis]
    filters = int(y.split(",")[1])
    beside = () if axis is None else (count,)
    text = f"graph @g<N: 1.., H: 2..>(%x: {left}[{x}]) {{"
    text += constant("xs", "f32", (), [0.05]) + constant("xz", left, (), [zero])
    text += f" %a: f32[{x}] = dequantize_linear(%x, %xs, %xz)"
    text += constant("wq", right, w, RNG.integers(low, low + 256, w))
    text += constant("ws", "f32", beside, [0.01 * (i + 1) for i in range(count)])
    text += constant("wz", right, beside, np.resize(right_zero, count))
    sizes = ", ".join(map(str, w))
    text += f" %b: f32[{sizes}] = dequantize_linear(%wq, %ws, %wz) {{axis = {axis or 0}}}"
    text += constant("c", "f32", (filters,), RNG.standard_normal(filters))
    text += f' %t: f32[{y}] = conv_transpose(%a, %b, %c) {{layout = "NCHW"{attributes}}}'
    if relu:
        text += f" %r: f32[{y}] = relu(%t)"
    if not stored:
        return text + f" return {'%r' if relu else '%t'} }}"
    text += constant("ys", "f32", (), [0.25]) + constant("yz", stored, (), [7])
    source = "%r" if relu else "%t"
    return text + f" %y: {stored}[{y}] = quantize_linear({source}, %ys, %yz) return %y }}"


def products(graph):
    """The types of the operands and the result of each convolution."""
    found = [n for n in graph.nodes if n.op in ("conv", "conv_transpose")]
    return {tuple(v.type.dtype.name for v in (*n.operands, n.result)) for n in found}


def assert_same_bytes(text, graph, seed=0):
    """Both graphs give the same, whatever bytes come in; what is quantized to the byte."""
    rng = np.random.default_rng(seed)
    before = parse(text)
    (x,) = before.inputs
    info = np.iinfo(x.type.dtype.numpy)
    shape = [d if isinstance(d, int) else 3 for d in x.type.shape]
    image = rng.integers(info.min, info.max, shape, endpoint=True, dtype=info.dtype)
    (old,), (new,) = evaluate(before, [image]), evaluate(graph, [image])
    if old.dtype == np.float32:
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-4)
    else:
        np.testing.assert_array_equal(new, old)


WINDOWS = [
    ("1, 5, 6, 5", (5, 4, 4, 4), "1, 4, 12, 10", ", strides = [2, 2], pads = [1, 1, 1, 1]"),
    ("2, 5, 4, 3", (5, 3, 3, 3), "2, 3, 8, 6",
     ", strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]"),
    # places that no tap reaches, windows apart, borders that nobody reads, a window of one place
    ("1, 2, 3, 2", (2, 18, 1, 2), "1, 18, 7, 5", ", strides = [3, 3]"),
    ("1, 3, 4, 5", (3, 2, 2, 3), "1, 2, 9, 9", ", strides = [2, 1], dilations = [2, 2]"),
    ("1, 3, 6, 6", (3, 2, 3, 3), "1, 2, 1, 2", ", pads = [3, 4, 4, 2]"),
    ("1, 7, 1, 1", (7, 3, 4, 4), "1, 3, 4, 4", ""),
    ("2, 3, 7", (3, 17, 5), "2, 17, 19", ", strides = [3], pads = [2, 2]"),
]  # fmt: skip


@pytest.mark.thinned(4)
@pytest.mark.parametrize("window", WINDOWS, ids=lambda w: w[3].strip(", ") or "whole")
@pytest.mark.parametrize("left", ["u8", "i8"])
@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("right", [("i8", 0), ("i8", -5), ("u8", 128), ("u8", 9)])
@pytest.mark.parametrize("stored", ["u8", ""])
def test_quantized_images_and_filters_are_multiplied_as_bytes(
    window, left, axis, right, stored
):
    dtype, zero = right
    text = of_bytes(
        *window, left=left, right=dtype, right_zero=zero, axis=axis,
        stored=stored, relu=stored == "u8" and left == "i8",
    )  # fmt: skip
    graph = run(Q, text)
    assert products(graph) == {("u8", "i8", "i32")}
    assert_same_bytes(text, graph)


@pytest.mark.parametrize(
    ("x", "w", "y", "groups"),
    [
        ("1, 4, 5, 5", (4, 3, 3, 3), "1, 6, 11, 11", 2),
        ("1, 20, 3, 5", (20, 1, 3, 3), "1, 20, 7, 11", 20),
        ("1, 3, 4, 5", (3, 7, 2, 2), "1, 21, 8, 10", 3),
    ],
)
@pytest.mark.parametrize("axis", [None, 1])
def test_groups_of_channels_share_the_scales_of_their_filters(x, w, y, groups, axis):
    text = of_bytes(x, w, y, f", strides = [2, 2], groups = {groups}", axis=axis)
    graph = run(Q, text)
    assert products(graph) == {("u8", "i8", "i32")}
    assert_same_bytes(text, graph)


def test_bytes_are_interleaved_and_not_floats():
    text = of_bytes(
        "1, 5, 4, 3", (5, 16, 3, 3), "1, 16, 9, 7", ", strides = [2, 2]", relu=True
    )
    graph = run(Q, text)
    joined = [n for n in graph.nodes if n.op == "concat"]
    assert joined
    assert {n.result.type.dtype.name for n in joined} == {"u8"}


def test_few_filters_are_interleaved_as_floats():
    text = of_bytes("1, 5, 4, 3", (5, 15, 3, 3), "1, 15, 9, 7", ", strides = [2, 2]")
    joined = [n for n in run(Q, text).nodes if n.op == "concat"]
    assert {n.result.type.dtype.name for n in joined} == {"f32"}


def test_an_open_image_of_bytes_stays_open():
    text = of_bytes(
        "N, 3, H, 4",
        (3, 16, 4, 3),
        "N, 16, 3*H - 1, 8",
        ", strides = [3, 2], pads = [1, 0, 1, 1]",
    )
    assert products(run(Q, text)) == {("u8", "i8", "i32")}


@pytest.mark.parametrize(
    "changes",
    [
        {"axis": 0},  # scales of channels do not leave the sum
        {"right_zero": [9, 200, 0], "right": "u8", "axis": 1, "groups": 2},
    ],
)
def test_other_transposed_convolutions_stay_floats(changes):
    groups = changes.pop("groups", 1)
    window = ", strides = [2, 2]" + (f", groups = {groups}" if groups > 1 else "")
    x, w, y = "1, 4, 3, 3", (4, 3, 3, 3), f"1, {3 * groups}, 7, 7"
    text = of_bytes(x, w, y, window, **changes)
    graph = run(Q, text)
    assert products(graph) <= {("f32", "f32", "f32"), ("f32", "f32", "f32", "f32")}
    assert_same_bytes(text, graph)
