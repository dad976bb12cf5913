"""Translates a function of Relax bytecode into a Python function, once.

Registers are local variables, a straight line stays one, and a function with jumps is a loop that
dispatches on the number of its block.  Frequent built-ins are written out; memory that may serve the next
call as well (`uses`) is kept in a *frame*, a list that a call takes from a pool and puts back.  The source
is entered into `linecache`, one line per step, so that tracebacks and debuggers show it.

Not here: what built-ins do (`builtins`), and running (`machine`).
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final, final

import tilewright.runtime.relax_machine.builtins as builtins
from tilewright.formats.dlpack_types import DataType
from tilewright.formats.relax_executable import (
    VM_REGISTER,
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
    ShapeConstant,
    format_instruction,
)
from tilewright.runtime.native import tensor_type
from tilewright.runtime.relax_machine.builtins import BUILTINS
from tilewright.runtime.relax_machine.storage import Storage, size_in_bytes
from tilewright.runtime.relax_machine.uses import Uses

_INDENT: Final = "    "
_SERIAL: Final = iter(range(1 << 62))
# What the source names beside its own tables.
NAMES: Final[Mapping[str, object]] = {
    "Tensor": builtins.Tensor,
    "check_rank": builtins.check_rank,
    "integer": builtins.integer,
    "match_size": builtins.match_size,
    "mismatch": builtins.mismatch,
    "Storage": Storage,
    "size_in_bytes": size_in_bytes,
    "sizes_of": builtins.sizes_of,
    "storage_of": builtins.storage_of,
    "tensor_type": tensor_type,
    **{name.rpartition(".")[2]: row for name, row in BUILTINS.items()},
}


@final
@dataclass(frozen=True, slots=True, weakref_slot=True)
class Translation:
    """A function as Python.

    Attributes:
        name: what `code` defines.
        code: compiled from `source`.
        places: per line of the source, the instruction.
        frame_slots: what a frame holds at first.
    """

    name: str
    source: str
    filename: str
    code: CodeType
    places: tuple[int, ...]
    frame_slots: tuple[Slot, ...]


@final
@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a frame: `make` fills it in a new frame; None: it is filled when it is needed."""

    make: Callable[[Any], object] | None


def translate(
    executable: RelaxExecutable,
    function: Function,
    index: int,
    uses: Uses,
    *,
    is_instrumented: bool = False,
) -> Translation:
    """A function of bytecode as Python.

    Args:
        executable: verified.
        function: one of its functions of bytecode.
        index: the function's row in the table.
        uses: of its registers.
        is_instrumented: calls of everything but bytecode are told to the instrument before and after.
    """
    writer = _Writer(executable, function, index, uses, is_instrumented=is_instrumented)
    lines, places = writer.write()
    source = "\n".join(lines) + "\n"
    name = function.name.encode("ascii", "replace").decode()
    filename = f"<relax {name} #{next(_SERIAL)}>".replace("\0", "?").replace("\n", "?")
    translation = Translation(
        name=f"F{index}",
        source=source,
        filename=filename,
        code=compile(source, filename, "exec", dont_inherit=True),
        places=tuple(places),
        frame_slots=tuple(writer.slots),
    )
    linecache.cache[filename] = (
        len(source),
        None,
        [line + "\n" for line in _listing(executable, lines, places)],
        filename,
    )
    weakref.finalize(translation, linecache.cache.pop, filename, None)
    return translation


def _listing(
    executable: RelaxExecutable, lines: Sequence[str], places: Sequence[int]
) -> list[str]:
    """The source with each instruction behind its first line."""
    shown: list[str] = []
    last = -1
    for line, place in zip(lines, places, strict=True):
        note = ""
        if place not in (last, -1):
            text = format_instruction(executable, executable.instructions[place])
            note = f"  # {' '.join(text.split())[:100]}"
        last = place
        shown.append(f"{line:<50}{note}" if note else line)
    return shown


