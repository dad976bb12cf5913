"""Sorts by keys and by any comparator, against numpy's stable sorts; the largest entries."""

import numpy as np
import pytest

from fakes.stablehlo_text import run, type_of
from tilewright.base.errors import ModelError

CHOOSE = np.random.default_rng(2)


def sort(comparator: str, axis: int, *values: np.ndarray) -> list[np.ndarray]:
    names = [f"%x{i}" for i in range(len(values))]
    types = [type_of(v) for v in values]
    numbers = [t.rsplit("x", 1)[-1].rstrip(">") for t in types]
    pairs = [f"%{side}{i}: tensor<{n}>" for i, n in enumerate(numbers) for side in "ab"]
    results = ", ".join(f"%r#{i}" for i in range(len(values))) if len(values) > 1 else "%r"
    count = f":{len(values)}" if len(values) > 1 else ""
    body = f"""
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %r{count} = "stablehlo.sort"({", ".join(names)}) ({{
    ^bb0({", ".join(pairs)}):
      {comparator}
      stablehlo.return %less : tensor<i1>
    }}) {{dimension = {axis} : i64, is_stable = true}} : ({", ".join(types)}) -> ({", ".join(types)})
    return {results} : {", ".join(types)}"""
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))
    return run(body, arguments, *values)


def compare(direction: str, a: str, b: str, type_: str, kind: str, name: str) -> str:
    return f"{name} = stablehlo.compare {direction}, {a}, {b}, {kind} : (tensor<{type_}>, tensor<{type_}>) -> tensor<i1>"


@pytest.mark.parametrize("shape", [(7,), (3, 5), (1, 4), (0, 3), (2, 1)])
@pytest.mark.parametrize(
    ("direction", "swapped"), [("LT", False), ("GT", False), ("LT", True)]
)
def test_numbers_are_sorted_with_what_stands_beside_them(
    shape: tuple[int, ...], direction: str, swapped: bool
) -> None:
    x = CHOOSE.integers(-3, 3, shape).astype(np.int32)
    beside = np.arange(x.size, dtype=np.int32).reshape(shape)
    axis = len(shape) - 1
    pair = ("%b0", "%a0") if swapped else ("%a0", "%b0")
    found = sort(compare(direction, *pair, "i32", "SIGNED", "%less"), axis, x, beside)
    down = (direction == "GT") != swapped
    order = np.argsort(-x if down else x, axis=axis, kind="stable")
    for got, given in zip(found, (x, beside), strict=True):
        np.testing.assert_array_equal(got, np.take_along_axis(given, order, axis))


def test_floats_are_in_total_order() -> None:
    x = np.float32([0.0, -np.nan, 1.0, -0.0, np.inf, np.nan, -np.inf, -1.0])
    (found,) = sort(compare("LT", "%a0", "%b0", "f32", "TOTALORDER", "%less"), 0, x)
    expected = np.float32([-np.nan, -np.inf, -1.0, -0.0, 0.0, 1.0, np.inf, np.nan])
    assert found.tobytes()[4:-4] == expected.tobytes()[4:-4]
    assert np.signbit(found[[0, -1]]).tolist() == [True, False]


def test_zeros_of_both_signs_are_equal_unless_the_order_is_total() -> None:
    x = np.float32([0.0, -0.0, -1.0, 0.0, -0.0])
    (found,) = sort(compare("LT", "%a0", "%b0", "f32", "FLOAT", "%less"), 0, x)
    assert np.signbit(found).tolist() == [True, False, True, False, True]


def test_keys_are_compared_one_after_the_other() -> None:
    x = CHOOSE.integers(0, 3, (2, 9)).astype(np.int32)
    y = CHOOSE.integers(0, 3, (2, 9)).astype(np.float32)
    z = np.arange(18, dtype=np.int32).reshape(2, 9)
    comparator = "\n".join(
        (
            compare("LT", "%a0", "%b0", "i32", "SIGNED", "%first"),
            compare("EQ", "%a0", "%b0", "i32", "SIGNED", "%tie"),
            compare("GT", "%a1", "%b1", "f32", "FLOAT", "%second"),
            "%both = stablehlo.and %tie, %second : tensor<i1>",
            "%less = stablehlo.or %first, %both : tensor<i1>",
        )
    )
    found = sort(comparator, 1, x, y, z)
    order = np.stack([np.lexsort((-b, a)) for a, b in zip(x, y, strict=True)])
    for got, given in zip(found, (x, y, z), strict=True):
        np.testing.assert_array_equal(got, np.take_along_axis(given, order, 1))


def test_a_key_may_be_computed() -> None:
    x = np.float32([-3, 1, 2, -0.5, 0])
    comparator = """%p = stablehlo.multiply %a0, %a0 : tensor<f32>
      %q = stablehlo.multiply %b0, %b0 : tensor<f32>
      """ + compare("LT", "%p", "%q", "f32", "FLOAT", "%less")
    (found,) = sort(comparator, 0, x)
    np.testing.assert_array_equal(found, x[np.argsort(x * x)])


def test_many_entries_are_sorted() -> None:
    x = CHOOSE.normal(size=5000).astype(np.float32)
    (found,) = sort(compare("LT", "%a0", "%b0", "f32", "TOTALORDER", "%less"), 0, x)
    np.testing.assert_array_equal(found, np.sort(x))


MIXED = """%s = stablehlo.add %a0, %b1 : tensor<f32>
      %t = stablehlo.add %b0, %a1 : tensor<f32>
      """ + compare("LT", "%s", "%t", "f32", "FLOAT", "%less")


def test_a_comparator_of_both_entries_compares_pairs() -> None:
    x, y = (CHOOSE.normal(size=6).astype(np.float32) for _ in range(2))
    found = sort(MIXED, 0, x, y)
    np.testing.assert_array_equal(found[0], x[np.argsort(x - y)])


def test_a_long_sort_by_pairs_is_refused() -> None:
    x = np.zeros(3000, np.float32)
    with pytest.raises(ModelError, match="a sort of 3000 entries"):
        sort(MIXED, 0, x, x)


@pytest.mark.parametrize("largest", [True, False])
def test_the_largest_entries_are_in_total_order(largest: bool) -> None:
    x = np.float32([[np.inf, np.nan, -np.nan, -np.inf, 3], [0, -0.0, 1, 1, -1]])
    body = f"""
    %r:2 = chlo.top_k(%x, k = 5, largest = {str(largest).lower()}) : tensor<2x5xf32> -> (tensor<2x5xf32>, tensor<2x5xi32>)
    return %r#0, %r#1 : tensor<2x5xf32>, tensor<2x5xi32>"""
    values, places = run(body, "%x: tensor<2x5xf32>", x)
    down = [[1, 0, 4, 3, 2], [2, 3, 0, 1, 4]]
    expected = down if largest else [down[0][::-1], [4, 1, 0, 2, 3]]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, np.array(expected), 1))


def test_a_key_in_many_steps_is_read_once_a_step() -> None:
    """Each step uses the one before twice: 2^100 ways lead from the last to the entries."""
    steps = [
        f"%{side}{n + 1} = stablehlo.maximum %{side}{n}, %{side}{n} : tensor<i32>"
        for side in "ab"
        for n in range(100)
    ]
    less = compare("LT", "%a100", "%b100", "i32", "SIGNED", "%less")
    (found,) = sort("\n".join([*steps, less]), 0, np.int32([3, 1, 2]))
    assert found.tolist() == [1, 2, 3]
