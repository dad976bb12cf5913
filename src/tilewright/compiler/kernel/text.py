"""Kernels as readable text, close to Python.

For people, tests and dumps; nothing parses it back.  `expression_text` also names opaque index
atoms, so two expressions with equal text have equal values (buffer names are unique in a kernel).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel.ir import (
    Binary,
    Bitcast,
    Buffer,
    Cast,
    Comment,
    Compare,
    Const,
    Expression,
    Fma,
    For,
    Horizontal,
    If,
    Index,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Prefetch,
    Select,
    Splat,
    Statement,
    Store,
    Transposed,
    Unary,
)

_SHOWN_VALUES: Final = 16
_INFIX: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=",
}  # fmt: skip


def expression_text(value: Expression) -> str:  # noqa: PLR0911 - one per kind
    """One line for an expression."""
    if isinstance(value, Const):
        return _const(value)
    if isinstance(value, Index):
        lanes = f", lanes={value.lanes}, stride={value.stride}" if value.lanes > 1 else ""
        return f"index<{value.dtype}>({_dim(value.dim)}{lanes})"
    if isinstance(value, Load):
        return _access(value.buffer.name, value.indices, value.lanes, value.stride) + _mask(
            value.mask
        )
    if isinstance(value, Binary | Compare):
        return _binary(value)
    if isinstance(value, Unary):
        return f"{value.op}({expression_text(value.operand)})"
    if isinstance(value, Cast):
        return f"{value.dtype}({expression_text(value.operand)})"
    if isinstance(value, Bitcast):
        return f"bits<{value.dtype}>({expression_text(value.operand)})"
    if isinstance(value, Splat):
        return f"splat<{value.lanes}>({expression_text(value.operand)})"
    if isinstance(value, Horizontal):
        return f"horizontal_{value.op}({expression_text(value.operand)})"
    return _ternary(value)


def _const(value: Const) -> str:
    number = repr(value.value)
    text = f"{value.dtype}({number})" if value.dtype.name not in ("f32", "i64") else number
    return text if value.lanes == 1 else f"splat<{value.lanes}>({text})"


def _binary(value: Binary | Compare) -> str:
    left, right = expression_text(value.left), expression_text(value.right)
    sign = _INFIX.get(value.op)
    return f"{value.op}({left}, {right})" if sign is None else f"({left} {sign} {right})"


def _ternary(value: Expression) -> str:
    if isinstance(value, Fma):
        return f"fma({_list((value.a, value.b, value.c))})"
    if isinstance(value, Select):
        return f"select({_list((value.condition, value.if_true, value.if_false))})"
    if isinstance(value, Transposed):
        return f"column_{value.column}({_list(value.rows)})"
    return f"<{type(value).__name__}>"


def _list(values: Iterable[Expression]) -> str:
    return ", ".join(map(expression_text, values))


def _dim(dim: Dim) -> str:
    text = str(dim)
    return (
        text[1:-1] if text.startswith("(") and text.endswith(")") and _one(text) else text
    )


def _one(text: str) -> bool:
    """Whether the first parenthesis closes at the very end."""
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return position == len(text) - 1
    return False


def _access(name: str, indices: Sequence[Dim], lanes: int, stride: int) -> str:
    text = f"{name}[{', '.join(map(_dim, indices))}]"
    if lanes == 1:
        return text
    step = "" if stride == 1 else f" step {stride}"
    return f"{text[:-1]} : {lanes} lanes{step}]"


def _mask(mask: Expression | None) -> str:
    return "" if mask is None else f" where {expression_text(mask)}"


def statement_lines(statement: Statement, indent: str = "") -> list[str]:
    """The lines of one statement."""
    if isinstance(statement, Store):
        target = _access(
            statement.buffer.name,
            statement.indices,
            statement.value.lanes,
            statement.stride,
        )
        value = expression_text(statement.value)
        return [f"{indent}{target} = {value}{_mask(statement.mask)}"]
    if isinstance(statement, For):
        head = f"for {statement.var.name} in range({_dim(statement.extent)}):"
        marks = [] if statement.kind is LoopKind.SERIAL else [statement.kind.value]
        marks += ["reduction"] if statement.reduction else []
        note = f"  # {', '.join(marks)}" if marks else ""
        return [f"{indent}{head}{note}", *_block(statement.body, indent)]
    if isinstance(statement, If):
        head = f"{indent}if {expression_text(statement.condition)}:"
        return [head, *_block(statement.body, indent)]
    if isinstance(statement, Prefetch):
        place = _access(statement.buffer.name, statement.indices, 1, 1)
        return [f"{indent}prefetch {place}  # level {statement.level}"]
    if isinstance(statement, Comment):
        return [f"{indent}# {statement.text}"]
    return [f"{indent}<{type(statement).__name__}>"]


def _block(body: Sequence[Statement], indent: str) -> list[str]:
    inner = indent + "    "
    lines = [line for s in body for line in statement_lines(s, inner)]
    return lines or [f"{inner}pass"]


def body_text(body: Sequence[Statement]) -> str:
    """The statements of `body`, one per line."""
    return "\n".join(line for s in body for line in statement_lines(s))


def _parameter(parameter: Parameter) -> str:
    return f"{parameter.access.value} {parameter.buffer!r}".removesuffix("@device")


def _data(buffer: Buffer) -> str:
    """The values of a table; a long one is told apart by its digest."""
    if buffer.data is None:
        return ""
    if len(buffer.data) <= _SHOWN_VALUES:
        return f" = {list(buffer.data)}"
    digest = hashlib.sha256(repr(buffer.data).encode()).hexdigest()[:24]
    return f" = [{len(buffer.data)} values, sha256 {digest}]"


def kernel_text(kernel: Kernel) -> str:
    """The whole kernel: signature, local buffers, body, notes."""
    parameters = ", ".join(map(_parameter, kernel.parameters))
    dims = f", *, {', '.join(s.name for s in kernel.dims)}" if kernel.dims else ""
    lines = [f"kernel {kernel.name}({parameters}{dims}):"]
    lines += [f"    local {buffer!r}{_data(buffer)}" for buffer in kernel.locals]
    lines += _block(kernel.body, "")
    lines += [f"    # note: {note}" for note in kernel.notes]
    return "\n".join(lines) + "\n"