@final
@dataclass
class _Writer:
    executable: RelaxExecutable
    function: Function
    index: int
    uses: Uses
    is_instrumented: bool
    lines: list[str] = field(default_factory=list[str])
    places: list[int] = field(default_factory=list[int])
    slots: list[Slot] = field(default_factory=list[Slot])
    place: int = -1
    depth: int = 2

    def line(self, text: str) -> None:
        """Add a line to the source."""
        self.lines.append(_INDENT * self.depth + text)
        self.places.append(self.place)

    # --- the whole ------------------------------------------------------------------------------

    def write(self) -> tuple[list[str], list[int]]:
        """Source lines, and the instruction of each."""
        blocks = self._blocks()
        if len(blocks) > 1:
            self.line("block = 0")
            self.line("while True:")
        for number, (start, end) in enumerate(blocks.items()):
            if len(blocks) > 1:
                self.depth = 3
                self.line(f"if block == {number}:")
                self.depth = 4
            self._block(range(start, end), {at: n for n, at in enumerate(blocks)})
        body, places = self.lines, self.places
        self.lines, self.places, self.place, self.depth = [], [], -1, 0
        self._head()
        lines, all_places = self.lines + body, self.places + places
        self.lines, self.places, self.depth = [], [], 1
        self.line("except Exception as error:")
        self.depth = 2
        self.line(f"raise located(error, {self.index})")
        return lines + self.lines, all_places + self.places

    def _head(self) -> None:
        arguments = [f"r{number}" for number in range(self.function.argument_count)]
        others = sorted(self._registers() - set(range(self.function.argument_count)))
        self.line(f"def F{self.index}({', '.join(arguments)}):")
        self.depth = 1
        self.line("try:")
        self.depth = 2
        for start in range(0, len(others), 20):
            row = " = ".join(f"r{number}" for number in others[start : start + 20])
            self.line(f"{row} = None")
        if self.slots:
            pool = f"frames{self.index}"
            self.line(f"frame = {pool}.pop() if {pool} else new_frame{self.index}()")

    def _registers(self) -> set[int]:
        found: set[int] = set()
        for one in self.executable.instructions[self.function.first : self.function.end]:
            if isinstance(one, Call):
                found |= {a.value for a in one.arguments if a.kind is ArgumentKind.REGISTER}
                found.add(one.target)
            elif not isinstance(one, Goto):
                found.add(one.register)
        return {one for one in found if one < VOID_REGISTER}

    def _blocks(self) -> dict[int, int]:
        """Where each block begins, and ends."""
        first, end = self.function.first, self.function.end
        starts = {first}
        for at in range(first, end):
            one = self.executable.instructions[at]
            if isinstance(one, Branch):
                starts |= {at + 1, at + one.otherwise}
            elif isinstance(one, Goto):
                starts |= {at + one.offset, at + 1}
            elif isinstance(one, Return):
                starts.add(at + 1)
        order = sorted(one for one in starts if one < end)
        ends = [*order[1:], end]
        return dict(zip(order, ends, strict=True))

    def _block(self, places: range, numbers: Mapping[int, int]) -> None:
        for place in places:
            self.place = place
            self._step(self.executable.instructions[place], numbers)
        last = self.executable.instructions[places[-1]]
        if isinstance(last, Call):
            self._jump(numbers[places[-1] + 1])

    def _jump(self, block: int) -> None:
        self.line(f"block = {block}")
        self.line("continue")

    def _step(self, instruction: Instruction, numbers: Mapping[int, int]) -> None:
        match instruction:
            case Call():
                self._call(instruction)
            case Return(register):
                if self.slots:
                    self.line(f"frames{self.index}.append(frame)")
                self.line(f"return {self._register(register)}")
            case Goto(offset):
                self._jump(numbers[self.place + offset])
            case Branch(register, otherwise):
                there = numbers[self.place + otherwise]
                here = numbers[self.place + 1]
                self.line(f"block = {here} if {self._register(register)} else {there}")
                self.line("continue")

    # --- values ---------------------------------------------------------------------------------

    def _register(self, register: int) -> str:
        special = {VOID_REGISTER: "None", VM_REGISTER: "machine"}
        return special.get(register, f"r{register}")

    def value(self, argument: Argument) -> str:
        """An argument in the source."""
        match argument.kind:
            case ArgumentKind.REGISTER:
                return self._register(argument.value)
            case ArgumentKind.IMMEDIATE:
                return f"({argument.value})"
            case ArgumentKind.CONSTANT:
                return f"c{argument.value}"
            case ArgumentKind.FUNCTION:
                return f"f{argument.value}"

    def store(self, target: int, value: str) -> None:
        """Put a value into a register."""
        self.line(value if target >= VOID_REGISTER else f"r{target} = {value}")

    # --- calls ----------------------------------------------------------------------------------

    def _call(self, call: Call) -> None:
        callee = self.executable.functions[call.function]
        values = ", ".join(self.value(one) for one in call.arguments)
        if self.is_instrumented and callee.kind is FunctionKind.PACKED:
            self.store(call.target, f"instrumented({call.function}, {values})")
            return
        if callee.kind is not FunctionKind.PACKED:
            self.store(call.target, f"F{call.function}({values})")
            return
        least, write = _WRITTEN_OUT.get(callee.name, (0, None))
        if self.is_instrumented or len(call.arguments) < least:
            write = None
        if write is None or not write(self, call):
            self.store(call.target, f"k{call.function}({values})")

    def number(self, argument: Argument) -> int | None:
        """An argument that is a number, now."""
        return argument.value if argument.kind is ArgumentKind.IMMEDIATE else None

    def constant(self, argument: Argument) -> object:
        """An argument that is a constant, now; None for anything else."""
        if argument.kind is not ArgumentKind.CONSTANT:
            return None
        return self.executable.constants[argument.value]

    def words(self, argument: Argument) -> str | None:
        """The numbers of a heap that only we see."""
        is_ours = (
            argument.kind is ArgumentKind.REGISTER and argument.value in self.uses.heaps
        )
        return f"h{argument.value}" if is_ours else None

    def slot(self, make: Callable[[Any], object] | None) -> str:
        """A new place in the frame."""
        self.slots.append(Slot(make))
        return f"frame[{len(self.slots) - 1}]"


