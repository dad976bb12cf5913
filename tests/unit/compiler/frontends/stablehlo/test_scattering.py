"""Scatters by regions of all kinds, against loops of numpy."""

from collections.abc import Callable

import numpy as np
import pytest

from fakes.stablehlo_text import run, type_of
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.stablehlo import load

NUMBERS = "#stablehlo.scatter<update_window_dims = [], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
PLACES = np.int32([[2], [0], [2], [7], [-1], [2]])


def scatter(
    region: str, inputs: list[np.ndarray], updates: list[np.ndarray], places: np.ndarray,
    *, unique: bool = False
) -> list[np.ndarray]:  # fmt: skip
    values = [*inputs, places, *updates]
    names = [f"%x{i}" for i in range(len(values))]
    types = [type_of(v) for v in values]
    numbers = [type_of(v[0]) for v in (*inputs, *updates)]
    results = types[: len(inputs)]
    listed = ", ".join(
        f"%{side}{i}: {t}"
        for side, ts in (("a", numbers[: len(inputs)]), ("b", numbers[len(inputs) :]))
        for i, t in enumerate(ts)
    )
    given = ", ".join(f"%r#{i}" for i in range(len(inputs))) if len(inputs) > 1 else "%r"
    count = f":{len(inputs)}" if len(inputs) > 1 else ""
    body = f"""
    %r{count} = "stablehlo.scatter"({", ".join(names)}) ({{
    ^bb0({listed}):
      {region}
    }}) {{scatter_dimension_numbers = {NUMBERS}, indices_are_sorted = false, unique_indices = {str(unique).lower()}}} : ({", ".join(types)}) -> ({", ".join(results)})
    return {given} : {", ".join(results)}"""
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))
    return run(body, arguments, *values)


def one_by_one(
    function: Callable[..., tuple[object, ...]], inputs: list[np.ndarray],
    updates: list[np.ndarray], places: np.ndarray,
) -> list[np.ndarray]:  # fmt: skip
    found = [x.copy() for x in inputs]
    for turn, place in enumerate(places[:, 0]):
        if 0 <= place < len(found[0]):
            new = function(*(x[place] for x in found), *(u[turn] for u in updates))
            for x, value in zip(found, new, strict=True):
                x[place] = value
    return found


def test_updates_by_any_region_come_one_after_the_other() -> None:
    region = """%s = stablehlo.add %a0, %a0 : tensor<f32>
      %t = stablehlo.subtract %s, %b0 : tensor<f32>
      stablehlo.return %t : tensor<f32>"""
    x, u = np.arange(5, dtype=np.float32), np.float32([1, 2, 3, 4, 5, 6])
    (found,) = scatter(region, [x], [u], PLACES)
    expected = one_by_one(lambda a, b: (a + a - b,), [x], [u], PLACES)
    np.testing.assert_array_equal(found, expected[0])


def test_updates_of_elements_of_their_own_come_at_once() -> None:
    region = """%t = stablehlo.subtract %a0, %b0 : tensor<i32>
      stablehlo.return %t : tensor<i32>"""
    x, u = np.arange(5, dtype=np.int32), np.int32([1, 2, 3])
    places = np.int32([[4], [9], [0]])
    (found,) = scatter(region, [x], [u], places, unique=True)
    np.testing.assert_array_equal(found, [-3, 1, 2, 3, 3])


