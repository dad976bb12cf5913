"""Attention in the forms that exporters and hand-written models have: one op, with the numbers of the model's own ops."""

import numpy as np
import pytest

from fakes.graphs import ops, parse, run
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.transforms import RecognizeAttention, RecognizeNorms, Simplify

R = [Simplify(), RecognizeNorms(), RecognizeAttention(), Simplify()]


def same(text, inputs):
    """The op of a graph's attention, whose results are those of the graph before."""
    graph = run(R, text)
    (expected,), (result,) = evaluate(parse(text), inputs), evaluate(graph, inputs)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert "softmax" not in ops(graph)
    (node,) = (n for n in graph.nodes if n.op == "attention")
    return node


def random_inputs(*shapes):
    draw = np.random.default_rng(0).standard_normal
    return [draw(shape).astype(np.float32) for shape in shapes]


GROUPED = (
    "graph @g(%q: f32[2, 5, 6, 4], %k: f32[2, 7, 2, 4], %v: f32[2, 7, 2, 3], %m: bool[5, 7]) {{"
    " %low: f32[] = constant {{value = f32[] [-inf]}}"
    " %qa: f32[2, 5, 2, 3, 4] = reshape(%q) {{shape = [2, 5, 2, 3, 4]}}"
    " %qb: f32[2, 2, 5, 3, 4] = transpose(%qa) {{perm = [0, 2, 1, 3, 4]}}"
    " %qc: f32[4, 15, 4] = reshape(%qb) {{shape = [4, 15, 4]}}"
    " %ka: f32[2, 2, 4, 7] = transpose(%k) {{perm = [0, 2, 3, 1]}}"
    " %kb: f32[4, 4, 7] = reshape(%ka) {{shape = [4, 4, 7]}} %s: f32[4, 15, 7] = matmul(%qc, %kb)"
    " %sa: f32[2, 2, 5, 3, 7] = reshape(%s) {{shape = [2, 2, 5, 3, 7]}}"
    " %sb: f32[2, 2, 3, 5, 7] = transpose(%sa) {{perm = [0, 1, 3, 2, 4]}} {middle}"
    " %p: f32[2, 2, 3, 5, 7] = softmax(%{scores}) {{axis = -1}}"
    " %pa: f32[4, 15, 7] = reshape(%p) {{shape = [4, 15, 7]}}"
    " %va: f32[2, 2, 7, 3] = transpose(%v) {{perm = [0, 2, 1, 3]}}"
    " %vb: f32[4, 7, 3] = reshape(%va) {{shape = [4, 7, 3]}}"
    " %o: f32[4, 15, 3] = matmul(%pa, %vb) return %o }}"
)
"""What products of `bqkgd,bskd->bkgqs` come to in JAX and torch: rows and the heads of a group in one matrix."""


@pytest.mark.parametrize("masked", [False, True])
def test_heads_of_a_group_are_rows_or_heads(masked):
    middle = "%d: f32[2, 2, 3, 5, 7] = where(%m, %sb, %low)" if masked else ""
    text = GROUPED.format(middle=middle, scores="d" if masked else "sb")
    inputs = random_inputs((2, 5, 6, 4), (2, 7, 2, 4), (2, 7, 2, 3))
    node = same(text, [*inputs, np.tri(5, 7, dtype=bool)])
    shapes = [v.type.shape for v in node.operands[:3] if v is not None]
    heads, rows = (6, 5) if masked else (2, 15)
    assert shapes == [(2, heads, rows, 4), (2, 2, 7, 4), (2, 2, 7, 3)]


ENDS = "%q: f32[2, 3, 5, 4], %k: f32[2, 3, 7, 4], %v: f32[2, 3, 7, 6]"
SCORES = (
    "%t: f32[2, 3, 4, 7] = transpose(%k) {perm = [0, 1, 3, 2]}"
    " %s: f32[2, 3, 5, 7] = matmul(%q, %t)"
)


def ends():
    return random_inputs((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6))


