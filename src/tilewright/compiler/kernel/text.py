"""Kernels as readable text, close to Python.

For people, tests and dumps; nothing parses it back.  `expression_text` also names opaque index
atoms, so two expressions with equal text have equal values (buffer names are unique in a kernel).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, final

from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel.ir import (
    Argument,
    Binary,
    Bitcast,
    Buffer,
    Call,
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
    children,
)

_SHOWN_VALUES: Final = 16
_LONG: Final = 64
"""Operations, from which on repeated parts of an expression get names."""
_INFIX: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=",
}  # fmt: skip


def expression_text(value: Expression) -> str:
    """One line for an expression; in a long one, what comes again has a name: `(t1 := a * b) + t1`."""
    return _Line(_repeated(value)).text(value)


def _repeated(root: Expression) -> frozenset[int]:
    """The ids of the operations in a long expression that several others have for an operand.

    Written out each time, what is made of them would double with every step.
    """
    sizes: dict[int, int] = {}
    repeated: set[int] = set()

    def size(value: Expression) -> int:
        parts = children(value)
        if not parts:
            return 1
        known = sizes.get(id(value))
        if known is not None:
            repeated.add(id(value))
            return known
        sizes[id(value)] = total = 1 + sum(map(size, parts))
        return total

    return frozenset(repeated) if size(root) > _LONG else frozenset()


@final
class _Line:
    """One line under construction: what has been named in it."""

    def __init__(self, repeated: frozenset[int]) -> None:
        self.repeated: frozenset[int] = repeated
        self.names: dict[int, str] = {}

    def text(self, value: Expression) -> str:
        """An expression, or its name."""
        if id(value) not in self.repeated:
            return self._text(value)
        name = self.names.get(id(value))
        if name is not None:
            return name
        text = self._text(value)
        name = self.names[id(value)] = f"t{len(self.names) + 1}"
        return f"({name} := {text})"

    def _text(self, value: Expression) -> str:
        if isinstance(value, Const):
            return _const(value)
        if isinstance(value, Index):
            lanes = (
                f", lanes={value.lanes}, stride={value.stride}" if value.lanes > 1 else ""
            )
            return f"index<{value.dtype}>({_dim(value.dim)}{lanes})"
        if isinstance(value, Load):
            place = _access(value.buffer.name, value.indices, value.lanes, value.stride)
            return place if value.mask is None else f"{place} where {self.text(value.mask)}"
        if isinstance(value, Binary | Compare):
            left, right = self.text(value.left), self.text(value.right)
            sign = _INFIX.get(value.op)
            return f"({left} {sign} {right})" if sign else f"{value.op}({left}, {right})"
        if isinstance(value, Argument):
            return f"${value.position}"
        operands = ", ".join(map(self.text, children(value)))
        return f"{_verb(value)}({operands})"


def _verb(value: Expression) -> str:  # noqa: PLR0911 - one per kind
    """What stands before the operands."""
    if isinstance(value, Unary):
        return value.op
    if isinstance(value, Cast):
        return str(value.dtype)
    if isinstance(value, Bitcast):
        return f"bits<{value.dtype}>"
    if isinstance(value, Splat):
        return f"splat<{value.lanes}>"
    if isinstance(value, Horizontal):
        return f"horizontal_{value.op}"
    if isinstance(value, Fma):
        return "fma"
    if isinstance(value, Select):
        return "select"
    if isinstance(value, Transposed):
        return f"column_{value.column}"
    if isinstance(value, Call):
        return value.function.name
    return f"<{type(value).__name__}>"


def _const(value: Const) -> str:
    number = repr(value.value)
    text = f"{value.dtype}({number})" if value.dtype.name not in ("f32", "i64") else number
    return text if value.lanes == 1 else f"splat<{value.lanes}>({text})"


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
