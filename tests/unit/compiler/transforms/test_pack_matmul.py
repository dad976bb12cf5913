import numpy as np
import pytest

from fakes.graphs import assert_stays, only, ops, run
from tilewright.base.dtypes import bf16, f16
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.ops import catalogue
from tilewright.compiler.readers.graph_text import parse_graph
from tilewright.compiler.transforms import (
    FoldConstants,
    PackMatmul,
    ShortWeights,
)


def panel(rows, columns, depth, dtype):
    return 4


P = [PackMatmul(choose_panel=panel), FoldConstants()]


def matmul(a, b, y, constant=True, dtype="f32"):
    inputs = f"%a: f32[{a}]" + ("" if constant else f", %b: f32[{b}]")
    made = f"%b: f32[{b}] = constant {{value = f32[{b}] splat 0.5}}" if constant else ""
    return (
        f"graph @g<N: 1..>({inputs}) {{ {made} %y: f32[{y}] = matmul(%a, %b) return %y }}"
    ).replace("f32", dtype)


def test_constant_right_operands_are_packed_at_compile_time():
    graph = run(P, matmul("N, 4", "4, 6", "N, 6"))
    assert ops(graph) == ["contract:matmul"]
    assert graph.nodes[-1].operands[1].type.shape == (2, 4, 4)


@pytest.mark.parametrize(("filters", "channels"), [(6, 3), (8, 1), (3, 5)])
def test_filters_of_winograd_are_made_in_panels(filters: int, channels: int) -> None:
    shape = f"{filters}, {channels}, 3, 3"
    values = np.random.default_rng(0).standard_normal((filters, channels, 3, 3))
    text = f"""graph @g(%a: f32[16, 7, {channels}], %w: f32[{shape}]) {{
      %b: f32[16, {channels}, {filters}] = winograd_filter(%w) {{tile = 2}}
      %y: f32[16, 7, {filters}] = matmul(%a, %b)
      return %y
    }}"""
    graph = run(P[:1], text)
    assert ops(graph) == ["winograd_filter", "contract:matmul"]
    weights = values.astype(np.float32)
    a = np.random.default_rng(1).standard_normal((16, 7, channels)).astype(np.float32)
    plain = parse_graph(text, catalogue.schema)
    (wanted,), (got,) = evaluate(plain, [a, weights]), evaluate(graph, [a, weights])
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def two_products(between: str) -> str:
    """A product, something else, and another product."""
    return f"""graph @g(%a: f32[6, 5]) {{
      %v: f32[5, 8] = constant {{value = f32[5, 8] splat 0.25}}
      %w: f32[8, 3] = constant {{value = f32[8, 3] splat 0.5}}
      %x: f32[6, 8] = matmul(%a, %v)
      {between}
      %y: f32[6, 3] = matmul(%z, %w)
      return %y
    }}"""


GAPS = [
    PackMatmul(
        choose_panel=lambda rows, columns, depth, dtype, row=0: 2 if row else 4,
        choose_gap=lambda rows, channels, step, dtype: 3 if channels == 8 else 0,
    ),
    FoldConstants(),
]


@pytest.mark.parametrize(
    "between",
    [
        "%z: f32[6, 8] = relu(%x)",
        "%t: f32[6, 8] = tanh(%x) %z: f32[6, 8] = mul(%x, %t)",
        "%c: f32[6, 8] = constant {value = f32[6, 8] splat 0.5} %z: f32[6, 8] = add(%c, %x)",
        """%r: f32[2, 3, 8] = reshape(%x) {shape = [2, 3, 8]} %s: f32[2, 3, 8] = relu(%r)
        %z: f32[6, 8] = reshape(%s) {shape = [6, 8]}""",
    ],
)
def test_rows_that_a_product_makes_for_the_next_one_have_gaps(between: str) -> None:
    text = two_products(between)
    graph = run(GAPS, text)
    *_, last = graph.nodes
    left, right = last.operands
    assert (left.type.shape, right.type.shape) == ((6, 11), (2, 8, 2))
    assert ops(graph)[-2:] == ["pad", "contract:matmul"]
    a = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    (wanted,) = evaluate(parse_graph(text, catalogue.schema), [a])
    (got,) = evaluate(graph, [a])
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        matmul("6, 8", "8, 3", "6, 3"),  # nobody stores it
        two_products("%z: f32[6, 8] = softmax(%x)"),
        # These have axes as a contraction has, and no other map.
        two_products(
            "%z: f32[6, 8] = slice(%x) {axes = [0], starts = [0], sizes = [6], steps = [1]}"
        ),
        two_products(
            "%r: f32[6, 8, 1] = reshape(%x) {shape = [6, 8, 1]} "
            "%z: f32[6, 8] = reduce_sum(%r) {axes = [2], keepdims = false}"
        ),
        two_products("%z: f32[6, 8] = relu(%x)").replace("return %y", "return %y, %z"),
        two_products("%z: f32[6, 8] = relu(%x)").replace("return %y", "return %y, %x"),
        two_products("%z: f32[6, 8] = relu(%x) %t: f32[6, 8] = softmax(%x)").replace(
            "return %y", "return %y, %t"
        ),
    ],
)
def test_what_others_read_or_no_product_makes_has_none(text: str) -> None:
    assert "pad" not in ops(run(GAPS, text))


