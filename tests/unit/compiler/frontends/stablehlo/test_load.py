"""Modules as graphs: what rows compute on arguments, and everything that is refused, at once."""

import math

import numpy as np
import pytest

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.stablehlo import coverage, load
from tilewright.compiler.graph.evaluator import evaluate


def run(body: str, arguments: str, *values: np.ndarray) -> list[np.ndarray]:
    """What `main` gives; the last line of the body is its `return`."""
    results = body.rsplit("return", 1)[1].split(":", 1)[1].strip()
    text = f"func.func @main({arguments}) -> ({results}) {{\n{body}\n}}"
    return evaluate(load(text.encode()).graph, list(values))


def elementwise(op: str, dtype: str, *values: np.ndarray) -> np.ndarray:
    size = len(values[0])
    names = [f"%{chr(97 + i)}" for i in range(len(values))]
    type_ = f"tensor<{size}x{dtype}>"
    body = f"%0 = stablehlo.{op} {', '.join(names)} : {type_}\nreturn %0 : {type_}"
    (found,) = run(body, ", ".join(f"{n}: {type_}" for n in names), *values)
    return found


LOW = np.iinfo(np.int32).min


@pytest.mark.parametrize(
    ("op", "dtype", "values", "expected"),
    [
        ("divide", "i32", ([17, -17, 17, -17, 5], [3, 3, -3, -3, 0]), [5, -5, -5, 5, -1]),
        ("divide", "i32", ([LOW], [-1]), [LOW]),
        ("remainder", "i32", ([17, -17, 17, -17, 5], [3, 3, -3, -3, 0]), [2, -2, 2, -2, 5]),
        ("power", "i32", ([-1, -1, -3, 1, -3, 2], [-1, 0, -3, -3, 3, 5]), [-1, 1, 0, 1, -27, 32]),
        ("shift_left", "i32", ([1, 1, 1, -1], [31, 32, -1, 1]), [LOW, 0, 0, -2]),
        ("shift_right_logical", "i32", ([-1, -1, -1, -1], [31, 32, -1, 0]), [1, 0, 0, -1]),
        ("shift_right_arithmetic", "i32", ([-8, -8, 8, -8], [1, 32, 40, -1]), [-4, -1, 0, -1]),
        ("count_leading_zeros", "i32", ([0, 1, -1, 256],), [32, 31, 0, 23]),
        ("popcnt", "i32", ([0, 1, -1, 255],), [0, 1, 32, 8]),
        ("maximum", "f32", ([1, np.nan, np.nan], [np.nan, 1, np.nan]), [np.nan] * 3),
        ("round_nearest_even", "f32", ([2.5, -0.5, 0.5, 1.5, np.inf],), [2, -0.0, 0, 2, np.inf]),
        ("round_nearest_afz", "f32", ([2.5, -0.5, 0.49999997, 8388609.0, np.nan],),
         [3, -1, 0, 8388609, np.nan]),
        ("cbrt", "f32", ([27, -8, 0, -np.inf, np.nan],), [3, -2, 0, -np.inf, np.nan]),
        ("exponential_minus_one", "f32", ([1e-12, -np.inf, np.inf, 0],), [1e-12, -1, np.inf, 0]),
        ("log_plus_one", "f32", ([1e-12, -1, np.inf, 0],), [1e-12, -np.inf, np.inf, 0]),
        ("atan2", "f32", ([0.0, -0.0, 1, -1, np.inf], [-1, -1, 0, 0, -np.inf]),
         [math.pi, -math.pi, math.pi / 2, -math.pi / 2, 3 * math.pi / 4]),
    ],
)  # fmt: skip
def test_elementwise_rows_keep_to_the_specification(
    op: str, dtype: str, values: tuple[list[float], ...], expected: list[float]
) -> None:
    numpy = np.int32 if dtype == "i32" else np.float32
    found = elementwise(op, dtype, *(np.array(v, numpy) for v in values))
    np.testing.assert_array_equal(found, np.array(expected, numpy))


def test_the_total_order_has_a_place_for_every_float() -> None:
    body = """
    %r = stablehlo.compare LT, %x, %y, TOTALORDER : (tensor<5xf16>, tensor<5xf16>) -> tensor<5xi1>
    return %r : tensor<5xi1>"""
    rising = np.uint16([0xFE00, 0xFC00, 0x8000, 0x0000, 0x7C00, 0x7E00]).view(np.float16)
    arguments = "%x: tensor<5xf16>, %y: tensor<5xf16>"
    assert run(body, arguments, rising[:-1], rising[1:])[0].all()
    assert not run(body, arguments, rising[1:], rising[:-1])[0].any()
    assert not run(body, arguments, rising[1:], rising[1:])[0].any()


