"""What the rules make of small kernels, as text; numbers of copied loops do not matter."""

from __future__ import annotations

import re

import pytest

from fakes.contractions import product as packed_product
from fakes.loop_nests import body_text, op_kernel
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule

V2 = Target.level("v2")

PRODUCT = """
for m_t in range(1):
    for panel in range(1):
        for tile_row in range(2):  # unroll
            for v in range(2):  # unroll
                for lane in range(4):  # vector
                    acc[tile_row, v, lane] = 0.0
        for k in range(3):  # unroll, reduction
            for v in range(2):  # unroll
                for lane in range(4):  # vector
                    x1_c[v, lane] = x1[0, k, lane + 4*v]
            for tile_row in range(2):  # unroll
                x0_c[] = x0[tile_row, k]
                for v in range(2):  # unroll
                    for lane in range(4):  # vector
                        acc[tile_row, v, lane] = (acc[tile_row, v, lane] + (x0_c[] * x1_c[v, lane]))
        for tile_row in range(2):  # unroll
            for v in range(2):  # unroll
                for lane in range(4):  # vector
                    y[tile_row, lane + 4*v] = acc[tile_row, v, lane]
"""
ROW_SUM = """
for i0 in range(3):
    y[i0] = 0.0
    for v in range(2):  # unroll
        for lane in range(4):  # vector
            y_p[lane + 4*v] = 0.0
    for r0_o in range(1):  # unroll, reduction
        for v in range(2):  # unroll, reduction
            for lane in range(4):  # vector, reduction
                y_p[lane + 4*v] = (y_p[lane + 4*v] + x0[i0, lane + 4*v])
    y[i0] = (y[i0] + horizontal_add((y_p[0 : 4 lanes] + y_p[4 : 4 lanes])))
"""
SUM = """
for i0_f_o in range(1):
    for i0_f_w in range(4):  # vector
        y[i0_f_w] = (x0[i0_f_w] + x1[i0_f_w])
"""


def without_numbers(text: str) -> str:
    """Loop names without the numbers that tell copies apart."""
    return re.sub(r"\b([a-z]\w*?[a-z])_\d+\b|\b([a-z])_\d+\b", r"\1\2", text).strip()


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (
            op_kernel("contract", [(2, 3), (1, 3, 8)], (2, 8), packed_product(8)),
            PRODUCT,
        ),
        (
            op_kernel("reduce_sum", [(3, 8)], (3,), {"axes": (1,), "keepdims": False}),
            ROW_SUM,
        ),
        (op_kernel("add", [(4,), (4,)], (4,)), SUM.replace("_f_", "_")),
        (op_kernel("add", [(2, 2), (2, 2)], (2, 2)), None),
    ],
    ids=["product", "row_sum", "sum", "fused_sum"],
)
def test_scheduled_kernels_read_as_expected(kernel: Kernel, expected: str | None) -> None:
    text = without_numbers(body_text(schedule(kernel, MachineModel.of(V2))))
    if expected is None:
        assert text.startswith("for i0_f_o in range(1):")
        return
    assert text == expected.strip()