# --- built-ins that are written out ---------------------------------------------------------------
# Each says whether it wrote the call; otherwise it is called like any other function.


def _write_heap(writer: _Writer, call: Call) -> bool:
    count = writer.number(call.arguments[1]) if len(call.arguments) == 2 else None
    if count is None or call.target not in writer.uses.heaps:
        return False
    slot = writer.slot(lambda machine: machine.heap(count))
    writer.line(f"r{call.target}, h{call.target} = {slot}")
    return True


def _write_check_tensor(writer: _Writer, call: Call) -> bool:
    rank = writer.number(call.arguments[1])
    if rank is None or len(call.arguments) not in (3, 4):
        return False
    value = writer.value(call.arguments[0])
    tests = [f"not isinstance({value}, Tensor)"]
    kind = (
        writer.constant(call.arguments[2])
        if len(call.arguments) == 4
        else DataType(3, 0, 0)
    )
    if not isinstance(kind, DataType):
        return False
    if kind.bits and rank >= 0:
        expected = kind.code | kind.bits << 8 | kind.lanes << 16 | rank << 32
        tests.append(f"tensor_type({value}.__chandle__()) != {expected}")
    elif kind.bits:
        tests.append(f"{value}.dtype != {writer.value(call.arguments[2])}")
    elif rank >= 0:  # of any type
        tests.append(f"{value}.ndim != {rank}")
    rest = ", ".join(writer.value(one) for one in call.arguments)
    writer.line(f"if {' or '.join(tests)}: check_tensor_info({rest})")
    return True


