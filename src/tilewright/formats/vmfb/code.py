"""The code of a whole module: decoded and verified in one go.

Puts the declarations of a `ModuleDef` and the instructions of its functions together.  Called by
the VM when it loads a module, by the builder on everything it emits, and by the CLI.
"""

from __future__ import annotations

from tilewright.base.budget import pace
from tilewright.formats.bytecode.encoding import Instruction, decode_function
from tilewright.formats.bytecode.verifier import (
    FunctionLimits,
    ModuleLimits,
    verify_function,
)
from tilewright.formats.calling_convention import (
    CallingConvention,
    parse_calling_convention,
)
from tilewright.formats.vmfb.module import ModuleDef


def module_limits(module: ModuleDef) -> ModuleLimits:
    """What the instructions of a module may refer to."""
    return ModuleLimits(
        imports=[_convention(item.signature.calling_convention) for item in module.imports],
        functions=[_convention(item.calling_convention) for item in module.signatures],
        type_count=len(module.types),
        rodata_count=len(module.rodata),
        global_bytes=module.state.global_bytes,
        global_refs=module.state.global_refs,
    )


def function_limits(module: ModuleDef, function: int) -> FunctionLimits:
    """What one function declares about itself."""
    descriptor = module.functions[function]
    return FunctionLimits(
        convention=_convention(module.signatures[function].calling_convention),
        block_count=descriptor.block_count,
        word_registers=descriptor.word_registers,
        ref_registers=descriptor.ref_registers,
    )


def decode_module(
    module: ModuleDef, location: str = "module"
) -> tuple[tuple[Instruction, ...], ...]:
    """The instructions of every function, verified.

    Args:
        module: as read or built.
        location: how errors call it.

    Raises:
        ArchiveError: a function is not safe to run, with its name and the place in it.
    """
    limits = module_limits(module)
    decoded: list[tuple[Instruction, ...]] = []
    for index, name in enumerate(module.function_names()):
        pace(1 + module.functions[index].length)
        where = f"{location}: @{name}"
        instructions = decode_function(module.code(index), where)
        verify_function(instructions, function_limits(module, index), limits, where)
        decoded.append(instructions)
    return tuple(decoded)


def _convention(text: str) -> CallingConvention:
    return parse_calling_convention(text)
