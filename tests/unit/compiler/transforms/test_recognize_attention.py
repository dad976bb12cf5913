import numpy as np
import pytest

from fakes.graphs import ops, parse, run
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.passes import attempt
from tilewright.compiler.transforms import RecognizeAttention, Simplify
from tilewright.compiler.transforms.position_masks import causal_offset

R = [Simplify(), RecognizeAttention()]
Q, K, V = "%q: f32[2, 3, 5, 4]", "%k: f32[2, 3, 7, 4]", "%v: f32[2, 3, 7, 6]"
SWAPPED = "%t: f32[2, 3, 4, 7] = transpose(%k) {perm = [0, 1, 3, 2]}"
PRODUCT = "%s: f32[2, 3, 5, 7] = matmul(%q, %t)"
SCALE = "%c: f32[] = constant {value = f32[] [0.25]}"


def attention(graph):
    (node,) = (n for n in graph.nodes if n.op == "attention")
    return node


def spelled_out(middle="", scores="s", before=f"{SWAPPED} {PRODUCT}", more=(), after=None):
    operands = ", ".join((Q, K, V, *more))
    after = after or "%o: f32[2, 3, 5, 6] = matmul(%p, %v) return %o"
    return (
        f"graph @g({operands}) {{ {SCALE} {before} {middle}"
        f" %p: f32[2, 3, 5, 7] = softmax(%{scores}) {{axis = -1}} {after} }}"
    )


def test_two_products_around_a_softmax_are_one_op():
    graph = run(R, spelled_out())
    assert ops(graph) == ["attention"]
    assert attention(graph).attributes["scale"] == 1


@pytest.mark.parametrize(
    ("before", "scale"),
    [
        (f"{SWAPPED} %a: f32[2, 3, 5, 4] = mul(%q, %c) %s: f32[2, 3, 5, 7] = matmul(%a, %t)", 0.25),
        (f"{SWAPPED} %a: f32[2, 3, 4, 7] = mul(%t, %c) %s: f32[2, 3, 5, 7] = matmul(%q, %a)", 0.25),
        (
            (
                f"{SWAPPED} %a: f32[2, 3, 4, 7] = mul(%t, %c) %b: f32[2, 3, 5, 4] = mul(%c, %q)"
                " %s: f32[2, 3, 5, 7] = matmul(%b, %a)"
            ),
            0.0625,
        ),
        (f"{SWAPPED} {PRODUCT.replace('%s', '%a')} %s: f32[2, 3, 5, 7] = mul(%a, %c)", 0.25),
        (f"{SWAPPED} {PRODUCT.replace('%s', '%a')} %s: f32[2, 3, 5, 7] = div(%a, %c)", 4.0),
    ],
)  # fmt: skip
def test_a_factor_may_stand_anywhere(before, scale):
    graph = run(R, spelled_out(before=before))
    assert ops(graph) == ["attention"]
    assert attention(graph).attributes["scale"] == pytest.approx(scale)


@pytest.mark.parametrize(
    "shape", ["[2, 3, 5, 7]", "[1, 1, 5, 7]", "[2, 1, 1, 7]", "[7]", "[5, 1]"]
)
def test_what_is_added_to_scores_is_a_bias_of_any_broadcast_shape(shape):
    added = "%a: f32[2, 3, 5, 7] = add(%s, %b)"
    graph = run(R, spelled_out(added, "a", more=(f"%b: f32{shape}",)))
    assert ops(graph)[-1] == "attention"
    assert attention(graph).operands[3] is not None


def test_several_biases_are_added_and_one_behind_a_factor_keeps_it():
    middle = (
        "%a: f32[2, 3, 5, 7] = add(%b, %s) %d: f32[2, 3, 5, 7] = mul(%a, %c)"
        " %e: f32[2, 3, 5, 7] = sub(%d, %b)"
    )
    graph = run(R, spelled_out(middle, "e", more=("%b: f32[1, 3, 5, 7]",)))
    assert attention(graph).attributes["scale"] == 0.25
    assert "softmax" not in ops(graph)


