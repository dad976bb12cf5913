"""Emit a program as a VM module: `main` takes and returns buffer views, `__init` loads constants.

The module imports `hal` alone (and `tilewright`, optionally, for ops that run on the host), so
IREE's runtime can run it.  One command buffer per call, recorded with barriers; static programs use
the planned arena, dynamic ones share transients of provably equal size.  Nothing is optimised for
the interpreter here: sessions replay the plan instead.

Source: signatures of the `hal` module, version 6; rules in `docs/formats/vmfb.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.program.emit_bytecode.initialize import (
    emit_init,
    emit_load_constant,
)
from tilewright.compiler.program.emit_bytecode.main import emit_main
from tilewright.compiler.program.emit_bytecode.module import ModuleTables
from tilewright.compiler.program.ir import Program
from tilewright.formats.vmfb import ModuleDef, Rodata

__all__ = ["emit_module"]


def emit_module(
    program: Program,
    rodata: Sequence[Rodata],
    *,
    executable: int,
    executable_format: str,
    first_constant: int,
) -> ModuleDef:
    """The VM module of a program whose memory is assigned.

    Args:
        program: what to emit.
        rodata: segments that already have numbers: images and constants.
        executable: the segment of the image that the virtual machine loads.
        executable_format: its format name.
        first_constant: the segment of the first constant storage; the others follow in order.
    """
    module = ModuleTables(
        program, list(rodata), executable, executable_format, first_constant
    )
    functions = (emit_main(module), emit_init(module), emit_load_constant(module))
    return module.finish(functions)
