"""Kernels as one C file: what they need, then a function each with the kernel ABI.

Called by `backend` and by tests.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import Buffer, Kernel, Space
from tilewright.compiler.kernel.local_memory import (
    check_stack,
    local_elements,
    workgroup_layout,
)
from tilewright.compiler.printers.c_text.definitions import Definitions
from tilewright.compiler.printers.c_text.expressions import Expressions
from tilewright.compiler.printers.c_text.local_arrays import vector_lanes
from tilewright.compiler.printers.c_text.statements import Statements
from tilewright.compiler.printers.c_text.types import (
    comment,
    element_type,
    identifier,
    literal,
)
from tilewright.formats.executable import (
    DISPATCH_STATE,
    WORKGROUP_STATE,
    Layout,
)

_PLACEHOLDER: Final = "tw_kernel_symbol"
_HEAD: Final = """\
// Made by Tilewright. Compile with any C11 compiler that has vector extensions (GCC 12, Clang 15 or later):
//   cc -O2 -ffp-contract=off -fno-math-errno -Wno-psabi -c kernels.c
#include <stdint.h>
#include <string.h>

// Kernels are long, and compilers stop inlining in long functions.
#define TW_INLINE static inline __attribute__((always_inline, unused))

// Products and sums are rounded one by one unless the kernel says otherwise.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off", "no-math-errno")
#endif
"""
_FIELD_TYPES: Final = {
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    "size": "size_t",
}  # fmt: skip
_POINTERS: Final = {
    "constants": "const uint32_t *constants",
    "binding_pointers": "void *const *bindings",
    "binding_lengths": "const size_t *binding_lengths",
    "local_memory": "void *local_memory",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CFunction:
    """One kernel in C.

    Attributes:
        symbol: the function's name, made of its content, so that equal kernels are one.
        definitions: what it needs before it, by name.
        local_memory_bytes: of each workgroup.
    """

    name: str
    symbol: str
    text: str
    definitions: dict[str, str]
    constant_count: int
    binding_count: int
    local_memory_bytes: int


FLAGS: Final = ("-ffp-contract=off", "-fno-math-errno", "-Wno-psabi")
"""What compilers are told beside the optimization; some of them take no notice of the file's own words."""
# What compilers call features of x86-64 beyond the first level; the names are LLVM's, too.
_NAMED_FEATURES: Final = frozenset({
    "avx", "avx2", "avx512bf16", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl", "avx512vnni", "avxvnni", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3",
})  # fmt: skip
_TARGET: Final = """\
#if defined(__x86_64__) && defined(__clang__)
#pragma clang attribute push(__attribute__((target("{0}"))), apply_to = function)
#elif defined(__x86_64__)
#pragma GCC target("{0}")
#endif
"""
_TARGET_END: Final = """\
#if defined(__x86_64__) && defined(__clang__)
#pragma clang attribute pop
#endif
"""


def emit_kernel(kernel: Kernel, target: Target, symbol: str = "") -> CFunction:
    """Write a machine-lowered kernel in C; `symbol` is the function's name, else one of its content."""
    return _Function(kernel, target).emit(symbol)


def file_text(functions: Sequence[CFunction], target: Target) -> str:
    """A C file with these kernels for a target, each once.

    The file says which instructions of x86-64 it may use; compilers for other machines pass over that.
    """
    definitions: dict[str, str] = {}
    for function in functions:
        definitions.update(function.definitions)
    kernels = {function.symbol: function.text for function in functions}
    structs = "\n".join(_struct(x) for x in (DISPATCH_STATE, WORKGROUP_STATE))
    features = ",".join(sorted(target.features & _NAMED_FEATURES))
    named = target.arch == "x86_64" and features
    head = [_HEAD, *([_TARGET.format(features)] if named else []), structs]
    end = [_TARGET_END] if named else []
    return "\n".join([*head, *definitions.values(), "", *kernels.values(), *end])


