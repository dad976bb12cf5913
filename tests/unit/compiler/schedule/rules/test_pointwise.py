from __future__ import annotations

import pytest

from fakes.loop_nests import assert_same, op_kernel
from tilewright.base.dtypes import DType, f32, f64, i8
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import LoopKind
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule


@pytest.mark.parametrize("level", ["v3", "v4"])
@pytest.mark.parametrize("dtype", [f32, f64, i8])
def test_loops_that_fill_half_a_register_take_half_of_one(dtype: DType, level: str) -> None:
    machine = MachineModel.of(Target.level(level))
    whole, least = machine.lanes(dtype), 128 // dtype.bits
    for extent in (1, least, least + 1, whole // 2, whole // 2 + 1, whole, whole + 1):
        kernel = op_kernel("add", [(extent,), (extent,)], (extent,), dtype=dtype)
        changed = schedule(kernel, machine)
        assert_same(kernel, changed)
        widths = {x.extent for x in loops(changed.body) if x.kind is LoopKind.VECTOR}
        fitting = max(least, 1 << (extent - 1).bit_length())
        assert widths <= {min(fitting, whole)}, (extent, widths)
        assert widths or extent == 1
