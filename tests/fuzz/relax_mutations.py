"""Mutated Relax code that is run: words of real executables are changed, and what is still verified runs.

What it is: a harness.  Kernels do nothing; the built-ins get registers, numbers, constants and functions that
TVM never gives them.  Input `i` of seed `s` is always the same.
What it is not: about damaged bytes (`format_mutations.py relax`), or about code that does not end.
Who calls it: developers, before releases::

    nice -n 19 python tests/fuzz/relax_mutations.py --count 1000000 > build/fuzz-relax.txt
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from fakes.relax_executables import stored_executables
from fuzz.harness import FindingError, Outcome, add_options, report, run_range
from tilewright.base.errors import ArchiveError, InternalError, TilewrightError
from tilewright.formats.relax_executable import (
    VM_REGISTER,
    VOID_REGISTER,
    Argument,
    ArgumentKind,
    Branch,
    Call,
    FunctionKind,
    Goto,
    Instruction,
    RelaxExecutable,
    Return,
    ShapeConstant,
    read_relax_executable,
)
from tilewright.formats.relax_executable.verifier import verify_executable
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.function_table import FunctionTable
from tilewright.runtime.packed.machine_module import MemoryManager
from tilewright.runtime.relax_machine import RelaxMachine

NUMBERS = (
    -1,
    0,
    1,
    2,
    3,
    5,
    8,
    64,
    1 << 20,
    (1 << 31) - 1,
    1 << 40,
    (1 << 55) - 1,
    -(1 << 55),
)
GIVEN: tuple[Any, ...] = (
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.arange(4, dtype=np.float32),
    np.array([2, 3], dtype=np.int64),
    np.array(True),
    tvm_ffi.Shape((2, 3)),
    3,
    (np.ones(2, np.float32), (np.arange(3, dtype=np.int32), np.ones(2, np.float32))),
)


@functools.cache
def seeds() -> tuple[RelaxExecutable, ...]:
    """The executables that mutations begin with."""
    stored = stored_executables("0.27")
    return tuple(
        read_relax_executable(stored[name].data, "net.so")
        for name in sorted(stored)
        if name.endswith(".bytecode")
    )


# --- mutations ----------------------------------------------------------------------------------


def mutated(chooser: random.Random) -> RelaxExecutable:
    """Code with some parts of instructions changed, and sometimes a shape among its constants."""
    executable = chooser.choice(seeds())
    code = list(executable.instructions)
    for _ in range(chooser.choice((1, 1, 2, 3, 6))):
        place = chooser.randrange(len(code))
        code[place] = _changed(code[place], executable, chooser)
    constants = list(executable.constants)
    for place, one in enumerate(constants):
        if isinstance(one, ShapeConstant) and one.sizes and chooser.random() < 0.2:
            sizes = list(one.sizes)
            sizes[chooser.randrange(len(sizes))] = chooser.choice(NUMBERS)
            constants[place] = ShapeConstant(tuple(sizes))
    return dataclasses.replace(
        executable, instructions=tuple(code), constants=tuple(constants)
    )


def _changed(
    one: Instruction, executable: RelaxExecutable, chooser: random.Random
) -> Instruction:
    match one:
        case Call(target, function, arguments):
            words = list(arguments)
            action = chooser.random()
            if action < 0.15:
                function = chooser.randrange(len(executable.functions))
            elif action < 0.3:
                target = chooser.choice((target + 1, target - 1, 0, 1, VOID_REGISTER))
            elif action < 0.4 and words:
                del words[chooser.randrange(len(words))]
            elif action < 0.5:
                words.insert(
                    chooser.randrange(len(words) + 1), _argument(executable, chooser)
                )
            elif words:
                words[chooser.randrange(len(words))] = _argument(executable, chooser)
            return Call(target, function, tuple(words))
        case Return(register):
            return Return(chooser.choice((register + 1, register - 1, 0, VOID_REGISTER)))
        case Goto(offset):
            return Goto(offset + chooser.choice((-2, -1, 1, 2)))
        case Branch(register, otherwise):
            return Branch(chooser.randrange(8), otherwise + chooser.choice((-1, 0, 1, 2)))


def _argument(executable: RelaxExecutable, chooser: random.Random) -> Argument:
    kind = chooser.choice(list(ArgumentKind))
    match kind:
        case ArgumentKind.REGISTER:
            special = (VOID_REGISTER, VM_REGISTER)
            return Argument(kind, chooser.choice((*range(12), *special)))
        case ArgumentKind.IMMEDIATE:
            return Argument(kind, chooser.choice((*NUMBERS, chooser.randrange(6))))
        case ArgumentKind.CONSTANT:
            return Argument(kind, chooser.randrange(max(len(executable.constants), 1)))
        case ArgumentKind.FUNCTION:
            return Argument(kind, chooser.randrange(len(executable.functions)))


# --- running ------------------------------------------------------------------------------------


def _ends(executable: RelaxExecutable) -> bool:
    """Whether no jump goes backwards and no function calls itself by way of others."""
    if any(isinstance(one, Goto) and one.offset <= 0 for one in executable.instructions):
        return False
    below = [
        {
            one.function
            for one in executable.instructions[function.first : function.end]
            if isinstance(one, Call)
        }
        if function.kind is FunctionKind.BYTECODE
        else set[int]()
        for function in executable.functions
    ]
    done: set[int] = set()
    while True:
        ready = {i for i in range(len(below)) if i not in done and below[i] <= done}
        if not ready:
            return len(done) == len(below)
        done |= ready


class _Nothing(FunctionTable):
    """Any function but built-ins; it does nothing."""

    def find_function(self, name: str) -> Any:
        return None if name.startswith("vm.builtin.") else tvm_ffi.convert(_do_nothing)


def _do_nothing(*_: Any) -> None:
    pass


def run_one(seed: str, number: int) -> str:
    """What became of an input.  Raises: FindingError."""
    chooser = random.Random(f"relax:{seed}:{number}")
    executable = mutated(chooser)
    try:
        verify_executable(executable)
    except ArchiveError:
        return "refused"
    if not _ends(executable):
        return "endless"
    try:
        return _run(executable, chooser)
    except InternalError as error:
        raise FindingError(number, f"internal error: {error}") from error
    except TilewrightError:
        return "refused"


def _run(executable: RelaxExecutable, chooser: random.Random) -> str:
    machine = RelaxMachine(executable, [_Nothing({})], MemoryManager.POOLED)
    outcome = "failed"
    for function in executable.functions:
        if function.kind is FunctionKind.PACKED:
            continue
        given: Sequence[Any] = chooser.choices(GIVEN, k=function.argument_count)
        try:
            machine.call(function.name, given)
            outcome = "run"
        except (TilewrightError, IndexError, MemoryError):
            continue
        except Exception as error:
            # What foreign functions raise, of tvm-ffi's own.
            if not isinstance(error, (TypeError, ValueError, RuntimeError)):
                raise FindingError(0, f"{type(error).__name__}: {error}") from error
    return outcome


def run(seed: str, first: int, count: int) -> Iterator[Outcome]:
    """What became of a range of inputs."""
    return run_range(functools.partial(run_one, seed), first, count)


def main() -> int:
    """Run a range of inputs, print findings and counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser, "relax")
    options = parser.parse_args()
    seeds()
    return report(run(options.seed, options.first, options.count))


if __name__ == "__main__":
    sys.exit(main())