def beside(joined, start=0, shifted=False):
    """Scores beside one more per row, whose weight is cut off."""
    shift = "%top: f32[2, 3, 5, 1] = reduce_max(%c) {axes = [-1]} %d: f32[2, 3, 5, 8] = sub(%c, %top)"
    return (
        f"graph @g({ENDS}, %x: f32[1, 3, 1, 1], %b: f32[2, 3, 5, 1]) {{ {SCORES}"
        f" %w: f32[2, 3, 5, 1] = broadcast_to(%x) {{shape = [2, 3, 5, 1]}} %c: f32[2, 3, 5, 8] = {joined}"
        f" {shift if shifted else ''} %p: f32[2, 3, 5, 8] = softmax(%{'d' if shifted else 'c'}) {{axis = 3}}"
        f" %y: f32[2, 3, 5, 7] = slice(%p) {{axes = [3], starts = [{start}], sizes = [7]}}"
        " %o: f32[2, 3, 5, 6] = matmul(%y, %v) return %o }"
    )


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (beside("concat(%s, %w) {axis = 3}"), (1, 3, 1, 1)),
        (beside("concat(%s, %w) {axis = 3}", shifted=True), (1, 3, 1, 1)),
        (beside("concat(%w, %s) {axis = -1}", 1), (1, 3, 1, 1)),
        (beside("concat(%s, %b) {axis = 3}"), (2, 3, 5, 1)),
        (beside("pad(%s) {pads = [0, 0, 0, 0, 0, 0, 0, 1]}"), (1, 1, 1, 1)),
    ],
    ids=["last", "less the largest", "first", "rows", "softmax-one"],
)
@pytest.mark.parametrize("number", [0.5, -np.inf, 1e30])
def test_a_score_without_a_key_is_a_sink(text, shape, number):
    sink, rows = random_inputs((1, 3, 1, 1), (2, 3, 5, 1))
    sink[0, 1], rows[1, 2, 3] = number, number
    node = same(text, [*ends(), sink, rows])
    assert node.operands[5] is not None
    assert node.operands[5].type.shape == shape


@pytest.mark.parametrize(
    "text",
    [
        beside("concat(%s, %w) {axis = 3}", 1),
        beside("concat(%w, %s) {axis = 3}"),
        beside('pad(%s) {pads = [0, 0, 0, 0, 0, 0, 0, 1], mode = "edge"}'),
    ],
    ids=["a key is cut off", "the sink is kept", "another key"],
)
def test_other_scores_beside_those_of_keys_stay(text):
    assert "softmax" in ops(run(R, text))


def multiplied(added="%u: f32[5, 7] = sub(%one, %f)", last="%c", kept="%m"):
    """The mask of early GPT-2: `w * b - 1e4 * (1 - b)`."""
    return (
        f"graph @g({ENDS}, %m: bool[5, 7], %n: bool[5, 7]) {{ {SCORES}"
        " %one: f32[] = constant {value = f32[] [1.0]} %big: f32[] = constant {value = f32[] [10000.0]}"
        f" %f: f32[5, 7] = cast(%m) {{dtype = f32}} %h: f32[5, 7] = cast({kept}) {{dtype = f32}} {added}"
        " %e: f32[5, 7] = mul(%u, %big) %a: f32[2, 3, 5, 7] = mul(%s, %h)"
        f" %c: f32[2, 3, 5, 7] = sub(%a, %e) %p: f32[2, 3, 5, 7] = softmax({last}) {{axis = -1}}"
        " %o: f32[2, 3, 5, 6] = matmul(%p, %v) return %o }"
    )


def test_a_product_with_truth_values_masks():
    masks = np.tri(5, 7, dtype=bool), np.tri(5, 7, 2, dtype=bool)
    masks[0][2] = False  # hides everything
    node = same(multiplied(), [*ends(), *masks])
    assert node.operands[4] is not None
    assert node.attributes["masked"] == -10000.0
    alone = multiplied(last="%a").replace(" %c: f32[2, 3, 5, 7] = sub(%a, %e)", "")
    assert same(alone, [*ends(), *masks]).attributes["masked"] == 0


@pytest.mark.parametrize(
    "text",
    [multiplied(kept="%n"), multiplied("%u: f32[5, 7] = add(%one, %f)")],
    ids=["another mask", "what is shown changes"],
)
def test_products_with_other_truth_values_stay(text):
    assert "softmax" in ops(run(R, text))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("values_first", [False, True])
