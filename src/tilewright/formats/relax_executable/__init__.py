"""Executables of TVM's Relax VM: the part of a library made by TVM that says what is called when.

`read_relax_executable` reads and verifies one; `text` shows it as TVM does.  Not here: running it
(`runtime.relax_machine`), and the library around it (`formats.library_blob`).
"""

from tilewright.formats.relax_executable.reader import read_relax_executable
from tilewright.formats.relax_executable.records import (
    VM_REGISTER,
    VOID_REGISTER,
    Argument,
    ArgumentKind,
    Branch,
    Call,
    Constant,
    Function,
    FunctionKind,
    Goto,
    Instruction,
    RelaxExecutable,
    Return,
    ShapeConstant,
    TensorConstant,
)
from tilewright.formats.relax_executable.text import (
    format_builder_calls,
    format_executable,
    format_instruction,
    format_statistics,
)

__all__ = [
    "VM_REGISTER",
    "VOID_REGISTER",
    "Argument",
    "ArgumentKind",
    "Branch",
    "Call",
    "Constant",
    "Function",
    "FunctionKind",
    "Goto",
    "Instruction",
    "RelaxExecutable",
    "Return",
    "ShapeConstant",
    "TensorConstant",
    "format_builder_calls",
    "format_executable",
    "format_instruction",
    "format_statistics",
    "read_relax_executable",
]
