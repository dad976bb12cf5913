"""Translates a verified function of bytecode into one Python function, once.

Registers become local variables, straight lines stay straight, and a block that is reached from
several places becomes an arm of a loop that dispatches on its number.  The source is entered into
`linecache`, one line per instruction with its disassembly's place behind it, so debuggers step
through it and tracebacks show it.  Called by `bytecode_module`; what opcodes do stands in
`handlers.table`, how functions are interpreted in `interpreter`.
"""

from __future__ import annotations

import linecache
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Final, cast, final, overload

from tilewright.base.budget import CURRENT
from tilewright.base.status import StatusCode, failure
from tilewright.formats.bytecode.encoding import Instruction, Moves
from tilewright.formats.bytecode.forms import FieldKind
from tilewright.formats.bytecode.isa import BLOCK, IMPORT_BIT, REF_BIT
from tilewright.formats.bytecode.text import format_instruction
from tilewright.formats.vmfb import ModuleDef
from tilewright.formats.vmfb.text import module_names
from tilewright.runtime.vm.frame import Function, State
from tilewright.runtime.vm.handlers.calls import ABSENT_HINT
from tilewright.runtime.vm.handlers.emission import INDENT, Emission, register_name
from tilewright.runtime.vm.handlers.operands import CodeContext
from tilewright.runtime.vm.handlers.table import NAMES, ROWS
from tilewright.runtime.vm.module import Callee
from tilewright.runtime.vm.stack import DEPTH_LIMIT, traced

_NESTING_LIMIT: Final = 24
"""Blocks inside of each other; Python allows 100 levels of indentation."""

_SERIAL: Final = iter(range(1 << 62))

Resume = Callable[[int, Mapping[str, object]], object]
"""Goes on at a block, with the registers by name; what the function returns then."""


@final
@dataclass(frozen=True, slots=True, weakref_slot=True)
class Translation:
    """A function as Python, for any context in which the same imports are there.

    Attributes:
        function: what it was.
        source: what `code` was compiled from.
        code: defines `bind`, which makes the function for the state of a context.
        pcs: per line of the source, the place in the bytecode.
        names: what the source names beside what rows do.
        imports: the imports that it calls.
    """

    function: Function
    source: str
    filename: str
    code: CodeType
    pcs: tuple[int, ...]
    names: Mapping[str, object]
    imports: tuple[int, ...]

    def bind(
        self,
        module: ModuleDef,
        state: State,
        calls: Sequence[Callee],
        resume: Resume,
    ) -> Callee:
        """The function in one context; `resume` interprets the rest of a call."""

        def locate(error: BaseException) -> BaseException:
            trace = error.__traceback__
            line = 1 if trace is None else trace.tb_lineno
            pc = self.pcs[min(line, len(self.pcs)) - 1]
            return traced(error, module, self.function, pc)

        names = {
            **NAMES,
            **self.names,
            "S": state,
            "calls": calls,
            "words": state.words,
            "refs": state.refs,
            "rodata": state.rodata,
            "traced": locate,
            "missing": missing_import,
            "current": CURRENT,
            "too_deep": too_deep,
            "resume": resume,
            **{f"i{index}": state.imports[index] for index in self.imports},
        }
        exec(self.code, names)  # of our own making, from verified instructions
        return cast("Callee", names["translated"])


def missing_import(name: str) -> Callee:
    """Raises: DeviceError for an optional import that is called though it is not there."""
    raise failure(
        StatusCode.NOT_FOUND,
        f"optional import '{name}' is not there",
        hint=ABSENT_HINT,
    )


def too_deep() -> Exception:
    """The error of endless recursion."""
    return failure(
        StatusCode.RESOURCE_EXHAUSTED, f"calls are nested deeper than {DEPTH_LIMIT}"
    )


def translate(
    module: ModuleDef,
    function: Function,
    code: Sequence[Instruction],
    context: CodeContext,
    missing: frozenset[int] = frozenset(),
    *,
    is_metered: bool = False,
) -> Translation:
    """A function as Python.

    Args:
        module: for names.
        function: its registers and arguments.
        code: its verified instructions.
        context: the module around it.
        missing: imports that are not there.
        is_metered: blocks charge their steps to the account of the call.
    """
    writer = _Writer(function, code, context, missing, is_metered=is_metered)
    lines, pcs = writer.write()
    name = f"{module.name}.{function.name}"
    filename = f"<vm {name.encode('ascii', 'replace').decode()} #{next(_SERIAL)}>"
    filename = filename.replace("\0", "?").replace("\n", "?")
    source = "\n".join(lines) + "\n"
    translation = Translation(
        function=function,
        source=source,
        filename=filename,
        code=compile(source, filename, "exec", dont_inherit=True),
        pcs=tuple(pcs),
        names=writer.names,
        imports=tuple(sorted(imports_of(code) - missing)),
    )
    listing = cast("list[str]", Listing(module, code, context, lines, pcs))
    linecache.cache[filename] = (len(source), None, listing, filename)
    weakref.finalize(translation, linecache.cache.pop, filename, None)
    return translation