def test_a_choice_of_a_low_number_is_a_bias_and_of_a_small_one_a_mask():
    low = "%x: f32[] = constant {value = f32[] [-3e38]} %a: f32[2, 3, 5, 7] = where(%m, %s, %x)"
    small = low.replace("-3e38", "-10000.0")
    mask = ("%m: bool[2, 1, 1, 7]",)
    biased = attention(run(R, spelled_out(low, "a", more=mask)))
    assert biased.operands[3] is not None
    masked = attention(run(R, spelled_out(small, "a", more=mask)))
    assert masked.operands[3] is None
    assert masked.operands[4] is not None
    assert masked.attributes["masked"] == -10000.0


def test_a_choice_the_other_way_round_is_turned():
    middle = "%x: f32[] = constant {value = f32[] [-9.0]} %a: f32[2, 3, 5, 7] = where(%m, %x, %s)"
    graph = run(R, spelled_out(middle, "a", more=("%m: bool[5, 7]",)))
    assert ops(graph) == ["logical_not", "reshape", "attention"]


def test_rows_without_a_key_that_yield_zero_are_said():
    after = (
        "%n: bool[2, 3, 5, 7] = is_nan(%p) %z: f32[] = constant {value = f32[] [0.0]}"
        " %g: f32[2, 3, 5, 7] = where(%n, %z, %p) %o: f32[2, 3, 5, 6] = matmul(%g, %v) return %o"
    )
    graph = run(R, spelled_out(after=after))
    assert ops(graph) == ["attention"]
    assert attention(graph).attributes["zero_rows"] is True
    assert attention(graph).attributes["zero_nan"] is True


@pytest.mark.parametrize("shape", ["", "1", "1, 1"])
def test_the_zero_of_rows_without_a_key_may_have_axes_of_one_element(shape):
    after = (
        f"%n: bool[2, 3, 5, 7] = is_nan(%p) %z: f32[{shape}] = constant {{value = f32[{shape}] [0.0]}}"
        " %g: f32[2, 3, 5, 7] = where(%n, %z, %p) %o: f32[2, 3, 5, 6] = matmul(%g, %v) return %o"
    )
    graph = run(R, spelled_out(after=after))
    assert ops(graph) == ["attention"]
    assert attention(graph).attributes["zero_nan"] is True


CAPPED = (
    "%d: f32[2, 3, 5, 7] = mul(%s, %c) %t2: f32[2, 3, 5, 7] = tanh(%d)"
    " %h: f32[] = constant {value = f32[] [8.0]} %e: f32[2, 3, 5, 7] = mul(%t2, %h)"
)


def test_scores_below_a_cap_keep_it_and_their_scale():
    added = f"{CAPPED} %a: f32[2, 3, 5, 7] = add(%e, %b)"
    text = spelled_out(added, "a", more=("%b: f32[5, 7]",))
    before, after = run([], text), run(R, text)
    node = attention(after)
    assert (node.attributes["softcap"], node.attributes["scale"]) == (8, 2)
    chance = np.random.default_rng(3)
    inputs = [
        3 * chance.standard_normal(v.type.shape).astype(np.float32) for v in before.inputs
    ]
    wanted, found = (evaluate(graph, inputs)[0] for graph in (before, after))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "middle",
    [
        f"%s0: f32[2, 3, 5, 7] = add(%s, %b) {CAPPED.replace('%s,', '%s0,')}",
        f"{CAPPED.replace('8.0', '-8.0')}",
        f"{CAPPED.replace('mul(%s, %c)', 'tanh(%s)')}",
    ],
    ids=["bias below the cap", "negative cap", "two caps"],
)
def test_other_caps_stay(middle):
    assert "attention" not in ops(run(R, spelled_out(middle, "e", more=("%b: f32[5, 7]",))))


def lost_rows(chosen: str, zero="0.0", kept="%p"):
    after = (
        f" %z: f32[] = constant {{value = f32[] [{zero}]}}"
        f" %g: f32[2, 3, 5, 7] = where(%m, %z, {kept}) %o: f32[2, 3, 5, 6] = matmul(%g, %v) return %o"
    )
    return spelled_out(after=after, more=(f"%m: bool{chosen}", "%b: f32[2, 3, 5, 7]"))


