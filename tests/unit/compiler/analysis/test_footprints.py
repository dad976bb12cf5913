from __future__ import annotations

import random

import pytest

from fakes.affine_kernels import random_kernel
from fakes.contractions import convolution
from fakes.loop_nests import doubled, op_kernel, product
from fakes.touched_elements import touches
from tilewright.base.dtypes import f32, i64
from tilewright.base.symbolic import floordiv, symbol
from tilewright.compiler.analysis.footprints import Footprint, footprints
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Buffer, Const, For, Kernel, Load, Store
from tilewright.compiler.kernel.rewrite import as_index
from tilewright.compiler.schedule.primitives import split
from tilewright.compiler.schedule.tree import find


def of(kernel: Kernel, name: str, body: tuple = ()) -> Footprint:
    found = footprints(body or kernel.body)
    return next(f for b, f in found.items() if b.name == name)


def test_each_level_of_a_product_touches_its_part() -> None:
    kernel = product(48, 96, 64)
    row = find(kernel, "j").body
    assert of(kernel, "w").read_bytes == 64 * 96 * 4
    assert of(kernel, "a").lines(64) == 48 * 64 * 4 // 64
    assert of(kernel, "w", row).read_bytes == 64 * 4
    assert of(kernel, "w", row).lines(64) == 64  # a column: one line for each element
    assert of(kernel, "a", row).lines(64) == 4
    assert of(kernel, "y", row).read_bytes == 4
    assert of(kernel, "y", row).lines(64) == 1


def test_windows_of_a_convolution_overlap() -> None:
    kernel = op_kernel(
        "contract", [(1, 9, 9, 3), (1, 2, 3, 3, 3, 16)], (1, 7, 7, 20), convolution(20)
    )
    assert of(kernel, "x0").read_bytes == 9 * 9 * 3 * 4


def test_open_sizes_are_estimated_as_everywhere() -> None:
    n = symbol("N", 1)
    assert of(doubled(n), "x").read_bytes == 128 * 4
    assert of(doubled(symbol("B", 1, 4)), "x").read_bytes == 4 * 4


def test_the_last_tile_counts_as_a_whole_one() -> None:
    kernel = split(doubled(symbol("N", 1)), "i", 16, tail="tight")
    (outer,) = kernel.body
    assert isinstance(outer, For)
    assert of(kernel, "x", outer.body).read_bytes == 16 * 4


def test_lanes_and_steps_between_them_count() -> None:
    x, y = Buffer("x", f32, (64,)), Buffer("y", f32, (64,))
    store = Store(y, (0,), Load(x, (3,), lanes=8, stride=4), stride=1)
    found = footprints((store,))
    assert found[x].read_bytes == 8 * 4
    assert found[x].lines(64) == 2
    assert found[y].lines(64) == 1


def test_indices_from_memory_touch_no_more_than_there_are_accesses() -> None:
    b = KernelBuilder("gather")
    x, at = b.parameter("x", f32, (1000,)), b.parameter("at", i64, (8,))
    y = b.result("y", f32, (8,))
    with b.nest((8,), ("i",)) as (i,):
        b.store(y, (i,), b.load(x, (as_index(b.load(at, (i,))),)))
    assert of(b.build(), "x").read_bytes == 8 * 4


def test_nothing_is_touched_by_a_loop_that_does_not_run() -> None:
    x = Buffer("x", f32, (4,))
    found = footprints(
        (For(next(iter(symbol("i").symbols)), 0, (Store(x, (0,), Const(0, f32)),)),)
    )
    assert (found[x].read_bytes, found[x].lines(64)) == (0, 0)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", random.Random(7).sample(range(5000), 60))
def test_no_element_that_is_read_is_left_out(seed: int) -> None:
    """Tables of indices and two-dimensional buffers too, which isl is not asked about."""
    kernel = random_kernel(seed, rank=1 + seed % 2, size=None, tables=True)
    seen: dict[Buffer, set[tuple[int, ...]]] = {}
    for touch in touches(kernel.body, {}):
        if not touch.write and all(
            0 <= at < size
            for at, size in zip(touch.element, touch.buffer.shape, strict=True)
        ):
            seen.setdefault(touch.buffer, set()).add(touch.element)
    found = footprints(kernel.body)
    for buffer, elements in seen.items():
        assert found[buffer].read_bytes >= len(elements) * buffer.dtype.itemsize


def test_a_size_that_divides_and_may_be_nothing_is_guessed() -> None:
    """Pieces of a picture whose height is open: N // 64 of them, which is 0 of the sizes that are taken for likely."""
    n = symbol("N", 0)
    pieces = floordiv(n, 64)
    b = KernelBuilder("pieces")
    x, y = b.parameter("x", f32, (64,)), b.result("y", f32, (64,))
    with b.nest((64,), ("i",)) as (i,):
        b.store(y, (i,), b.load(x, (floordiv(i, pieces),)))
    assert of(b.build(), "x").read_bytes == 4
