"""Slices whose place is computed, against numpy's."""

import numpy as np
import pytest

from fakes.stablehlo_text import run, type_of
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.stablehlo import load

CHOOSE = np.random.default_rng(4)


def updated(x: np.ndarray, update: np.ndarray, starts: tuple[int, ...]) -> np.ndarray:
    """What an update gives whose start is moved until it lies inside."""
    found = x.copy()
    places = tuple(
        slice(at := min(max(start, 0), whole - part), at + part)
        for start, whole, part in zip(starts, x.shape, update.shape, strict=True)
    )
    found[places] = update
    return found


@pytest.mark.thinned(5)
@pytest.mark.parametrize("start", [0, 1, 100, -3])
@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((7, 5), (2, 5)), ((7, 5), (7, 2)), ((7, 5), (1, 1)), ((4, 9, 6, 3), (4, 1, 6, 3)),
        ((64, 32), (1, 32)), ((2, 64, 32), (2, 1, 32)), ((2, 64, 32), (1, 3, 5)), ((9,), (3,)),
        ((5, 6), (5, 6)), ((1, 6), (1, 2)), ((5, 6), (0, 6)), ((64, 2), (1, 2)),
    ],
)  # fmt: skip
def test_an_update_lies_inside_wherever_it_should_begin(
    shape: tuple[int, ...], size: tuple[int, ...], start: int
) -> None:
    x = CHOOSE.normal(size=shape).astype(np.float32)
    update = CHOOSE.normal(size=size).astype(np.float32)
    if 0 not in size:
        update.flat[0] = np.nan
    starts = [np.array(start + n, np.int32) for n in range(len(shape))]
    names = [f"%s{n}" for n in range(len(shape))]
    t, u = type_of(x), type_of(update)
    body = (
        f"%r = stablehlo.dynamic_update_slice %x, %u, {', '.join(names)} : "
        f"({t}, {u}, {', '.join(['tensor<i32>'] * len(shape))}) -> {t}\nreturn %r : {t}"
    )
    arguments = ", ".join([f"%x: {t}", f"%u: {u}", *(f"{n}: tensor<i32>" for n in names)])
    (found,) = run(body, arguments, x, update, *starts)
    expected = x if 0 in size else updated(x, update, tuple(int(s) for s in starts))
    np.testing.assert_array_equal(found, expected)


SCAN = """
func.func @main(%x: tensor<1000x8xf32>) -> tensor<1000x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %empty = stablehlo.constant dense<0.0> : tensor<1000x8xf32>
  %r:2 = stablehlo.while(%i = %zero, %y = %empty) : tensor<i32>, tensor<1000x8xf32>
  cond {
    %n = stablehlo.constant dense<1000> : tensor<i32>
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %row = stablehlo.dynamic_slice %x, %i, %zero, sizes = [1, 8] : (tensor<1000x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
    %s = stablehlo.add %row, %row : tensor<1x8xf32>
    %w = stablehlo.dynamic_update_slice %y, %s, %i, %zero : (tensor<1000x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1000x8xf32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %w : tensor<i32>, tensor<1000x8xf32>
  }
  return %r#1 : tensor<1000x8xf32>
}
"""


def test_a_loop_that_stacks_rows_writes_nothing_but_the_row() -> None:
    graph = load(SCAN.encode()).graph
    (loop,) = (node for node in graph.nodes if node.op == "while")
    _, body = loop.regions
    whole = [n for n in body.nodes if n.result.type.shape == (1000, 8)]
    assert [node.op for node in whole] == ["scatter_nd"]


@pytest.mark.parametrize(
    ("mapped", "collapsed", "size", "message"),
    [
        (7, 0, 1, r"start_index_map \[7\] do not fit"),
        (-1, 0, 1, r"start_index_map \[-1\] do not fit"),
        (0, 7, 1, r"collapsed_slice_dims \[7\] do not fit"),
        (0, 0, 2, "axes of more than one element"),
    ],
)
def test_a_gather_whose_axes_do_not_fit_is_refused(
    mapped: int, collapsed: int, size: int, message: str
) -> None:
    body = (
        '%r = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], '
        f"collapsed_slice_dims = [{collapsed}], start_index_map = [{mapped}], index_vector_dim = 1>, "
        f"slice_sizes = array<i64: {size}, 5>, indices_are_sorted = false}} : "
        "(tensor<4x5xf32>, tensor<3x1xi32>) -> tensor<3x5xf32>\nreturn %r : tensor<3x5xf32>"
    )
    values = np.ones((4, 5), np.float32), np.zeros((3, 1), np.int32)
    with pytest.raises(ModelError, match=message):
        run(body, "%x: tensor<4x5xf32>, %i: tensor<3x1xi32>", *values)