@pytest.mark.parametrize("chosen", ["[5, 1]", "[2, 1, 5, 1]", "[1]"])
def test_rows_that_are_set_to_zero_are_set_to_zero_behind(chosen):
    before, after = run([], lost_rows(chosen)), run(R, lost_rows(chosen))
    assert ops(after)[-2:] == ["attention", "where"]
    chance = np.random.default_rng(5)
    inputs = [
        chance.standard_normal(v.type.shape).astype(np.float32)
        if v.type.dtype.is_float
        else chance.random(v.type.shape) < 0.5
        for v in before.inputs
    ]
    wanted, found = (evaluate(graph, inputs)[0] for graph in (before, after))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "text",
    [lost_rows("[5, 7]"), lost_rows("[5, 1]", zero="1.0"), lost_rows("[5, 1]", kept="%b")],
    ids=["elements", "ones", "other weights"],
)
def test_other_choices_of_weights_stay(text):
    assert "attention" not in ops(run(R, text))


def test_heads_that_share_keys_and_values_are_not_repeated():
    text = (
        "graph @g(%q: f32[1, 6, 5, 4], %k: f32[1, 2, 7, 4], %v: f32[1, 2, 7, 4]) {"
        " %ka: f32[1, 2, 1, 7, 4] = reshape(%k) {shape = [1, 2, 1, 7, 4]}"
        " %kb: f32[1, 2, 3, 7, 4] = broadcast_to(%ka) {shape = [1, 2, 3, 7, 4]}"
        " %kc: f32[1, 6, 7, 4] = reshape(%kb) {shape = [1, 6, 7, 4]}"
        " %va: f32[1, 2, 1, 7, 4] = reshape(%v) {shape = [1, 2, 1, 7, 4]}"
        " %vb: f32[1, 2, 3, 7, 4] = broadcast_to(%va) {shape = [1, 2, 3, 7, 4]}"
        " %vc: f32[1, 6, 7, 4] = reshape(%vb) {shape = [1, 6, 7, 4]}"
        " %t: f32[1, 6, 4, 7] = transpose(%kc) {perm = [0, 1, 3, 2]}"
        " %s: f32[1, 6, 5, 7] = matmul(%q, %t) %p: f32[1, 6, 5, 7] = softmax(%s) {axis = -1}"
        " %o: f32[1, 6, 5, 4] = matmul(%p, %vc) return %o }"
    )
    graph = run([*R, Simplify()], text)
    assert ops(graph) == ["attention"]
    assert [v.type.shape[1] for v in graph.nodes[-1].operands[:3]] == [6, 2, 2]


def test_scores_of_joined_heads_are_taken_apart_where_the_bias_has_them():
    text = (
        "graph @g(%q: f32[6, 5, 4], %k: f32[6, 7, 4], %v: f32[6, 7, 4], %b: f32[2, 1, 5, 7]) {"
        " %t: f32[6, 4, 7] = transpose(%k) {perm = [0, 2, 1]} %s: f32[6, 5, 7] = matmul(%q, %t)"
        " %a: f32[2, 3, 5, 7] = reshape(%s) {shape = [2, 3, 5, 7]}"
        " %d: f32[2, 3, 5, 7] = add(%a, %b) %e: f32[6, 5, 7] = reshape(%d) {shape = [6, 5, 7]}"
        " %p: f32[6, 5, 7] = softmax(%e) {axis = 2} %o: f32[6, 5, 4] = matmul(%p, %v) return %o }"
    )
    graph = run(R, text)
    assert "softmax" not in ops(graph)
    assert attention(graph).result.type.shape == (2, 3, 5, 4)


def causal(value, offset=0):
    rows = np.where(np.tril(np.ones((5, 7), bool), offset), 0.0, value)
    numbers = ", ".join(str(x) for x in rows.ravel())
    return f"%b: f32[5, 7] = constant {{value = f32[5, 7] [{numbers}]}}"


