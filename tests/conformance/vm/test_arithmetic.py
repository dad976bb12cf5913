"""Every opcode that computes words gives what IREE's interpreter gives, bit for bit where C says so.

`iree_arithmetic.json` holds IREE's answers (see `record_iree.py`); functions of the mathematical
library may differ in the last place, as C libraries do among themselves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.vm_modules import arithmetic_module, arithmetic_opcodes, operands_of, value_of
from tilewright.formats.bytecode.isa import opcode_by_name
from tilewright.runtime.vm.bytecode_module import BytecodeModule
from tilewright.runtime.vm.context import Context
from tilewright.runtime.vm.ref import Instance

RECORDED = json.loads(
    Path(__file__).with_name("iree_arithmetic.json").read_text(encoding="utf-8")
)
LIBRARY = (
    "atan", "atan2", "cos", "sin", "exp", "exp2", "expm1", "log", "log10", "log1p", "log2", "pow",
    "rsqrt", "tanh", "erf", "fpowi",
)  # fmt: skip
ULPS = 2


@pytest.fixture(scope="module", params=["translate", "interpret"])
def lookup(request: pytest.FixtureRequest) -> Callable[[str], Callable[..., int]]:
    module = BytecodeModule(arithmetic_module(), Instance(), mode=request.param)
    context = Context([module])
    return lambda name: context.lookup(f"arithmetic.{name}")


def test_every_arithmetic_opcode_was_recorded_with_these_operands() -> None:
    assert set(RECORDED) == {opcode.name for opcode in arithmetic_opcodes()}
    for opcode in arithmetic_opcodes():
        recorded = [tuple(row[:-1]) for row in RECORDED[opcode.name]]
        assert recorded == operands_of(opcode), opcode.name


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", sorted(RECORDED))
def test_results_are_those_of_iree(
    name: str, lookup: Callable[[str], Callable[..., int]]
) -> None:
    function = lookup(name)
    banks = [field.bank for field in opcode_by_name(name).fields]
    tolerance = ULPS if name.partition(".")[0] in LIBRARY else 0
    for *operands, wanted in RECORDED[name]:
        got = function(*operands)
        shown = [value_of(o, b) for o, b in zip(operands, banks, strict=False)]
        assert _agree(got, wanted, banks[-1], tolerance), (
            f"{name}{shown}: got {value_of(got, banks[-1])}, "
            f"IREE says {value_of(wanted, banks[-1])}"
        )


def _agree(got: int, wanted: int, bank: str, ulps: int) -> bool:
    if bank in ("i32", "i64"):
        return value_of(got, bank) == value_of(wanted, bank)
    ours, theirs = value_of(got, bank), value_of(wanted, bank)
    if math.isnan(ours) or math.isnan(theirs):
        return math.isnan(ours) and math.isnan(theirs)
    if ulps == 0:
        return got == wanted
    mask = 0xFFFFFFFF if bank == "f32" else 0xFFFFFFFFFFFFFFFF
    return ours == theirs or (
        math.copysign(1, ours) == math.copysign(1, theirs)
        and abs((got & mask) - (wanted & mask)) <= ulps
    )
