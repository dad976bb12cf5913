import pytest

from fakes.graphs import assert_becomes, assert_stays, run
from tilewright.base import dtypes
from tilewright.compiler.transforms import Simplify
from tilewright.compiler.transforms.arithmetic_rewrites import holds_exactly
from tilewright.compiler.transforms.matching import splat_of


def one(op, constant, attributes="", type_="f32[N, 4]"):
    scalar = type_.split("[")[0] + "[]"
    return (
        f"graph @g<N: 1..>(%x: {type_}) {{"
        f" %c: {scalar} = constant {{value = {scalar} [{constant}]}}"
        f" %y: {type_} = {op}(%x, %c) {attributes} return %y }}"
    )


X = "graph @g<N: 1..>(%x: f32[N, 4]) { return %x }"


@pytest.mark.parametrize(
    ("op", "neutral"),
    [("add", "0.0"), ("sub", "0.0"), ("mul", "1.0"), ("div", "1.0"), ("pow", "1.0")],
)
def test_a_neutral_operand_is_dropped(op, neutral):
    assert_becomes([Simplify()], one(op, neutral), X)


def test_a_neutral_operand_that_repeats_x_is_a_broadcast():
    assert_becomes(
        [Simplify()],
        "graph @g(%x: f32[1, 4]) { %c: f32[3, 1] = constant {value = f32[3, 1] [1.0, 1.0, 1.0]}"
        " %y: f32[3, 4] = mul(%x, %c) return %y }",
        "graph @g(%x: f32[1, 4]) { %y: f32[3, 4] = broadcast_to(%x) {shape = [3, 4]} return %y }",
    )


def test_constants_move_to_the_right():
    text = one("add", "2.0")
    assert_becomes([Simplify()], text.replace("(%x, %c)", "(%c, %x)"), text)


def test_an_inexact_division_stays():
    assert_stays([Simplify()], one("div", "3.0"))


def test_division_by_a_power_of_two_multiplies():
    assert_becomes([Simplify()], one("div", "-8.0"), one("mul", "-0.125"))


@pytest.mark.parametrize("divisor", ["0.0", "inf", "nan", "1e38"])
def test_division_by_an_odd_number_stays(divisor):
    assert_stays([Simplify()], one("div", divisor))


def test_integer_division_stays():
    assert_stays([Simplify()], one("div", "2", type_="i32[N, 4]"))


def test_small_powers_are_products():
    square = "graph @g<N: 1..>(%x: f32[N, 4]) { %y: f32[N, 4] = mul(%x, %x) return %y }"
    assert_becomes([Simplify()], one("pow", "2.0"), square)
    cube = square.replace("return %y", "%z: f32[N, 4] = mul(%y, %x) return %z")
    assert_becomes([Simplify()], one("pow", "3.0"), cube)
    assert_becomes(
        [Simplify()], one("pow", "-1.0"), square.replace("mul(%x, %x)", "reciprocal(%x)")
    )
    assert_stays([Simplify()], one("pow", "2.5"))
    assert_stays([Simplify()], one("pow", "0.5"))


def test_roots_become_reciprocal_roots_where_the_divisor_is_small():
    assert_becomes(
        [Simplify()],
        "graph @g(%x: f32[3, 4], %v: f32[3, 1]) { %s: f32[3, 1] = exp(%v)"
        " %r: f32[3, 1] = sqrt(%s) %y: f32[3, 4] = div(%x, %r) return %y }",
        "graph @g(%x: f32[3, 4], %v: f32[3, 1]) { %s: f32[3, 1] = exp(%v)"
        " %r: f32[3, 1] = rsqrt(%s) %y: f32[3, 4] = mul(%x, %r) return %y }",
    )
    assert_stays(
        [Simplify()],
        "graph @g(%x: f32[3, 4], %v: f32[3, 4]) { %r: f32[3, 4] = sqrt(%v)"
        " %y: f32[3, 4] = div(%x, %r) return %y }",
    )