@pytest.mark.slow
def test_long_chains_are_looked_at_without_recursion() -> None:
    lines = ["%v0: f32[6, 8] = relu(%x)"]
    lines += [f"%v{n + 1}: f32[6, 8] = mul(%v{n}, %v{n})" for n in range(1500)]
    text = two_products(" ".join([*lines, "%z: f32[6, 8] = relu(%v1500)"]))
    assert "pad" in ops(run(GAPS, text))


def test_a_product_with_one_column_sums_the_rows():
    graph = run(P, matmul("2, N, 4", "2, 4, 1", "2, N, 1", constant=False))
    assert ops(graph) == ["reshape", "mul", "reduce_sum"]
    assert str(graph.nodes[0].result.type) == "f32[2, 1, 4]"
    narrow = run(P, matmul("2, N, 4", "2, 4, 1", "2, N, 1", constant=False, dtype="f16"))
    assert "reduce_sum" not in ops(narrow)


def test_a_batch_of_rows_becomes_one_product():
    graph = run(P, matmul("N, 3, 4", "4, 6", "N, 3, 6"))
    assert ops(graph) == ["reshape", "contract:matmul", "reshape"]
    assert str(graph.nodes[0].result.type) == "f32[3*N, 4]"


def test_a_right_operand_with_unit_batch_counts_as_one_matrix():
    graph = run(P, matmul("N, 3, 4", "1, 4, 6", "N, 3, 6"))
    assert ops(graph) == ["reshape", "contract:matmul", "reshape"]


def test_a_left_operand_of_lower_rank_keeps_the_batch():
    graph = run(P, matmul("3, 4", "1, 4, 6", "1, 3, 6"))
    assert ops(graph) == ["contract:matmul"]


def test_computed_right_operands_are_packed_at_run_time():
    graph = run(P, matmul("2, N, 4", "2, 4, 6", "2, N, 6", constant=False))
    assert ops(graph) == ["pack_panels", "contract:matmul"]


def test_a_single_row_does_not_pay_for_packing_a_computed_operand():
    assert_stays(P, matmul("1, 4", "4, 6", "1, 6", constant=False))
    assert ops(run(P, matmul("1, 4", "4, 6", "1, 6"))) == ["contract:matmul"]
    always = [PackMatmul(choose_panel=panel, least_rows=1)]
    assert "pack_panels" in ops(run(always, matmul("1, 4", "4, 6", "1, 6", constant=False)))


def test_moved_weights_count_as_constants():
    graph = run(
        P,
        "graph @g(%a: f32[1, 4]) { %b: f32[600, 4] = constant {value = f32[600, 4] splat 0.5}"
        " %t: f32[4, 600] = transpose(%b) {perm = [1, 0]} %y: f32[1, 600] = matmul(%a, %t)"
        " return %y }",
    )
    assert ops(graph) == ["contract:matmul"]


def test_integers_are_packed_and_a_panel_of_zero_stays():
    text = matmul("3, 4", "4, 6", "3, 6").replace("splat 0.5", "splat 2")
    assert ops(run(P, text.replace("f32", "i32"))) == ["contract:matmul"]
    none = [PackMatmul(choose_panel=lambda *_: 0)]
    assert_stays(none, matmul("3, 4", "4, 6", "3, 6"))