def _struct(layout: Layout) -> str:
    members = [
        f"  {_POINTERS[f.name] if f.type == 'ptr' else f'{_FIELD_TYPES[f.type]} {f.name}'};"
        for f in layout.fields
    ]
    name = f"tw_{layout.name}_t"
    return "\n".join([f"typedef struct {name} {{", *members, f"}} {name};", ""])


@final
class _Function:
    """State while one kernel is written."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel: Kernel = kernel
        self.definitions: Definitions = Definitions()
        self.e: Expressions = Expressions(self.definitions, one_rounding=target.has_fma)
        self.taken: set[str] = {"dispatch", "workgroup", "environment"}
        self.places, self.local_bytes = workgroup_layout(kernel)
        self.e.memory.vectors = vector_lanes(kernel)

    def emit(self, symbol: str) -> CFunction:
        """The whole function."""
        on_stack = [b for b in self.kernel.locals if b.space is Space.REGISTER]
        check_stack(self.kernel, on_stack)
        declared = {**self._dims(), **self._bindings(), **self._locals()}
        body = Statements(self.e, self.taken).body(self.kernel.body, "  ")
        words = set(re.findall(r"\w+", "\n".join(body)))
        lines = [line for name, line in declared.items() if name in words] + body
        head = (
            f"{comment(self.kernel.name)}\n"
            f"int {_PLACEHOLDER}(const void *environment, const tw_dispatch_state_t *dispatch,\n"
            "    const tw_workgroup_state_t *workgroup) {\n"
            "  (void)environment;\n  (void)dispatch;\n  (void)workgroup;"
        )
        text = "\n".join([head, *lines, "  return 0;", "}", ""])
        whole = "\n".join([*self.definitions.texts.values(), text.partition("\n")[2]])
        symbol = symbol or f"tw_{hashlib.sha256(whole.encode()).hexdigest()[:24]}"
        return CFunction(
            name=self.kernel.name,
            symbol=symbol,
            text=text.replace(_PLACEHOLDER, symbol),
            definitions=dict(self.definitions.texts),
            constant_count=len(self.kernel.dims),
            binding_count=len(self.kernel.parameters),
            local_memory_bytes=self.local_bytes,
        )

    def _dims(self) -> dict[str, str]:
        lines: dict[str, str] = {}
        for i, symbol in enumerate(self.kernel.dims):
            name = identifier(symbol.name, self.taken)
            self.e.indices.symbols[symbol.key] = name
            lines[name] = f"  const int64_t {name} = dispatch->constants[{i}];"
        return lines

    def _name(self, buffer: Buffer) -> str:
        name = self.e.memory.names[buffer] = identifier(buffer.name, self.taken)
        return name

    def _bindings(self) -> dict[str, str]:
        lines: dict[str, str] = {}
        for i, parameter in enumerate(self.kernel.parameters):
            const = "" if parameter.access.writes else "const "
            type_ = element_type(parameter.buffer.dtype)
            name = self._name(parameter.buffer)
            lines[name] = f"  {const}{type_} *{name} = dispatch->bindings[{i}];"
        return lines

    def _locals(self) -> dict[str, str]:
        return {self._name(b): self._local(b) for b in self.kernel.locals}

    def _local(self, buffer: Buffer) -> str:
        name, type_ = self.e.memory.names[buffer], element_type(buffer.dtype)
        if buffer.space is Space.WORKGROUP:
            place = f"(char *)workgroup->local_memory + {self.places[buffer]}"
            return f"  {type_} *{name} = (void *)({place});"
        count = local_elements(self.kernel, buffer)
        if buffer.space is Space.CONSTANT:
            items = ", ".join(literal(value, buffer.dtype) for value in buffer.data or ())
            return f"  static const {type_} {name}[{count}] = {{{items}}};"
        lanes = self.e.memory.vectors.get(buffer, 0)
        if lanes == 1:
            return f"  {type_} {name} __attribute__((unused)) = 0;"
        if lanes:
            type_ = self.definitions.vector(buffer.dtype, lanes)
            return f"  {type_} {name}[{count // lanes}] __attribute__((unused)) = {{0}};"
        return f"  {type_} {name}[{count}] __attribute__((aligned(64), unused)) = {{0}};"
