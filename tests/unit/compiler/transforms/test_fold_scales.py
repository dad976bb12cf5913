import numpy as np

from fakes.graphs import assert_stays, only, ops, parse, run
from tilewright.compiler.transforms import FoldConstants, FoldScales, Simplify

F = [Simplify(), FoldScales(), FoldConstants()]


def array(shape, seed=0):
    """A small constant as text."""
    values = np.random.default_rng(seed).integers(1, 9, shape).astype(np.float32) / 4
    listed = ", ".join(map(str, values.ravel()))
    dims = ", ".join(map(str, shape))
    return f"f32[{dims}] = constant {{value = f32[{dims}] [{listed}]}}"


def conv(*lines, result, layout="NCHW"):
    shape = "N, 2, 3, 3" if layout == "NCHW" else "N, 3, 3, 2"
    return (
        f"graph @g<N: 1..>(%x: f32[{shape}]) {{ %w: {array((2, 2, 1, 1))}"
        f" %a: {array((2, 1, 1), 1)} %b: {array((2, 1, 1), 2)} %r: {array((2,), 3)}"
        f" {' '.join(lines)} return %{result} }}"
    ).replace("T", f"f32[{shape}]")


def test_batch_norm_after_a_convolution_becomes_weights_and_one_bias():
    graph = run(
        F,
        conv(
            "%c: T = conv(%x, %w, %r)",
            "%m: T = mul(%c, %a)",
            "%y: T = add(%m, %b)",
            result="y",
        ),
    )
    assert ops(graph) == ["conv", "add"]
    assert len(only(graph, "conv").present_operands) == 2


def test_two_batch_norms_in_a_row_become_one_bias():
    graph = run(
        F,
        conv(
            "%c: T = conv(%x, %w)", "%m: T = mul(%c, %a)", "%n: T = add(%m, %b)",
            "%o: T = mul(%n, %b)", "%y: T = add(%o, %a)", result="y",
        ),
    )  # fmt: skip
    assert ops(graph) == ["conv", "add"]


def test_channels_last_scales_are_found_on_the_last_axis():
    text = conv(
        '%c: T = conv(%x, %w) {layout = "NHWC"}',
        "%y: T = mul(%c, %r)",
        result="y",
        layout="NHWC",
    )
    assert ops(run(F, text)) == ["conv"]
    text = conv("%c: T = conv(%x, %w)", "%y: T = mul(%c, %q)", result="y").replace(
        "%r:", f"%q: {array((3,), 4)} %r:"
    )
    assert ops(run(F, text)) == ["conv", "mul"]


def test_a_shared_convolution_keeps_its_weights():
    text = conv(
        "%c: T = conv(%x, %w)", "%m: T = mul(%c, %a)", "%y: T = add(%m, %c)", result="y"
    )
    assert ops(run(F, text)) == ["conv", "mul", "add"]


def test_dynamic_weights_are_left_alone():
    assert_stays(
        [FoldScales()],
        f"graph @g(%x: f32[1, 2, 3, 3], %w: f32[2, 2, 1, 1]) {{ %a: {array((2, 1, 1))}"
        " %c: f32[1, 2, 3, 3] = conv(%x, %w) %y: f32[1, 2, 3, 3] = mul(%c, %a) return %y }",
    )


def test_transposed_convolutions_scale_along_their_output_axis():
    graph = run(
        F,
        f"graph @g(%x: f32[1, 2, 3, 3]) {{ %w: {array((2, 3, 2, 2))} %a: {array((3, 1, 1), 1)}"
        " %c: f32[1, 3, 4, 4] = conv_transpose(%x, %w) %y: f32[1, 3, 4, 4] = mul(%c, %a)"
        " return %y }",
    )
    assert ops(graph) == ["conv_transpose"]


def test_column_scales_of_a_matmul_fold_but_scalars_stay_in_the_epilogue():
    text = (
        f"graph @g<N: 1..>(%x: f32[N, 2]) {{ %w: {array((2, 3))} %a: A"
        " %m: f32[N, 3] = matmul(%x, %w) %y: f32[N, 3] = mul(%m, %a) return %y }"
    )
    assert ops(run(F, text.replace("A", array((3,), 1)))) == ["matmul"]
    scalar = "f32[] = constant {value = f32[] [0.125]}"
    assert ops(run(F, text.replace("A", scalar))) == ["matmul", "mul"]


def attention(dtype="f32", scale="0.5"):
    return (
        "graph @g<N: 1..>(%q: f32[N, 4], %k: f32[4, N]) {"
        f" %s: f32[] = constant {{value = f32[] [{scale}]}} %a: f32[N, 4] = mul(%q, %s)"
        " %b: f32[4, N] = mul(%k, %s) %y: f32[N, N] = matmul(%a, %b) return %y }"
    ).replace("f32", dtype)


def test_scales_in_front_of_a_product_go_behind_it():
    graph = run([*F, Simplify()], attention())
    assert ops(graph) == ["matmul", "mul"]
    assert graph.nodes[-1].operands[1].node.attributes["value"] == np.float32(0.25)


def test_half_precision_and_extreme_scales_stay_in_front():
    assert ops(parse(attention("f16"))) == ops(run(F, attention("f16")))
    assert ops(run(F, attention(scale="1e-6"))) == ["mul", "mul", "matmul"]


def test_an_affine_layer_behind_a_norm_becomes_one_scale_and_one_shift():
    text = (
        f"graph @g<N: 1..>(%x: f32[N, 3]) {{ %a: {array((3,))} %b: {array((3,), 1)}"
        " %p: f32[N, 3] = mul(%x, %a) %q: f32[N, 3] = add(%p, %b) %r: f32[N, 3] = mul(%q, %b)"
        " %y: f32[N, 3] = add(%r, %a) return %y }"
    )
    assert ops(run(F, text)) == ["mul", "add"]
    assert ops(run(F, text.replace("return %y", "return %y, %q"))) == [
        "mul",
        "add",
        "mul",
        "add",
    ]


def test_sums_without_a_scale_are_not_reassociated():
    text = (
        f"graph @g<N: 1..>(%x: f32[N, 3]) {{ %a: {array((3,))} %b: {array((3,), 1)}"
        " %q: f32[N, 3] = add(%x, %b) %y: f32[N, 3] = add(%q, %a) return %y }"
    )
    assert_stays([FoldScales()], text)


def test_weights_of_bytes_take_no_factor_of_their_sums():
    assert_stays(
        [FoldScales()],
        "graph @g(%x: i8[2, 3]) { %w: i8[3, 4] = constant {value = i8[3, 4] splat 7}"
        " %k: i32[] = constant {value = i32[] splat 300}"
        " %m: i32[2, 4] = matmul(%x, %w) {dtype = i32} %y: i32[2, 4] = mul(%m, %k) return %y }",
    )