def test_one_over_a_root_is_a_reciprocal_root():
    after = "graph @g(%x: f32[3]) { %e: f32[3] = exp(%x) %y: f32[3] = rsqrt(%e) return %y }"
    assert_becomes(
        [Simplify()],
        "graph @g(%x: f32[3]) { %e: f32[3] = exp(%x) %r: f32[3] = sqrt(%e)"
        " %y: f32[3] = reciprocal(%r) return %y }",
        after,
    )
    assert_becomes(
        [Simplify()],
        "graph @g(%x: f32[3]) { %c: f32[] = constant {value = f32[] [1.0]}"
        " %e: f32[3] = exp(%x) %r: f32[3] = sqrt(%e)"
        " %y: f32[3] = div(%c, %r) return %y }",
        after,
    )


def test_a_product_with_a_reciprocal_is_a_quotient():
    assert_becomes(
        [Simplify()],
        "graph @g(%x: f32[3], %v: f32[3]) { %r: f32[3] = reciprocal(%v)"
        " %y: f32[3] = mul(%r, %x) return %y }",
        "graph @g(%x: f32[3], %v: f32[3]) { %y: f32[3] = div(%x, %v) return %y }",
    )


def test_what_undoes_itself_vanishes_and_idempotent_ops_are_done_once():
    assert_becomes(
        [Simplify()],
        "graph @g<N: 1..>(%x: f32[N, 4]) { %a: f32[N, 4] = neg(%x) %b: f32[N, 4] = neg(%a)"
        " %c: f32[N, 4] = identity(%b) return %c }",
        X,
    )
    assert_becomes(
        [Simplify()],
        "graph @g(%x: f32[3]) { %a: f32[3] = abs(%x) %b: f32[3] = neg(%a) %c: f32[3] = neg(%b)"
        " return %c }",
        "graph @g(%x: f32[3]) { %a: f32[3] = abs(%x) return %a }",
    )


def test_negated_operands_turn_add_and_sub_around():
    graph = run(
        [Simplify()],
        "graph @g(%x: f32[3], %y: f32[3]) { %n: f32[3] = neg(%y) %a: f32[3] = add(%x, %n)"
        " %b: f32[3] = sub(%a, %n) return %b }",
    )
    assert [n.op for n in graph.nodes] == ["sub", "add"]


def test_scales_merge_but_not_extreme_ones_nor_shared_ones():
    chain = (
        "graph @g(%x: f32[3]) { %c: f32[] = constant {value = f32[] [C]}"
        " %d: f32[] = constant {value = f32[] [0.5]} %a: f32[3] = mul(%x, %c)"
        " %b: f32[3] = mul(%a, %d) return %b }"
    )
    after = run([Simplify()], chain.replace("C", "3.0"))
    assert [n.op for n in after.nodes] == ["constant", "mul"]
    assert_stays([Simplify()], chain.replace("C", "1e30"))
    assert_stays(
        [Simplify()], chain.replace("C", "3.0").replace("return %b", "return %a, %b")
    )


def test_max_with_zero_is_relu_for_integers_too():
    for type_, zero in (("f32[N, 4]", "0.0"), ("i32[N, 4]", "0")):
        after = f"graph @g<N: 1..>(%x: {type_}) {{ %y: {type_} = relu(%x) return %y }}"
        assert_becomes([Simplify()], one("max", zero, type_=type_), after)


def test_a_known_or_pointless_choice_is_made():
    text = (
        "graph @g(%x: f32[3], %y: f32[3], %c: bool[3]) {"
        " %t: bool[] = constant {value = bool[] [T]}"
        " %a: f32[3] = where(%t, %x, %y) %b: f32[3] = where(%c, %a, %a) return %b }"
    )
    assert_becomes(
        [Simplify()],
        text.replace("T", "true"),
        "graph @g(%x: f32[3], %y: f32[3], %c: bool[3]) { return %x }",
    )
    assert_becomes(
        [Simplify()],
        text.replace("T", "false"),
        "graph @g(%x: f32[3], %y: f32[3], %c: bool[3]) { return %y }",
    )


