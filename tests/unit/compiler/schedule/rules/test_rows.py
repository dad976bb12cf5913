"""Rows that fill a part of a vector."""

from __future__ import annotations

import pytest

from fakes.loop_nests import assert_same, op_kernel
from tilewright.base.dtypes import DType, f16, f32
from tilewright.base.outcome import Outcome
from tilewright.base.target import Target
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule

V3, V2 = (MachineModel.of(Target.level(name)) for name in ("v3", "v2"))


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
