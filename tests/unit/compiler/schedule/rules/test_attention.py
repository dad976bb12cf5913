"""Rows of queries as lanes: when keys and values are copied, and that copies change no bit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.loop_nests import assert_same, emit
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import Dim, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel, Space
from tilewright.compiler.schedule.machine_model import MachineModel, MemoryLevel
from tilewright.compiler.schedule.rules import Decisions, schedule, space_of
from tilewright.compiler.schedule.rules.attention import RowTiles

ZEN3 = MachineModel.of(Target.parse("x86_64 -mcpu=znver3"))
SMALL = replace(ZEN3, l2=MemoryLevel(size_bytes=4 << 10, bandwidth=118, ways=8))
"""Rows that lie 32 bytes apart have as many places in its second level cache as those of 4 KiB on a usual core."""
M, N = symbol("M", 0), symbol("N", 0)


def attention(
    heads: Dim,
    shared: Dim,
    rows: Dim,
    keys: Dim,
    size: int,
    *,
    causal: tuple[int, ...] = (),
    biased: bool = False,
) -> Kernel:
    """Attention of heads that lie side by side in each row, as a projection leaves them."""
    b = KernelBuilder("heads_side_by_side")
    turned = []
    for name, length, count in (
        ("q", rows, heads),
        ("k", keys, shared),
        ("v", keys, shared),
    ):
        given = b.parameter(name, f32, (1, length, count, size))
        turned.append(b.temporary(f32, (1, count, length, size)))
        emit(b, "transpose", {"perm": (0, 2, 1, 3)}, [given], turned[-1])
    bias = [b.parameter("bias", f32, (1, 1, rows, keys))] if biased else []
    result = b.result("y", f32, (1, heads, rows, size))
    emit(b, "attention", {"causal": causal}, [*turned, *bias], result)
    return b.build()


def best(kernel: Kernel, machine: MachineModel) -> RowTiles:
    (space,) = space_of(kernel, machine).nests
    found = space.best()
    assert isinstance(found, RowTiles)
    return found


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("heads", "rows", "keys", "size", "staged"),
    [
        (8, 512, 512, 128, True),  # 4 KiB apart: 16 places for 128 keys, and as many values
        (8, 128, 128, 128, True),
        (16, 512, 512, 64, True),
        (12, 512, 512, 64, False),  # 3 KiB apart: 64 places
        (6, 1500, 1500, 64, False),
        (8, 512, 512, 120, False),
        (8, 16, 512, 128, False),  # one tile: nothing shares a copy
        (N, 512, 512, 128, False),  # only a call knows
    ],
)
def test_keys_that_push_each_other_out_are_copied(
    heads: Dim, rows: int, keys: int, size: int, staged: bool
) -> None:
    assert best(attention(heads, heads, rows, keys, size), ZEN3).staged is staged


@pytest.mark.thinned(5)
@pytest.mark.parametrize(
    ("shared", "rows", "keys", "biased"),
    [
        (2, 21, 133, False),
        (4, 32, 128, False),
        (4, 37, 77, False),
        (4, 21, 133, False),
        (4, 21, 133, True),
    ],
)
def test_copies_change_no_bit(shared: int, rows: int, keys: int, biased: bool) -> None:
    kernel = attention(4, shared, rows, keys, 8 // shared, biased=biased)
    done, plain = with_and_without(kernel)
    assert copies(plain) == []
    assert copies(done) == ["k", "v"]
    assert_same(plain, done)


@pytest.mark.slow
@pytest.mark.parametrize("keys", [133, 0, 5])
def test_whole_blocks_of_a_number_of_keys_that_is_not_known(keys: int) -> None:
    done, plain = with_and_without(attention(4, 4, 21, N, 2))
    assert copies(done) == ["k", "v"]
    assert_same(plain, done, {"N": keys})


# Seconds each, of two workgroups of rows and more minutes on a busy machine.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("shared", "rows", "keys", "offset", "biased"),
    [
        (4, 37, 129, 92, True),
        (4, 37, 133, 96, False),
        (2, 133, 160, 27, False),
        (4, 261, 261, 0, False),
        (4, 261, 300, -5, False),
    ],
)
def test_keys_that_all_rows_of_a_workgroup_see_are_copied(
    shared: int, rows: int, keys: int, offset: int, biased: bool
) -> None:
    kernel = attention(4, shared, rows, keys, 8 // shared, causal=(offset,), biased=biased)
    done, plain = with_and_without(kernel)
    assert copies(plain) == []
    assert copies(done) == ["k", "v"]
    assert_same(plain, done)


@pytest.mark.parametrize(
    "kernel",
    [
        attention(4, 4, M, 133, 2),
        attention(4, 4, 128, 128, 2, causal=(0,)),
        attention(4, 4, 96, 261, 2, causal=(0,)),
        attention(4, 4, 261, 261, 2, causal=(-200,)),
        attention(4, 4, 133, N, 2, causal=(130,)),
    ],
    ids=["open rows", "one block", "one workgroup", "no whole block", "open keys"],
)
def test_what_tiles_may_not_read_stays_where_it_lies(kernel: Kernel) -> None:
    assert not best(kernel, SMALL).staged


def with_and_without(kernel: Kernel) -> tuple[Kernel, Kernel]:
    """The kernel with copies, which is the best, and the same without."""
    chosen = best(kernel, SMALL)
    assert chosen.staged
    apart = replace(chosen, staged=False)
    done, plain = (
        schedule(kernel, SMALL, decisions=Decisions((x,))) for x in (chosen, apart)
    )
    return done, plain


def copies(kernel: Kernel) -> list[str]:
    """The parameters of which a workgroup has a copy."""
    made = {x.name.split("_")[0] for x in kernel.locals if x.space is Space.WORKGROUP}
    return sorted(made & {x.buffer.name for x in kernel.parameters})