def test_scores_may_have_keys_before_rows(masked, values_first):
    hidden = "%a: f32[2, 3, 7, 5] = where(%m, %s, %low)" if masked else ""
    last = (
        "%w: f32[2, 3, 6, 7] = transpose(%v) {perm = [0, 1, 3, 2]} %o: f32[2, 3, 6, 5] = matmul(%w, %p)"
        if values_first
        else "%w: f32[2, 3, 5, 7] = transpose(%p) {perm = [0, 1, 3, 2]} %o: f32[2, 3, 5, 6] = matmul(%w, %v)"
    )
    text = (
        f"graph @g({ENDS}, %m: bool[7, 5]) {{ %low: f32[] = constant {{value = f32[] [-inf]}}"
        " %t: f32[2, 3, 4, 5] = transpose(%q) {perm = [0, 1, 3, 2]} %s: f32[2, 3, 7, 5] = matmul(%k, %t)"
        f" {hidden} %p: f32[2, 3, 7, 5] = softmax(%{'a' if masked else 's'}) {{axis = -2}} {last} return %o }}"
    )
    node = same(text, [*ends(), np.tri(5, 7, dtype=bool).T.copy()])
    assert node.operands[0] is not None
    assert node.operands[0].type.shape == (2, 3, 5, 4)


SQUARE = (
    "graph @g(%q: f32[6, 4], %k: f32[6, 4], %v: f32[6, 6], %m: bool[6, 6], %h: bool[6, 1]) {{"
    " %t: f32[4, 6] = transpose(%k) {{perm = [1, 0]}} %s: f32[6, 6] = matmul(%q, %t)"
    " %one: f32[] = constant {{value = f32[] [1.0]}} %zero: f32[] = constant {{value = f32[] [0.0]}}"
    " %big: f32[] = constant {{value = f32[] [-1e9]}} %low: f32[] = constant {{value = f32[] [-1e30]}}"
    " %tiny: f32[] = constant {{value = f32[] [1e-30]}} {steps} return %o }}"
)
"""As many rows as keys: what stands along the one could as well stand along the other."""


def square():
    random = np.random.default_rng(1)
    hidden = np.array([1, 0, 0, 1, 0, 0], bool).reshape(6, 1)
    return [*random_inputs((6, 4), (6, 4), (6, 6)), random.random((6, 6)) > 0.5, hidden]


KEYS_DROPPED = "%w: f32[6, 6] = softmax(%s) {axis = 0} %z: f32[6, 6] = where(%h, %zero, %w) %o: f32[6, 6] = matmul(%v, %z)"
MASKED_ACROSS = (
    "%f: f32[6, 6] = cast(%m) {dtype = f32} %a: f32[6, 6] = mul(%s, %f) %b: f32[6, 6] = transpose(%a) {perm = [1, 0]}"
    " %u: f32[6, 6] = sub(%one, %f) %e: f32[6, 6] = mul(%u, %big) %c: f32[6, 6] = add(%b, %e)"
    " %d: f32[6, 6] = transpose(%c) {perm = [1, 0]} %p: f32[6, 6] = softmax(%d) {axis = -1} %o: f32[6, 6] = matmul(%p, %v)"
)
HIDDEN_A_LITTLE = (
    "%r: i64[6, 1] = iota() {axis = 0, dtype = i64, shape = [6, 1]} %n: i64[1, 6] = iota() {axis = 1, dtype = i64, shape = [1, 6]}"
    " %g: bool[6, 6] = less_equal(%n, %r) %e: f32[6, 6] = where(%g, %zero, %low) %a: f32[6, 6] = add(%s, %e)"
    " %b: f32[6, 6] = mul(%a, %tiny) %p: f32[6, 6] = softmax(%b) {axis = -1} %o: f32[6, 6] = matmul(%p, %v)"
)


@pytest.mark.parametrize("steps", [KEYS_DROPPED, MASKED_ACROSS, HIDDEN_A_LITTLE],
    ids=["keys have no weight", "a mask stands along other axes", "a factor shows what was hidden"])  # fmt: skip
