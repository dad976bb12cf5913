"""What must hold in a module beyond its bytes being readable.

Ranges, ordinals, counts, names, versions: everything a VM may rely on without looking again.
The instructions themselves are `bytecode.verifier`'s.  Called by `reader` on everything read and
by `writer` on everything written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from tilewright.base.errors import ArchiveError
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.bytecode.limits import (
    BYTECODE_MAJOR,
    BYTECODE_MINOR,
    KNOWN_FEATURES,
    MAX_REF_REGISTERS,
    MAX_WORD_REGISTERS,
    OLDEST_BYTECODE_MAJOR,
)
from tilewright.formats.calling_convention import parse_calling_convention
from tilewright.formats.vmfb.module import FunctionDescriptor, ModuleDef, Signature

MAX_STATE_BYTES: Final = 1 << 26
MAX_STATE_REFS: Final = 1 << 20


def verify_module(module: ModuleDef, location: str = "module") -> None:
    """Check everything about a module but its instructions.

    Raises:
        ArchiveError: something is out of range, missing or of an unknown version.
    """
    for problem in _problems(module):
        raise ArchiveError(problem, location=location)


def _problems(module: ModuleDef) -> Iterator[str]:
    if not module.name:
        yield "the module has no name"
    yield from _versions(module)
    for index, name in enumerate(module.types):
        if not name:
            yield f"type {index} has no name"
    for dependency in module.dependencies:
        if not dependency.name:
            yield "a dependency has no name"
    yield from _signatures(module)
    for index, size in enumerate(module.rwdata):
        if size < 0:
            yield f"writable segment {index} has {size} bytes"
    if not 0 <= module.state.global_bytes <= MAX_STATE_BYTES:
        yield f"the globals take {module.state.global_bytes} bytes"
    if not 0 <= module.state.global_refs <= MAX_STATE_REFS:
        yield f"the globals have {module.state.global_refs} references"
    size = len(view_bytes(module.bytecode))
    for index, function in enumerate(module.functions):
        yield from _function(index, function, size)
    yield from _shared_code(module.functions)


def _shared_code(functions: Sequence[FunctionDescriptor]) -> Iterator[str]:
    """Each byte is the code of one function: decoding takes time and memory as the file is long."""
    order = sorted(range(len(functions)), key=lambda index: functions[index].offset)
    for before, after in pairwise(order):
        end = functions[before].offset + functions[before].length
        if functions[after].offset < end:
            first, second = sorted((before, after))
            yield f"functions {first} and {second} share bytes of code"


def _versions(module: ModuleDef) -> Iterator[str]:
    major, minor = module.bytecode_version >> 16, module.bytecode_version & 0xFFFF
    newest = major == BYTECODE_MAJOR and minor > BYTECODE_MINOR
    if not OLDEST_BYTECODE_MAJOR <= major <= BYTECODE_MAJOR or newest:
        yield (
            f"bytecode version {major}.{minor}, expected {OLDEST_BYTECODE_MAJOR}.0 to "
            f"{BYTECODE_MAJOR}.{BYTECODE_MINOR}"
        )
    if module.requirements & ~KNOWN_FEATURES:
        yield f"the module needs unknown features {module.requirements:#x}"


def _signatures(module: ModuleDef) -> Iterator[str]:
    if len(module.signatures) != len(module.functions):
        yield (
            f"{len(module.signatures)} signatures for {len(module.functions)} functions, "
            "expected one each"
        )
    for index, item in enumerate(module.imports):
        if not item.name:
            yield f"import {index} has no name"
        yield from _signature(item.signature, f"import '{item.name}'")
    for index, signature in enumerate(module.signatures):
        yield from _signature(signature, f"function {index}")
        convention = parse_calling_convention(signature.calling_convention)
        if convention.is_variadic:
            yield f"function {index} has a list argument, which only imports may"
    for export in module.exports:
        if not export.name:
            yield "an export has no name"
        if not 0 <= export.function < len(module.functions):
            yield (
                f"export '{export.name}' is function {export.function} of "
                f"{len(module.functions)}"
            )


def _signature(signature: Signature, owner: str) -> Iterator[str]:
    try:
        parse_calling_convention(signature.calling_convention)
    except ArchiveError as error:
        yield f"{owner}: {error.message}"


def _function(index: int, function: FunctionDescriptor, size: int) -> Iterator[str]:
    end = function.offset + function.length
    if function.offset < 0 or function.length <= 0 or end > size:
        yield f"function {index} lies at bytes {function.offset} to {end} of {size}"
    if function.block_count <= 0:
        yield f"function {index} has {function.block_count} blocks"
    if not 0 <= function.word_registers <= MAX_WORD_REGISTERS:
        yield f"function {index} has {function.word_registers} word registers"
    if not 0 <= function.ref_registers <= MAX_REF_REGISTERS:
        yield f"function {index} has {function.ref_registers} reference registers"
    if function.requirements & ~KNOWN_FEATURES:
        yield f"function {index} needs unknown features {function.requirements:#x}"
