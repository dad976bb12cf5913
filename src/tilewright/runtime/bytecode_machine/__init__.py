"""The virtual machine's front: modules of bytecode on a device, called with numpy arrays.

`machine` loads and calls; `recorded_calls` replays calls that repeat themselves.
"""

from __future__ import annotations

from tilewright.runtime.bytecode_machine.machine import (
    BytecodeExecutor,
    BytecodeMachine,
    VmFunction,
    parse_declaration,
)

__all__ = [
    "BytecodeExecutor",
    "BytecodeMachine",
    "VmFunction",
    "parse_declaration",
]