def test_what_only_looks_like_a_mask_computes_what_it_says(steps):
    text, inputs = SQUARE.format(steps=steps), square()
    (expected,) = evaluate(parse(text), inputs)
    (result,) = evaluate(run(R, text), inputs)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_a_factor_of_scores_in_a_wider_type_stays():
    text = (
        "graph @g(%q: f16[6, 4], %k: f16[6, 4], %v: f16[6, 3], %x: f32[6, 1]) {"
        " %t: f16[4, 6] = transpose(%k) {perm = [1, 0]} %s: f16[6, 6] = matmul(%q, %t)"
        " %a: f32[6, 6] = cast(%s) {dtype = f32} %b: f32[6, 6] = mul(%a, %x) %c: f32[6, 6] = softmax(%b) {axis = -1}"
        " %p: f16[6, 6] = cast(%c) {dtype = f16} %o: f16[6, 3] = matmul(%p, %v) return %o }"
    )
    assert "softmax" in ops(run(R, text))


def test_values_may_be_scaled():
    text = (
        f"graph @g({ENDS}) {{ {SCORES} %two: f32[] = constant {{value = f32[] [2.0]}}"
        " %w: f32[2, 3, 7, 6] = mul(%v, %two) %p: f32[2, 3, 5, 7] = softmax(%s) {axis = -1}"
        " %o: f32[2, 3, 5, 6] = matmul(%p, %w) return %o }"
    )
    assert same(text, ends()).attributes["scale"] == 1.0


def weighted(steps, extra=""):
    return (
        f"graph @g({ENDS}{extra}) {{ {SCORES} %half: f32[] = constant {{value = f32[] [0.5]}}"
        f" %p: f32[2, 3, 5, 7] = softmax(%s) {{axis = -1}} {steps} return %o }}"
    )


LAST = " %o: f32[2, 3, 5, 6] = matmul(%w, %v)"


@pytest.mark.parametrize(
    ("shape", "steps"),
    [
        ("3, 1, 1", "%w: f32[2, 3, 5, 7] = mul(%p, %x)"),
        ("2, 3, 5, 1", "%w: f32[2, 3, 5, 7] = mul(%x, %p)"),
        ("5, 1", "%w: f32[2, 3, 5, 7] = div(%p, %x)"),
        ("3, 1, 1", "%a: f32[2, 3, 5, 7] = div(%p, %half) %w: f32[2, 3, 5, 7] = mul(%a, %x)"),
        ("1, 3, 1, 1", ("%a: f32[2, 3, 5, 7] = mul(%p, %x) %r: f32[6, 5, 7] = reshape(%a) {shape = [6, 5, 7]}"
         " %w: f32[2, 3, 5, 7] = reshape(%r) {shape = [2, 3, 5, 7]}")),
    ],
    ids=["heads", "rows of heads", "over rows", "twice", "in front of moves"],
)  # fmt: skip
def test_weights_that_are_scaled_by_row_scale_results(shape, steps):
    text = weighted(steps + LAST, f", %x: f32[{shape}]")
    (x,) = random_inputs(tuple(map(int, shape.split(","))))
    x.flat[1] = 0 if "div" not in steps or "half" in steps else 4
    same(text, [*ends(), x])


def test_scaled_weights_may_be_the_right_operand():
    text = weighted(
        "%z: f32[2, 3, 5, 7] = mul(%p, %x) %t2: f32[2, 3, 7, 5] = transpose(%z) {perm = [0, 1, 3, 2]}"
        " %y: f32[2, 3, 6, 7] = transpose(%v) {perm = [0, 1, 3, 2]} %o: f32[2, 3, 6, 5] = matmul(%y, %t2)",
        ", %x: f32[3, 5, 1]",
    )
    same(text, [*ends(), *random_inputs((3, 5, 1))])