def imports_of(code: Iterable[Instruction]) -> frozenset[int]:
    """Ordinals of the imports that instructions name."""
    found: set[int] = set()
    for instruction in code:
        for field, value in zip(instruction.opcode.fields, instruction.values, strict=True):
            if field.kind is FieldKind.FUNCTION and cast("int", value) & IMPORT_BIT:
                found.add(cast("int", value) & ~IMPORT_BIT)
    return frozenset(found)


@final
class Listing(Sequence[str]):
    """The source with each instruction's disassembly behind its first line, made when looked at."""

    def __init__(
        self,
        module: ModuleDef,
        code: Sequence[Instruction],
        context: CodeContext,
        lines: Sequence[str],
        pcs: Sequence[int],
    ) -> None:
        self._parts: tuple[ModuleDef, Sequence[Instruction], CodeContext] = (
            module,
            code,
            context,
        )
        self._lines: Sequence[str] = lines
        self._pcs: Sequence[int] = pcs
        self._shown: list[str] | None = None

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if self._shown is None:
            self._shown = self._annotate()
        return self._shown[index]

    def __len__(self) -> int:
        return len(self._lines)

    def _annotate(self) -> list[str]:
        module, code, context = self._parts
        names = module_names(module)
        labels = {pc: f"^bb{index}" for pc, index in context.block_index.items()}
        waiting = {
            item.pc: format_instruction(item, names, labels)
            for item in code
            if not item.opcode.is_block
        }
        shown: list[str] = []
        for line, pc in zip(self._lines, self._pcs, strict=True):
            text = "" if pc == 0 else waiting.pop(pc, "").partition("  //")[0]
            note = f"  # {text[:100]}" if text else ""
            shown.append(f"{line:<50}{note}\n" if note else f"{line}\n")
        return shown


# --- writing ------------------------------------------------------------------------------------------


@final
class _Writer:
    """Writes one function: arms of the dispatch, then what stands around them."""

    def __init__(
        self,
        function: Function,
        code: Sequence[Instruction],
        context: CodeContext,
        missing: frozenset[int],
        *,
        is_metered: bool,
    ) -> None:
        self.is_metered: bool = is_metered
        self.function: Function = function
        self.blocks: list[list[Instruction]] = _split(code)
        self.context: CodeContext = context
        self.missing: frozenset[int] = missing
        self.names: dict[str, object] = {}
        self.joins: frozenset[int] = _joins(self.blocks, context)
        self.arms: dict[int, int] = {0: 0}  # block to its number in the dispatch
        self.waiting: list[int] = [0]
        self.nesting: int = 0
        self.jumps: bool = False

    def write(self) -> tuple[list[str], list[int]]:
        """Source lines and their pcs."""
        written: list[tuple[list[str], list[int]]] = []
        while self.waiting:
            block = self.waiting.pop(0)
            emission = Emission(self.context, self._jump, self.missing, self.names)
            self._block(emission, block)
            written.append((emission.lines, emission.pcs))
        head = self._head()
        body: list[tuple[str, int]] = []
        if len(written) == 1 and not self.jumps:
            _append(body, written[0], 3)
        else:
            body += [(INDENT * 3 + "block = 0", 0), (INDENT * 3 + "while True:", 0)]
            _dispatch(body, written, 0, 4)
        lines = [*head, *(line for line, _ in body)]
        pcs = [0] * len(head) + [pc for _, pc in body]
        tail = [
            f"{INDENT * 2}except Exception as error:",
            f"{INDENT * 3}raise traced(error)",
            f"{INDENT}return translated",
            "translated = bind()",
        ]
        return [*lines, *tail], pcs + [0] * len(tail)

    def _head(self) -> list[str]:
        arguments = [
            f"r{place}" if is_ref else f"w{place}"
            for is_ref, place in self.function.argument_places
        ]
        blank = sorted(_needed(self.blocks) - set(arguments))
        words = [name for name in blank if name[0] == "w"]
        refs = [name for name in blank if name[0] == "r"]
        lines = [
            "def bind():",
            f"{INDENT}def translated({', '.join([*arguments, '*', 'depth=1'])}):",
            f"{INDENT * 2}if depth > {DEPTH_LIMIT}: raise too_deep()",
            f"{INDENT * 2}try:",
        ]
        if self.is_metered:
            lines.append(f"{INDENT * 3}A = current.account")
        if words:
            lines.append(f"{INDENT * 3}{' = '.join(words)} = 0")
        if refs:
            lines.append(f"{INDENT * 3}{' = '.join(refs)} = None")
        return lines

    def _jump(self, emission: Emission, block: int) -> None:
        """The block itself where it is reached from here alone, else a jump to its arm."""
        inline = block not in self.joins and self.nesting < _NESTING_LIMIT
        if inline:
            self.nesting += 1
            self._block(emission, block)
            self.nesting -= 1
            return
        number = self.arms.get(block)
        if number is None:
            number = self.arms[block] = len(self.arms)
            self.waiting.append(block)
        self.jumps = True
        emission.line(f"block = {number}")
        emission.line("continue")

    def _block(self, emission: Emission, block: int) -> None:
        nesting = self.nesting
        if self.is_metered:
            emission.pc = self.blocks[block][0].pc
            emission.line(f"A.left = left = A.left - {len(self.blocks[block])}")
            emission.line("if left < 0: A.more()")
        for instruction in self.blocks[block]:
            emission.pc = instruction.pc
            source = ROWS[instruction.opcode.name].source
            if source is None:
                self._step(instruction, emission)
            elif isinstance(source, str):
                emission.template(source, instruction)
            else:
                source(instruction, emission)
        self.nesting = nesting

    def _step(self, instruction: Instruction, emission: Emission) -> None:
        """Run a step of the interpreter on copies of the registers it names."""
        step = ROWS[instruction.opcode.name].handler(instruction, self.context)
        read = dict.fromkeys(register_name(r) for r in _reads(instruction))
        both = dict.fromkeys([*read, *map(register_name, _writes(instruction))])
        words, refs = (
            ", ".join(f"{name[1:]}: {name}" for name in read if name[0] == bank)
            for bank in "wr"
        )
        emission.line(f"W, R = {{{words}}}, {{{refs}}}")
        emission.line(f"{emission.name(step, 'step')}(W, R, S)")
        back = [f"{name} = {name[0].upper()}[{name[1:]}]" for name in both]
        emission.line("; ".join([*back, "W = R = None"]))


