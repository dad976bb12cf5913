"""Strided vectors side by side become columns of blocks; results stay."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.loop_nests import assert_same, op_kernel, run
from fakes.lowered import lower
from tilewright.base import dtypes
from tilewright.base.symbolic import Dim, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Buffer,
    Const,
    Kernel,
    Load,
    Parameter,
    Store,
    Transposed,
    walk,
)
from tilewright.compiler.kernel.rewrite import subexpressions
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.lowering.transpose import transpose
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule

f32 = dtypes.f32
X, OUT = Buffer("x", f32, (4096,)), Buffer("out", f32, (4096,))
i = symbol("i")


def kernel_of(*body: Store, access: AccessMode = AccessMode.READ) -> Kernel:
    parameters = (Parameter(X, access), Parameter(OUT, AccessMode.WRITE))
    return Kernel("k", parameters, (), (), tuple(body))


def column(base: Dim, lanes: int = 8, stride: int = 40, **more) -> Load:
    return Load(X, (base,), lanes, stride, **more)


def stored(base: int, load: Load, target: Buffer = OUT) -> Store:
    return Store(target, (base,), load)


def count(kernel: Kernel, kind: type) -> int:
    values = [s.value for s in walk(kernel.body) if isinstance(s, Store)]
    return sum(isinstance(part, kind) for value in values for part in subexpressions(value))


def results(kernel: Kernel) -> np.ndarray:
    arrays = [np.arange(4096, dtype=np.float32), np.zeros(4096, np.float32)]
    evaluate(kernel, arrays, {})
    return arrays[1]


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("order", ["up", "down", "shuffled"])
def test_a_whole_block_is_read_by_rows(lanes: int, order: str) -> None:
    columns = list(range(lanes))
    if order != "up":
        columns = columns[::-1] if order == "down" else [3, *(c for c in columns if c != 3)]
    before = kernel_of(*(stored(lanes * c, column(5 + c, lanes)) for c in columns))
    after = transpose(before)
    verify(after)
    assert count(after, Transposed) == lanes
    np.testing.assert_array_equal(results(after), results(before))
    np.testing.assert_array_equal(results(after)[:lanes], 5 + 40 * np.arange(lanes))
    assert "column_3(x[" in kernel_text(after)


def test_two_blocks_side_by_side_and_what_is_left_over() -> None:
    before = kernel_of(*(stored(8 * c, column(c)) for c in range(19)))
    after = transpose(before)
    assert count(after, Transposed) == 16
    np.testing.assert_array_equal(results(after), results(before))


@pytest.mark.parametrize(
    "loads",
    [
        [column(c) for c in range(7)],  # a column is missing
        [column(2 * c) for c in range(8)],  # not side by side
        [column(c, stride=4) for c in range(8)],  # the rows would overlap
        [column(c, stride=1) for c in range(8)],  # contiguous
        [column(c, lanes=2) for c in range(2)],  # nothing to win
        [column(c, lanes=6) for c in range(6)],  # no network for six
    ],
    ids=["missing", "apart", "near", "contiguous", "pair", "six"],
)
def test_anything_else_stays(loads: list[Load]) -> None:
    before = kernel_of(*(stored(8 * c, load) for c, load in enumerate(loads)))
    assert count(transpose(before), Transposed) == 0


def test_masked_columns_stay() -> None:
    mask = Const(True, dtypes.bool_, 8)
    before = kernel_of(*(stored(8 * c, column(c, mask=mask)) for c in range(8)))
    assert count(transpose(before), Transposed) == 0


def test_a_buffer_that_is_stored_to_is_read_where_it_was() -> None:
    body = [stored(8 * c, column(c)) for c in range(8)]
    body.insert(4, stored(100, column(0), X))
    before = kernel_of(*body, access=AccessMode.READ_WRITE)
    assert count(transpose(before), Transposed) == 0


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", ["v2", "v3", "v4"])
@pytest.mark.parametrize("name", ["f64", "f32", "bf16", "i8"])
@pytest.mark.parametrize(
    ("shape", "perm"),
    [((128, 192), (1, 0)), ((3, 64, 128), (0, 2, 1)), ((203, 100), (1, 0))],
)
def test_transpositions_of_every_width_use_it(shape, perm, name: str, target: str) -> None:
    level, dtype = Target.level(target), dtypes.parse(name)
    result = tuple(shape[p] for p in perm)
    naive = op_kernel("transpose", (shape,), result, {"perm": perm}, dtype)
    done = lower(schedule(naive, MachineModel.of(level)), level)
    assert (count(done, Transposed) > 0) == (level.vector_lanes(dtype) > 2)
    for wanted, got in zip(run(naive), run(done), strict=True):
        np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)


def test_an_open_size_is_transposed_in_blocks_too() -> None:
    n = symbol("N", 1)
    naive = op_kernel("transpose", ((n, 64),), (64, n), {"perm": (1, 0)})
    level = Target.level("v4")
    for size in (1, 15, 16, 17, 70):
        assert_same(naive, schedule(naive, MachineModel.of(level)), {"N": size})


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", ["v3", "v4"])
def test_rows_may_be_as_far_apart_as_a_call_says(target: str) -> None:
    m, n = symbol("M", 1), symbol("N", 1)
    level = Target.level(target)
    naive = op_kernel("transpose", ((m, n),), (n, m), {"perm": (1, 0)})
    done = lower(schedule(naive, MachineModel.of(level)), level)
    assert count(done, Transposed) > 0
    for dims in ({"M": 1, "N": 40}, {"M": 16, "N": 32}, {"M": 35, "N": 17}):
        for wanted, got in zip(run(naive, dims), run(done, dims), strict=True):
            np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)
