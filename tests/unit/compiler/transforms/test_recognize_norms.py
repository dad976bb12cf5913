import pytest

from fakes.graphs import ops, run
from tilewright.compiler.transforms import RecognizeNorms, Simplify

R = [Simplify(), RecognizeNorms()]


def layer_norm(square, quotient, tail="", result="n"):
    return (
        "graph @g<N: 1..>(%x: f32[N, 3, 4], %s: f32[4], %b: f32[1, 4], %t: f32[3, 1]) {"
        " %two: f32[] = constant {value = f32[] [2.0]}"
        " %eps: f32[] = constant {value = f32[] [1e-5]}"
        " %m: f32[N, 3, 1] = reduce_mean(%x) {axes = [-1]} %d: f32[N, 3, 4] = sub(%x, %m)"
        f" %q: f32[N, 3, 4] = {square} %v: f32[N, 3, 1] = reduce_mean(%q) {{axes = [2]}}"
        " %e: f32[N, 3, 1] = add(%v, %eps) %r: f32[N, 3, 1] = sqrt(%e)"
        f" {quotient} {tail} return %{result} }}"
    )


DIVIDED = "%n: f32[N, 3, 4] = div(%d, %r)"
INVERTED = "%i: f32[N, 3, 1] = reciprocal(%r) %n: f32[N, 3, 4] = mul(%i, %d)"


@pytest.mark.parametrize("square", ["pow(%d, %two)", "mul(%d, %d)"])
@pytest.mark.parametrize("quotient", [DIVIDED, INVERTED])
def test_layer_norm_spelled_out(square, quotient):
    graph = run(R, layer_norm(square, quotient))
    assert ops(graph) == ["layer_norm"]
    assert graph.nodes[-1].attributes == {"axis": 2, "epsilon": pytest.approx(1e-5)}


def test_scale_and_bias_of_the_normalized_shape_are_absorbed():
    tail = "%k: f32[N, 3, 4] = mul(%n, %s) %o: f32[N, 3, 4] = add(%b, %k)"
    graph = run(R, layer_norm("mul(%d, %d)", DIVIDED, tail, "o"))
    assert ops(graph) == ["reshape", "layer_norm"]
    assert len(graph.nodes[-1].present_operands) == 3


def test_a_bias_without_a_scale_is_absorbed():
    tail = "%o: f32[N, 3, 4] = add(%n, %s)"
    graph = run(R, layer_norm("mul(%d, %d)", DIVIDED, tail, "o"))
    assert ops(graph) == ["layer_norm"]
    assert graph.nodes[-1].operands[1] is None


def test_other_factors_stay_outside():
    tail = "%o: f32[N, 3, 4] = mul(%n, %t)"
    assert ops(run(R, layer_norm("mul(%d, %d)", DIVIDED, tail, "o"))) == [
        "layer_norm",
        "mul",
    ]


def test_a_norm_used_twice_keeps_its_scale_apart():
    tail = "%k: f32[N, 3, 4] = mul(%n, %s)"
    graph = run(R, layer_norm("mul(%d, %d)", DIVIDED, tail, "k, %n"))
    assert ops(graph) == ["layer_norm", "mul"]


def rms(axis="[-1]", epsilon="1e-6", keepdims=""):
    return (
        "graph @g<N: 1..>(%x: f32[N, 4], %w: f32[4]) {"
        f" %eps: f32[] = constant {{value = f32[] [{epsilon}]}}"
        " %two: f32[] = constant {value = f32[] [2.0]} %q: f32[N, 4] = pow(%x, %two)"
        f" %v: SHAPE = reduce_mean(%q) {{axes = {axis}{keepdims}}} %e: SHAPE = add(%v, %eps)"
        " %r: SHAPE = sqrt(%e) %i: SHAPE = reciprocal(%r)"
        " %n: f32[N, 4] = mul(%x, %i) %y: f32[N, 4] = mul(%w, %n) return %y }"
    )


def test_rms_norm_spelled_out_with_its_weight():
    graph = run(R, rms().replace("SHAPE", "f32[N, 1]"))
    assert ops(graph) == ["rms_norm"]
    assert len(graph.nodes[-1].present_operands) == 2


def test_a_mean_over_other_axes_is_no_norm():
    graph = run(R, rms(axis="[0]").replace("SHAPE", "f32[1, 4]"))
    assert "rms_norm" not in ops(graph)


def test_a_mean_of_something_else_is_no_norm():
    text = layer_norm("mul(%x, %x)", DIVIDED)
    assert "layer_norm" not in ops(run(R, text))
    assert "rms_norm" not in ops(run(R, text))


def test_a_negative_epsilon_is_no_norm():
    graph = run(R, rms(epsilon="-1e-30").replace("SHAPE", "f32[N, 1]"))
    assert "rms_norm" not in ops(graph)


def groups(shape="2, 6, 3, 5", fold="2, 3, 30", scale="1", bias="0", back=None):
    return (
        f"graph @g<N: 1..>(%x: f32[{shape}]) {{"
        f" %s: f32[3] = constant {{value = f32[3] splat {scale}}} %b: f32[3] = constant {{value = f32[3] splat {bias}}}"
        f" %f: f32[{fold}] = reshape(%x) {{shape = [{fold}]}}"
        f" %n: f32[{fold}] = instance_norm(%f, %s, %b) {{epsilon = 0.001}}"
        f" %y: f32[{back or shape}] = reshape(%n) {{shape = [{back or shape}]}} return %y }}"
    )


@pytest.mark.parametrize(
    ("shape", "fold"),
    [
        ("2, 6, 3, 5", "2, 3, 30"),
        ("N, 6, 4", "N, 3, 8"),
        ("1, 3, 2, 3, 4", "1, 3, 24"),
        ("1, 6, N, 2", "1, 3, 4*N"),
    ],
)
def test_instances_of_folded_channels_are_groups(shape, fold):
    graph = run(R, groups(shape, fold))
    assert ops(graph) == ["group_norm"]
    attributes = graph.nodes[-1].attributes
    assert (attributes["groups"], attributes["epsilon"]) == (3, 0.001)


@pytest.mark.parametrize(
    "text",
    [
        groups(scale="2"),
        groups(bias="1"),
        groups(back="2, 3, 6, 5"),
        groups("6, 3, 5", "2, 3, 15"),  # two images would be one
        groups("2, 4, 3, 5", "2, 3, 20"),  # a channel is in two groups
    ],
)
def test_other_instances_of_something_folded_stay(text):
    assert "instance_norm" in ops(run(R, text))