def test_neighbours_of_floats_are_those_of_numpy() -> None:
    body = """
    %r = chlo.next_after %x, %y : tensor<9xf32>, tensor<9xf32> -> tensor<9xf32>
    return %r : tensor<9xf32>"""
    x = np.float32([0, -0.0, 1, -1, 1, 1, np.inf, np.nan, np.finfo(np.float32).max])
    y = np.float32([1, -1, 2, -2, 0, 1, 0, 1, np.inf])
    (found,) = run(body, "%x: tensor<9xf32>, %y: tensor<9xf32>", x, y)
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(found, np.nextafter(x, y))


@pytest.mark.parametrize(
    ("spelled", "dtype"), [("e5m10", np.float16), ("e8m23", np.float32)]
)
def test_precision_is_reduced_to_that_of_a_smaller_type(
    spelled: str, dtype: type[np.floating]
) -> None:
    body = f"""
    %r = stablehlo.reduce_precision %x, format = {spelled} : tensor<64xf64>
    return %r : tensor<64xf64>"""
    x = np.random.default_rng(0).normal(size=64) * 10.0 ** np.arange(-4, 4).repeat(8)
    x[:8] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1 + 2**-11, 1 + 3 * 2**-11, 1e300]
    (found,) = run(body, "%x: tensor<64xf64>", x)
    with np.errstate(over="ignore"):
        expected = x.astype(dtype).astype(np.float64)
    # Numbers that would have no leading one are zero.
    expected[np.abs(x) < np.finfo(dtype).smallest_normal] *= 0
    np.testing.assert_array_equal(found, expected)


def test_any_region_reduces_pairs_in_their_order() -> None:
    body = """
    %r:2 = stablehlo.reduce(%x init: %a), (%i init: %z) across dimensions = [0] : (tensor<5xf32>, tensor<5xi32>, tensor<f32>, tensor<i32>) -> (tensor<f32>, tensor<i32>)
     reducer(%p: tensor<f32>, %q: tensor<f32>) (%m: tensor<i32>, %n: tensor<i32>) {
      %g = stablehlo.compare GE, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %v = stablehlo.select %g, %p, %q : tensor<i1>, tensor<f32>
      %w = stablehlo.select %g, %m, %n : tensor<i1>, tensor<i32>
      stablehlo.return %v, %w : tensor<f32>, tensor<i32>
    }
    return %r#0, %r#1 : tensor<f32>, tensor<i32>"""
    arguments = "%x: tensor<5xf32>, %i: tensor<5xi32>, %a: tensor<f32>, %z: tensor<i32>"
    given = np.float32([3, 9, 1, 9, 2]), np.arange(5, dtype=np.int32)
    found = run(body, arguments, *given, np.float32(-np.inf), np.int32(-1))
    assert [x.item() for x in found] == [9, 1]


@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_sort_is_stable_and_moves_all_operands(size: int) -> None:
    body = f"""
    %s:2 = "stablehlo.sort"(%x, %y) <{{dimension = 1 : i64, is_stable = true}}> ({{
    ^bb0(%p: tensor<i32>, %q: tensor<i32>, %m: tensor<i32>, %n: tensor<i32>):
      %g = stablehlo.compare GT, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %g : tensor<i1>
    }}) : (tensor<3x{size}xi32>, tensor<3x{size}xi32>) -> (tensor<3x{size}xi32>, tensor<3x{size}xi32>)
    return %s#0, %s#1 : tensor<3x{size}xi32>, tensor<3x{size}xi32>"""
    keys = np.random.default_rng(0).integers(0, 3, (3, size)).astype(np.int32)
    places = np.broadcast_to(np.arange(size, dtype=np.int32), (3, size)).copy()
    arguments = f"%x: tensor<3x{size}xi32>, %y: tensor<3x{size}xi32>"
    found = run(body, arguments, keys, places)
    order = np.argsort(-keys, axis=1, kind="stable")
    np.testing.assert_array_equal(found[0], np.take_along_axis(keys, order, 1))
    np.testing.assert_array_equal(found[1], order)


