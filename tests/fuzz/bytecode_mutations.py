"""Mutated bytecode: every input is refused, fails with an error of ours, or runs within its budget.

What it is: a harness.  Functions of small modules are changed (bytes, registers, whole
instructions) or the archive around them is; what the verifier lets through runs on both modes,
which must agree.  Input `i` of seed `s` is always the same, so a finding is reproduced by
`--first i --count 1`.
What it is not: a test (`test_bytecode.py` runs a few thousand inputs of it).
Who calls it: developers, before releases::

    nice -n 19 python tests/fuzz/bytecode_mutations.py --count 1000000 > build/fuzz-bytecode.txt
"""

from __future__ import annotations

import argparse
import functools
import math
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fakes.vm_modules import arithmetic_opcodes, opcode_function
from fakes.vm_programs import PROGRAMS
from fuzz.harness import FindingError, Outcome, add_options, report, run_range
from tilewright.base.budget import Limits
from tilewright.base.errors import DeviceError, InternalError, TilewrightError
from tilewright.formats.vmfb import (
    ModuleBuilder,
    ModuleDef,
    archive_bytes,
    read_archive,
)
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.bytecode_module import BytecodeMode, BytecodeModule
from tilewright.runtime.vm.context import Context
from tilewright.runtime.vm.list import VmList
from tilewright.runtime.vm.ref import Instance

_REPEATS = 24
LIMITS = Limits(max_steps=20_000, max_bytes=96 << 20)
MODES: tuple[BytecodeMode, ...] = ("translate", "interpret")


# --- seeds ------------------------------------------------------------------------------------------


@functools.cache
def seeds() -> tuple[tuple[ModuleDef, bytes], ...]:
    """Small modules with one export `f`, and their archives."""
    found: list[ModuleDef] = []
    for fill in PROGRAMS.values():
        module = ModuleBuilder("m")
        build = module.function("0v_I", export="f")
        build.return_(fill(module, build))
        found.append(module.finish())
    for opcode in arithmetic_opcodes():
        module = ModuleBuilder("m")
        opcode_function(module, opcode, "f")
        found.append(module.finish())
    return tuple((module, archive_bytes(module)) for module in found)


# --- mutations --------------------------------------------------------------------------------------


def mutated(chooser: random.Random) -> ModuleDef:
    """A changed module.  Raises: TilewrightError where not even the archive can be read."""
    module, archive = chooser.choice(seeds())
    if chooser.random() < 0.25:
        data = bytearray(archive)
        for _ in range(chooser.choice((1, 1, 2, 8))):
            data[chooser.randrange(len(data))] = chooser.choice(_bytes(chooser))
        return read_archive(bytes(data))
    code = bytearray(module.bytecode)
    for _ in range(chooser.choice((1, 1, 2, 3, 5))):
        chooser.choice((_byte, _byte, _word, _word, _splice))(code, chooser)
    return replace(module, bytecode=bytes(code))


def _bytes(chooser: random.Random) -> tuple[int, ...]:
    return (0, 1, 2, 127, 128, 255, chooser.randrange(256))


def _byte(code: bytearray, chooser: random.Random) -> None:
    code[chooser.randrange(len(code))] = chooser.choice(_bytes(chooser))


def _word(code: bytearray, chooser: random.Random) -> None:
    """A small number where registers and ordinals stand: what verifiers let through."""
    place = chooser.randrange(len(code) - 1)
    flags = chooser.choice((0, 0, 0x80, 0xC0))
    code[place : place + 2] = bytes((chooser.randrange(8), flags))


