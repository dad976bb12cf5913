"""In-place reuse: what is allowed gives the same numbers in one buffer, what is not would not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_graphs import Case, graphs
from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import Dim
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Buffer,
    Compare,
    Const,
    For,
    If,
    Index,
    Kernel,
    Load,
    Parameter,
    Store,
)
from tilewright.compiler.kernel.rewrite import Rewriter, with_body
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.program.in_place import may_overwrite
from tilewright.compiler.schedule import rules
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.primitives import split


def merged(kernel: Kernel, source: Buffer, target: Buffer) -> Kernel:
    """The kernel with `source` living where `target` does."""
    body = Rewriter(buffers={source: target}).body(kernel.body)
    parameters = tuple(
        Parameter(p.buffer, AccessMode.READ_WRITE) if p.buffer is target else p
        for p in kernel.parameters
        if p.buffer is not source
    )
    kernel = with_body(kernel, body)
    return Kernel(kernel.name, parameters, kernel.dims, kernel.locals, kernel.body)


def same_numbers(
    kernel: Kernel, source: Buffer, target: Buffer, dims: dict[str, int]
) -> bool:
    """Whether the kernel computes the same when it starts with the operand in the result."""
    random = np.random.default_rng(3)
    arrays: dict[Buffer, np.ndarray] = {}
    for parameter in kernel.parameters:
        shape = [symbolic.evaluate(d, dims) for d in parameter.buffer.shape]
        values = random.integers(1, 9, shape).astype(parameter.buffer.dtype.numpy)
        arrays[parameter.buffer] = values
    apart = {b: a.copy() for b, a in arrays.items()}
    evaluate(kernel, list(apart.values()), dims)
    together = {b: a.copy() for b, a in arrays.items() if b is not source}
    together[target] = arrays[source].copy()
    evaluate(merged(kernel, source, target), list(together.values()), dims)
    return np.array_equal(apart[target], together[target], equal_nan=True)


Body = Callable[[KernelBuilder, Buffer, Buffer, Buffer], None]


def kernel_of(body: Body, shape: tuple[Dim, ...] = (6, 6)) -> tuple[Kernel, Buffer, Buffer]:
    b = KernelBuilder("k")
    x, w = b.parameter("x", f32, shape), b.parameter("w", f32, shape)
    y = b.result("y", f32, shape)
    body(b, x, w, y)
    return b.build(), x, y


def pointwise(b: KernelBuilder, x: Buffer, w: Buffer, y: Buffer) -> None:
    with b.nest(y.shape) as i:
        b.store(y, i, b.add(b.load(x, i), b.load(w, i)))


def transposed(b: KernelBuilder, x: Buffer, w: Buffer, y: Buffer) -> None:
    with b.nest(y.shape) as (i, j):
        b.store(y, (i, j), b.load(x, (j, i)))


def neighbour(b: KernelBuilder, x: Buffer, w: Buffer, y: Buffer) -> None:
    with b.nest((y.shape[0] - 1, y.shape[1])) as (i, j):
        b.store(y, (i, j), b.add(b.load(x, (i, j)), b.load(x, (i + 1, j))))


def row_scaled(b: KernelBuilder, x: Buffer, w: Buffer, y: Buffer) -> None:
    """y[i, j] += x[i, j] * w[k, j]: the same store runs once per k."""
    with b.nest(y.shape) as i:
        b.store(y, i, b.const(0.0, f32))
    with b.nest(y.shape) as (i, j), b.loop(y.shape[0], "k", reduction=True) as k:
        product = b.mul(b.load(x, (i, j)), b.load(w, (k, j)))
        b.store(y, (i, j), b.add(b.load(y, (i, j)), product))


def twice(b: KernelBuilder, x: Buffer, w: Buffer, y: Buffer) -> None:
    """The same store runs three times without reading the result."""
    with b.loop(3, "k"), b.nest(y.shape) as i:
        b.store(y, i, b.mul(b.load(x, i), 2))


def two_passes(b: KernelBuilder, x: Buffer, w: Buffer, y: Buffer) -> None:
    """A second nest reads the operand after the first wrote the result."""
    for factor in (2, 3):
        with b.nest(y.shape) as i:
            b.store(y, i, b.mul(b.load(x, i), factor))


def overlapping_halves(b: KernelBuilder, x: Buffer, w: Buffer, y: Buffer) -> None:
    for start, rows in ((0, 4), (2, 4)):
        with b.nest((rows, y.shape[1])) as (i, j):
            b.store(y, (i + start, j), b.mul(b.load(x, (i + start, j)), 2))


def separate_halves(b: KernelBuilder, x: Buffer, w: Buffer, y: Buffer) -> None:
    for start, rows in ((0, 4), (4, 2)):
        with b.nest((rows, y.shape[1])) as (i, j):
            b.store(y, (i + start, j), b.mul(b.load(x, (i + start, j)), 2))


def two_diagonals(b: KernelBuilder, x: Buffer, w: Buffer, y: Buffer) -> None:
    """Two stores of one iteration meet in no other one: rows tell iterations apart."""
    with b.loop(5, "i") as i:
        for shift in (0, 1):
            b.store(y, (i, i + shift), b.mul(b.load(x, (i, i + shift)), 2))


def overlapping_tiles(b: KernelBuilder, x: Buffer, w: Buffer, y: Buffer) -> None:
    """Tiles of 4 at 0, 2: rows 2 and 3 are computed twice."""
    with b.loop(2, "t") as t, b.loop(4, "i") as i, b.loop(y.shape[1], "j") as j:
        b.store(y, (2 * t + i, j), b.mul(b.load(x, (2 * t + i, j)), 2))


def guarded_by_operand(b: KernelBuilder, x: Buffer, w: Buffer, y: Buffer) -> None:
    """A condition reads the operand's first element in every iteration."""
    with b.nest(y.shape) as i:
        is_small = b.lt(b.load(x, (0, 0)), b.const(100.0, f32))
        b.store(y, i, b.select(is_small, b.mul(b.load(x, i), 200), b.load(w, i)))


