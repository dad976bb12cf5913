"""What a schedule step that does not apply says."""

import pytest

from tilewright.base.dtypes import f32
from tilewright.base.errors import ScheduleError
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.schedule.primitives import split


def kernel() -> Kernel:
    b = KernelBuilder("double")
    x, y = b.parameter("x", f32, (8,)), b.result("y", f32, (8,))
    with b.nest((8,)) as (i,):
        b.store(y, (i,), b.mul(b.load(x, (i,)), 2))
    return b.build()


def test_an_unknown_loop_is_named_with_the_known_ones() -> None:
    with pytest.raises(ScheduleError) as caught:
        split(kernel(), "j", 4)
    assert str(caught.value) == "double: no loop 'j'\nhint: loops: i0"