def _splice(code: bytearray, chooser: random.Random) -> None:
    length = min(chooser.randrange(1, 24), len(code) // 2)
    source, target = (chooser.randrange(len(code) - length) for _ in range(2))
    code[target : target + length] = code[source : source + length]


# --- running ----------------------------------------------------------------------------------------


def arguments_of(function: Any, chooser: random.Random) -> list[object]:
    """Values of every bank, odd ones among them."""
    samples: dict[str, tuple[Any, ...]] = {
        "i32": (0, 1, -1, 7, 2**31 - 1, -(2**31)),
        "i64": (0, 1, -1, 1 << 40, 2**63 - 1, -(2**63)),
        "f32": (0.0, -0.5, math.inf, math.nan),
        "f64": (0.0, 1e300, -math.inf, math.nan),
        "ref": (None,),
    }
    return [chooser.choice(samples[bank]) for bank in function.convention.arguments]


def outcome(mode: BytecodeMode, definition: ModuleDef, chooser: random.Random) -> list[str]:
    """What each export gives, as text that can be compared."""
    shown: list[str] = []
    module = BytecodeModule(definition, Instance(), mode=mode, limits=LIMITS)
    try:
        context = Context([module])
    except DeviceError as error:
        return [_failure(error)]
    for function in module.functions:
        if function.convention.is_variadic:
            continue
        arguments = arguments_of(function, chooser)
        try:
            result = context.lookup(f"{module.name}.{function.name}")(*arguments)
        except TilewrightError as error:
            shown.append(_failure(error))
        else:
            shown.append(_text(result))
    return shown


def _failure(error: TilewrightError) -> str:
    if isinstance(error, InternalError):
        raise error
    code = error.code if isinstance(error, DeviceError) else type(error).__name__
    places = [note for note in getattr(error, "__notes__", ()) if note.startswith("  at ")]
    return f"{code} {places[:2]}{places[-2:]}{len(places)}"


def _text(value: object) -> str:
    match value:
        case tuple():
            return f"({', '.join(map(_text, value))})"
        case VmBuffer():
            return f"buffer {bytes(value.data).hex()}"
        case VmList():
            return f"list [{', '.join(map(_text, value.items[:64]))}]"
        case _:
            return repr(value)


def run_one(seed: str, number: int) -> str:
    """What became of an input.  Raises: FindingError."""
    chooser = random.Random(f"{seed}:{number}")
    try:
        definition = mutated(chooser)
        BytecodeModule(definition, Instance())
    except TilewrightError as error:
        if isinstance(error, InternalError):
            raise FindingError(number, f"internal error: {error}") from error
        return "refused"
    except Exception as error:
        raise FindingError(number, f"reading: {type(error).__name__}: {error}") from error
    state = chooser.getstate()
    answers = [_answers(mode, definition, chooser, state, number) for mode in MODES]
    if answers[0] != answers[1]:
        # Which of two NaNs an operation passes on is not defined, and Python's own interpreter
        # changes its mind as code gets warm: modes differ if no answer of one is the other's.
        seen = [
            {
                tuple(_answers(mode, definition, chooser, state, number))
                for _ in range(_REPEATS)
            }
            | {tuple(first)}
            for mode, first in zip(MODES, answers, strict=True)
        ]
        if not seen[0] & seen[1]:
            raise FindingError(number, f"modes differ: {answers[0]} and {answers[1]}")
    if any(" [" in answer for answer in answers[0]):
        return "failed"
    return "answered"


def _answers(
    mode: BytecodeMode,
    definition: ModuleDef,
    chooser: random.Random,
    state: tuple[Any, ...],
    number: int,
) -> list[str]:
    """What a mode answers to the arguments that follow from `state`."""
    chooser.setstate(state)
    try:
        return outcome(mode, definition, chooser)
    except Exception as error:
        raise FindingError(number, f"{mode}: {type(error).__name__}: {error}") from error


def run(seed: str, first: int, count: int) -> Iterator[Outcome]:
    """What became of a range of inputs."""
    return run_range(functools.partial(run_one, seed), first, count)


def main() -> int:
    """Run a range of inputs, print findings and counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser, "bytecode")
    options = parser.parse_args()
    return report(run(options.seed, options.first, options.count))


if __name__ == "__main__":
    sys.exit(main())
