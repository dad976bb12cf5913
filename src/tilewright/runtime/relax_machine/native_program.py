"""A Relax executable as a program of the C core: built once, after which calls do not touch Python.

The C core (`native/src/relax`) has the frequent built-ins and runs the code; what it lacks it is given as packed
functions.  It believes what `formats.relax_executable` has verified and what is written here, and nothing else:
values are looked at when they are used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, final

from tilewright.base.errors import InputError
from tilewright.formats.relax_executable import (
    VOID_REGISTER,
    Argument,
    ArgumentKind,
    Branch,
    Call,
    Function,
    FunctionKind,
    Goto,
    Instruction,
    RelaxExecutable,
    Return,
)
from tilewright.runtime.native import EXTENSION, Heap
from tilewright.runtime.packed.ffi import opaque, tvm_ffi
from tilewright.runtime.packed.functions import PackedFunction, function_at

# ORDER as the opcodes and the kinds of arguments in native/src/relax/program.h.
_CALL, _RETURN, _GOTO, _BRANCH = range(1, 5)
_NOTHING: Final = 4
_CALL_WORDS, _RETURN_WORDS, _GOTO_WORDS, _BRANCH_WORDS = 5, 4, 3, 5
_DROPPED: Final = -1
_SHOWN: Final = 160  # characters
_TO_SHOW: Final = str.maketrans({"\0": "?", "\n": "?", '"': "?"})


@functools.cache
def _core() -> tuple[PackedFunction, PackedFunction] | None:
    """`make` and `builtin` of the C core; None where it was not built."""
    if EXTENSION is None:
        return None
    make, builtin = EXTENSION.relax_functions()
    return function_at(make), function_at(builtin)


@functools.cache
def native_builtin(name: str) -> PackedFunction | None:
    """A built-in of the C core, for the program that runs on the thread that calls it."""
    core = _core()
    return None if core is None else core[1](name)


@final
class NativeProgram:
    """The functions of an executable, run by the C core.

    Args:
        executable: verified.
        constants: its constants as values of tvm-ffi.
        callees: what rows of the table call: packed functions, and the code of compiled ones; none for
            bytecode and for built-ins of the C core.
        heap: where its tensors lie.

    Ownership: lives as long as this object or one of its entries; values (`value`) do not keep it.
    Raises: InputError where the C core was not built.
    """

    def __init__(
        self,
        executable: RelaxExecutable,
        constants: Sequence[Any],
        callees: Mapping[int, PackedFunction],
        heap: Heap,
    ) -> None:
        core = _core()
        if core is None or EXTENSION is None:
            raise InputError("this needs the C core, which was not built")
        table = executable.functions
        made = core[0](
            _shown(executable.location),
            tvm_ffi.Shape(tuple(encode(executable))),
            [_shown(one.name) for one in table],
            [_shown(_parameters(one)) for one in table],
            [callees.get(index) for index in range(len(table))],
            list(constants),
            heap.address,
            opaque(heap),
        )
        self._set_instrument: Final[PackedFunction] = made[0]
        self._entries: Final[Sequence[PackedFunction]] = made[1 : 1 + len(table)]
        self._values: Final[Sequence[PackedFunction]] = made[1 + len(table) :]

    def entry(self, index: int) -> PackedFunction:
        """A function of bytecode or of compiled code; keeps the program."""
        return self._entries[index]

    def value(self, index: int) -> PackedFunction:
        """Any function of the table, as one that may go anywhere; does not keep the program."""
        return self._values[index]

    def set_instrument(self, instrument: Callable[..., Any] | None) -> None:
        """Have calls of bytecode told to `instrument`; None ends it.  Runs that are under way go on as they are."""
        self._set_instrument(instrument)


def _shown(text: str) -> str:
    """A text as messages and backtraces of C show it."""
    plain = text.translate(_TO_SHOW).encode("utf-8", "replace").decode()
    return plain if len(plain) <= _SHOWN else f"{plain[: _SHOWN // 2]}...{plain[-60:]}"


def _parameters(function: Function) -> str:
    names = ", ".join(function.parameter_names)
    return f"({names})" if names else ""


# --- words ----------------------------------------------------------------------------------------


def encode(executable: RelaxExecutable) -> Iterator[int]:
    """The table of functions and their code, as `native/src/relax/program.h` says.

    Registers are numbered anew: a frame has no more than its code names, whatever the file says.
    """
    code: list[int] = []
    rows: list[int] = []
    longest = 0
    for function in executable.functions:
        registers = function.register_count
        first = len(code)
        if function.kind is FunctionKind.BYTECODE:
            numbers = _renumbered(executable, function)
            registers = len(numbers)
            code += _Encoder(executable, function, numbers, first).words()
        rows += [function.kind.value, function.argument_count, registers, first]
    for one in executable.instructions:
        if isinstance(one, Call):
            longest = max(longest, len(one.arguments))
    yield from (len(executable.functions), len(executable.constants), longest)
    yield from rows
    yield from code


def _renumbered(executable: RelaxExecutable, function: Function) -> dict[int, int]:
    """The registers that the code names, arguments first."""
    named: set[int] = set()
    for one in executable.instructions[function.first : function.end]:
        if isinstance(one, Call):
            named.add(one.target)
            named |= {a.value for a in one.arguments if a.kind is ArgumentKind.REGISTER}
        elif not isinstance(one, Goto):
            named.add(one.register)
    arguments = range(function.argument_count)
    others = sorted(one for one in named if function.argument_count <= one < VOID_REGISTER)
    return {register: number for number, register in enumerate((*arguments, *others))}


def _word_count(instruction: Instruction) -> int:
    match instruction:
        case Call():
            return _CALL_WORDS + 2 * len(instruction.arguments)
        case Return():
            return _RETURN_WORDS
        case Goto():
            return _GOTO_WORDS
        case Branch():
            return _BRANCH_WORDS


@final
class _Encoder:
    """The code of one function."""

    def __init__(
        self,
        executable: RelaxExecutable,
        function: Function,
        registers: Mapping[int, int],
        first_word: int,
    ) -> None:
        self._code = executable.instructions[function.first : function.end]
        self._first = function.first
        self._registers = registers
        self._words: list[int] = []
        at = first_word
        for one in self._code:
            self._words.append(at)
            at += _word_count(one)

    def words(self) -> list[int]:
        """All words, in order."""
        found: list[int] = []
        for place, one in enumerate(self._code):
            found += self._instruction(one, place)
        return found

    def _instruction(self, one: Instruction, place: int) -> Iterable[int]:
        shown = self._first + place
        match one:
            case Call(target, function, arguments):
                words = [_CALL, shown, self._target(target), function, len(arguments)]
                for argument in arguments:
                    words += self._argument(argument)
                return words
            case Return(register):
                return (_RETURN, shown, *self._register(register))
            case Goto(offset):
                return (_GOTO, shown, self._words[place + offset])
            case Branch(register, otherwise):
                there = self._words[place + otherwise]
                return (_BRANCH, shown, *self._register(register), there)

    def _target(self, register: int) -> int:
        return _DROPPED if register >= VOID_REGISTER else self._registers[register]

    def _register(self, register: int) -> tuple[int, int]:
        if register >= VOID_REGISTER:  # built-ins know the machine without being told
            return _NOTHING, 0
        return ArgumentKind.REGISTER.value, self._registers[register]

    def _argument(self, argument: Argument) -> tuple[int, int]:
        if argument.kind is ArgumentKind.REGISTER:
            return self._register(argument.value)
        return argument.kind.value, argument.value
