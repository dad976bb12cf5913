import math

import pytest

from fakes.graphs import ops, parse, run
from tilewright.compiler.transforms import RecognizeActivations, Simplify

R = [Simplify(), RecognizeActivations()]
ROOT = math.sqrt(2)


def graph_of(*lines, result="y", extra=""):
    constants = {
        "half": 0.5, "one": 1.0, "two": 2.0, "three": 3.0, "six": 6.0, "zero": 0.0,
        "sixth": 1 / 6, "root": ROOT, "inv": 1 / ROOT, "cubic": 0.044715, "lin": math.sqrt(2 / math.pi),
    }  # fmt: skip
    used = [
        f"%{name}: f32[] = constant {{value = f32[] [{value!r}]}}"
        for name, value in constants.items()
        if any(f"%{name}" in line for line in lines)
    ]
    nodes = [line.replace(" = ", ": f32[N, 4] = ", 1) for line in lines]
    return f"graph @g<N: 1..>(%x: f32[N, 4]{extra}) {{ {' '.join(used + nodes)} return %{result} }}"


EXACT = {
    "as torch exports it": [
        "%a = div(%x, %root)", "%b = erf(%a)", "%c = add(%b, %one)", "%d = mul(%x, %c)",
        "%y = mul(%d, %half)",
    ],
    "half first": [
        "%h = mul(%half, %x)", "%a = mul(%inv, %x)", "%b = erf(%a)", "%c = add(%one, %b)",
        "%y = mul(%h, %c)",
    ],
    "divided by two": [
        "%a = mul(%x, %inv)", "%b = erf(%a)", "%c = add(%b, %one)", "%d = mul(%c, %x)",
        "%y = div(%d, %two)",
    ],
}  # fmt: skip
TANH = {
    "with a power": [
        "%p = pow(%x, %three)", "%q = mul(%p, %cubic)", "%s = add(%x, %q)", "%t = mul(%s, %lin)",
        "%u = tanh(%t)", "%v = add(%u, %one)", "%h = mul(%x, %half)", "%y = mul(%h, %v)",
    ],
    "factored": [
        "%p = mul(%x, %x)", "%q = mul(%p, %cubic)", "%s = add(%q, %one)", "%r = mul(%x, %lin)",
        "%t = mul(%r, %s)", "%u = tanh(%t)", "%v = add(%u, %one)", "%w = mul(%x, %v)",
        "%y = mul(%w, %half)",
    ],
}  # fmt: skip


@pytest.mark.parametrize("lines", EXACT.values(), ids=EXACT.keys())
def test_exact_gelu_in_every_arrangement(lines):
    graph = run(R, graph_of(*lines))
    assert ops(graph) == ["gelu"]
    assert graph.nodes[-1].attributes["approximate"] == "none"


@pytest.mark.parametrize("lines", TANH.values(), ids=TANH.keys())
def test_tanh_gelu_in_every_arrangement(lines):
    graph = run(R, graph_of(*lines))
    assert ops(graph) == ["gelu"]
    assert graph.nodes[-1].attributes["approximate"] == "tanh"


def test_a_wrong_constant_is_no_gelu():
    lines = [line.replace("%root", "%three") for line in EXACT["as torch exports it"]]
    assert "gelu" not in ops(run(R, graph_of(*lines)))
    lines = [line.replace("%one", "%two") for line in EXACT["as torch exports it"]]
    assert "gelu" not in ops(run(R, graph_of(*lines)))


def test_another_scale_leaves_a_product():
    lines = [*EXACT["as torch exports it"][:-1], "%y = mul(%d, %three)"]
    assert ops(run(R, graph_of(*lines))) == ["gelu", "mul"]


def test_silu_with_and_without_a_gate():
    assert ops(run(R, graph_of("%s = sigmoid(%x)", "%y = mul(%x, %s)"))) == ["silu"]
    gated = graph_of(
        "%s = sigmoid(%x)", "%t = mul(%x, %s)", "%y = mul(%t, %g)", extra=", %g: f32[N, 4]"
    )
    assert ops(run(R, gated)) == ["silu", "mul"]
    other = graph_of("%s = sigmoid(%g)", "%y = mul(%x, %s)", extra=", %g: f32[N, 4]")
    assert ops(run(R, other)) == ["sigmoid", "mul"]


def test_a_product_used_elsewhere_is_recognized_by_itself():
    text = graph_of(
        "%s = sigmoid(%x)", "%t = mul(%x, %s)", "%y = mul(%t, %x)", result="y, %t"
    )
    assert sorted(ops(run(R, text))) == ["mul", "silu"]


def test_mish():
    text = graph_of("%s = softplus(%x)", "%t = tanh(%s)", "%y = mul(%x, %t)")
    assert ops(run(R, text)) == ["mish"]


@pytest.mark.parametrize("last", ["%y = div(%p, %six)", "%y = mul(%p, %sixth)"])
def test_hard_swish(last):
    text = graph_of(
        "%a = add(%x, %three)", "%c = clip(%a, %zero, %six)", "%p = mul(%x, %c)", last
    )  # fmt: skip
    assert ops(run(R, text)) == ["hard_swish"]


def test_hard_swish_by_its_gate():
    by_gate = "graph @g(%x: f32[5]) { %h: f32[5] = hard_sigmoid(%x) {alpha = A, beta = 0.5}"
    by_gate += " %y: f32[5] = mul(%h, %x) return %y }"
    assert ops(run(R, by_gate.replace("A", "0.16666667"))) == ["hard_swish"]
    assert ops(run(R, by_gate.replace("A", "0.2"))) == ["hard_sigmoid", "mul"]


def test_integers_are_left_alone():
    graph = parse("graph @g(%x: i32[3]) { %y: i32[3] = mul(%x, %x) return %y }")
    assert ops(graph) == ["mul"]
