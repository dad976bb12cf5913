"""Modules ↔ text, in the form of IREE's `iree-dump-module --output=disassembly`.

    vm.module @add version 0
    vm.type !hal.buffer
    vm.import @hal.devices.get cconv "0i_r"
    vm.rodata[0] = 68616C

    vm.export @add
    vm.func @add(%r0: !vm.ref<?>) -> (!vm.ref<?>) {
    ^bb0:
      vm.return %R0
    }

Reading the text back gives a module that runs the same; what the form has no words for (debug
data, function attributes) is lost, sizes of frames and of the module state are found by looking
at what the code uses.  Called by the CLI and by tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, cast, final

from tilewright.base.errors import ArchiveError
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.bytecode.encoding import (
    Instruction,
    Moves,
    decode_function,
    encode_function,
    encode_instruction,
)
from tilewright.formats.bytecode.forms import FieldKind
from tilewright.formats.bytecode.isa import BLOCK, REF_BIT, REF_MASK
from tilewright.formats.bytecode.text import (
    Names,
    format_instruction,
    format_register,
    parse_instruction,
)
from tilewright.formats.calling_convention import (
    LETTERS,
    WIDE_BANKS,
    parse_calling_convention,
)
from tilewright.formats.vmfb.code import decode_module
from tilewright.formats.vmfb.module import (
    OPTIONAL,
    REQUIRED,
    Dependency,
    Export,
    FunctionDescriptor,
    Import,
    ModuleDef,
    ModuleState,
    Rodata,
    Signature,
)
from tilewright.formats.vmfb.verifier import verify_module

_SHOWN_RODATA_BYTES: Final = 1 << 16
_TYPE_NAMES: Final = {"ref": "!vm.ref<?>"}

# --- printing ----------------------------------------------------------------------------------


def module_names(module: ModuleDef) -> Names:
    """What the ordinals of a module are called."""
    count = range(len(module.functions))
    exported = {export.function: export.name for export in module.exports}
    return Names(
        module=module.name,
        imports=[item.name for item in module.imports],
        functions=[exported.get(index, "") for index in count],
        types=module.types,
        rodata_bytes=[len(view_bytes(item.data)) for item in module.rodata],
    )


def disassemble_function(
    instructions: Sequence[Instruction], names: Names, *, offsets: bool = False
) -> list[str]:
    """The lines of one function's body.

    Args:
        instructions: as decoded.
        names: see `module_names`.
        offsets: put the pc before each instruction.
    """
    blocks = [item.pc for item in instructions if item.opcode.is_block]
    labels = {pc: f"bb{index}" for index, pc in enumerate(blocks)}
    lines: list[str] = []
    for item in instructions:
        place = f"[{item.pc:08X}] " if offsets else ""
        if item.opcode.is_block:
            lines.append(f"{place}^{labels[item.pc]}:")
        else:
            lines.append(f"{place}  {format_instruction(item, names, labels)}")
    return lines


def disassemble_module(
    module: ModuleDef, *, offsets: bool = False, rodata_limit: int = _SHOWN_RODATA_BYTES
) -> str:
    """A module as text.

    Args:
        module: as read or built.
        offsets: put the pc before each instruction.
        rodata_limit: larger read-only segments are only mentioned (and cannot be read back).
    """
    return "\n".join(_lines(module, offsets, rodata_limit)) + "\n"


def _lines(module: ModuleDef, offsets: bool, rodata_limit: int) -> Iterator[str]:
    names = module_names(module)
    yield f"vm.module @{module.name} version {module.version}"
    yield from (f"vm.type {name}" for name in module.types)
    for item in module.imports:
        optional = " optional" if item.flags & OPTIONAL else ""
        yield f'vm.import{optional} @{item.name} cconv "{item.signature.calling_convention}"'
    for index, segment in enumerate(module.rodata):
        data = view_bytes(segment.data)
        if len(data) > rodata_limit:
            yield f"vm.rodata[{index}] = ...  // {len(data)}b"
        else:
            yield f"vm.rodata[{index}] = {bytes(data).hex().upper()}"
    for index in range(len(module.functions)):
        yield ""
        yield from (f"vm.export @{e.name}" for e in module.exports if e.function == index)
        name = names.functions[index] or f"fn{index}"
        yield _header(name, module.signatures[index].calling_convention)
        code = decode_function(module.code(index), f"@{name}")
        yield from disassemble_function(code, names, offsets=offsets)
        yield "}"


def _header(name: str, calling_convention: str) -> str:
    convention = parse_calling_convention(calling_convention)
    arguments = ", ".join(
        f"{format_register(place | (REF_BIT if bank == 'ref' else 0), bank)}: "
        f"{_TYPE_NAMES.get(bank, bank)}"
        for bank, place in convention.argument_registers()
    )
    results = ", ".join(_TYPE_NAMES.get(bank, bank) for bank in convention.results)
    return f"vm.func @{name}({arguments}) -> ({results}) {{"


# --- parsing -----------------------------------------------------------------------------------

_MODULE: Final = re.compile(r"vm\.module @(\S+) version (\d+)")
_TYPE: Final = re.compile(r"vm\.type (.+)")
_IMPORT: Final = re.compile(r'vm\.import( optional)? @(\S+) cconv "([^"]*)"')
_RODATA: Final = re.compile(r"vm\.rodata\[\d+\] = ([0-9A-Fa-f]*)")
_EXPORT: Final = re.compile(r"vm\.export @(\S+?)(?: = @(\S+))?")
_FUNC: Final = re.compile(r"vm\.func @([^\s(]+)\((.*)\) -> \((.*)\) \{")
_LABEL: Final = re.compile(r"\^(\w+):")
_DEPENDENCY: Final = re.compile(r"vm\.dependency @(\S+) version (\d+)")


@final
@dataclass(slots=True)
class _Function:
    name: str
    calling_convention: str
    lines: list[tuple[int, str]] = field(default_factory=list)


@final
@dataclass(slots=True)
class _Parsed:
    """The statements of a text, before names are resolved."""

    name: str = ""
    version: int = 0
    types: list[str] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    dependencies: list[Dependency] = field(default_factory=list)
    rodata: list[Rodata] = field(default_factory=list)
    exports: list[tuple[str, str]] = field(default_factory=list)
    functions: list[_Function] = field(default_factory=list)


def assemble_module(text: str, location: str = "text") -> ModuleDef:
    """Read a module from text.

    `vm.dependency @hal version 7` adds what the printed form leaves out.

    Raises:
        ArchiveError: with the line, when the text is not understood or may not run.
    """
    parsed = _parse_lines(text, location)
    names = Names(
        module=parsed.name,
        imports=[item.name for item in parsed.imports],
        functions=[item.name for item in parsed.functions],
        types=parsed.types,
    )
    codes = [_assemble(function, names, location) for function in parsed.functions]
    places = {name: index for index, name in enumerate(names.functions)}
    missing = [target for _, target in parsed.exports if target not in places]
    if missing:
        raise ArchiveError(
            f"exported function '@{missing[0]}' is missing", location=location
        )
    bytecode = bytearray()
    descriptors: list[FunctionDescriptor] = []
    features = 0
    for function, code in zip(parsed.functions, codes, strict=True):
        bytecode += bytes(-len(bytecode) % 8)
        descriptor = _descriptor(function, code, len(bytecode))
        features |= descriptor.requirements
        descriptors.append(descriptor)
        bytecode += encode_function(code)
    module = ModuleDef(
        name=parsed.name,
        version=parsed.version,
        requirements=features,
        types=tuple(parsed.types),
        dependencies=tuple(parsed.dependencies),
        imports=tuple(parsed.imports),
        exports=tuple(
            Export(name=n, function=places[target]) for n, target in parsed.exports
        ),
        signatures=tuple(
            Signature(calling_convention=function.calling_convention)
            for function in parsed.functions
        ),
        rodata=tuple(parsed.rodata),
        state=_state([item for code in codes for item in code]),
        functions=tuple(descriptors),
        bytecode=bytes(bytecode),
    )
    verify_module(module, location)
    decode_module(module, location)
    return module


def _parse_lines(text: str, location: str) -> _Parsed:
    parsed = _Parsed()
    current: _Function | None = None
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("//"):
            continue
        if current is not None and line != "}":
            current.lines.append((number, line))
        elif line == "}":
            current = None
        elif header := _FUNC.fullmatch(line):
            current = _Function(header[1], _convention(header[2], header[3]))
            parsed.functions.append(current)
        elif not _statement(parsed, line):
            raise ArchiveError(
                f"'{line}' is not understood", location=f"{location}:{number}"
            )
    if current is not None:
        raise ArchiveError(f"function '@{current.name}' has no end", location=location)
    return parsed


def _statement(parsed: _Parsed, line: str) -> bool:
    if match := _MODULE.fullmatch(line):
        parsed.name, parsed.version = match[1], int(match[2])
    elif match := _TYPE.fullmatch(line):
        parsed.types.append(match[1])
    elif match := _IMPORT.fullmatch(line):
        signature = Signature(calling_convention=match[3])
        flags = OPTIONAL if match[1] else REQUIRED
        parsed.imports.append(Import(name=match[2], signature=signature, flags=flags))
    elif match := _DEPENDENCY.fullmatch(line):
        parsed.dependencies.append(Dependency(name=match[1], minimum_version=int(match[2])))
    elif (match := _RODATA.fullmatch(line)) and len(match[1]) % 2 == 0:
        parsed.rodata.append(Rodata(data=bytes.fromhex(match[1])))
    elif match := _EXPORT.fullmatch(line):
        parsed.exports.append((match[1], match[2] or match[1]))
    else:
        return False
    return True


def _convention(arguments: str, results: str) -> str:
    banks = {name: bank for bank, name in _TYPE_NAMES.items()} | {b: b for b in LETTERS}

    def letters(types: Sequence[str]) -> str:
        unknown = [name for name in types if name not in banks]
        if unknown:
            raise ArchiveError(f"'{unknown[0]}' is not the type of an argument")
        return "".join(LETTERS[banks[name]] for name in types) or "v"

    given = [
        item.rpartition(": ")[2].strip() for item in arguments.split(",") if item.strip()
    ]
    returned = [item.strip() for item in results.split(",") if item.strip()]
    return f"0{letters(given)}_{letters(returned)}"


def _assemble(function: _Function, names: Names, location: str) -> tuple[Instruction, ...]:
    """The instructions of a function: one pass to place the blocks, one to aim at them."""
    labels: dict[str, int] = {}
    code = bytearray()
    for _ in range(2):
        known = dict(labels)
        code.clear()
        for number, line in function.lines:
            try:
                if label := _LABEL.fullmatch(line):
                    labels[label[1]] = len(code)
                    instruction = Instruction(BLOCK, ())
                else:
                    instruction = parse_instruction(line, names, known)
            except ArchiveError as error:
                raise ArchiveError(
                    error.message, location=f"{location}:{number}"
                ) from error
            encode_instruction(code, instruction)
    return decode_function(bytes(code), function.name)


def _descriptor(
    function: _Function, code: Sequence[Instruction], offset: int
) -> FunctionDescriptor:
    convention = parse_calling_convention(function.calling_convention)
    registers = [
        (place | REF_BIT if bank == "ref" else place, bank)
        for bank, place in convention.argument_registers()
    ]
    features = 0
    for instruction in code:
        features |= instruction.opcode.feature
        registers += _registers(instruction)
    words = [
        r + (2 if bank in WIDE_BANKS else 1) for r, bank in registers if not r & REF_BIT
    ]
    refs = [(r & REF_MASK) + 1 for r, _ in registers if r & REF_BIT]
    return FunctionDescriptor(
        offset=offset,
        length=len(encode_function(code)),
        block_count=sum(item.opcode.is_block for item in code),
        word_registers=max(words, default=0) + max(words, default=0) % 2,
        ref_registers=max(refs, default=0),
        requirements=features,
    )


def _registers(instruction: Instruction) -> Iterator[tuple[int, str]]:
    """Every register an instruction mentions, with the bank its field says."""
    for item, value in zip(instruction.opcode.fields, instruction.values, strict=True):
        if item.kind in (FieldKind.OPERAND, FieldKind.RESULT):
            yield cast("int", value), item.bank
        elif item.kind in (FieldKind.OPERANDS, FieldKind.RESULTS):
            yield from (
                (register, item.bank) for register in cast("tuple[int, ...]", value)
            )
        elif item.kind is FieldKind.MOVES:
            yield from ((r, "any") for pair in cast("Moves", value) for r in pair)
        elif item.kind is FieldKind.CASES:
            for _, moves in cast("tuple[tuple[int, Moves], ...]", value):
                yield from ((r, "any") for pair in moves for r in pair)


def _state(code: Sequence[Instruction]) -> ModuleState:
    """Room for every global the code mentions."""
    size = refs = 0
    for instruction in code:
        for item, value in zip(instruction.opcode.fields, instruction.values, strict=True):
            if item.kind is FieldKind.GLOBAL:
                place = cast("int", value)
                width = 8 if item.bank in WIDE_BANKS else 4
                refs = max(refs, place + 1) if item.bank == "ref" else refs
                size = max(size, place + width) if item.bank != "ref" else size
    return ModuleState(global_bytes=size, global_refs=refs)