def test_a_negated_condition_swaps_the_branches():
    assert_becomes(
        [Simplify()],
        "graph @g(%x: f32[3], %c: bool[3]) { %z: f32[] = constant {value = f32[] [0.0]}"
        " %n: bool[3] = logical_not(%c) %y: f32[3] = where(%n, %x, %z) return %y }",
        "graph @g(%x: f32[3], %c: bool[3]) { %z: f32[] = constant {value = f32[] [0.0]}"
        " %y: f32[3] = where(%c, %z, %x) return %y }",
    )


def test_casts_through_a_wider_type_vanish():
    assert_becomes(
        [Simplify()],
        "graph @g(%x: f16[3]) { %a: f32[3] = cast(%x) {dtype = f32}"
        " %b: f16[3] = cast(%a) {dtype = f16} return %b }",
        "graph @g(%x: f16[3]) { return %x }",
    )
    assert_stays(
        [Simplify()],
        "graph @g(%x: f32[3]) { %a: f16[3] = cast(%x) {dtype = f16}"
        " %b: f32[3] = cast(%a) {dtype = f32} return %b }",
    )


@pytest.mark.parametrize(
    ("wide", "narrow", "holds"),
    [
        ("f32", "f16", True), ("f32", "bf16", True), ("f16", "bf16", False),
        ("f64", "i32", True), ("f32", "i32", False), ("f32", "i16", True),
        ("f32", "u16", True), ("bf16", "u8", True), ("f16", "i16", False),
        ("i64", "u32", True), ("i32", "u32", False), ("u64", "i8", False),
        ("i8", "bool", True), ("bool", "i8", False), ("i16", "i16", True),
        ("i64", "f32", False), ("f64", "i64", False),
    ],
)  # fmt: skip
def test_which_types_hold_which(wide, narrow, holds):
    assert holds_exactly(dtypes.parse(wide), dtypes.parse(narrow)) is holds


def test_explicit_broadcasts_of_operands_vanish_when_the_shape_stays():
    assert_becomes(
        [Simplify()],
        "graph @g<N: 1..>(%x: f32[N, 4], %b: f32[4]) {"
        " %w: f32[N, 4] = broadcast_to(%b) {shape = [N, 4]}"
        " %y: f32[N, 4] = add(%x, %w) return %y }",
        "graph @g<N: 1..>(%x: f32[N, 4], %b: f32[4]) { %y: f32[N, 4] = add(%x, %b) return %y }",
    )
    assert_becomes(
        [Simplify()],
        "graph @g(%x: f32[1, 4], %b: f32[4]) {"
        " %w: f32[3, 4] = broadcast_to(%b) {shape = [3, 4]}"
        " %y: f32[3, 4] = add(%x, %w) return %y }",
        "graph @g(%x: f32[1, 4], %b: f32[4]) { %w: f32[1, 4] = add(%x, %b)"
        " %y: f32[3, 4] = broadcast_to(%w) {shape = [3, 4]} return %y }",
    )


def test_what_is_repeated_is_computed_once():
    assert_becomes(
        [Simplify()],
        "graph @g<N: 1..>(%x: bool[N]) { %w: bool[5, N] = broadcast_to(%x) {shape = [5, N]}"
        " %a: f32[5, 1] = constant {value = f32[5, 1] splat 0.0}"
        " %b: f32[] = constant {value = f32[] [-1.0]}"
        " %y: f32[5, N] = where(%w, %a, %b) return %y }",
        "graph @g<N: 1..>(%x: bool[N]) { %a: f32[] = constant {value = f32[] [0.0]}"
        " %b: f32[] = constant {value = f32[] [-1.0]} %w: f32[N] = where(%x, %a, %b)"
        " %y: f32[5, N] = broadcast_to(%w) {shape = [5, N]} return %y }",
    )