@pytest.mark.parametrize("count", [2, 17])  # by a kernel, and by operations for each row
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE"])
def test_a_triangle_is_solved_from_the_side_it_stands_on(
    count: int, left: bool, lower: bool, transpose: str
) -> None:
    b = f"{count}x3x5" if left else f"{count}x5x3"
    flags = f"left_side = {left}, lower = {lower}".lower()
    body = f"""
    %x = "stablehlo.triangular_solve"(%a, %b) <{{{flags}, transpose_a = #stablehlo<transpose {transpose}>, unit_diagonal = false}}> : (tensor<{count}x3x3xf64>, tensor<{b}xf64>) -> tensor<{b}xf64>
    return %x : tensor<{b}xf64>"""
    choose = np.random.default_rng(0)
    a, right = (
        choose.normal(size=(count, 3, 3)),
        choose.normal(size=[int(n) for n in b.split("x")]),
    )
    triangle = np.tril(a) if lower else np.triu(a)
    triangle = triangle.swapaxes(1, 2) if transpose == "TRANSPOSE" else triangle
    (found,) = run(body, f"%a: tensor<{count}x3x3xf64>, %b: tensor<{b}xf64>", a, right)
    product = triangle @ found if left else found @ triangle
    np.testing.assert_allclose(product, right, rtol=1e-12, atol=1e-12)


def test_windows_select_what_is_not_padding() -> None:
    body = """
    %r = "stablehlo.select_and_scatter"(%x, %s, %z) <{padding = dense<[[1, 1]]> : tensor<1x2xi64>, window_dimensions = array<i64: 3>, window_strides = array<i64: 2>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %g = stablehlo.compare GE, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %g : tensor<i1>
    }, {
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %t = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %t : tensor<f32>
    }) : (tensor<5xf32>, tensor<3xf32>, tensor<f32>) -> tensor<5xf32>
    return %r : tensor<5xf32>"""
    arguments = "%x: tensor<5xf32>, %s: tensor<3xf32>, %z: tensor<f32>"
    x, source = np.float32([-3, -1, -4, -1, -5]), np.float32([1, 2, 4])
    (found,) = run(body, arguments, x, source, np.float32(0.5))
    # windows: [-3, -1], [-1, -4, -1] (the first of equals), [-1, -5]
    np.testing.assert_array_equal(found, np.float32([0.5, 3.5, 0.5, 4.5, 0.5]))


def test_updates_that_fall_outside_are_dropped() -> None:
    body = """
    %r = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%p: tensor<i32>, %q: tensor<i32>):
      %t = stablehlo.add %p, %q : tensor<i32>
      stablehlo.return %t : tensor<i32>
    }) : (tensor<3x2xi32>, tensor<5x1xi64>, tensor<5x2xi32>) -> tensor<3x2xi32>
    return %r : tensor<3x2xi32>"""
    arguments = "%x: tensor<3x2xi32>, %i: tensor<5x1xi64>, %u: tensor<5x2xi32>"
    x, updates = np.zeros((3, 2), np.int32), np.arange(10, dtype=np.int32).reshape(5, 2)
    places = np.array([[2], [-1], [0], [3], [2]])
    (found,) = run(body, arguments, x, places, updates)
    np.testing.assert_array_equal(found, [[4, 5], [0, 0], [8, 10]])


def test_a_gather_moves_windows_inside() -> None:
    body = """
    %r = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], start_index_map = [1, 0], index_vector_dim = 0>, slice_sizes = array<i64: 2, 3>}> : (tensor<5x7xf32>, tensor<2x4xi32>) -> tensor<2x3x4xf32>
    return %r : tensor<2x3x4xf32>"""
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    starts = np.int32([[0, 2, 9, -3], [0, 1, 4, 2]])
    (found,) = run(body, "%x: tensor<5x7xf32>, %i: tensor<2x4xi32>", x, starts)
    for place in range(4):
        column, line = np.clip(starts[:, place], 0, [7 - 3, 5 - 2])
        np.testing.assert_array_equal(
            found[:, :, place], x[line : line + 2, column : column + 3]
        )


def test_complex_numbers_are_reduced_by_any_region() -> None:
    body = """
    %c = stablehlo.complex %x, %y : tensor<5xcomplex<f32>>
    %o = stablehlo.constant dense<(1.0,0.0)> : tensor<complex<f32>>
    %p = stablehlo.reduce(%c init: %o) applies stablehlo.multiply across dimensions = [0] : (tensor<5xcomplex<f32>>, tensor<complex<f32>>) -> tensor<complex<f32>>
    %r = stablehlo.real %p : (tensor<complex<f32>>) -> tensor<f32>
    %i = stablehlo.imag %p : (tensor<complex<f32>>) -> tensor<f32>
    return %r, %i : tensor<f32>, tensor<f32>"""
    x, y = np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32)
    found = run(body, "%x: tensor<5xf32>, %y: tensor<5xf32>", x, y)
    expected = np.prod(x.astype(np.float64) + 1j * y)
    np.testing.assert_allclose(found, [expected.real, expected.imag], rtol=1e-5)