def also_elsewhere(b: KernelBuilder, x: Buffer, w: Buffer, y: Buffer) -> None:
    t = b.temporary(f32, y.shape)
    with b.nest(y.shape) as i:
        b.store(y, i, b.load(x, i))
    with b.nest(y.shape) as i:
        b.store(t, i, b.load(x, i))


@pytest.mark.parametrize("body", [pointwise, separate_halves], ids=lambda f: f.__name__)
def test_a_store_that_reads_only_its_own_element_may_overwrite_it(body: Body) -> None:
    kernel, x, y = kernel_of(body)
    assert may_overwrite(kernel, x, y)
    assert same_numbers(kernel, x, y, {})


@pytest.mark.parametrize(
    "body",
    [transposed, neighbour, row_scaled, twice, two_passes, overlapping_halves, overlapping_tiles, guarded_by_operand],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_a_kernel_that_would_read_its_own_results_may_not(body: Body) -> None:
    kernel, x, y = kernel_of(body)
    assert not may_overwrite(kernel, x, y)
    assert not same_numbers(kernel, x, y, {})


def test_an_operand_that_is_also_read_elsewhere_is_kept() -> None:
    kernel, x, y = kernel_of(also_elsewhere)
    assert not may_overwrite(kernel, x, y)


def test_other_types_and_shapes_are_kept() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", dtypes.i32, (4,)), b.result("y", f32, (4,))
    z = b.result("z", dtypes.i32, (2, 2))
    with b.nest((4,)) as i:
        b.store(y, i, b.cast(b.load(x, i), f32))
    kernel = b.build()
    assert not may_overwrite(kernel, x, y)
    assert not may_overwrite(kernel, x, z)


def test_symbolic_rows_are_told_apart() -> None:
    n = symbolic.symbol("n", 1)
    kernel, x, y = kernel_of(pointwise, (n, 6))
    assert may_overwrite(kernel, x, y)
    assert same_numbers(kernel, x, y, {"n": 5})


def test_tiles_with_a_remainder_are_told_apart() -> None:
    kernel, x, y = kernel_of(pointwise, (7, 18))
    outer, inner = (s.var.name for s in _nest(kernel))
    kernel = split(kernel, outer, 2)
    kernel = split(kernel, inner, 4)
    assert may_overwrite(kernel, x, y)
    assert same_numbers(kernel, x, y, {})


def _nest(kernel: Kernel) -> list[For]:
    found, body = [], kernel.body
    while len(body) == 1 and isinstance(body[0], For):
        found.append(body[0])
        body = body[0].body
    return found


@pytest.mark.parametrize(("limit", "start", "allowed"), [(4, 4, True), (4, 3, False)])
def test_guards_that_exclude_each_other_keep_stores_apart(
    limit: int, start: int, allowed: bool
) -> None:
    """Two stores to one element, one under `i < limit`, one under `i >= start`."""
    x, y = Buffer("x", f32, (8,)), Buffer("y", f32, (8,))
    var = symbolic.Symbol("i", 0, 7)
    i = symbolic.Expr.of_atom(var)
    double = Store(y, (i,), Load(x, (i,)))
    number = dtypes.i64
    below = If(Compare("lt", Index(i), Const(limit, number)), (double,))
    above = If(Compare("ge", Index(i), Const(start, number)), (double,))
    parameters = (Parameter(x, AccessMode.READ), Parameter(y, AccessMode.WRITE))
    kernel = Kernel("k", parameters, (), (), (For(var, 8, (below, above)),))
    assert may_overwrite(kernel, x, y) == allowed


@given(graphs(dynamic=False, most=4), st.booleans())
@settings(max_examples=40)
def test_whatever_is_allowed_gives_the_same_numbers(case: Case, scheduled: bool) -> None:
    for group in pipeline.find_kernels(case.graph):
        kernel = group.naive
        if scheduled:
            kernel = rules.schedule(kernel, MachineModel.of(Target.level("v3")), threads=2)
        results = [p.buffer for p in kernel.parameters if p.access is not AccessMode.READ]
        operands = [p.buffer for p in kernel.parameters if p.access is AccessMode.READ]
        for target in results:
            for source in operands:
                if may_overwrite(kernel, source, target):
                    assert same_numbers(kernel, source, target, {})


def test_rows_tell_the_iterations_of_two_stores_apart() -> None:
    kernel, x, y = kernel_of(two_diagonals)
    assert may_overwrite(kernel, x, y)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("size", [40, 100, 1003, symbolic.symbol("N", 1)], ids=str)
def test_whole_vectors_and_their_rest_may_be_written_over_in_blocks_of_work(
    size: Dim,
) -> None:
    """Each block has a loop of whole vectors and one of the rest, whose place is a quotient of a minimum."""
    kernel, x, y = kernel_of(pointwise, (size,))
    machine = MachineModel.of(Target.level("v3"))
    points = list(rules.space_of(kernel, machine).points())
    works = sorted({getattr(p.nests[0], "work", 0) for p in points})
    tried = [p for p in points if getattr(p.nests[0], "work", 0) in works[:2]]
    assert tried
    for point in tried:
        scheduled = rules.schedule(kernel, machine, decisions=point)
        assert may_overwrite(scheduled, x, y), point
        assert same_numbers(scheduled, x, y, {"N": 77})


@pytest.mark.parametrize("overlap", [0, 1])
def test_blocks_whose_ends_go_by_a_minimum_are_apart_if_none_reaches_into_the_next(
    overlap: int,
) -> None:
    def blocks(b: KernelBuilder, x: Buffer, w: Buffer, y: Buffer) -> None:
        with b.loop(4, "g") as g:
            size = symbolic.minimum(30 - 8 * g, 8) + overlap
            rest = size - symbolic.floordiv(size, 4) * 4
            with b.loop(rest, "i") as i:
                at = 8 * g + symbolic.floordiv(size, 4) * 4 + i
                b.store(y, (at,), b.mul(b.load(x, (at,)), 2))

    kernel, x, y = kernel_of(blocks, (40,))
    assert may_overwrite(kernel, x, y) is not bool(overlap)


@pytest.mark.parametrize("is_open", [True, False])
def test_what_a_tile_that_begins_earlier_makes_again_stands_over_no_operand(
    is_open: bool,
) -> None:
    """It would add to what it has made the first time."""
    h, w = (symbolic.symbol("H", 4), symbolic.symbol("W", 8)) if is_open else (9, 33)
    b = KernelBuilder("added")
    x, z = b.parameter("x", f32, (h, w + 2)), b.parameter("z", f32, (h, w))
    total, y = b.temporary(f32, (h, w), "total"), b.result("y", f32, (h, w))
    with b.nest((h, w)) as (i, j):
        b.store(total, (i, j), 0)
        with b.reduce((3,)) as (k,):
            b.accumulate("add", total, (i, j), b.load(x, (i, j + k)))
    with b.nest((h, w)) as (i, j):
        b.write(y, (i, j), b.add(b.load(total, (i, j)), b.load(z, (i, j))))
    kernel = rules.schedule(b.build(), MachineModel.of(Target.level("v3")))
    assert ("min(" in kernel_text(kernel)) == is_open
    assert may_overwrite(kernel, z, y) is not is_open
