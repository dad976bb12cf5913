"""Products of integers run as products of floats exactly where no sum can be rounded."""

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from fakes.graphs import assert_stays, ops, parse, run
from tilewright.compiler.passes import run_passes
from tilewright.compiler.transforms import ContractIntegers, FoldConstants

P = [ContractIntegers()]
HELD = frozenset({"bias-apart"})


def product(depth, *, left="u8", weight=127):
    """Bytes times known weights that are all the same."""
    return (
        f"graph @g(%a: {left}[3, {depth}]) {{"
        f" %b: i32[{depth}, 2] = constant {{value = i32[{depth}, 2] splat {weight}}}"
        f" %w: i32[3, {depth}] = cast(%a) {{dtype = i32}}"
        " %y: i32[3, 2] = matmul(%w, %b) return %y }"
    )


def image(channels, groups=1, weight=127):
    depth = channels // groups
    kernel = f"{groups * 2}, {depth}, 3, 3"
    return (
        f"graph @g(%a: u8[1, {channels}, 5, 6]) {{"
        f" %b: i32[{kernel}] = constant {{value = i32[{kernel}] splat {weight}}}"
        f" %w: i32[1, {channels}, 5, 6] = cast(%a) {{dtype = i32}}"
        f" %y: i32[1, {groups * 2}, 5, 6] = conv(%w, %b)"
        f" {{strides = [], pads = [1, 1, 1, 1], dilations = [], groups = {groups},"
        ' layout = "NCHW"} return %y }'
    )


def products(graph):
    return [n.operands[0].type for n in graph.nodes if n.op in ("matmul", "conv")]


def test_a_sum_that_cannot_leave_what_f32_holds_is_one_product_of_floats():
    # 255 · 127 · 518 < 2²⁴ < 255 · 127 · 519
    assert [str(t) for t in products(run(P, product(518)))] == ["f32[3, 518]"]
    assert [str(t) for t in products(run(P, product(519)))] == [
        "f32[3, 260]",
        "f32[3, 259]",
    ]


def test_known_weights_count_with_what_they_are():
    assert [str(t) for t in products(run(P, product(5000, weight=1)))] == ["f32[3, 5000]"]


def test_operands_of_which_nothing_is_known_stay_integers():
    assert_stays(P, product(8, left="i32"))
    assert_stays(
        P,
        "graph @g(%a: i64[3, 5], %b: i64[5, 2]) {"
        " %y: i64[3, 2] = matmul(%a, %b) return %y }",
    )


def test_two_computed_operands_are_bounded_by_their_types():
    graph = run(
        P,
        "graph @g(%a: i8[3, 50], %b: u8[50, 2]) {"
        " %v: i32[3, 50] = cast(%a) {dtype = i32} %w: i32[50, 2] = cast(%b) {dtype = i32}"
        " %y: i32[3, 2] = matmul(%v, %w) return %y }",
    )
    assert [str(t) for t in products(graph)] == ["f32[3, 50]"]


def test_convolutions_are_cut_along_their_channels():
    assert [str(t) for t in products(run(P, image(57)))] == ["f32[1, 57, 5, 6]"]
    assert [str(t) for t in products(run(P, image(59)))] == [
        "f32[1, 30, 5, 6]",
        "f32[1, 29, 5, 6]",
    ]
    assert [str(t) for t in products(run(P, image(116, groups=2)))] == ["i32[1, 116, 5, 6]"]


def test_a_sum_of_nothing_stays():
    assert "cast" in ops(run(P, product(0)))


def test_weights_around_zero_points_are_folded_whatever_their_size():
    graph = parse(
        "graph @g(%a: f32[3, 300]) {"
        " %b: i8[300, 200] = constant {value = i8[300, 200] splat 7}"
        " %z: i8[] = constant {value = i8[] splat 3}"
        " %v: f32[300, 200] = cast(%b) {dtype = f32} %s: f32[] = cast(%z) {dtype = f32}"
        " %w: f32[300, 200] = sub(%v, %s)"
        " %y: f32[3, 200] = matmul(%a, %w) return %y }"
    )
    run_passes(graph, [FoldConstants()])
    assert ops(graph)[-1] == "matmul"
    assert "sub" not in ops(graph)


def model(kind, operands, **attributes):
    """A model of one node; arrays in pairs with whether they are constant."""
    inputs, constants, names = [], [], []
    for number, (array, constant) in enumerate(operands):
        names.append(f"v{number}")
        proto = onnx.numpy_helper.from_array(array, names[-1])
        if constant:
            constants.append(proto)
        else:
            inputs.append(
                helper.make_tensor_value_info(names[-1], proto.data_type, array.shape)
            )
    node = helper.make_node(kind, names, ["y"], **attributes)
    y = onnx.ValueInfoProto(name="y")
    graph = helper.make_graph([node], "g", inputs, [y], initializer=constants)
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    return onnx.shape_inference.infer_shapes(made)