def test_branches_on_data_are_both_computed() -> None:
    body = """
    %r = "stablehlo.case"(%i) ({
      %0 = stablehlo.add %x, %x : tensor<2xf32>
      stablehlo.return %0 : tensor<2xf32>
    }, {
      stablehlo.return %x : tensor<2xf32>
    }) : (tensor<i32>) -> tensor<2xf32>
    return %r : tensor<2xf32>"""
    x = np.float32([1, np.nan])
    for index, factor in ((0, 2), (1, 1), (-1, 1), (9, 1)):
        (found,) = run(body, "%i: tensor<i32>, %x: tensor<2xf32>", np.int32(index), x)
        np.testing.assert_array_equal(found, factor * x)


def test_everything_that_is_refused_is_listed_with_its_place() -> None:
    text = b"""func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.ad %a, %a : tensor<4xf32>
  %1 = "stablehlo.sort"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "stablehlo.abs"(%a) {unheard_of = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %3 = stablehlo.add %0, %0 : tensor<4xf32>
  return %3 : tensor<4xf32>
}"""
    with pytest.raises(ModelError) as caught:
        load(text)
    assert str(caught.value).splitlines() == [
        "<bytes>: 3 problems in the model",
        "  stablehlo.ad '0 at 2:8': operation 'stablehlo.ad' is not supported",
        "  stablehlo.sort '1 at 3:8': has 0 regions, expected 1",
        "  stablehlo.abs '2 at 4:8': attribute 'unheard_of' is not supported",
        "hint: did you mean 'stablehlo.pad' or 'stablehlo.and' or 'stablehlo.add'?",
    ]
    assert not coverage(text).supported


def test_what_follows_a_problem_is_checked_by_the_types_that_are_stated() -> None:
    """In functions and in both branches, too; the regions of an unknown operation are looked into."""
    text = b"""module {
  func.func @twice(%a: tensor<4xf32>) -> tensor<4xf32> {
    %f = stablehlo.trick %a : tensor<4xf32>
    %g = "stablehlo.negate"(%f) {bogus = 1 : i64, worse = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
    return %g : tensor<4xf32>
  }
  func.func @main(%x: tensor<4xf32>, %o: tensor<?xf32>) -> tensor<4xf32> {
    %a = "stablehlo.magic"(%x) ({
      %h = "stablehlo.spell"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      "stablehlo.return"(%h) : (tensor<4xf32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    %b = "stablehlo.abs"(%a) {shiny = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
    %c = "stablehlo.add"(%b) : (tensor<4xf32>) -> tensor<4xf32>
    %p = "stablehlo.magic"(%c) : (tensor<4xf32>) -> tensor<i1>
    %d = "stablehlo.if"(%p) ({
      %t = "stablehlo.trock"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      "stablehlo.return"(%t) : (tensor<4xf32>) -> ()
    }, {
      %u = "stablehlo.truck"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      "stablehlo.return"(%u) : (tensor<4xf32>) -> ()
    }) : (tensor<i1>) -> tensor<4xf32>
    %e = func.call @twice(%d) : (tensor<4xf32>) -> tensor<4xf32>
    %k = stablehlo.custom_call @Sharding(%e) : (tensor<4xf32>) -> tensor<4xtf32>
    return %e : tensor<4xf32>
  }
}"""
    found = coverage(text)
    unknown = "operation 'stablehlo.{}' is not supported".format
    problems = [(p.node.split()[0], p.reason) for p in found.problems]
    assert problems[:-1] == [
        ("a", unknown("magic")),
        ("h", unknown("spell")),
        ("b", "attribute 'shiny' is not supported"),
        ("c", "has 1 operand, expected 2"),
        ("p", unknown("magic")),
        ("t", unknown("trock")),
        ("u", unknown("truck")),
        ("f", unknown("trick")),
        ("g", "attribute 'bogus' is not supported; attribute 'worse' is not supported"),
    ]
    assert problems[-1][0] == "k"
    assert "tf32" in problems[-1][1]
    trock = next(r for r in found.rows if r.op_type == "stablehlo.trock")
    assert len(trock.reasons[0].nodes) == 1