def _codes(writer: _Writer, arguments: Sequence[Argument]) -> list[tuple[int, int]] | None:
    numbers = [writer.number(one) for one in arguments]
    if None in numbers or len(numbers) % 2:
        return None
    plain = [one for one in numbers if one is not None]
    return list(zip(plain[::2], plain[1::2], strict=True))


def _write_match_shape(writer: _Writer, call: Call) -> bool:
    value, heap, *rest = call.arguments
    count = writer.number(rest[0]) if rest else None
    codes = None if count is None else _codes(writer, rest[1 : 1 + 2 * count])
    if count is None or codes is None or len(codes) != count or len(rest) != 2 + 2 * count:
        return False
    words, context = writer.words(heap), writer.value(rest[-1])
    needs_words = any(
        code in (builtins.STORE, builtins.ASSERT_EQUAL_TO_STORED) for code, _ in codes
    )
    if needs_words and words is None:
        return False
    name = writer.value(value)
    writer.line(
        f"s = {name}.shape if isinstance({name}, Tensor) else sizes_of({name}, {context})"
    )
    if codes and all(code == builtins.ASSERT_EQUAL for code, _ in codes):
        sizes = "".join(f"{number}, " for _, number in codes)
        everything = ", ".join(writer.value(one) for one in call.arguments)
        writer.line(f"if s != ({sizes}): match_shape({everything})")
        return True
    writer.line(f"if len(s) != {count}: check_rank(s, {count}, {context})")
    for axis, (code, number) in enumerate(codes):
        _write_match(writer, f"s[{axis}]", words, code, number, axis, context)
    return True


def _write_match(
    writer: _Writer,
    size: str,
    words: str | None,
    code: int,
    number: int,
    axis: int,
    context: str,
) -> None:
    if code == builtins.STORE:
        writer.line(f"{words}[{number}] = {size}")
    elif code == builtins.ASSERT_EQUAL:
        writer.line(f"if {size} != {number}: mismatch({size}, {number}, {axis}, {context})")
    elif code == builtins.ASSERT_EQUAL_TO_STORED:
        kept = f"{words}[{number}]"
        writer.line(f"if {size} != {kept}: mismatch({size}, {kept}, {axis}, {context})")
    elif code != builtins.NOTHING:
        writer.line(f"match_size({size}, None, {code}, {number}, {axis}, {context})")


def _write_match_number(writer: _Writer, call: Call) -> bool:
    if len(call.arguments) != 5:
        return False
    value, heap, code, number, context = call.arguments
    codes, words = _codes(writer, (code, number)), writer.words(heap)
    if codes is None or words is None:
        return False
    writer.line(f"n = integer({writer.value(value)})")
    _write_match(writer, "n", words, *codes[0], 0, writer.value(context))
    return True


def _write_make_shape(writer: _Writer, call: Call) -> bool:
    heap, count, *rest = call.arguments
    words, codes = writer.words(heap), _codes(writer, rest)
    if codes is None or call.target not in writer.uses.sizes:
        return False
    if writer.number(count) != len(codes) or any(code not in (0, 1) for code, _ in codes):
        return False
    if words is None and any(code == builtins.LOAD for code, _ in codes):
        return False
    sizes = "".join(
        f"{words}[{number}], " if code == builtins.LOAD else f"{number}, "
        for code, number in codes
    )
    writer.line(f"r{call.target} = ({sizes})")
    return True


def _write_make_number(writer: _Writer, call: Call) -> bool:
    heap, *rest = call.arguments
    words, codes = writer.words(heap), _codes(writer, rest)
    if words is None or codes is None or len(codes) != 1 or codes[0][0] not in (0, 1):
        return False
    code, number = codes[0]
    writer.store(
        call.target, f"{words}[{number}]" if code == builtins.LOAD else str(number)
    )
    return True


