"""Emit programs as a VM module: `main` takes and returns buffer views, `__init` loads constants.

The module imports `hal` alone (and `tilewright`, optionally, for ops that run on the host), so
IREE's runtime can run it.  One command buffer per call, recorded with barriers; static programs use
the planned arena, dynamic ones share transients of provably equal size.  Where there is code for
several CPUs, `__init` asks the device which of it can run.  Nothing is optimised for the interpreter
here: sessions replay the plan instead.

Source: signatures of the `hal` module, version 6; rules in `docs/formats/vmfb.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.program.emit_bytecode.initialize import (
    emit_init,
    emit_is_lacking,
    emit_load_constant,
)
from tilewright.compiler.program.emit_bytecode.main import emit_main, emit_switch
from tilewright.compiler.program.emit_bytecode.module import ModuleTables, VariantCode
from tilewright.formats.bytecode.assembler import AssembledFunction
from tilewright.formats.vmfb import ModuleDef, Rodata

__all__ = ["VariantCode", "emit_module"]


def emit_module(
    codes: Sequence[VariantCode],
    rodata: Sequence[Rodata],
    *,
    first_constant: int,
    weights: Sequence[str] = (),
) -> ModuleDef:
    """The VM module of a model whose programs have their memory assigned.

    Args:
        codes: the same model for one or more CPUs.
        rodata: segments that already have numbers: images and constants.
        first_constant: the segment of the first constant; the others follow in the order that codes count them in.
        weights: names of the constants in a file instead, which the module imports.
    """
    module = ModuleTables(codes, list(rodata), first_constant, weights)
    bodies = [emit_main(module, code) for code in module.codes]
    module.bodies = _number(bodies)
    distinct = [bodies[module.bodies.index(n)] for n in range(max(module.bodies) + 1)]
    if len(distinct) == 1:
        main, rest = distinct[0], []
    else:
        main, rest = emit_switch(module, len(distinct)), distinct
    functions = [main, emit_init(module), emit_load_constant(module)]
    if module.is_choosing:
        functions.append(emit_is_lacking(module))
    return module.finish([*functions, *rest])


def _number(bodies: Sequence[AssembledFunction]) -> tuple[int, ...]:
    """Which body each code takes: programs often differ in their kernels alone."""
    numbers: dict[bytes, int] = {}
    return tuple(numbers.setdefault(body.code, len(numbers)) for body in bodies)