@pytest.mark.parametrize("value", ["-inf", "-3e+38"])
def test_a_constant_that_hides_later_keys_is_causal(value):
    middle = f"{causal(float(value), 2)} %a: f32[2, 3, 5, 7] = add(%s, %b)"
    graph = run(R, spelled_out(middle, "a"))
    assert ops(graph) == ["attention"]
    assert attention(graph).attributes["causal"] == (2,)


@pytest.mark.parametrize(("value", "offset"), [(-10000.0, 0), (-3e38, -1)])
def test_other_constants_are_biases(value, offset):
    middle = f"{causal(value, offset)} %a: f32[2, 3, 5, 7] = add(%s, %b)"
    node = attention(run(R, spelled_out(middle, "a")))
    assert not node.attributes.get("causal")
    assert node.operands[3] is not None


@pytest.mark.parametrize(
    "text",
    [
        spelled_out(after="%o: f32[2, 3, 5, 6] = matmul(%p, %v) return %o, %p"),
        spelled_out(after="%o: f32[2, 3, 5, 6] = matmul(%p, %v) return %o, %s"),
        spelled_out("%a: f32[2, 3, 5, 7] = mul(%s, %b)", "a", more=("%b: f32[7]",)),
        spelled_out("%a: f32[2, 3, 5, 7] = relu(%s)", "a"),
        spelled_out("%a: f32[2, 3, 5, 7] = add(%b, %b)", "a", more=("%b: f32[2, 3, 5, 7]",)),
        spelled_out().replace("axis = -1", "axis = 1"),
    ],
    ids=["weights", "scores", "factors", "function", "no product", "axis"],
)  # fmt: skip
def test_what_is_no_attention_stays(text):
    assert "attention" not in ops(run(R, text))


@pytest.mark.parametrize("rows", [0, 1])
def test_any_number_of_rows_is_attention(rows):
    text = spelled_out().replace("3, 5", f"3, {rows}")
    graph = run(R, text)
    assert ops(graph) == ["attention"]


@pytest.mark.parametrize("lead", ["", "3, "])
def test_scores_without_heads_or_a_batch_are_of_one(lead):
    perm = "[1, 0]" if not lead else "[0, 2, 1]"
    text = (
        f"graph @g(%q: f32[{lead}5, 4], %k: f32[{lead}7, 4], %v: f32[{lead}7, 6]) {{"
        f" %t: f32[{lead}4, 7] = transpose(%k) {{perm = {perm}}}"
        f" %s: f32[{lead}5, 7] = matmul(%q, %t) %p: f32[{lead}5, 7] = softmax(%s) {{axis = -1}}"
        f" %o: f32[{lead}5, 6] = matmul(%p, %v) return %o }}"
    )
    node = attention(run(R, text))
    assert node.operands[0].type.shape == (3 if lead else 1, 1, 5, 4)
    assert node.result.type.shape == (3 if lead else 1, 1, 5, 6)


def cut_rows(
    middle="%a: f32[2, 5, 3, 7] = mul(%u, %c)", last="%r: f32[2, 15, 7] = reshape(%p)"
):
    """Scores of 15 rows, which are 5 times 3 around the softmax."""
    return (
        f"graph @g(%q: f32[2, 15, 4], %k: f32[2, 7, 4], %v: f32[2, 7, 6], %b: f32[5, 1, 7]) {{ {SCALE}"
        " %t: f32[2, 4, 7] = transpose(%k) {perm = [0, 2, 1]} %s: f32[2, 15, 7] = matmul(%q, %t)"
        f" %u: f32[2, 5, 3, 7] = reshape(%s) {{shape = [2, 5, 3, 7]}} {middle}"
        f" %p: f32[2, 5, 3, 7] = softmax(%a) {{axis = -1}} {last} {{shape = [2, 15, 7]}}"
        " %o: f32[2, 15, 6] = matmul(%r, %v) return %o }"
    )


def random_inputs(*shapes):
    draw = np.random.default_rng(0).standard_normal
    return [draw(shape).astype(np.float32) for shape in shapes]