def test_rows_of_sixteen_bit_floats_are_widened_once_and_the_panels_stay():
    graph = run(P, matmul("5, 4", "4, 6", "5, 6", dtype="f16"))
    assert ops(graph) == ["cast", "contract:matmul", "cast"]
    product = graph.nodes[-2]
    assert [v.type.dtype.name for v in product.operands] == ["f32", "f16"]


def test_a_single_row_of_sixteen_bit_floats_is_read_as_it_is():
    graph = run(P, matmul("1, 4", "4, 6", "1, 6", dtype="bf16"))
    assert ops(graph) == ["contract:matmul"]


@pytest.mark.parametrize("rows", [1, 5, "N"])
def test_products_of_bf16_are_summed_as_pairs_where_the_machine_has_them(rows):
    passes = [
        PackMatmul(choose_panel=panel, products=frozenset({"pairs"})),
        FoldConstants(),
    ]
    text = matmul(f"{rows}, 6", "6, 9", f"{rows}, 9", dtype="bf16")
    graph = run(passes, text)
    assert ops(graph) == ["as_words", "contract:matmul", "cast"]
    assert only(graph, "contract:matmul").attributes["product"] == "pairs"


@pytest.mark.parametrize(
    ("rows", "short", "panels"),
    [
        (1, ShortWeights((f16, bf16)), "f16"),
        (15, ShortWeights((f16,)), "f16"),
        (16, ShortWeights((f16,), with_open_rows=True), "f32"),  # each tile widens again
        ("N", ShortWeights((f16,)), "f32"),  # there may be many
        ("N", ShortWeights((f16,), with_open_rows=True), "f16"),
        (1, ShortWeights((bf16,)), "bf16"),
        (1, ShortWeights(), "f32"),
    ],
)
def test_weights_that_need_no_f32_are_panels_of_sixteen_bits_where_rows_are_few(
    rows, short, panels
):
    passes = [PackMatmul(choose_panel=panel, short=short), FoldConstants()]
    text = matmul(f"{rows}, 4", "4, 6", f"{rows}, 6")
    product = only(run(passes, text), "contract:matmul")
    assert [v.type.dtype.name for v in product.operands] == ["f32", panels]
    assert product.result.type.dtype.name == "f32"
    exact = only(run(passes, text.replace("splat 0.5", "splat 0.1")), "contract:matmul")
    assert exact.operands[1].type.dtype.name == "f32"


def test_a_prompt_and_the_words_behind_it_share_panels_of_sixteen_bits():
    def by_rows(rows, columns, depth, dtype):
        return 2 if rows == (1,) else 4

    short = ShortWeights((f16,), with_open_rows=True)
    passes = [PackMatmul(choose_panel=by_rows, short=short), FoldConstants()]
    for rows in ("1", "N"):
        text = matmul(f"{rows}, 4", "4, 6", f"{rows}, 6")
        assert only(run(passes, text), "contract:matmul").operands[1].type.shape == (
            3,
            4,
            2,
        )
        wide = only(run(passes, text.replace("0.5", "0.1")), "contract:matmul")
        assert wide.operands[1].type.shape == ((3, 4, 2) if rows == "1" else (2, 4, 4))


def bytes_product(rows, depth):
    return (
        f"graph @g<N: 1..>(%a: u8[{rows}, {depth}]) {{ %b: i8[{depth}, 6] = constant {{value = i8[{depth}, 6] splat -3}}"
        f" %y: i32[{rows}, 6] = matmul(%a, %b) {{dtype = i32}} return %y }}"
    )


@pytest.mark.parametrize(
    ("rows", "depth", "product", "words"),
    [
        (5, 24, "long_bytes", "i64[5, 3]"),
        (5, 21, "long_bytes", "i64[5, 3]"),  # filled up with zeros
        ("N", 8, "long_bytes", "i64[N, 1]"),
        (1, 24, "long_bytes", "i32[1, 6]"),  # one row leaves half of every tile empty
        (5, 24, "bytes", "i32[5, 6]"),
    ],
)
def test_bytes_are_eight_to_a_word_where_rows_are_multiplied_in_pairs(
    rows, depth, product, words
):
    passes = [
        PackMatmul(choose_panel=panel, products=frozenset({product})),
        FoldConstants(),
    ]
    graph = run(passes, bytes_product(rows, depth))
    assert str(graph.nodes[-1].operands[0].type) == words
    assert graph.nodes[-1].attributes["product"] == (
        "long_bytes" if "64" in words else "bytes"
    )