def test_several_tensors_are_written_together() -> None:
    region = """%c = stablehlo.compare LT, %a0, %b0, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %s = stablehlo.select %c, %b0, %a0 : tensor<i1>, tensor<f32>
      %t = stablehlo.select %c, %b1, %a1 : tensor<i1>, tensor<i32>
      stablehlo.return %s, %t : tensor<f32>, tensor<i32>"""
    inputs = [np.float32([0, 1, 2, 3]), np.int32([10, 11, 12, 13])]
    updates = [np.float32([1, 5, 7, 0, 0, 3]), np.int32([0, 1, 2, 3, 4, 5])]
    found = scatter(region, inputs, updates, PLACES)
    expected = one_by_one(
        lambda a, b, c, d: (c, d) if a < c else (a, b), inputs, updates, PLACES
    )
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("count", [1, 6])
def test_complex_numbers_are_multiplied(count: int) -> None:
    region = """%t = stablehlo.multiply %a0, %b0 : tensor<complex<f32>>
      stablehlo.return %t : tensor<complex<f32>>"""
    x = np.complex64([1 + 2j, 3, -1j])
    u = np.arange(1, count + 1).astype(np.complex64) * (1 - 1j)
    real, imaginary = scatter(region, [x], [u], PLACES[:count])
    (expected,) = one_by_one(lambda a, b: (a * b,), [x], [u], PLACES[:count])
    np.testing.assert_allclose(real + 1j * imaginary, expected, rtol=1e-6)


def test_nothing_is_written_by_no_updates() -> None:
    region = """%t = stablehlo.subtract %a0, %b0 : tensor<f32>
      stablehlo.return %t : tensor<f32>"""
    x = np.float32([1, 2])
    (found,) = scatter_of_none(region, x)
    np.testing.assert_array_equal(found, x)


def scatter_of_none(region: str, x: np.ndarray) -> list[np.ndarray]:
    body = f"""
    %r = "stablehlo.scatter"(%x, %i, %u) ({{
    ^bb0(%a0: tensor<f32>, %b0: tensor<f32>):
      {region}
    }}) {{scatter_dimension_numbers = {NUMBERS}}} : (tensor<2xf32>, tensor<0x1xi32>, tensor<0xf32>) -> tensor<2xf32>
    return %r : tensor<2xf32>"""
    arguments = "%x: tensor<2xf32>, %i: tensor<0x1xi32>, %u: tensor<0xf32>"
    return run(body, arguments, x, np.zeros((0, 1), np.int32), np.zeros(0, np.float32))