def _append(
    body: list[tuple[str, int]], arm: tuple[list[str], list[int]], depth: int
) -> None:
    lines, pcs = arm
    body += [(INDENT * depth + line, pc) for line, pc in zip(lines, pcs, strict=True)]


def _dispatch(
    body: list[tuple[str, int]],
    arms: Sequence[tuple[list[str], list[int]]],
    first: int,
    depth: int,
) -> None:
    """Halve the numbers until one is left."""
    if len(arms) == 1:
        _append(body, arms[0], depth)
        return
    half = len(arms) // 2
    body.append((f"{INDENT * depth}if block < {first + half}:", 0))
    _dispatch(body, arms[:half], first, depth + 1)
    body.append((f"{INDENT * depth}else:", 0))
    _dispatch(body, arms[half:], first + half, depth + 1)


# --- questions about blocks -----------------------------------------------------------------------------


def _split(code: Sequence[Instruction]) -> list[list[Instruction]]:
    blocks: list[list[Instruction]] = []
    for instruction in code:
        if instruction.opcode is BLOCK:
            blocks.append([])
        else:
            blocks[-1].append(instruction)
    return blocks


def _joins(blocks: Sequence[Sequence[Instruction]], context: CodeContext) -> frozenset[int]:
    """Blocks that are reached from several places; the first is always reached from outside."""
    arrivals = Counter(
        context.block_index[pc] for block in blocks for pc in block[-1].targets()
    )
    arrivals[0] += 1
    return frozenset(block for block, count in arrivals.items() if count > 1)


def _needed(blocks: Sequence[Sequence[Instruction]]) -> set[str]:
    """Registers that some way through the function reads before it writes them.

    Whatever is not written by the first block before it is read counts: blank registers cost
    little, a missing one would be an error.
    """
    written: set[str] = set()
    found: set[str] = set()
    for instruction in blocks[0]:
        found |= {register_name(r) for r in _reads(instruction)} - written
        written |= {register_name(r) for r in _writes(instruction)}
    for block in blocks[1:]:
        for instruction in block:
            found |= {register_name(r) for r in _reads(instruction)} - written
    return found


def _typed(bank: str, registers: Iterable[int]) -> Iterable[int]:
    return (r | REF_BIT for r in registers) if bank == "ref" else registers


def _reads(instruction: Instruction) -> list[int]:
    found: list[int] = []
    for field, value in zip(instruction.opcode.fields, instruction.values, strict=True):
        if field.kind is FieldKind.OPERAND:
            found += _typed(field.bank, (cast("int", value),))
        elif field.kind is FieldKind.OPERANDS:
            found += _typed(field.bank, cast("tuple[int, ...]", value))
        elif field.kind is FieldKind.MOVES:
            found += (source for source, _ in cast("Moves", value))
        elif field.kind is FieldKind.CASES:
            for _, moves in cast("tuple[tuple[int, Moves], ...]", value):
                found += (source for source, _ in moves)
    return found


def _writes(instruction: Instruction) -> list[int]:
    found: list[int] = []
    for field, value in zip(instruction.opcode.fields, instruction.values, strict=True):
        if field.kind is FieldKind.RESULT:
            found += _typed(field.bank, (cast("int", value),))
        elif field.kind is FieldKind.RESULTS:
            found += cast("tuple[int, ...]", value)
    return found