def test_a_function_is_looked_into_where_its_operands_are_not_even_known_by_type() -> None:
    text = b"""module {
  func.func @f(%a: tensor<?xf32>) -> tensor<?xf32> {
    %u = stablehlo.trick %a : tensor<?xf32>
    return %u : tensor<?xf32>
  }
  func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
    %a = stablehlo.magic %x : tensor<?xf32>
    %b = func.call @f(%a) : (tensor<?xf32>) -> tensor<?xf32>
    return %b : tensor<?xf32>
  }
}"""
    assert [p.op_type for p in coverage(text).problems] == [
        "stablehlo.magic",
        "stablehlo.trick",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%0 = stablehlo.reshape %a : (tensor<4xf32>) -> tensor<5xf32>", "reshape"),
        ("%0 = stablehlo.transpose %a, dims = [1] : (tensor<4xf32>) -> tensor<4xf32>", "does not fit"),
        ("%0 = stablehlo.slice %a [0:9] : (tensor<4xf32>) -> tensor<9xf32>", "does not fit a size"),
        ("%0 = stablehlo.abs %a : (tensor<4xf32>) -> tensor<4xf64>", "the result f64, expected f32"),
        ("%0 = stablehlo.iota dim = 7 : tensor<4xf32>", "dimension 7 does not fit"),
        ("%0 = call @main(%a) : (tensor<4xf32>) -> tensor<4xf32>", "nest deeper"),
        ("%0 = call @f(%a) : (tensor<4xf32>) -> tensor<4xf32>", "calls '@f', which has no body"),
        ('%0 = "stablehlo.abs"() : () -> tensor<4xf32>', "has 0 operands"),
        ("%0 = stablehlo.abs %a : (tensor<4xf32>) -> tensor<4xtf32>", "the result tf32, expected f32"),
        ("%0 = stablehlo.real %a : (tensor<4xf32>) -> tensor<4xcomplex<f32>>", "expected f32"),
        ("%0 = stablehlo.abs %a : (tensor<4xf32>) -> tensor<?x?xf32>", "expected one shape"),
        (("%i = stablehlo.constant dense<0.0> : tensor<f32>\n"
         "%0 = stablehlo.dynamic_slice %a, %i, sizes = [2] : (tensor<4xf32>, tensor<f32>) -> tensor<2xf32>"),
         "operand 1 has elements f32, expected signed integers"),
        (("%i = stablehlo.constant dense<true> : tensor<i1>\n"
         "%0 = stablehlo.dynamic_slice %a, %i, sizes = [2] : (tensor<4xf32>, tensor<i1>) -> tensor<2xf32>"),
         "operand 1 has elements i1, expected signed integers"),
        ("%0 = call @two(%a) : (tensor<4xf32>) -> tensor<4xf32>",
         r"@two takes tensor<2xf32>"),
    ],
)  # fmt: skip
def test_modules_that_make_no_sense_are_refused(line: str, message: str) -> None:
    text = f"func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{\n{line}\nreturn %a : tensor<4xf32>\n}}"
    text += "\nfunc.func private @two(%b: tensor<2xf32>) -> tensor<2xf32> { return %b : tensor<2xf32> }"
    with pytest.raises(ModelError, match=message):
        load(text.encode())


def test_a_module_without_main_says_which_functions_it_has() -> None:
    text = b"""func.func @f() { return }
    func.func @g(%a: tensor<f32>) { return }"""
    with pytest.raises(ModelError, match=r"no function @main .*@f, @g"):
        load(text)


def test_truth_values_have_limits_too() -> None:
    body = "%r = stablehlo.clamp %a, %b, %c : tensor<4xi1>\nreturn %r : tensor<4xi1>"
    given = [np.array(bits, bool) for bits in ([0, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1])]
    (found,) = run(body, ", ".join(f"%{n}: tensor<4xi1>" for n in "abc"), *given)
    np.testing.assert_array_equal(found, [True, True, False, False])


@pytest.mark.parametrize(
    "name", ["arith.constant dense<1> :", "linalg.fill ins(%a) :", "math.exp"]
)
def test_short_forms_of_other_dialects_are_refused_by_name(name: str) -> None:
    text = f"func.func @main(%a: tensor<2xf32>) {{\n %0 = {name} tensor<2xf32>\n %1 = {name} tensor<2xf32>\n return }}"
    dialect = name.split(".", maxsplit=1)[0]
    with pytest.raises(
        ModelError, match=rf"2:7.*is of dialect '{dialect}', which is not read"
    ):
        load(text.encode())
