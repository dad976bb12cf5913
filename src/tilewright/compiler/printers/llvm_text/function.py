"""One kernel as one LLVM module: the dispatch function of the executable library ABI.

Reads push constants, binding pointers and workgroup ids from the structures that
`formats.executable` describes, then hands the body to `statements`.  Text only; `machine` makes
object code of it.  Called by `compile` of this room and by tests.
"""

from __future__ import annotations

import hashlib
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import Buffer, Kernel, Space
from tilewright.compiler.kernel.local_memory import (
    check_stack,
    local_elements,
    workgroup_layout,
)
from tilewright.compiler.kernel.rewrite import fixed_buffers, stores
from tilewright.compiler.printers.llvm_text.body_summary import summarize
from tilewright.compiler.printers.llvm_text.expressions import Expressions
from tilewright.compiler.printers.llvm_text.first_lanes import MOST_STORES
from tilewright.compiler.printers.llvm_text.module import (
    FUNCTION_ATTRIBUTES,
    TRIPLES,
    KernelModule,
)
from tilewright.compiler.printers.llvm_text.registers import Registers, plan_registers
from tilewright.compiler.printers.llvm_text.statements import Statements
from tilewright.compiler.printers.llvm_text.types import Value, constant_text, memory_type
from tilewright.compiler.printers.llvm_text.writer import FunctionWriter
from tilewright.formats.executable import DISPATCH_STATE, WORKGROUP_STATE

_PLACEHOLDER: Final = "@tw_kernel"


def emit_kernel(kernel: Kernel, target: Target) -> KernelModule:
    """Write the LLVM IR of a machine-lowered kernel."""
    function = _Function(kernel, target)
    body = function.emit()
    header = f'target triple = "{TRIPLES[target.arch]}"'
    signature = (
        f"define hidden i32 {_PLACEHOLDER}(ptr %environment, ptr %dispatch, ptr %workgroup) "
        f"{FUNCTION_ATTRIBUTES} {{"
    )
    declarations = function.writer.declarations.values()
    head = [line for line in declarations if not line.startswith("!")]
    tail = [line for line in declarations if line.startswith("!")]
    text = "\n".join([header, *function.globals, *head, signature, *body, "}", *tail, ""])
    digest = hashlib.sha256(text.encode()).hexdigest()[:24]
    symbol = f"tw_{digest}"
    return KernelModule(
        name=kernel.name,
        symbol=symbol,
        text=text.replace(_PLACEHOLDER, f"@{symbol}"),
        constant_count=len(kernel.dims),
        binding_count=len(kernel.parameters),
        local_memory_bytes=function.local_bytes,
    )


@final
class _Function:
    """State while one kernel is written."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel: Kernel = kernel
        self.writer: FunctionWriter = FunctionWriter()
        summary, self.summaries = summarize(kernel.body)
        self.registers: Registers = plan_registers(kernel, summary, self.summaries.values())
        self.expressions: Expressions = Expressions(self.writer, self.registers, target)
        self.globals: list[str] = []
        self.local_bytes: int = 0

    def emit(self) -> list[str]:
        """The lines of the function's body."""
        self._constants()
        self._bindings()
        self._locals()
        statements = Statements(
            self.writer,
            self.expressions,
            self.registers,
            self.summaries,
            self._workgroup_id,
        )
        statements.run(self.kernel.body)
        self.writer.scope.block.terminator = "ret i32 0"
        return self.writer.text()

    def _field(self, struct: str, offset: int) -> Value:
        base = Value(f"%{struct}", "ptr")
        if offset == 0:
            return base
        return self.writer.pure(
            "ptr", f"getelementptr i8, ptr %{struct}, i64 {offset}", base
        )

    def _read(self, address: Value, type_: str, align: int) -> Value:
        return self.writer.pure(type_, f"load {type_}, {address}, align {align}", address)

    def _constants(self) -> None:
        if not self.kernel.dims:
            return
        field = DISPATCH_STATE.offset("constants")
        table = self._read(self._field("dispatch", field), "ptr", 8)
        for i, symbol in enumerate(self.kernel.dims):
            place = self._element(table, "i32", i)
            value = self._read(place, "i32", 4)
            wide = self.writer.pure("i64", f"zext {value} to i64", value)
            self.expressions.indices.symbols[symbol.key] = wide
            self.expressions.indices.sizes.add(symbol.key)

    def _element(self, base: Value, unit: str, i: int) -> Value:
        if i == 0:
            return base
        return self.writer.pure("ptr", f"getelementptr {unit}, {base}, i64 {i}", base)

    def _bindings(self) -> None:
        if not self.kernel.parameters:
            return
        field = DISPATCH_STATE.offset("binding_pointers")
        table = self._read(self._field("dispatch", field), "ptr", 8)
        for i, parameter in enumerate(self.kernel.parameters):
            pointer = self._read(self._element(table, "ptr", i), "ptr", 8)
            self.expressions.memory.bases[parameter.buffer] = pointer
        memory = self.expressions.memory
        memory.fixed = fixed_buffers(self.kernel)
        stored = (x for x in stores(self.kernel.body) if x.mask is not None)
        masked = sum(x.buffer.space is not Space.REGISTER for x in stored)
        memory.stores_pieces = memory.a.can.slow_masks and masked <= MOST_STORES

    def _workgroup_id(self, axis: str) -> Value:
        """Which workgroup this is along an axis."""
        type_, align = ("i16", 2) if axis == "z" else ("i32", 4)
        field = WORKGROUP_STATE.offset(f"workgroup_id_{axis}")
        value = self._read(self._field("workgroup", field), type_, align)
        return self.writer.pure("i64", f"zext {value} to i64", value)

    def _locals(self) -> None:
        check_stack(self.kernel, self.registers.memory)
        places, self.local_bytes = workgroup_layout(self.kernel)
        for buffer in self.kernel.locals:
            if buffer.space is Space.WORKGROUP:
                self._workgroup_buffer(buffer, places[buffer])
            elif buffer.space is Space.CONSTANT:
                self._constant_buffer(buffer)
            elif buffer in self.registers.memory:
                self._stack_buffer(buffer)

    def _workgroup_buffer(self, buffer: Buffer, offset: int) -> None:
        field = WORKGROUP_STATE.offset("local_memory")
        base = self._read(self._field("workgroup", field), "ptr", 8)
        self.expressions.memory.bases[buffer] = self._element(base, "i8", offset)

    def _constant_buffer(self, buffer: Buffer) -> None:
        name = f"@.tw.constant.{len(self.globals)}"
        unit = memory_type(buffer.dtype)
        data = buffer.data or ()
        items = ", ".join(f"{unit} {_memory_constant(v, buffer)}" for v in data)
        self.globals.append(
            f"{name} = internal constant [{len(data)} x {unit}] [{items}], align 64"
        )
        self.expressions.memory.bases[buffer] = Value(name, "ptr")

    def _stack_buffer(self, buffer: Buffer) -> None:
        count = local_elements(self.kernel, buffer)
        name = self.writer.fresh("stack")
        unit = memory_type(buffer.dtype)
        self.writer.blocks[0].phis.append(f"{name} = alloca [{count} x {unit}], align 64")
        self.expressions.memory.bases[buffer] = Value(name, "ptr")


def _memory_constant(value: float, buffer: Buffer) -> str:
    if buffer.dtype.is_bool:
        return str(int(bool(value)))
    return constant_text(value, buffer.dtype)


__all__ = ["KernelModule", "emit_kernel", "symbolic"]
