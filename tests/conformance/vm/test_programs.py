"""Programs over everything that is not arithmetic give what IREE's interpreter gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes.vm_modules import arithmetic_module
from fakes.vm_programs import OURS_ALONE, PROGRAMS, failing_module, program_module
from tilewright.base.errors import DeviceError
from tilewright.base.status import code_name
from tilewright.formats.bytecode.isa import OPCODES
from tilewright.formats.vmfb import ModuleDef, decode_module
from tilewright.runtime.vm.bytecode_module import BytecodeMode, BytecodeModule
from tilewright.runtime.vm.context import Context
from tilewright.runtime.vm.ref import Instance

RECORDED = json.loads(
    Path(__file__).with_name("iree_programs.json").read_text(encoding="utf-8")
)
FAILURES = json.loads(
    Path(__file__).with_name("iree_failures.json").read_text(encoding="utf-8")
)
UNRECORDED = {
    "block": "marks blocks, in every function",
    "call.variadic": "iree.runtime brings no variadic import without a device; unit tests, and every "
    "module of IREE's compilers",
    "call.variadic.yieldable": "the same, and unit tests of invocations",
}
"""Opcodes without a program that IREE's interpreter was recorded on, and why."""


@pytest.fixture(scope="module", params=["translate", "interpret"])
def context(request: pytest.FixtureRequest) -> Context:
    module = BytecodeModule(program_module(), Instance(), mode=request.param)
    return Context([module])


def test_every_program_was_recorded() -> None:
    assert set(RECORDED) == set(PROGRAMS) - set(OURS_ALONE)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", sorted(RECORDED))
def test_results_are_those_of_iree(name: str, context: Context) -> None:
    assert context.lookup(f"programs.{name}")() == RECORDED[name]


@pytest.mark.parametrize("mode", ["translate", "interpret"])
@pytest.mark.parametrize("status", sorted(FAILURES, key=int))
def test_failures_are_those_of_iree(status: str, mode: BytecodeMode) -> None:
    module = BytecodeModule(failing_module(), Instance(), mode=mode)
    name, message = FAILURES[status]
    with pytest.raises(DeviceError, match=rf"{message} \({name}\)") as caught:
        Context([module]).lookup("failures.fail")(int(status))
    assert code_name(caught.value.code) == name


def test_yield_goes_on_at_its_block(context: Context) -> None:
    assert context.lookup("programs.yield")() == 5


def test_breaks_go_on_without_a_debugger(context: Context) -> None:
    assert context.lookup("programs.break")() == 6


@pytest.mark.parametrize("mode", ["translate", "interpret"])
def test_traces_reach_the_tracer(mode: BytecodeMode) -> None:
    heard: list[tuple[str, list[object]]] = []
    module = BytecodeModule(
        program_module(),
        Instance(),
        mode=mode,
        tracer=lambda event, values: heard.append((event, list(values))),
    )
    Context([module]).lookup("programs.trace")()
    assert [event for event, _ in heard] == ["event", "hello"]
    assert heard[0][1] == [3, 4]


def opcodes_of(module: ModuleDef) -> set[str]:
    return {i.opcode.name for code in decode_module(module) for i in code}


def test_every_opcode_is_in_some_conformance_test() -> None:
    covered = opcodes_of(arithmetic_module()) | opcodes_of(program_module())
    assert {o.name for o in OPCODES} - covered == set(UNRECORDED) - covered