def test_rows_that_are_cut_another_way_around_the_softmax_are_rows():
    graph = run(R, cut_rows())
    assert "softmax" not in ops(graph)
    assert attention(graph).attributes["scale"] == pytest.approx(0.25)
    inputs = random_inputs((2, 15, 4), (2, 7, 4), (2, 7, 6), (5, 1, 7))
    (expected,), (result,) = evaluate(parse(cut_rows()), inputs), evaluate(graph, inputs)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "middle",
    [
        "%a: f32[2, 5, 3, 7] = add(%u, %b)",
        "%m: bool[5, 1, 7] = less(%b, %c) %a: f32[2, 5, 3, 7] = where(%m, %c, %u)",
    ],
    ids=["bias", "choice"],
)
def test_what_differs_by_rows_that_are_cut_another_way_is_repeated(middle):
    graph = run(R, cut_rows(middle))
    assert "softmax" not in ops(graph)
    inputs = random_inputs((2, 15, 4), (2, 7, 4), (2, 7, 6), (5, 1, 7))
    (expected,), (result,) = (
        evaluate(parse(cut_rows(middle)), inputs),
        evaluate(graph, inputs),
    )
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_scores_that_are_added_to_themselves_stay():
    text = cut_rows(
        "%w: f32[2, 3, 5, 7] = reshape(%u) {shape = [2, 3, 5, 7]}"
        " %x: f32[2, 3, 5, 7] = add(%w, %w)"
        " %a: f32[2, 5, 3, 7] = reshape(%x) {shape = [2, 5, 3, 7]}"
    )
    assert "softmax" in ops(run(R, text))


def columns_first(rows, middle, shape="1, 2, 3", unit="1, 2, 4, 0, 3"):
    """What JAX writes for products whose result has columns before rows: other axes of one element move, too."""
    return (
        f"graph @g(%q: f32[6, {rows}, 4], %k: f32[6, 7, 4], %v: f32[6, 5, 7], %b: f32[2, 3, {rows}, 7]) {{ {SCALE}"
        f" %t: f32[6, 4, 7] = transpose(%k) {{perm = [0, 2, 1]}} %s: f32[6, {rows}, 7] = matmul(%q, %t)"
        f" %f: f32[{shape}, {rows}, 7] = reshape(%s) {{shape = [{shape}, {rows}, 7]}} {middle}"
        f" %p: f32[{shape}, {rows}, 7] = softmax(%a) {{axis = 4}}"
        f" %x: f32[2, 3, 7, 1, {rows}] = transpose(%p) {{perm = [{unit}]}}"
        f" %y: f32[6, 7, {rows}] = reshape(%x) {{shape = [6, 7, {rows}]}}"
        f" %o: f32[6, 5, {rows}] = matmul(%v, %y) return %o }}"
    )


@pytest.mark.parametrize("rows", [5, 1])
@pytest.mark.parametrize("middle", ["mul(%f, %c)", "add(%f, %b)"])
def test_axes_of_one_element_may_move_with_rows_and_columns(rows, middle):
    text = columns_first(rows, f"%a: f32[1, 2, 3, {rows}, 7] = {middle}")
    graph = run(R, text)
    assert "softmax" not in ops(graph)
    assert attention(graph).result.type.shape[:2] == (2, 3)
    inputs = random_inputs((6, rows, 4), (6, 7, 4), (6, 5, 7), (2, 3, rows, 7))
    (expected,), (result,) = evaluate(parse(text), inputs), evaluate(graph, inputs)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_heads_may_move_with_rows_and_columns():
    text = columns_first(
        5, "%a: f32[2, 3, 1, 5, 7] = mul(%f, %c)", "2, 3, 1", "1, 0, 4, 2, 3"
    ).replace("f32[2, 3, 7, 1, 5]", "f32[3, 2, 7, 1, 5]")
    graph = run(R, text)
    assert "softmax" not in ops(graph)
    inputs = random_inputs((6, 5, 4), (6, 7, 4), (6, 5, 7), (2, 3, 5, 7))
    (expected,), (result,) = evaluate(parse(text), inputs), evaluate(graph, inputs)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_a_product_with_one_of_several_results_is_looked_at_like_any_other():
    text = (
        "graph @g(%x: f32[5, 9], %p: f32[3, 5]) {"
        " %v: f32[5, 4], %i: i64[5, 4] = top_k(%x) {axis = 1, k = [4]}"
        " %s: f32[3, 5] = softmax(%p) {axis = 1} %o: f32[3, 4] = matmul(%s, %v) return %o }"
    )
    assert "matmul" in ops(run(R, text))


