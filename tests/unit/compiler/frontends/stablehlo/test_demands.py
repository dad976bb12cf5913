"""What the specification demands of operations: a text that breaks each demand is refused in words."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.stablehlo.load import load
from tilewright.compiler.graph.evaluator import evaluate

QUANTIZED = "!quant.uniform<i8:f32, 0.5:3>"
ALONG = "!quant.uniform<i8:f32:0, {0.5:3, 0.25:1}>"


def module(statement: str, *types: str) -> bytes:
    """A function whose arguments `%a`, `%b` … are of some types, and of whose one statement nothing is returned."""
    listed = ", ".join(
        f"%{name}: {type_}" for name, type_ in zip("abcdefg", types, strict=False)
    )
    return f"func.func @main({listed}) {{\n  {statement}\n  return\n}}".encode()


def refused(statement: str, *types: str) -> str:
    with pytest.raises(ModelError) as caught:
        load(module(statement, *types))
    assert "malformed" not in str(caught.value)
    # The line of the statement is named.
    assert "2:" in str(caught.value)
    return str(caught.value)


def plain(name: str, operands: int, results: str, *types: str, more: str = "") -> str:
    """An operation in the generic form."""
    given = ", ".join(f"%{n}" for n in "abcdefg"[:operands])
    named = f"%r:{results.count('tensor')}" if results.startswith("(") else "%r"
    return (
        f'{named} = "stablehlo.{name}"({given}) {more} : ({", ".join(types)}) -> {results}'
    )


F32, F64, I32, BOOL = "tensor<2xf32>", "tensor<2xf64>", "tensor<2xi32>", "tensor<2xi1>"
POINTWISE = [
    # name, types of operands, type of the result, what the message says
    ("add", ("tensor<2xf32>", "tensor<1xf32>"), F32, "expected one shape"),
    ("add", ("tensor<2xf32>", "tensor<f32>"), F32, "expected one shape"),
    ("add", (F32, F64), F64, "expected one type"),
    ("add", (F32, F32), "tensor<1x2xf32>", "expected one shape"),
    ("add", (F32,), F32, "has 1 operand, expected 2"),
    ("add", (F32, F32, F32), F32, "has 3 operands, expected 2"),
    ("add", ("tensor<2xi4>", "tensor<2xi4>"), "tensor<2xi8>", "expected one type"),
    ("maximum", ("tensor<1x2xf32>", "tensor<2xf32>"), "tensor<1x2xf32>", "expected one shape"),
    ("subtract", (BOOL, BOOL), BOOL, "expected signed integers or unsigned"),
    ("negate", (BOOL,), BOOL, "expected signed integers or unsigned"),
    ("abs", ("tensor<2xui8>",), "tensor<2xui8>", "expected signed integers or floats"),
    ("abs", ("tensor<2xcomplex<f32>>",), "tensor<2xf64>", "expected f32"),
    ("sign", ("tensor<2xui8>",), "tensor<2xui8>", "expected signed integers"),
    ("and", (F32, F32), F32, "expected truth values or"),
    ("shift_left", (BOOL, BOOL), BOOL, "expected signed integers or unsigned"),
    ("popcnt", (BOOL,), BOOL, "expected signed integers or unsigned"),
    ("exponential", (I32,), I32, "expected floats or complex numbers"),
    ("atan2", (I32, I32), I32, "expected floats or complex numbers"),
    ("floor", (I32,), I32, "expected floats or quantized"),
    ("is_finite", (I32,), BOOL, "expected floats"),
    ("is_finite", (F32,), "tensor<2xui8>", "expected truth values"),
    ("not", (F32,), F32, "expected truth values"),
    ("complex", (F32, F64), "tensor<2xcomplex<f32>>", "expected one type"),
    ("complex", (F32, F32), "tensor<2xcomplex<f64>>", "expected complex numbers and their parts"),
    ("real", ("tensor<2xcomplex<f64>>",), F32, "expected f64"),
    ("imag", (I32,), I32, "expected floats or complex"),
    ("select", (I32, F32, F32), F32, "expected truth values"),
    ("select", ("tensor<1xi1>", F32, F32), F32, "expected one shape"),
    ("select", (BOOL, F32, "tensor<1xf32>"), F32, "expected one shape"),
    ("clamp", ("tensor<1xf32>", F32, F32), F32, "expected one shape"),
    ("clamp", (F64, F32, F32), F32, "expected one type"),
    ("convert", (F32,), "tensor<1xf64>", "expected one shape"),
    ("bitcast_convert", ("tensor<2xcomplex<f32>>",), F64, "bits of complex numbers only"),
    ("cholesky", ("tensor<2x2xi32>",), "tensor<2x2xi32>", "expected floats"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "types", "result", "says"), POINTWISE)
def test_elements_at_one_place_are_of_one_type(
    name: str, types: tuple[str, ...], result: str, says: str
) -> None:
    assert says in refused(plain(name, len(types), result, *types), *types)


def region(arguments: str, body: str, result: str) -> str:
    """A region of two arguments `%x` and `%y` that returns `%z`."""
    return f"({{^bb0({arguments}): {body} stablehlo.return %z : {result}}})"


ADDED = region(
    "%x: tensor<f32>, %y: tensor<f32>",
    "%z = stablehlo.add %x, %y : tensor<f32>",
    "tensor<f32>",
)
ADDED_F64 = ADDED.replace("f32", "f64")
LESS = region(
    "%x: tensor<f32>, %y: tensor<f32>",
    "%z = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>",
    "tensor<i1>",
)
ZERO = "{dimensions = array<i64: 0>}"
MAT, IDX = "tensor<4x3xf32>", "tensor<2x1xi32>"


def dot(numbers: str, more: str = "") -> str:
    fields = ", ".join(
        f"{side}_{kind}_dimensions = [{found}]"
        for (side, kind), found in zip(
            [(s, k) for k in ("batching", "contracting") for s in ("lhs", "rhs")],
            numbers.split("|"),
            strict=True,
        )
    )
    return f"{{dot_dimension_numbers = #stablehlo.dot<{fields}>{more}}}"


def gather(numbers: str, sizes: str = "1, 3") -> str:
    return f"{{dimension_numbers = #stablehlo.gather<{numbers}>, slice_sizes = array<i64: {sizes}>}}"


def scatter(numbers: str) -> str:
    return f"{ADDED} {{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}}"


ROWS = "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1"
WRITTEN = (
    "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],"
    " index_vector_dim = 1"
)
SUMMED = dot("||1|0")
OTHERS = [
    # name, what stands behind the operands, types of operands, type of the result, what the message says
    ("reverse", "{dimensions = array<i64: 0, 0>}", (MAT,), MAT, "name a dimension twice"),
    ("reverse", "{dimensions = array<i64: 2>}", (MAT,), MAT, "do not fit"),
    ("reverse", "{dimensions = array<i64: -1>}", (MAT,), MAT, "do not fit"),
    ("concatenate", "{dimension = -1 : i64}", (F32, F32), "tensor<4xf32>", "dimension -1 does not fit"),
    ("concatenate", "{dimension = 0 : i64}", (F32, F64), "tensor<4xf32>", "expected the same"),
    ("reshape", "", ("tensor<4xi8>",), "tensor<2x2xi4>", "expected the same"),
    ("transpose", "{permutation = array<i64: 0>}", ("tensor<2xf8E4M3FN>",), "tensor<2xf8E5M2>", "expected the same"),
    ("slice", "{start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>}",
     (F32,), "tensor<1xf64>", "expected the same"),
    ("pad", "{edge_padding_low = array<i64: 0>, edge_padding_high = array<i64: 1>, interior_padding = array<i64: 0>}",
     (F32, "tensor<1xf32>"), "tensor<3xf32>", "expected 0 dimensions"),
    ("pad", "{edge_padding_low = array<i64: 0>, edge_padding_high = array<i64: 1>, interior_padding = array<i64: 0>}",
     (F32, "tensor<f64>"), "tensor<3xf32>", "expected the same"),
    ("get_dimension_size", "{dimension = 0 : i64}", (F32,), "tensor<f32>", "expected signed integers"),
    ("dot_general", SUMMED, ("tensor<2x2xcomplex<f32>>", "tensor<2x2xf32>"), "tensor<2x2xcomplex<f32>>", "multiplies complex<f32> and f32"),
    ("dot_general", SUMMED, ("tensor<2x2xi8>", "tensor<2x2xf32>"), "tensor<2x2xi32>", "multiplies f32, its result has i32"),
    ("dot_general", SUMMED, ("tensor<2x2xf32>", "tensor<2x2xf32>"), "tensor<2x2xi32>", "its result has i32"),
    ("dot_general", dot("||1|0", ", precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision HIGH>, #stablehlo<precision HIGH>]"),
     ("tensor<2x2xf32>", "tensor<2x2xf32>"), "tensor<2x2xf32>", "precision_config is"),
    ("dot_general", "{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dims = [1]>}",
     ("tensor<2x2xf32>", "tensor<2x2xf32>"), "tensor<2x2x2x2xf32>", "has a field 'lhs_contracting_dims'"),
    ("reduce", f"{ADDED} {ZERO}", (F64, "tensor<f64>"), "tensor<f64>", "for elements f64"),
    ("reduce", f"{ADDED_F64} {ZERO}", (F32, "tensor<f32>"), "tensor<f32>", "the region makes f64"),
    ("reduce", f"{ADDED} {ZERO}", (F32, "tensor<f64>"), "tensor<f32>", "expected a number of its elements"),
    ("reduce", f"{ADDED} {ZERO}", (F32, "tensor<1xf32>"), "tensor<f32>", "expected a number of its elements"),
    ("reduce", f"{ADDED} {ZERO}", (F32, F32, "tensor<f32>", "tensor<f32>"), "(tensor<f32>, tensor<f32>)", "expected 2 of 4"),
    ("map", f"{ADDED} {{dimensions = array<i64>}}", (F32, F32), F32, "expected all 1"),
    ("map", f"{ADDED} {ZERO}", (F64, F64), F64, "region 0 takes (f32, f32), expected (f64, f64)"),
    ("sort", f"{LESS} {{dimension = 0 : i64}}", (F64,), F64, "region 0 takes (f32, f32), expected (f64, f64)"),
    ("sort", f"{ADDED} {{dimension = 0 : i64}}", (F32,), F32, "region 0 returns (f32), expected one i1"),
    ("sort", f"{LESS} {{dimension = 1 : i64}}", (F32,), F32, "does not fit"),
    ("reduce_window", f"{ADDED} {{window_dimensions = array<i64: 1>}}", (F64, "tensor<f64>"), F64, "for elements f64"),
    ("select_and_scatter", f"({ADDED[1:-1]}, {ADDED[1:-1]}, {ADDED[1:-1]})", (F32, F32, "tensor<f32>"), F32, "has 3 regions, expected 2"),
    ("gather", gather(ROWS), (MAT, "tensor<2x1xf32>"), "tensor<2x3xf32>", "expected signed integers"),
    ("gather", gather(ROWS), (MAT, IDX), "tensor<2x3xf64>", "expected the same"),
    ("gather", gather(ROWS.replace("[1]", "[1, 1]")), (MAT, IDX), "tensor<2x3xf32>", "name 3 dimensions, operand 0 has 2"),
    ("gather", gather(ROWS.replace("start_index_map = [0]", "start_index_map = [0, 0]")), (MAT, IDX), "tensor<2x3xf32>", "name a dimension twice"),
    ("gather", gather(ROWS.replace("offset_dims", "offset_dim")), (MAT, IDX), "tensor<2x3xf32>", "has a field 'offset_dim'"),
    ("scatter", scatter(WRITTEN), (MAT, IDX, "tensor<2x3xf64>"), MAT, "expected one type"),
    ("scatter", scatter(WRITTEN), (MAT, "tensor<2x1xf32>", "tensor<2x3xf32>"), MAT, "expected whole numbers"),
    ("scatter", scatter(WRITTEN), (MAT, IDX, "tensor<2x4xf32>"), MAT, "updates have 4 elements where the operand has 3"),
    ("scatter", scatter(WRITTEN), ("tensor<4x3xf64>", IDX, "tensor<2x3xf64>"), "tensor<4x3xf64>", "for elements f64"),
    ("dynamic_slice", "{slice_sizes = array<i64: 1>}", (F32, "tensor<1xi32>"), "tensor<1xf32>", "expected 0 dimensions"),
    ("dynamic_slice", "{slice_sizes = array<i64: 1>}", (F32, "tensor<i32>", "tensor<i32>"), "tensor<1xf32>", "2 starts for 1 dimension"),
    ("dynamic_slice", "{slice_sizes = array<i64: 1, 1>}", (MAT, "tensor<i32>", "tensor<i64>"), "tensor<1x1xf32>", "expected one type"),
    ("dynamic_update_slice", "", (F32, "tensor<1xf64>", "tensor<i32>"), F32, "expected the same"),
    ("fft", "{fft_type = #stablehlo<fft_type RFFT>, fft_length = array<i64: 2>}", (F32,), "tensor<2xcomplex<f64>>", "RFFT makes"),
    ("fft", "{fft_type = #stablehlo<fft_type FFT>, fft_length = array<i64: 2>}", (F32,), "tensor<2xcomplex<f32>>", "FFT makes"),
    ("rng", "{rng_distribution = #stablehlo<rng_distribution UNIFORM>}", ("tensor<1xf32>", "tensor<f32>", "tensor<1xi64>"), F32, "expected 0 dimensions"),
    ("rng_bit_generator", "{rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>}", ("tensor<2xui64>",), "(tensor<3xui64>, tensor<2xui32>)", "expected one type"),
    ("uniform_quantize", "", (F64,), f"tensor<2x{QUANTIZED}>", "stands for f64, the result for f32"),
    ("uniform_dequantize", "", (F32,), F32, "expected quantized numbers"),
    ("transpose", "{permutation = array<i64: 1, 0>}", (f"tensor<2x3x{ALONG}>",), f"tensor<3x2x{ALONG}>", "quantized along dimension 0, expected 1"),
    ("broadcast_in_dim", "{broadcast_dimensions = array<i64: 1>}", (f"tensor<2x{ALONG}>",), f"tensor<2x2x{ALONG}>", "quantized along dimension 0, expected 1"),
    ("reshape", "", (f"tensor<2x3x{ALONG}>",), f"tensor<3x2x{ALONG}>", "expected 1 x 2"),
    ("add", "", (f"tensor<2x{ALONG}>", f"tensor<2x{ALONG}>"), f"tensor<2x{QUANTIZED}>", "the result along None"),
    ("multiply", "", (f"tensor<2x{ALONG}>", f"tensor<2x{ALONG}>"), f"tensor<2x{ALONG}>", "elements !quant.uniform<i8:f32:0>, expected"),
    ("dot_general", SUMMED, (f"tensor<2x2x{QUANTIZED}>", f"tensor<2x2x{QUANTIZED}>"), f"tensor<2x2x{QUANTIZED}>", "expected 0"),
    ("exponential", "{result_accuracy = #stablehlo.result_accuracy<atol = 1.0, mode = #stablehlo.result_accuracy_mode<HIGHEST>>}",
     (F32,), F32, "tolerances for TOLERANCE only"),
    ("compare", "{comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>}",
     ("tensor<2xui8>", "tensor<2xui8>"), BOOL, "compare_type is SIGNED for ui8, expected UNSIGNED"),
    ("optimization_barrier", "", (F32,), "tensor<1xf32>", "expected one type"),
    ("triangular_solve", "{left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}",
     ("tensor<2x2xf32>", "tensor<2x2xf64>"), "tensor<2x2xf64>", "expected one type"),
    ("dynamic_reshape", "", (F32, "tensor<1xf32>"), F32, "expected signed integers"),
    ("dynamic_broadcast_in_dim", "{broadcast_dimensions = array<i64: 0>, known_expanding_dimensions = array<i64: 1>}",
     (F32, "tensor<1xi32>"), F32, "do not fit 1 dimension"),
    ("set_dimension_size", "{dimension = 0 : i64}", (F32, "tensor<1xi32>"), F32, "expected one number"),
    ("torch_index_select", "{dim = 0 : i64, batch_dims = 0 : i64}", (F32, F32), F32, "expected signed integers"),
    ("batch_norm_inference", "{epsilon = 0.1 : f32, feature_index = 0 : i64}", (F32, F32, F64, F32, F32), F32, "expected one type"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "more", "types", "result", "says"), OTHERS)
def test_each_demand_of_the_specification_is_held(
    name: str, more: str, types: tuple[str, ...], result: str, says: str
) -> None:
    assert says in refused(plain(name, len(types), result, *types, more=more), *types)


@pytest.mark.parametrize(
    ("labels", "window", "groups", "types", "says"),
    [
        ("[b, f, 0]x[o, i, 0]->[b, f, 0]", "", "", ("1x1x4xf32", "1x1x2xf64", "1x1x3xf32"), "convolves f32 and f64"),
        ("[b, f, 0]x[o, i, 0]->[b, f, 0]", "lhs_dilate = [1, 1]", "", ("1x1x4xf32", "1x1x2xf32", "1x1x3xf32"), "lhs_dilation is [1, 1]"),
        ("[b, f, 0]x[o, i, 0]->[b, f, 0]", "stride = [0]", "", ("1x1x4xf32", "1x1x2xf32", "1x1x3xf32"), "window_strides is [0]"),
        ("[b, f, 0]x[o, i, 0]->[b, f, 0]", "reverse = [0, 1]", "", ("1x1x4xf32", "1x1x2xf32", "1x1x3xf32"), "window_reversal has the shape"),
        ("[b, f, 0]x[o, i, 0]->[b, f, 0]", "", "{feature_group_count = 0 : i64}", ("1x1x4xf32", "1x1x2xf32", "1x1x3xf32"), "groups of features"),
        ("[b, f, 0]x[o, i, 0]->[b, f, 0]", "", "{feature_group_count = 2 : i64, batch_group_count = 2 : i64}",
         ("2x2x4xf32", "2x1x2xf32", "1x2x3xf32"), "groups of features"),
    ],
)  # fmt: skip
def test_windows_of_convolutions_fit(
    labels: str, window: str, groups: str, types: tuple[str, ...], says: str
) -> None:
    x, kernel, result = (f"tensor<{each}>" for each in types)
    text = f"%r = stablehlo.convolution(%a, %b) dim_numbers = {labels}, window = {{{window}}} {groups} : ({x}, {kernel}) -> {result}"
    assert says in refused(text, x, kernel)


def test_nothing_stands_behind_the_end_of_a_block() -> None:
    text = b"func.func @main(%a: tensor<f32>) -> tensor<f32> {\n return %a : tensor<f32>\n %b = stablehlo.abs %a : tensor<f32>\n}"
    with pytest.raises(
        ModelError, match=r"3:7.*stands behind 'return', which ends the block"
    ):
        load(text)
    within = ADDED.replace("})", "\n  %w = stablehlo.abs %x : tensor<f32>})")
    says = refused(
        plain("reduce", 2, "tensor<f32>", F32, "tensor<f32>", more=f"{within} {ZERO}"),
        F32,
        "tensor<f32>",
    )
    assert "stands behind" in says or "ends with 'stablehlo.abs'" in says


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ("tensor<?x?xf32, #stablehlo.bounds<4>>", "got 1 bounds for 2 dimensions"),
        ("tensor<2xf32, #stablehlo.bounds<4>>", "has a bound"),
        ("tensor<2xf32, #stablehlo.type_extensions<bounds = [4]>>", "has a bound"),
    ],
)
def test_bounds_are_those_of_open_dimensions(stated: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        load(module("%r = stablehlo.abs %a : tensor<2xf32>", stated))


@pytest.mark.parametrize("encoding", ["bounds<4>", "type_extensions<bounds = [4]>"])
def test_sizes_beyond_a_bound_are_refused(encoding: str) -> None:
    stated = f"tensor<?xf32, #stablehlo.{encoding}>"
    assert "expected one shape" in refused(plain("abs", 1, "tensor<5xf32>", stated), stated)


def test_operands_of_open_sizes_are_of_one_shape_in_a_call() -> None:
    """What a call gives is not broadcast, either: sizes that the text leaves open are one size."""
    text = (
        b"func.func @main(%a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?xf32> {"
        b" %r = stablehlo.add %a, %b : tensor<?xf32> return %r : tensor<?xf32>}"
    )
    graph = load(text).graph
    assert len({value.type.shape for value in graph.inputs}) == 1


@pytest.mark.parametrize("name", ["reduce", "reduce_window"])
def test_a_region_may_compute_in_a_wider_type(name: str) -> None:
    """Sums of f32 in f64: the specification lets a region promote its inputs."""
    more, result = f"{ADDED_F64} {ZERO}", "tensor<f64>"
    if name == "reduce_window":
        more, result = f"{ADDED_F64} {{window_dimensions = array<i64: 2>}}", "tensor<1xf64>"
    statement = plain(name, 2, result, "tensor<2xf32>", "tensor<f32>", more=more)
    text = f"func.func @main(%a: tensor<2xf32>, %b: tensor<f32>) -> {result} {{ {statement} return %r : {result} }}"
    given = [np.float32([2**24, 1]), np.float32(0.5)]
    (found,) = evaluate(load(text.encode()).graph, given)
    assert found.dtype == np.float64
    assert found.reshape(()) == 2.0**24 + 1.5


def test_updates_may_be_combined_in_a_wider_type() -> None:
    more = scatter(WRITTEN).replace(ADDED, ADDED_F64)
    types = ("tensor<2x1xf32>", "tensor<2x1xi32>", "tensor<2x1xf32>")
    statement = plain("scatter", 3, "tensor<2x1xf64>", *types, more=more)
    text = f"func.func @main(%a: {types[0]}, %b: {types[1]}, %c: {types[2]}) -> tensor<2x1xf64> {{ {statement} return %r : tensor<2x1xf64> }}"
    given = [np.float32([[2**24], [0]]), np.int32([[0], [0]]), np.float32([[1], [2]])]
    (found,) = evaluate(load(text.encode()).graph, given)
    np.testing.assert_array_equal(found, [[2.0**24 + 3], [0]])


def test_products_of_wide_floats_are_rounded_once() -> None:
    """A narrower result is not what narrower factors give."""
    statement = plain(
        "dot_general",
        2,
        "tensor<1x1xbf16>",
        "tensor<1x2xf32>",
        "tensor<2x1xf32>",
        more=SUMMED,
    )
    text = f"func.func @main(%a: tensor<1x2xf32>, %b: tensor<2x1xf32>) -> tensor<1x1xbf16> {{ {statement} return %r : tensor<1x1xbf16> }}"
    given = [np.float32([[1.01, -1]]), np.float32([[1.01], [1]])]
    (found,) = evaluate(load(text.encode()).graph, given)
    np.testing.assert_allclose(found.astype(np.float32), 0.0201, rtol=1e-2)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("bf16", "f32", "f32"),
        ("bf16", "i8", "f32"),
        ("f32", "i8", "bf16"),
        ("i8", "ui8", "i32"),
        ("f32", "f64", "f64"),
    ],
)
def test_factors_may_be_of_two_types(left: str, right: str, result: str) -> None:
    """JAX writes such products for TPUs."""
    types = (f"tensor<1x2x{left}>", f"tensor<2x1x{right}>")
    statement = plain("dot_general", 2, f"tensor<1x1x{result}>", *types, more=SUMMED)
    text = f"func.func @main(%a: {types[0]}, %b: {types[1]}) -> tensor<1x1x{result}> {{ {statement} return %r : tensor<1x1x{result}> }}"
    graph = load(text.encode()).graph
    numbers = ([[3, -2]], [[100], [7]])
    given = [
        np.asarray(n).astype(v.type.dtype.numpy)
        for n, v in zip(numbers, graph.inputs, strict=True)
    ]
    (found,) = evaluate(graph, given)
    np.testing.assert_array_equal(found.astype(np.float32), [[286.0]])


def test_a_reduction_may_start_with_a_number_of_its_regions_type() -> None:
    statement = plain(
        "reduce",
        2,
        "tensor<f64>",
        "tensor<2xf32>",
        "tensor<f64>",
        more=f"{ADDED_F64} {ZERO}",
    )
    text = f"func.func @main(%a: tensor<2xf32>, %b: tensor<f64>) -> tensor<f64> {{ {statement} return %r : tensor<f64> }}"
    given = [np.float32([2**24, 1]), np.asarray(0.5)]
    (found,) = evaluate(load(text.encode()).graph, given)
    assert found == 2.0**24 + 1.5


@pytest.mark.parametrize(("direction", "expected"), [("EQ", False), ("NE", True)])
def test_whole_numbers_are_equal_in_any_order(direction: str, expected: bool) -> None:
    text = f"""func.func @main(%a: tensor<i1>, %b: tensor<i1>) -> tensor<i1> {{
      %r = stablehlo.compare {direction}, %a, %b, SIGNED : (tensor<i1>, tensor<i1>) -> tensor<i1>
      return %r : tensor<i1> }}"""
    given = [np.bool_(True), np.bool_(False)]
    (found,) = evaluate(load(text.encode()).graph, [np.asarray(each) for each in given])
    assert found == expected


CARRIED = """func.func @main(%a: tensor<i4>) -> tensor<i4> {{
  %r = "stablehlo.while"(%a) ({{^bb0(%x: tensor<{first}>): %c = stablehlo.constant dense<false> : tensor<i1>
    stablehlo.return %c : tensor<i1>}}, {{^bb0(%x: tensor<{second}>): stablehlo.return %x : tensor<{second}>}}) : (tensor<i4>) -> tensor<i4>
  return %r : tensor<i4>
}}"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (CARRIED.format(first="i8", second="i4"), "region 0 takes tensor<i8>"),
        (CARRIED.format(first="i4", second="i8"), "region 1 takes tensor<i8>"),
        (
            """func.func @main(%p: tensor<i1>, %a: tensor<f8E5M2>) -> tensor<f8E4M3FN> {
  %r = "stablehlo.if"(%p) ({stablehlo.return %a : tensor<f8E5M2>}, {stablehlo.return %a : tensor<f8E5M2>}) : (tensor<i1>) -> tensor<f8E4M3FN>
  return %r : tensor<f8E4M3FN>}""",
            "region 0 returns tensor<f8E5M2> as value 0",
        ),
        (
            """func.func private @f(%x: tensor<i8>) -> tensor<i8> { return %x : tensor<i8> }
func.func @main(%a: tensor<i4>) -> tensor<i8> {
  %r = "func.call"(%a) {callee = @f} : (tensor<i4>) -> tensor<i8>
  return %r : tensor<i8>}""",
            "@f takes tensor<i8>",
        ),
        (
            "func.func @main(%a: tensor<i4>) -> tensor<i8> { return %a : tensor<i4> }",
            "returns tensor<i4> as value 0, its type says tensor<i8>",
        ),
        (
            f"func.func @main(%a: {F32}) -> tensor<4xf32> {{\n {plain('all_gather', 1, 'tensor<4xf32>', F32, more='{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 0]]> : tensor<1x2xi64>}')}\n return %r : tensor<4xf32> }}",
            "name a process twice",
        ),
        (
            f"func.func @main(%a: {F32}) -> {F32} {{\n {plain('all_gather', 1, F32, F32, more='{all_gather_dim = -1 : i64, replica_groups = dense<[[0]]> : tensor<1x1xi64>}')}\n return %r : {F32} }}",
            "all_gather_dim is -1",
        ),
        (
            f"func.func @main(%a: {F32}) -> {F32} {{\n {plain('collective_permute', 1, F32, F32, more='{source_target_pairs = dense<[[0, 0], [0, 0]]> : tensor<2x2xi64>}')}\n return %r : {F32} }}",
            "name a source or a target twice",
        ),
    ],
)  # fmt: skip
def test_values_that_are_handed_over_keep_their_type(text: str, says: str) -> None:
    """Elements of few bits are held in the same wider type, so only what is stated tells them apart."""
    with pytest.raises(ModelError) as caught:
        load(text.encode())
    assert says in str(caught.value)
