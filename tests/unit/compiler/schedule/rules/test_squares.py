"""Square blocks that are transposed in registers."""

import pytest

from fakes.loop_nests import assert_same
from tilewright.base.dtypes import f32
from tilewright.base.target import Target
from tilewright.compiler.kernel.grid import GRID_KINDS
from tilewright.compiler.kernel.ir import If, LoopKind, walk
from tilewright.compiler.kernel.rewrite import loads, loops
from tilewright.compiler.program.signature import signature_of
from tilewright.compiler.readers.kernel_text import parse_kernel
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule


@pytest.mark.thinned(3)
@pytest.mark.parametrize("level", ["v3", "v4"])
@pytest.mark.parametrize("columns", ["n", "50"])
def test_whole_blocks_of_a_panel_of_open_width_are_transposed_without_masks(
    columns: str, level: str
) -> None:
    """The last panel tests which columns are there; blocks that are all there are squares in registers."""
    dims = ", *, n: 1.., k: 1.." if columns == "n" else ", *, k: 1.."
    kernel = parse_kernel(
        f"""kernel pack(read in0: f32[{columns}, k], write out0: f32[({columns} + 31) // 32, k, 32]{dims}):
    for p in range(({columns} + 31) // 32):
        for i in range(k):
            for j in range(32):
                out0[p, i, j] = select((index<i64>(32*p + j) < index<i64>({columns})), (in0[32*p + j, i] where (index<i64>(32*p + j) < index<i64>({columns}))), 0.0)
"""
    )
    machine = MachineModel.of(Target.level(level))
    changed = schedule(kernel, machine)
    squares = [
        x
        for x in loops(changed.body)
        if x.kind is LoopKind.UNROLL and x.extent == machine.lanes(f32)
    ]
    assert any(v.mask is None for x in squares for v in loads(x.body)) == (columns == "n")
    for n, k in ((1, 1), (31, 16), (32, 17), (33, 40), (70, 64)):
        assert_same(kernel, changed, dims={"n": n, "k": k} if columns == "n" else {"k": k})


def test_only_the_first_tiles_test_where_parts_of_a_joined_tensor_meet() -> None:
    kernel = parse_kernel(
        """kernel head(read in0: f32[85, 40], write out0: f32[40, 85]):
    for i in range(40):
        for j in range(85):
            if (index<i64>(j) < 2):
                out0[i, j] = (in0[j, i] * 2.0)
            if (index<i64>(j - 2) >= 0):
                out0[i, j] = in0[j, i]
"""
    )
    changed = schedule(kernel, MachineModel.of(Target.level("v3")))
    lanes = [x for x in loops(changed.body) if x.kind is LoopKind.VECTOR]
    asked = [any(isinstance(part, If) for part in x.body) for x in lanes]
    assert set(asked) == {True, False}
    assert_same(kernel, changed)


@pytest.mark.parametrize("level", ["v3", "v4"])
@pytest.mark.parametrize("shape", [(17, 35), (35, 17), (33, 100), (100, 33), (39, 39)])
def test_the_last_blocks_of_a_transposition_begin_earlier_and_are_whole(
    shape: tuple[int, int], level: str
) -> None:
    """No lane has a mask, and no place is asked for; what two blocks have in common is made twice."""
    rows, columns = shape
    kernel = parse_kernel(
        f"""kernel turn(read in0: f32[3, {rows}, {columns}], write out0: f32[3, {columns}, {rows}]):
    for b in range(3):
        for i in range({columns}):
            for j in range({rows}):
                out0[b, i, j] = in0[b, j, i]
"""
    )
    changed = schedule(kernel, MachineModel.of(Target.level(level)))
    assert not [x for x in walk(changed.body) if isinstance(x, If)]
    assert_same(kernel, changed)


def test_blocks_of_several_workgroups_do_not_meet() -> None:
    """A side whose tiles are workgroups keeps a rest of its own: no element is written by two of them."""
    kernel = parse_kernel(
        """kernel turn(read in0: f32[2003, 1001], write out0: f32[1001, 2003]):
    for i in range(1001):
        for j in range(2003):
            out0[i, j] = in0[j, i]
"""
    )
    changed = schedule(kernel, MachineModel.of(Target.level("v3")))
    grid = [x for x in loops(changed.body) if x.kind in GRID_KINDS]
    assert grid
    assert any(isinstance(x, If) for x in walk(changed.body))
    assert_same(kernel, changed)


@pytest.mark.parametrize(("side", "whole"), [(32, True), (33, False)])
def test_what_is_made_twice_stands_over_no_operand(side: int, whole: bool) -> None:
    """A block that begins earlier would read what the one before it has written there."""
    kernel = parse_kernel(
        f"""kernel add(read in0: f32[3, {side}, {side}], read in1: f32[3, {side}, {side}], write out0: f32[3, {side}, {side}]):
    for b in range(3):
        for i in range({side}):
            for j in range({side}):
                out0[b, i, j] = (in0[b, j, i] + in1[b, i, j])
"""
    )
    changed = schedule(kernel, MachineModel.of(Target.level("v3")))
    assert signature_of(changed).overwrites == (
        frozenset({(1, 2)}) if whole else frozenset()
    )
