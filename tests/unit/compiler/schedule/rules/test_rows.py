"""Rows that fill a part of a vector, and few elements a row."""

from __future__ import annotations

import pytest

from fakes.loop_nests import assert_same, op_kernel
from tilewright.base.dtypes import DType, f16, f32
from tilewright.base.outcome import Outcome
from tilewright.base.symbolic import symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import LoopKind, Space
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule

V4, V3, V2 = (MachineModel.of(Target.level(name)) for name in ("v4", "v3", "v2"))


@pytest.mark.parametrize("op", ["max_pool", "average_pool"])
@pytest.mark.parametrize(
    ("machine", "length", "dtype", "in_lanes"),
    [
        (V3, 4, f32, False),
        (V3, 5, f32, True),
        (V3, 7, f32, True),
        (V3, 8, f32, True),
        (V3, 7, f16, False),
        (V2, 3, f32, False),
    ],
)
def test_rows_that_fill_most_of_a_vector_are_one_under_a_mask(
    op: str, machine: MachineModel, length: int, dtype: DType, *, in_lanes: bool
) -> None:
    """Windows along each of which few elements lie; behind a stride of more than `short_axis` nothing is picked out."""
    naive = op_kernel(
        op,
        [(2, 3, 9 * length)],
        (2, 3, 9),
        {
            "kernel": (length,),
            "strides": (length,),
            "pads": (0, 0),
            "dilations": (1,),
            "ceil_mode": False,
            "layout": "NCHW",
            **({"count_include_pad": False} if op == "average_pool" else {}),
        },
        dtype,
    )
    done = schedule(naive, machine)
    assert done.verdict is not None
    assert (done.verdict.outcome is Outcome.ROWS) == in_lanes, done.notes
    assert_same(naive, done, exact=op == "max_pool")


@pytest.mark.parametrize("machine", [V4, V3], ids=str)
def test_rows_of_two_to_four_have_code_in_which_passes_are_written_out(
    machine: MachineModel,
) -> None:
    rows, length = symbol("M", 1), symbol("N", 1)
    naive = op_kernel("softmax", [(rows, length)], (rows, length), {"axis": -1})
    done = schedule(naive, machine)
    told = [of["numbers"] for name, of in done.trace if name == "version_of_sizes"]
    assert told == [[2, 3, 4]]
    few = {2, 3, 4}
    lines = [b for b in done.locals if len(b.shape) == 2]
    assert few < {b.shape[0] for b in lines}
    assert all((b.space is Space.REGISTER) == (b.shape[0] in few) for b in lines)
    steps = [x for x in loops(done.body) if x.extent in few]
    assert {x.kind for x in steps} <= {LoopKind.UNROLL}, "passes over them are no loops"
    for m, n in ((1, 2), (9, 2), (16, 3), (17, 4), (3, 5)):
        assert_same(naive, done, {"M": m, "N": n}, exact=False)