def positions(added="%h, %w", last="", more=()):
    """Scores of 5 rows by 6 of an image, to which what depends on one axis of both is added."""
    names = ", ".join(f"%{n}: f32[{shape}]" for n, shape in (
        ("q", "3, 30, 4"), ("k", "3, 30, 4"), ("v", "3, 30, 4"), ("h", "3, 5, 6, 5, 1"),
        ("w", "3, 5, 6, 1, 6"), *more,
    ))  # fmt: skip
    first, second = added.split(", ")
    image = "f32[3, 5, 6, 5, 6]"
    return (
        f"graph @g({names}) {{ %t: f32[3, 4, 30] = transpose(%k) {{perm = [0, 2, 1]}}"
        f" %s: f32[3, 30, 30] = matmul(%q, %t)"
        f" %i: {image} = reshape(%s) {{shape = [3, 5, 6, 5, 6]}}"
        f" %a: {image} = add(%i, {first}) %b: {image} = add({second}, %a)"
        " %f: f32[3, 30, 30] = reshape(%b) {shape = [3, 30, 30]}"
        " %p: f32[3, 30, 30] = softmax(%f) {axis = -1}"
        f" %o: f32[3, 30, 4] = matmul(%p, %v) return %o{last} }}"
    )


def test_positions_along_both_axes_of_an_image_are_a_bias():
    graph = run(R, positions())
    assert "softmax" not in ops(graph)
    assert attention(graph).operands[3] is not None


@pytest.mark.parametrize("more", ["%f", "%b", "%a", "%i", "%s"])
def test_scores_of_an_image_that_something_else_reads_stay(more):
    assert "softmax" in ops(run(R, positions(last=f", {more}")))


@pytest.mark.parametrize("added", ["%h, %h", "%i, %w", "%h, %a"])
def test_whatever_is_added_to_scores_of_an_image_is_added(added):
    run(R, positions(added))


def hidden_twice(behind="%m", zero="0.0", low="-3e38"):
    middle = (
        f"%low: f32[] = constant {{value = f32[] [{low}]}} %zero: f32[] = constant {{value = f32[] [{zero}]}}"
        " %a: f32[2, 3, 5, 7] = where(%m, %low, %s) %x: f32[2, 3, 5, 7] = softmax(%a) {axis = -1}"
    )
    after = (
        f"%r: f32[2, 3, 5, 7] = where({behind}, %zero, %x) %g: f32[6, 5, 7] = reshape(%r) {{shape = [6, 5, 7]}}"
        " %u: f32[6, 7, 6] = reshape(%v) {shape = [6, 7, 6]} %o: f32[6, 5, 6] = matmul(%g, %u) return %o"
    )
    more = "%m: bool[2, 1, 5, 7], %n: bool[2, 1, 5, 7]"
    text = spelled_out(middle, "x", more=(more,), after=after)
    return text.replace(" %p: f32[2, 3, 5, 7] = softmax(%x) {axis = -1}", "")


def test_keys_that_are_hidden_before_and_behind_the_softmax_are_hidden():
    graph = run(R, hidden_twice())
    assert "softmax" not in ops(graph)
    assert attention(graph).attributes["zero_rows"]
    assert not attention(graph).attributes["zero_nan"]
    chance = np.random.default_rng(5)
    arrays = [
        chance.standard_normal(shape).astype("f")
        for shape in ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6))
    ]
    hidden = np.zeros((2, 1, 5, 7), bool)
    hidden[1, :, 2], hidden[0, :, 1, 3:] = True, True
    (result,) = evaluate(graph, [*arrays, hidden, hidden])
    (expected,) = evaluate(parse(hidden_twice()), [*arrays, hidden, hidden])
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert not result.reshape(2, 3, 5, 6)[1, :, 2].any()


@pytest.mark.parametrize(
    "text",
    [hidden_twice(behind="%n"), hidden_twice(zero="0.5"), hidden_twice(low="-20.0")],
)
def test_weights_that_are_hidden_otherwise_stay(text):
    assert "softmax" in ops(run(R, text))


