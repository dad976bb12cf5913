"""Relocatable objects that LLVM makes of its text, for linkers and readers."""

from __future__ import annotations

import functools

import llvmlite.binding as llvm


@functools.cache
def _initialized() -> bool:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return True


def compile_ir(
    text: str,
    *,
    triple: str = "x86_64-unknown-unknown-eabi-elf",
    reloc: str = "pic",
    codemodel: str = "small",
    features: str = "",
) -> bytes:
    """LLVM IR text to a relocatable object."""
    assert _initialized()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        features=features, opt=2, reloc=reloc, codemodel=codemodel
    )
    module = llvm.parse_assembly(text)
    module.triple = triple
    module.data_layout = str(machine.target_data)
    return bytes(machine.emit_object(module))