OPEN = "graph @g<M: 0.., N: 0.., K: 0..>"
WIDE = [PackMatmul(choose_panel=lambda rows, columns, depth, dtype: 64)]


@pytest.mark.parametrize("shape", ["", "2, "], ids=["one", "batch"])
def test_few_columns_of_an_open_number_are_not_packed(shape: str) -> None:
    text = f"""{OPEN}(%a: f32[{shape}M, K], %b: f32[{shape}K, N]) {{
      %y: f32[{shape}M, N] = matmul(%a, %b) return %y
    }}"""
    graph = run(WIDE, text)
    assert ops(graph) == ["pack_panels", "contract:matmul"]
    packed, rest = graph.nodes[-1].operands[1:]
    assert rest is graph.inputs[1]
    assert packed.type.shape[-3] == (symbol("N", 0) + 31) // 64
    plain = parse_graph(text, catalogue.schema)
    lead = (2,) if shape else ()
    sizes = [
        (3, 2, 1),
        (3, 5, 32),
        (1, 3, 33),
        (2, 3, 64),
        (2, 3, 100),
        (0, 2, 3),
        (2, 0, 5),
        (2, 2, 0),
    ]
    for m, k, n in sizes:
        a = np.arange(np.prod((*lead, m, k)), dtype="f").reshape(*lead, m, k)
        b = np.arange(np.prod((*lead, k, n)), dtype="f").reshape(*lead, k, n)
        (wanted,), (got,) = evaluate(plain, [a, b]), evaluate(graph, [a, b])
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("inputs", "made"),
    [
        ("%w: f32[N, K]", "%b: f32[K, N] = transpose(%w) {perm = [1, 0]}"),
        ("%w: f32[K, N]", "%b: f32[K, N] = relu(%w)"),
    ],
    ids=["turned", "computed on the way"],
)
def test_what_the_packing_kernel_makes_is_packed_whole(inputs: str, made: str) -> None:
    text = f"""{OPEN}(%a: f32[M, K], {inputs}) {{
      {made} %y: f32[M, N] = matmul(%a, %b) return %y
    }}"""
    graph = run(WIDE, text)
    assert ops(graph)[1:] == ["pack_panels", "contract:matmul"]
    assert len(graph.nodes[-1].operands) == 2


@pytest.mark.parametrize(("columns", "passes"), [("7", WIDE), ("64*N", WIDE), ("N", P[:1])])
def test_known_numbers_of_panels_and_narrow_ones_are_packed_whole(
    columns: str, passes: list[PackMatmul]
) -> None:
    text = f"""{OPEN}(%a: f32[M, K], %b: f32[K, {columns}]) {{
      %y: f32[M, {columns}] = matmul(%a, %b) return %y
    }}"""
    graph = run(passes, text)
    assert ops(graph) == ["pack_panels", "contract:matmul"]
    assert len(graph.nodes[-1].operands) == 2


@pytest.mark.parametrize(
    ("left", "right", "result", "operands"),
    [
        ("3, M, K", "3, K, N", "3", 3),
        ("M, K", "3, K, N", "3", 3),
        ("1, M, K", "3, K, N", "3", 3),
        ("2, 3, M, K", "3, K, N", "2, 3", 2),
        ("2, 1, M, K", "1, 3, K, N", "2, 3", 2),
        ("1, 3, M, K", "3, K, N", "1, 3", 3),
    ],
)
def test_a_matrix_that_several_others_meet_is_packed_whole(
    left: str, right: str, result: str, operands: int
) -> None:
    text = f"""{OPEN}(%a: f32[{left}], %b: f32[{right}]) {{
      %y: f32[{result}, M, N] = matmul(%a, %b) return %y
    }}"""
    assert len(run(WIDE, text).nodes[-1].operands) == operands