def hidden_by(lines, rows="s", keys="s", sizes="s: 1.."):
    """Attention of rows and keys to whose scores `%b` is added."""
    return (
        (
            f"graph @g<{sizes}>(%q: f32[2, {rows}, 4], %k: f32[2, {keys}, 4], %v: f32[2, {keys}, 6]) {{"
            " %t: f32[2, 4, KEYS] = transpose(%k) {perm = [0, 2, 1]}"
            " %p: f32[2, ROWS, KEYS] = matmul(%q, %t)"
            " %low: f32[] = constant {value = f32[] [-inf]} %zero: f32[] = constant {value = f32[] [0.0]}"
            f" {lines} %a: f32[2, ROWS, KEYS] = add(%p, %b)"
            " %w: f32[2, ROWS, KEYS] = softmax(%a) {axis = -1}"
            " %y: f32[2, ROWS, 6] = matmul(%w, %v) return %y }"
        )
        .replace("ROWS", rows)
        .replace("KEYS", keys)
    )


COLUMN = "%i: i64[ROWS, 1] = iota {shape = [ROWS, 1], axis = 0}"
LINE = "%j: i64[1, KEYS] = iota {shape = [1, KEYS], axis = 1}"
LATER = f"{COLUMN} {LINE} %c: bool[ROWS, KEYS] = less(%i, %j)"


@pytest.mark.parametrize(
    "lines",
    [
        f"{LATER} %b: f32[ROWS, KEYS] = where(%c, %low, %zero)",
        (
            f"{COLUMN} {LINE} %c: bool[ROWS, KEYS] = greater_equal(%i, %j)"
            " %b: f32[ROWS, KEYS] = where(%c, %zero, %low)"
        ),
        (
            f"{LATER} %d: bool[1, ROWS, KEYS] = reshape(%c) {{shape = [1, ROWS, KEYS]}}"
            " %e: bool[1, ROWS, KEYS] = logical_not(%d)"
            " %b: f32[1, ROWS, KEYS] = where(%e, %zero, %low)"
        ),
        (
            "%f: f32[ROWS, KEYS] = broadcast_to(%low) {shape = [ROWS, KEYS]}"
            " %o: i64[] = constant {value = i64[] [1]} %b: f32[ROWS, KEYS] = trilu(%f, %o) {upper = true}"
        ),
        (
            f"{LATER} %d: f32[ROWS, KEYS] = cast(%c) {{dtype = f32}}"
            " %m: f32[] = constant {value = f32[] [-3.4e+38]} %b: f32[ROWS, KEYS] = mul(%d, %m)"
        ),
        (
            f"{LATER} %n: bool[ROWS, KEYS] = logical_not(%c) %d: f32[ROWS, KEYS] = cast(%n) {{dtype = f32}}"
            " %one: f32[] = constant {value = f32[] [1.0]} %e: f32[ROWS, KEYS] = sub(%one, %d)"
            " %m: f32[] = constant {value = f32[] [-3.4e+38]} %b: f32[ROWS, KEYS] = mul(%e, %m)"
        ),
    ],
)
@pytest.mark.parametrize("size", ["s", "37"])
def test_comparisons_of_places_that_hide_later_keys_are_causal(lines, size):
    lines = lines.replace("ROWS", size).replace("KEYS", size)
    node = attention(run(R, hidden_by(lines, size, size)))
    assert node.attributes["causal"] == (0,)
    assert node.operands[3] is None


def test_rows_behind_others_see_more_keys():
    lines = (
        (
            f"{COLUMN} {LINE} %n: i64[1] = shape_tensor {{values = [p]}}"
            " %o: i64[ROWS, 1] = add(%i, %n) %c: bool[ROWS, KEYS] = less(%o, %j)"
            " %b: f32[ROWS, KEYS] = where(%c, %low, %zero)"
        )
        .replace("ROWS", "s")
        .replace("KEYS", "p + s")
    )
    graph = run(R, hidden_by(lines, "s", "p + s", "s: 1.., p: 0.."))
    assert [str(dim) for dim in attention(graph).attributes["causal"]] == ["p"]