@pytest.mark.parametrize(
    ("steps", "extra"),
    [
        ("%w: f32[2, 3, 5, 7] = mul(%p, %x)" + LAST, ", %x: f32[7]"),
        ("%w: f32[2, 3, 5, 7] = mul(%p, %x)" + LAST, ", %x: f32[5, 7]"),
        ("%w: f32[2, 3, 5, 7] = div(%x, %p)" + LAST, ", %x: f32[5, 1]"),
        ("%w: f32[2, 3, 5, 7] = mul(%p, %p)" + LAST, ""),
        ("%w: f32[2, 3, 5, 7] = mul(%p, %x)" + LAST.replace("%o", "%n")
         + " %o: f32[2, 3, 5, 7] = add(%w, %p)", ", %x: f32[3, 1, 1]"),
    ],
    ids=["keys", "rows and keys", "divided by weights", "squared", "another reader"],
)  # fmt: skip
def test_other_factors_of_weights_stay(steps, extra):
    assert "softmax" in ops(run(R, weighted(steps, extra)))


def test_a_factor_of_weights_in_a_wider_type_stays():
    text = (
        "graph @g(%q: f16[6, 4], %k: f16[6, 4], %v: f16[6, 3], %x: f32[6, 1]) {"
        " %t: f16[4, 6] = transpose(%k) {perm = [1, 0]} %s: f16[6, 6] = matmul(%q, %t)"
        " %a: f32[6, 6] = cast(%s) {dtype = f32} %c: f32[6, 6] = softmax(%a) {axis = -1} %b: f32[6, 6] = mul(%c, %x)"
        " %p: f16[6, 6] = cast(%b) {dtype = f16} %o: f16[6, 3] = matmul(%p, %v) return %o }"
    )
    assert "softmax" in ops(run(R, text))


@pytest.mark.parametrize("special", [np.nan, np.inf, 0.0])
def test_factors_of_heads_pass_what_is_no_number(special):
    text = weighted("%w: f32[2, 3, 5, 7] = mul(%p, %x)" + LAST, ", %x: f32[3, 1, 1]")
    inputs = [*ends(), *random_inputs((3, 1, 1))]
    inputs[2][0, 0, 3, 2], inputs[0][1, 2, 4, 0] = special, special
    inputs[3][1] = 0
    with np.errstate(invalid="ignore"):
        (expected,) = evaluate(parse(text), inputs)
        (result,) = evaluate(run(R, text), inputs)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


# --- limits ----------------------------------------------------------------------------------


def limited(steps, extra=""):
    numbers = "".join(
        f" %{name}: f32[] = constant {{value = f32[] [{value}]}}"
        for name, value in (
            ("lo", -0.5),
            ("hi", 0.75),
            ("n", 3.0),
            ("neg", -2.0),
            ("low", "-inf"),
            ("nan", "nan"),
        )
    )
    return (
        f"graph @g({ENDS}{extra}) {{ {SCORES} {numbers} {steps}"
        " %p: f32[2, 3, 5, 7] = softmax(%z) {axis = -1} %o: f32[2, 3, 5, 6] = matmul(%p, %v) return %o }"
    )


S = "f32[2, 3, 5, 7]"


@pytest.mark.parametrize(
    ("steps", "limits"),
    [
        (f"%z: {S} = clip(%s, %lo, %hi)", (-0.5, 0.75)),
        (f"%z: {S} = clip(%s, _, %hi)", (-np.inf, 0.75)),
        (f"%z: {S} = clip(%s, %hi, %lo)", (-0.5, -0.5)),
        (f"%z: {S} = max(%lo, %s)", (-0.5, np.inf)),
        (f"%a: {S} = min(%s, %lo) %z: {S} = max(%a, %hi)", (0.75, 0.75)),
        (f"%a: {S} = mul(%s, %n) %b: {S} = clip(%a, %lo, %hi) %z: {S} = div(%b, %n)", (-0.5 / 3, 0.25)),
        (f"%a: {S} = tanh(%s) %z: {S} = clip(%a, %lo, %hi)", (-0.5, 0.75)),
        (f"%a: {S} = clip(%s, %lo, %hi) %z: {S} = add(%a, %x)", (-0.5, 0.75)),
        (f"%a: {S} = clip(%s, %lo, %hi) %z: {S} = where(%m, %a, %low)", (-0.5, 0.75)),
    ],
)  # fmt: skip
def test_products_may_be_held_within_limits(steps, limits):
    text = limited(steps, ", %x: f32[5, 7], %m: bool[5, 7]")
    mask = np.tri(5, 7, dtype=bool)
    mask[3] = "where" in steps and mask[3]
    q, k, v = ends()
    q[0, 1, 2, 3], q[1, 0, 1, 0] = np.inf, 1e30
    node = same(text, [q, k, v, *random_inputs((5, 7)), mask])
    assert (node.attributes["low"], node.attributes["high"]) == pytest.approx(limits)