def _write_storage(writer: _Writer, call: Call) -> bool:
    sizes, device, kind, scope = (call.arguments[place] for place in (1, 2, 3, 4))
    element_type = writer.constant(kind)
    is_plain = writer.number(device) in (0, -1) and writer.constant(scope) in ("", "global")
    if (
        not isinstance(element_type, DataType)
        or not is_plain
        or call.target >= VOID_REGISTER
    ):
        return False
    known = writer.constant(sizes)
    size_bytes = f"size_in_bytes({writer.value(sizes)}, d{kind.value})"
    if isinstance(known, ShapeConstant):
        size_bytes = str(size_in_bytes(known.sizes, element_type))
    if call.target not in writer.uses.kept:
        writer.line(f"r{call.target} = new_storage({size_bytes})")
        return True
    slot, made = writer.slot(None), writer.slot(None)
    writer.line(f"if {slot} != {writer.value(sizes)}:")
    writer.line(
        f"{_INDENT}{made} = new_storage({size_bytes}); {slot} = {writer.value(sizes)}"
    )
    writer.line(f"r{call.target} = {made}")
    return True


def _write_tensor(writer: _Writer, call: Call) -> bool:
    kind = call.arguments[3]
    if not isinstance(writer.constant(kind), DataType) or call.target >= VOID_REGISTER:
        return False
    values = [writer.value(one) for one in call.arguments]
    storage = f"({values[0]} if type({values[0]}) is Storage else storage_of({values[0]}))"
    made_there = f"{storage}.tensor({values[1]}, {values[2]}, d{kind.value})"
    if call.target not in writer.uses.kept:
        writer.line(f"r{call.target} = {made_there}")
        return True
    lies_in, slot, made = (writer.slot(None) for _ in range(3))
    is_same = f"{lies_in} is {values[0]}"
    if not isinstance(writer.constant(call.arguments[2]), ShapeConstant):
        is_same += f" and {slot} == {values[2]}"
    writer.line(f"if not ({is_same}):")
    writer.line(
        f"{_INDENT}{made} = {made_there}; {lies_in}, {slot} = {values[0]}, {values[2]}"
    )
    writer.line(f"r{call.target} = {made}")
    return True


def _write_nothing(writer: _Writer, call: Call) -> bool:
    if call.target < VOID_REGISTER and call.target not in writer.uses.kept:
        writer.line(f"r{call.target} = None")
    else:
        writer.line("pass")
    return True


def _write_copy(writer: _Writer, call: Call) -> bool:
    writer.store(call.target, writer.value(call.arguments[0]))
    return True


def _write_dynamic_call(writer: _Writer, call: Call) -> bool:
    function, *values, sizes = call.arguments
    if function.kind is not ArgumentKind.FUNCTION:
        return False
    arguments = "".join(f"{writer.value(one)}, " for one in values)
    is_packed = writer.executable.functions[function.value].kind is FunctionKind.PACKED
    if not is_packed:
        return False
    writer.store(call.target, f"k{function.value}({arguments}*{writer.value(sizes)})")
    return True


# With the least number of arguments.
_WRITTEN_OUT: Final[Mapping[str, tuple[int, Callable[[_Writer, Call], bool] | None]]] = {
    "vm.builtin.alloc_shape_heap": (2, _write_heap),
    "vm.builtin.alloc_storage": (5, _write_storage),
    "vm.builtin.alloc_tensor": (4, _write_tensor),
    "vm.builtin.call_tir_dyn": (2, _write_dynamic_call),
    "vm.builtin.check_tensor_info": (3, _write_check_tensor),
    "vm.builtin.copy": (1, _write_copy),
    "vm.builtin.make_prim_value": (3, _write_make_number),
    "vm.builtin.make_shape": (2, _write_make_shape),
    "vm.builtin.match_prim_value": (5, _write_match_number),
    "vm.builtin.match_shape": (4, _write_match_shape),
    "vm.builtin.null_value": (0, _write_nothing),
}