@pytest.mark.parametrize(
    "lines",
    [
        # Earlier keys are hidden; a row sees no key; keys in steps; hidden by a number that counts.
        (
            f"{COLUMN} {LINE} %c: bool[ROWS, KEYS] = greater(%i, %j)"
            " %b: f32[ROWS, KEYS] = where(%c, %low, %zero)"
        ),
        (
            f"{COLUMN} {LINE} %c: bool[ROWS, KEYS] = less_equal(%i, %j)"
            " %b: f32[ROWS, KEYS] = where(%c, %low, %zero)"
        ),
        (
            f"{COLUMN} {LINE} %d: i64[1, KEYS] = add(%j, %j) %c: bool[ROWS, KEYS] = less(%i, %d)"
            " %b: f32[ROWS, KEYS] = where(%c, %low, %zero)"
        ),
        (
            f"{LATER} %m: f32[] = constant {{value = f32[] [-10000.0]}}"
            " %b: f32[ROWS, KEYS] = where(%c, %m, %zero)"
        ),
    ],
)
def test_other_comparisons_of_places_are_biases(lines):
    lines = lines.replace("ROWS", "s").replace("KEYS", "s")
    graph = run(R, hidden_by(lines))
    assert not any(n.attributes.get("causal") for n in graph.nodes if n.op == "attention")


def test_rows_that_see_a_key_are_not_asked_for_it():
    lines = f"{LATER} %b: f32[ROWS, KEYS] = where(%c, %low, %zero)".replace(
        "ROWS", "s"
    ).replace("KEYS", "s")
    text = hidden_by(lines).replace(
        "%y: f32[2, s, 6] = matmul(%w, %v)",
        "%top: f32[s, 1] = reduce_max(%b) {axes = [1], keepdims = true} %lost: bool[s, 1] = equal(%top, %low)"
        " %x: f32[2, s, s] = where(%lost, %zero, %w) %y: f32[2, s, 6] = matmul(%x, %v)",
    )
    assert "where" not in ops(run(R, text))


def test_differences_of_unsigned_places_wrap_and_hide_nothing():
    lines = (
        "%i: u32[s, 1] = iota {shape = [s, 1], axis = 0, dtype = u32}"
        " %j: u32[1, s] = iota {shape = [1, s], axis = 1, dtype = u32} %d: u32[s, s] = sub(%i, %j)"
        " %n: u32[] = constant {value = u32[] [0]} %c: bool[s, s] = greater_equal(%d, %n)"
        " %b: f32[s, s] = where(%c, %zero, %low)"
    )
    graph = run(R, hidden_by(lines))
    assert not any(n.attributes.get("causal") for n in graph.nodes if n.op == "attention")


@pytest.mark.parametrize(
    ("rows", "offset"),
    [
        ([[np.nan, 0, 0]], None),
        ([[np.nan]], None),
        ([[0, -np.inf], [0, 0]], 0),
        ([[[0, -np.inf], [0, 0]]] * 3, 0),
        ([[[0, -np.inf], [0, 0]], [[0, -np.inf], [0, -np.inf]]], None),
    ],
)
def test_arrays_hide_later_keys_or_not(rows, offset):
    value = GraphBuilder().constant(np.array(rows, np.float32))
    assert attempt(causal_offset, value, value.type.shape, alone=True) == offset


@pytest.mark.parametrize(
    "numbers",
    [[2**63 - 1, 5], [-1, 2**63 - 1], [0, -(2**63), 0], [2**40, 2**40 + 1]],
)
def test_numbers_that_may_wrap_count_nothing(numbers):
    builder = GraphBuilder()
    column = builder.constant(np.array(numbers, np.int64).reshape(-1, 1))
    row = builder.constant(np.arange(len(numbers), dtype=np.int64).reshape(1, -1))
    hidden, shown = (builder.constant(np.float32(x)) for x in (-np.inf, 0))
    bias = builder.where(builder.less(column, row), hidden, shown)
    assert attempt(causal_offset, bias, bias.type.shape, alone=True) is None