def ours_and_exact(kind, operands, compute, **attributes):
    made = model(kind, operands, **attributes)
    given = [array for array, constant in operands if not constant]
    ours = np.asarray(tilewright.compile(made, threads=1, jobs=1)(*given))
    np.testing.assert_array_equal(ours, compute(*(a.astype(np.int64) for a, _ in operands)))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("depth", [1, 7, 514, 515, 1100])
@pytest.mark.parametrize("constant", [True, False])
def test_the_largest_sums_are_exact(depth, constant):
    left = np.full((5, depth), 255, np.uint8)
    left[1::2] = 254
    right = np.full((depth, 17), -128, np.int8)
    right[::3, 1::2] = 127
    zero = np.array(0, np.uint8), True
    ours_and_exact(
        "MatMulInteger",
        [(left, False), (right, constant), zero, (np.array(0, np.int8), True)],
        lambda a, b, *_: a @ b,
    )


@pytest.mark.thinned(2)
@pytest.mark.parametrize("zero", [0, 3, 255])
def test_zero_points_stand_in_the_border_of_an_image(zero):
    rng = np.random.default_rng(zero)
    x = rng.integers(0, 256, (1, 3, 5, 7)).astype(np.uint8)
    w = rng.integers(-128, 128, (5, 3, 3, 3)).astype(np.int8)

    def exact(x, w, z):
        wide = np.pad(x - z, ((0, 0), (0, 0), (1, 1), (1, 1)))
        seen = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
        return np.einsum("nchwij,fcij->nfhw", seen, w)

    operands = [(x, False), (w, True), (np.array(zero, np.uint8), True)]
    ours_and_exact("ConvInteger", operands, exact, pads=[1, 1, 1, 1])
    # A zero point that comes with the call, as after DynamicQuantizeLinear.
    operands[2] = (operands[2][0], False)
    ours_and_exact("ConvInteger", operands, exact, pads=[1, 1, 1, 1])


@pytest.mark.thinned(5)
@pytest.mark.parametrize(
    ("channels", "filters", "groups", "size"),
    [(17, 17, 17, (5, 7)), (4, 8, 4, (1, 1)), (6, 9, 3, (6, 5)), (35, 35, 35, (9, 1))],
)
@pytest.mark.parametrize("constant", [True, False])
def test_filters_that_see_some_channels_alone_are_exact(
    channels, filters, groups, size, constant
):
    rng = np.random.default_rng(channels)
    x = rng.choice(np.array([0, 1, 254, 255], np.uint8), (2, channels, *size))
    w = rng.choice(np.array([0, 3, 255], np.uint8), (filters, channels // groups, 3, 3))

    def exact(x, w, left, right):
        wide = np.pad(x - left, ((0, 0), (0, 0), (1, 1), (1, 1)))
        seen = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))[:, :, ::2]
        seen = seen.reshape(2, groups, channels // groups, *seen.shape[2:])
        own = (w - right).reshape(groups, filters // groups, channels // groups, 3, 3)
        total = np.einsum("ngchwij,gfcij->ngfhw", seen, own)
        return total.reshape(2, filters, *total.shape[3:])

    zeros = [(np.array(7, np.uint8), True), (np.array(1, np.uint8), True)]
    ours_and_exact(
        "ConvInteger",
        [(x, False), (w, constant), *zeros],
        exact,
        pads=[1, 1, 1, 1],
        strides=[2, 1],
        group=groups,
    )


@pytest.mark.parametrize("name", ["i8", "u8", "i16", "u16", "u32", "i64", "u64"])
def test_sums_of_any_type_wrap_in_it(name):
    graph = run(
        P,
        f"graph @g(%a: i8[3, 50], %b: i8[50, 2]) {{"
        f" %c: i8[] = constant {{value = i8[] splat 100}} %d: i8[3, 50] = mul(%a, %c)"
        f" %v: {name}[3, 50] = cast(%d) {{dtype = {name}}}"
        f" %w: {name}[50, 2] = cast(%b) {{dtype = {name}}}"
        f" %y: {name}[3, 2] = matmul(%v, %w) return %y }}",
    )
    is_wide = name in ("u16", "u32", "u64")  # of a negative number these are large
    assert str(products(graph)[0]) == (f"{name}[3, 50]" if is_wide else "f32[3, 50]")