@pytest.mark.parametrize(
    ("op", "known", "value"),
    [
        ("logical_and", "true", "%x"),
        ("logical_or", "false", "%x"),
        ("logical_and", "false", "false"),
        ("logical_or", "true", "true"),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_logic_with_one_answer(op, known, value, swapped):
    operands = "%c, %x" if swapped else "%x, %c"
    constant = f"%c: bool[] = constant {{value = bool[] [{value}]}} "
    wanted = "%x" if value == "%x" else "%c"
    assert_becomes(
        [Simplify()],
        f"graph @g<N: 1..>(%x: bool[N]) {{ %c: bool[3, 1] = constant {{value = bool[3, 1] splat {known}}}"
        f" %y: bool[3, N] = {op}({operands}) return %y }}",
        f"graph @g<N: 1..>(%x: bool[N]) {{ {'' if value == '%x' else constant}"
        f"%y: bool[3, N] = broadcast_to({wanted}) {{shape = [3, N]}} return %y }}",
    )


@pytest.mark.parametrize(
    ("op", "bound", "answer"),
    [
        ("greater_equal", 0, True),
        ("greater", -1, True),
        ("less", 0, False),
        ("less_equal", 6, True),
        ("less", 7, True),
        ("greater", 6, False),
        ("greater", 0, None),
        ("less", 6, None),
        ("greater_equal", 6, None),
        ("less_equal", 0, None),
    ],
)
def test_comparisons_of_ranges_that_do_not_meet_are_decided(op, bound, answer):
    graph = run(
        [Simplify()],
        f"graph @g() {{ %i: i64[7] = iota {{shape = [7]}}"
        f" %c: i64[] = constant {{value = i64[] [{bound}]}}"
        f" %y: bool[7] = {op}(%i, %c) return %y }}",
    )
    (result,) = graph.outputs
    assert splat_of(result) is answer


def test_comparisons_of_sizes_are_decided_where_every_size_says_the_same():
    graph = run(
        [Simplify()],
        "graph @g<N: 1..>(%x: f32[N]) { %i: i64[N] = iota {shape = [N]}"
        " %c: i64[] = constant {value = i64[] [0]}"
        " %y: bool[N] = greater_equal(%i, %c) %z: bool[N] = greater(%i, %c) return %y, %z }",
    )
    assert [splat_of(value) for value in graph.outputs] == [True, None]


def test_numbers_that_are_no_numbers_are_compared():
    text = (
        "graph @g<N: 1..>(%x: f32[N]) { %c: f32[] = constant {value = f32[] [nan]}"
        " %y: bool[N] = greater_equal(%x, %c) return %y }"
    )
    assert_stays([Simplify()], text)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("x", ["repeated", "splat"])
def test_scales_of_an_axis_keep_the_axis_of_what_they_scale(axis, x):
    value = (
        "%w: f32[4, 4] = broadcast_to(%x) {shape = [4, 4]}"
        if x == "repeated"
        else "%w: f32[4, 4] = constant {value = f32[4, 4] splat 3.0}"
    )
    run(
        [Simplify()],
        f"graph @g(%x: f32[4], %s: f32[4]) {{ {value} %a: f32[4] = abs(%s)"
        " %one: f32[] = constant {value = f32[] [1.0]} %b: f32[4] = add(%a, %one)"
        f" %y: i8[4, 4] = quantize_linear(%w, %b, _) {{axis = {axis}, dtype = i8}}"
        f" %z: f32[4, 4] = dequantize_linear(%y, %b, _) {{axis = {axis}}} return %z }}",
    )


def test_zeros_of_both_signs_are_two_numbers():
    graph = run(
        [Simplify()],
        "graph @g(%x: f32[2]) { %c: f32[2] = constant {value = f32[2] [0.0, -0.0]}"
        " %y: f32[2] = reciprocal(%c) %z: f32[2] = mul(%x, %y) return %z }",
    )
    assert "broadcast_to" not in [node.op for node in graph]


def test_an_extreme_of_nothing_is_in_no_range():
    graph = run(
        [Simplify()],
        "graph @g<N: 0..>(%x: f32[N]) { %i: i64[N] = iota {shape = [N]}"
        " %m: i64[1] = reduce_max(%i) {axes = [0]} %c: i64[] = constant {value = i64[] [0]}"
        " %y: bool[1] = greater_equal(%m, %c) return %y }",
    )
    assert splat_of(graph.outputs[0]) is None
