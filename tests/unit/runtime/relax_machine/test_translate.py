"""What functions of bytecode become in Python, and what is kept between their calls."""

from __future__ import annotations

import linecache

from fakes.relax_executables import stored_executables
from fakes.relax_kernels import machine
from tilewright.formats.relax_executable import (
    VOID_REGISTER,
    Argument,
    ArgumentKind,
    Call,
    Function,
    FunctionKind,
    RelaxExecutable,
    Return,
    read_relax_executable,
)
from tilewright.runtime.relax_machine.translate import translate
from tilewright.runtime.relax_machine.uses import find_uses


def _source(model: str, function: str) -> list[str]:
    engine = machine(model).engine
    return engine.source(function).splitlines()  # type: ignore[attr-defined]


def test_a_straight_line_is_one() -> None:
    lines = [line.strip() for line in _source("loop", "main")]
    assert "r1, h1 = frame[0]" in lines
    assert "h1[0] = s[0]" in lines
    assert "block = 0" not in lines


def test_jumps_are_a_loop_over_blocks() -> None:
    lines = [line.strip() for line in _source("loop", "step")]
    assert "while True:" in lines
    assert any(line.startswith("block = ") and " if r5 else " in line for line in lines)


def test_the_listing_says_which_instruction_each_line_is() -> None:
    executable = read_relax_executable(stored_executables("0.27")["loop.bytecode"].data)
    function = executable.function("main")
    assert function is not None
    uses = find_uses(executable, function, lambda _: True)
    translation = translate(executable, function, 0, uses)
    listing = "".join(linecache.getlines(translation.filename))
    assert "# call step in: c[2], %0 dst: %2" in listing
    del translation
    assert not linecache.getlines("<relax main>")


def test_only_what_kernels_alone_see_is_kept() -> None:
    executable = read_relax_executable(stored_executables("0.27")["loop.bytecode"].data)
    step = executable.function("step")
    assert step is not None
    kernels = {
        index
        for index, one in enumerate(executable.functions)
        if one.kind is FunctionKind.PACKED and not one.name.startswith("vm.")
    }
    uses = find_uses(executable, step, kernels.__contains__)
    # The condition (4) and the product (11) end here; 7 and 15 go to the next call of `step`.
    assert {4, 11} <= uses.kept
    assert not {7, 15} & uses.kept
    assert uses.heaps == {2}
    assert find_uses(executable, step, lambda _: False).kept == frozenset()


def test_a_number_may_stand_where_a_tensor_is_expected() -> None:
    packed = Function(
        kind=FunctionKind.PACKED, name="vm.builtin.match_shape", first=0, end=0,
        argument_count=0, register_count=0, parameter_names=(),
    )  # fmt: skip
    main = Function(
        kind=FunctionKind.BYTECODE, name="main", first=0, end=2, argument_count=1,
        register_count=1, parameter_names=(),
    )  # fmt: skip
    numbers = [Argument(ArgumentKind.IMMEDIATE, one) for one in (-7, 0, 1, 0, 3, 0)]
    executable = RelaxExecutable(
        location="net.so",
        functions=(packed, main),
        constants=(),
        memory_scopes={},
        instructions=(Call(VOID_REGISTER, 0, tuple(numbers)), Return(0)),
    )
    uses = find_uses(executable, main, lambda _: False)
    assert "isinstance((-7), Tensor)" in translate(executable, main, 1, uses).source