@pytest.mark.parametrize(
    "steps",
    [
        f"%a: {S} = add(%s, %x) %z: {S} = clip(%a, %lo, %hi)",
        f"%a: {S} = where(%m, %s, %low) %z: {S} = max(%a, %lo)",
        f"%a: {S} = clip(%s, %lo, %hi) %z: {S} = mul(%a, %neg)",
        f"%a: {S} = clip(%s, %lo, %hi) %z: {S} = tanh(%a)",
        f"%a: {S} = clip(%s, %lo, %hi) %z: {S} = mul(%a, %y)",
        f"%z: {S} = max(%s, %x)",
        f"%z: {S} = clip(%s, %nan, %hi)",
        f"%a: {S} = clip(%s, %lo, %hi) %z: {S} = add(%a, %s)",
    ],
    ids=["a bias", "a mask", "the order turns", "a cap behind", "rows scaled behind", "limits of keys", "nan",
         "another reader"],
)  # fmt: skip
def test_other_limits_compute_what_they_say(steps):
    text = limited(steps, ", %x: f32[5, 7], %y: f32[5, 1], %m: bool[5, 7]")
    graph = run(R, text)
    assert "softmax" in ops(graph)
    inputs = [*ends(), *random_inputs((5, 7), (5, 1)), np.tri(5, 7, -1, dtype=bool)]
    (expected,), (result,) = evaluate(parse(text), inputs), evaluate(graph, inputs)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


# --- powers beside one -----------------------------------------------------------------------


OUT = LAST.replace("%w", "%p")


def beside_one(
    *, total="add(%one, %u)", last="%p: f32[2, 3, 5, 7] = div(%e, %c)", axis=-1, top="%s", middle="",
    end=OUT,
):  # fmt: skip
    kept = "2, 3, 5, 1" if axis == -1 else "2, 3, 1, 7"
    return (
        f"graph @g({ENDS}, %b: bool[5, 7], %x: f32[2, 3, 5, 1]) {{ {SCORES} %one: f32[] = constant {{value = f32[] [1.0]}}"
        " %zero: f32[] = constant {value = f32[] [0.0]} %low: f32[] = constant {value = f32[] [-inf]}"
        f" {middle} %m: f32[{kept}] = reduce_max({top}) {{axes = [{axis}], keepdims = true}} %d: {S} = sub({top}, %m)"
        f" %e: {S} = exp(%d) %u: f32[{kept}] = reduce_sum(%e) {{axes = [{axis}], keepdims = true}}"
        f" %c: f32[{kept}] = {total} {last} {end} return %o }}"
    )


HIDDEN = f"%h: {S} = where(%b, %s, %low)"


@pytest.mark.parametrize(
    ("changes", "rest"),
    [
        ({}, 1.0),
        ({"top": "%h", "middle": HIDDEN}, 1.0),
        ({"last": f"%f: {S} = div(%e, %c) %p: {S} = mul(%f, %x)"}, 1.0),
    ],
    ids=["alone", "masked", "scaled behind"],
)
@pytest.mark.parametrize("special", [0.5, np.nan, np.inf, -np.inf])
def test_powers_less_the_largest_beside_one(changes, rest, special):
    mask = np.tri(5, 7, dtype=bool)
    mask[2] = False  # hides everything: NaN
    inputs = [*ends(), mask, *random_inputs((2, 3, 5, 1))]
    inputs[0][1, 2, 4, 0] = special
    with np.errstate(invalid="ignore"):
        node = same(beside_one(**changes), inputs)
    assert node.attributes["rest"] == rest