KINDS = {
    "add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum, "": None,
}  # fmt: skip


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", ["float32", "int8", "uint16", "bool"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "depth", "many"),
    [((5, 3), 1, (6,)), ((4, 3, 2), 2, (5,)), ((6,), 1, (2, 3)), ((3, 1), 1, ())],
)
def test_whole_rows_that_fall_outside_are_dropped(
    shape: tuple[int, ...], depth: int, many: tuple[int, ...], kind: str, dtype: str
) -> None:
    choose = np.random.default_rng(8)
    x = choose.integers(0, 2 if dtype == "bool" else 9, shape).astype(dtype)
    if dtype == "float32":
        x.flat[0], x.flat[-1] = -0.0, np.nan
    update = choose.integers(0, 2 if dtype == "bool" else 9, (*many, *shape[depth:]))
    update = update.astype(dtype)
    places = choose.integers(-2, max(shape) + 2, (*many, depth))
    window, batch = list(range(len(many), update.ndim)), len(many)
    element = type_of(x.reshape(-1)[0])
    step = "%b" if not kind else "%s"
    combine = f"%s = stablehlo.{kind} %a, %b : {element}\n" if kind else ""
    t, i, u = type_of(x), type_of(places), type_of(update)
    axes = list(range(depth))
    body = (
        '%r = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<'
        f"update_window_dims = {window}, inserted_window_dims = {axes}, "
        f"scatter_dims_to_operand_dims = {axes}, index_vector_dim = {batch}>}}> ({{\n"
        f"^bb0(%a: {element}, %b: {element}):\n{combine}stablehlo.return {step} : {element}\n}})"
        f" : ({t}, {i}, {u}) -> {t}\nreturn %r : {t}"
    )
    (found,) = run(body, f"%x: {t}, %i: {i}, %u: {u}", x, places, update)
    expected = x.copy()
    for at in np.ndindex(*many):
        place = tuple(places[at])
        if all(0 <= p < n for p, n in zip(place, shape, strict=False)):
            function = KINDS[kind]
            old = expected[place]
            expected[place] = update[at] if function is None else function(old, update[at])
    np.testing.assert_array_equal(found, expected)
    if dtype == "float32":
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize(
    "region",
    ["stablehlo.return %b", "%s = stablehlo.add %a, %b : tensor<f32>\nstablehlo.return %s"],
)
@pytest.mark.parametrize("rows", ["", "3x"])
def test_a_scatter_copies_nothing_but_what_it_changes(region: str, rows: str) -> None:
    window = f"update_window_dims = [{1 if rows else 0}]"
    axis = 1 if rows else 0
    text = f"""func.func @main(%x: tensor<5x7xf32>, %i: tensor<{rows}1xi32>, %u: tensor<{rows}7xf32>) -> tensor<5x7xf32> {{
    %r = "stablehlo.scatter"(%x, %i, %u) ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      {region} : tensor<f32>
    }}) {{scatter_dimension_numbers = #stablehlo.scatter<{window}, inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = {axis}>, indices_are_sorted = false, unique_indices = true}} : (tensor<5x7xf32>, tensor<{rows}1xi32>, tensor<{rows}7xf32>) -> tensor<5x7xf32>
    return %r : tensor<5x7xf32>
    }}"""
    (scattered,) = (n for n in load(text.encode()).graph.nodes if n.op == "scatter_nd")
    source = scattered.present_operands[0]
    while source.node is not None:
        assert source.node.op == "reshape"
        source = source.node.present_operands[0]
    assert source.name == "x"


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        (
            "inserted_window_dims = [7], scatter_dims_to_operand_dims = [0]",
            r"inserted_window_dims \[7\] do not fit",
        ),
        (
            "inserted_window_dims = [0], scatter_dims_to_operand_dims = [7]",
            r"scatter_dims_to_operand_dims \[7\] do not fit",
        ),
        (
            "input_batching_dims = [0], scatter_dims_to_operand_dims = [0]",
            "name a dimension twice",
        ),
        ("input_batching_dims = [0], scatter_dims_to_operand_dims = []", "are no pairs"),
        (
            "input_batching_dims = [0], scatter_indices_batching_dims = [5], scatter_dims_to_operand_dims = []",
            "do not fit",
        ),
    ],
)
def test_axes_that_are_not_there_are_named_as_what_does_not_fit(
    numbers: str, problem: str
) -> None:
    text = f"""func.func @main(%x: tensor<5x7xf32>, %i: tensor<3x1xi32>, %u: tensor<3x7xf32>) -> tensor<5x7xf32> {{
    %r = "stablehlo.scatter"(%x, %i, %u) ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      stablehlo.return %b : tensor<f32>
    }}) {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], {numbers}, index_vector_dim = 1>}} : (tensor<5x7xf32>, tensor<3x1xi32>, tensor<3x7xf32>) -> tensor<5x7xf32>
    return %r : tensor<5x7xf32>
    }}"""
    with pytest.raises(ModelError, match=problem):
        load(text.encode())


@pytest.mark.parametrize("unique", ["true", "false"])
def test_a_region_that_gives_too_few_values_is_refused(unique: str) -> None:
    text = f"""func.func @main(%x: tensor<5xf32>, %i: tensor<3x1xi32>, %u: tensor<3xf32>) -> tensor<5xf32> {{
    %r = "stablehlo.scatter"(%x, %i, %u) ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return
    }}) {{unique_indices = {unique}, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}} : (tensor<5xf32>, tensor<3x1xi32>, tensor<3xf32>) -> tensor<5xf32>
    return %r : tensor<5xf32>
    }}"""
    with pytest.raises(ModelError, match="region 0 makes 0 numbers of 2, expected 1 of 2"):
        load(text.encode())