@pytest.mark.parametrize(
    "changes",
    [
        {"total": "add(%u, %zero)"},
        {"total": "add(%u, %x)"},
        {"total": "sub(%u, %one)"},
        {"axis": -2},
        {"end": OUT.replace("%o", "%y") + f" %g: {S} = add(%e, %p) %o: f32[2, 3, 5, 6] = matmul(%g, %v)"},
        {"end": OUT.replace("%o", "%y") + f" %g: {S} = add(%s, %p) %o: f32[2, 3, 5, 6] = matmul(%g, %v)"},
    ],
    ids=["nothing", "rows differ", "less one", "rows", "powers are read", "scores are read"],
)  # fmt: skip
def test_other_powers_stay(changes):
    if changes.get("axis") == -2:
        changes["total"] = "add(%u, %one)"
    text = beside_one(**changes)
    graph = run(R, text)
    inputs = [*ends(), np.tri(5, 7, dtype=bool), *random_inputs((2, 3, 5, 1))]
    (expected,), (result,) = evaluate(parse(text), inputs), evaluate(graph, inputs)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    rests = [n.attributes["rest"] for n in graph.nodes if n.op == "attention"]
    assert rests in ([], [0.0])


def beside_power(
    top="%g: f32[2, 3, 5, 1] = max(%m, %zero)", more="exp(%n)", total="add(%u, %y)", *, extra="", shift="%g"
):  # fmt: skip
    """What softmax-one is without overflow: `exp(x - t) / (exp(-t) + sum(exp(x - t)))`, `t = max(max(x), 0)`."""
    return (
        f"graph @g({ENDS}, %b: bool[5, 7]) {{ {SCORES} %zero: f32[] = constant {{value = f32[] [0.0]}}"
        " %one: f32[] = constant {value = f32[] [1.0]} %low: f32[] = constant {value = f32[] [-inf]}"
        f" {HIDDEN} %m: f32[2, 3, 5, 1] = reduce_max(%h) {{axes = [-1], keepdims = true}} {top}"
        f" %d: {S} = sub(%h, {shift}) %e: {S} = exp(%d) %n: f32[2, 3, 5, 1] = neg(%g) %y: f32[2, 3, 5, 1] = {more}"
        f" %u: f32[2, 3, 5, 1] = reduce_sum(%e) {{axes = [-1], keepdims = true}} %c: f32[2, 3, 5, 1] = {total}"
        f" %p: {S} = div(%e, %c) {OUT} {extra} return %o }}"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"total": "add(%y, %u)"},
        {"top": "%g: f32[2, 3, 5, 1] = relu(%m)"},
        {"top": "%g: f32[2, 3, 5, 1] = clip(%m, %zero)"},
    ],
)
@pytest.mark.parametrize("special", [0.5, np.nan, np.inf, -np.inf, 1e4])
def test_the_power_of_zero_beside_others_is_a_sink(changes, special):
    mask = np.tri(5, 7, dtype=bool)
    mask[2] = False  # hides everything: no weight at all
    inputs = [*ends(), mask]
    inputs[0][1, 2, 4, 0], inputs[0][0] = special, inputs[0][0] * 30
    with np.errstate(invalid="ignore"):
        node = same(beside_power(**changes), inputs)
    assert node.operands[5] is not None
    assert node.attributes["rest"] == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"top": "%g: f32[2, 3, 5, 1] = max(%m, %one)"},
        {"more": "exp(%g)"},
        {"top": "%g: f32[2, 3, 5, 1] = add(%m, %zero)"},
        {"top": "%g: f32[2, 3, 5, 1] = clip(%m, %zero, %one)"},
        {"shift": "%m"},
        {"extra": f"%k3: {S} = add(%h, %e) %w: f32[2, 3, 5, 6] = matmul(%k3, %o)".replace("%o)", "%v)")
         + " %q2: f32[2, 3, 5, 6] = add(%w, %o)"},
    ],
    ids=["above one", "not below", "hidden rows are NaN", "below one", "shifted by less", "scores are read"],
)  # fmt: skip
def test_other_powers_beside_others_compute_what_they_say(changes):
    text = beside_power(**changes)
    if "extra" in changes:
        text = text.replace("return %o", "return %q2")
    graph = run(R, text)
    mask = np.tri(5, 7, dtype=bool)
    mask[2] = False
    with np.errstate(invalid="ignore"):
        (expected,) = evaluate(parse(text), [*ends(), mask])
        (result,) = evaluate(graph, [*ends(), mask])
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert all(n.op != "attention" for n in graph.nodes)
