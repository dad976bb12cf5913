"""Kernels as readable text, close to Python.

For people, tests and dumps; `readers.kernel_text` reads it back, so it says all that a kernel computes, though not how it came
to be (trace, verdict).  `expression_text` also names opaque index atoms, so two expressions with equal text have
equal values (buffer names are unique in a kernel).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final, assert_never, cast, final

import numpy as np

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.fields import (
    children,
    dims_of,
    fields_of,
    operands_of,
    repeated,
)

_SHOWN_VALUES: Final = 64
_LONG: Final = 64
"""Operations, from which on repeated parts of an expression get names."""
INFIX: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=",
}  # fmt: skip


def expression_text(value: ir.Expression) -> str:
    """One line for an expression; in a long one, what comes again has a name: `(t1 := a * b) + t1`."""
    return _Line(_named_parts(value)).text(value)


def _named_parts(root: ir.Expression) -> frozenset[int]:
    """The ids of the operations in a long expression that several others have for an operand.

    Written out each time, what is made of them would double with every step.
    """
    count, waiting = 0, [root]
    while waiting and count <= _LONG:
        count += 1
        waiting.extend(children(waiting.pop()))
    if count <= _LONG:
        return frozenset()
    found = repeated([root], children)
    return frozenset(place for place, value in found.items() if children(value))


@final
class _Line:
    """One line under construction: what has been named in it."""

    def __init__(self, repeated: frozenset[int]) -> None:
        self.repeated: frozenset[int] = repeated
        self.names: dict[int, str] = {}

    def text(self, value: ir.Expression) -> str:
        """An expression, or its name."""
        if id(value) not in self.repeated:
            return self._text(value)
        name = self.names.get(id(value))
        if name is not None:
            return name
        text = self._text(value)
        name = self.names[id(value)] = f"t{len(self.names) + 1}"
        return f"({name} := {text})"

    def _text(self, value: ir.Expression) -> str:
        match value:
            case ir.Const():
                return _const(value)
            case ir.Index():
                return _index(value)
            case ir.Load():
                place = _access(value.buffer.name, value.indices, value.lanes, value.stride)
                if value.mask is None:
                    return place
                return f"({place} where {self.text(value.mask)})"
            case ir.Binary() | ir.Compare() if value.op in INFIX:
                left, right = self.text(value.left), self.text(value.right)
                return f"({left} {INFIX[value.op]} {right})"
            case ir.Argument():
                return f"${value.position}"
            case _:
                operands = ", ".join(map(self.text, children(value)))
                return f"{_verb(value)}({operands})"


def _verb(value: ir.Expression) -> str:  # noqa: PLR0911 - one per kind
    """What stands before the operands: all that is not one of them."""
    match value:
        case ir.Unary() | ir.Binary() | ir.Compare():
            return value.op
        case ir.Cast():
            return str(value.dtype)
        case ir.Bitcast():
            return f"bits<{value.dtype}>"
        case ir.Splat():
            return f"splat<{value.lanes}>"
        case ir.Horizontal():
            return f"horizontal_{value.op}"
        case ir.Transposed():
            return f"column_{value.column}"
        case ir.Call():
            return value.function.name
        case ir.Fma() | ir.Select():
            return type(value).__name__.lower()
        case _:
            return _any_verb(value)


def _any_verb(value: ir.Expression) -> str:
    """The class and its data: nothing that tells two values apart is left out."""
    data = [str(getattr(value, name)) for name in fields_of(value).data]
    dims = [_dim(dim) for dim in dims_of(value)]
    return f"{type(value).__name__.lower()}<{', '.join([*data, *dims])}>"


def _index(value: ir.Index) -> str:
    lanes = f", lanes={value.lanes}, stride={value.stride}" if value.lanes > 1 else ""
    return f"index<{value.dtype}>({_dim(value.dim)}{lanes})"


def _const(value: ir.Const) -> str:
    kind = bool if value.dtype.is_bool else float if value.dtype.is_float else int
    number = repr(kind(value.value))
    text = f"{value.dtype}({number})" if value.dtype.name not in ("f32", "i64") else number
    return text if value.lanes == 1 else f"splat<{value.lanes}>({text})"


def _dim(dim: Dim) -> str:
    text = str(dim)
    if text.startswith("(") and text.endswith(")") and (_is_sum(dim) or _one(text)):
        return text[1:-1]
    return text


def _is_sum(dim: Dim) -> bool:
    """Whether the text of an index is that of several terms, in parentheses."""
    return isinstance(dim, symbolic.Expr) and len(dim.terms) + bool(dim.constant) > 1


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


def _mask(mask: ir.Expression | None) -> str:
    return "" if mask is None else f" where {expression_text(mask)}"


def statement_lines(statement: ir.Statement, indent: str = "") -> list[str]:
    """The lines of one statement."""
    match statement:
        case ir.Store():
            target = _access(
                statement.buffer.name,
                statement.indices,
                statement.value.lanes,
                statement.stride,
            )
            value = expression_text(statement.value)
            return [f"{indent}{target} = {value}{_mask(statement.mask)}"]
        case ir.For():
            head = f"for {statement.var.name} in range({_dim(statement.extent)}):"
            marks = [] if statement.kind is ir.LoopKind.SERIAL else [statement.kind.value]
            marks += ["reduction"] if statement.reduction else []
            marks += _bounds_mark(statement)
            note = f"  # {', '.join(marks)}" if marks else ""
            return [f"{indent}{head}{note}", *_block(statement.body, indent)]
        case ir.If():
            head = f"{indent}if {expression_text(statement.condition)}:"
            return [head, *_block(statement.body, indent)]
        case ir.Prefetch():
            place = _access(statement.buffer.name, statement.indices, 1, 1)
            return [f"{indent}prefetch {place}  # level {statement.level}"]
        case ir.Barrier():
            return [f"{indent}barrier"]
        case _:
            assert_never(statement)


def implied_bounds(extent: Dim) -> symbolic.Bounds:
    """What the variable of a loop over `extent` is between, unless its text says otherwise."""
    upper = symbolic.bounds(extent)[1]
    return 0, None if upper is None else max(0, upper - 1)


def _bounds_mark(loop: ir.For) -> list[str]:
    """The bounds of a loop's variable, where the extent implies others."""
    if loop.var.bounds() == implied_bounds(loop.extent):
        return []
    return [_bounded(loop.var)]  # a name alone may be that of a mark


def _symbol(symbol: Symbol) -> str:
    """`n` for a size without a limit, `n: 1..64` for another, `n: 1..` for one without an upper bound."""
    if symbol.bounds() == (0, None):
        return symbol.name
    return _bounded(symbol)


def _bounded(symbol: Symbol) -> str:
    low, high = ("" if bound is None else str(bound) for bound in symbol.bounds())
    return f"{symbol.name}: {low}..{high}"


def _block(body: Sequence[ir.Statement], indent: str) -> list[str]:
    inner = indent + "    "
    lines = [line for s in body for line in statement_lines(s, inner)]
    return lines or [f"{inner}pass"]


def _parameter(parameter: ir.Parameter) -> str:
    return f"{parameter.access.value} {parameter.buffer!r}".removesuffix("@device")


def _data(buffer: ir.Buffer) -> str:
    """The values of a table; those of a long one as they lie in memory, in base 64."""
    if buffer.data is None:
        return ""
    if len(buffer.data) <= _SHOWN_VALUES:
        kind = float if buffer.dtype.is_float else int
        return f" = {[kind(value) for value in buffer.data]}"
    data = np.asarray(buffer.data).astype(buffer.dtype.numpy)
    return f" = {len(buffer.data)} values {base64.b64encode(data.tobytes()).decode()}"


def functions_of(kernel: ir.Kernel) -> list[ir.Function]:
    """The functions that a kernel calls, each after those that it calls itself."""
    found: dict[ir.Function, None] = {}

    def visit(value: ir.Expression, seen: set[int]) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        for part in children(value):
            visit(part, seen)
        for dim in dims_of(value):
            visit_dim(dim, seen)
        if isinstance(value, ir.Call) and value.function not in found:
            if value.function.body is not None:
                visit(value.function.body, seen)
            found[value.function] = None

    def visit_dim(dim: Dim, seen: set[int]) -> None:
        for atom in symbolic.opaques(dim):
            visit(cast("ir.Expression", atom.payload), seen)

    seen: set[int] = set()
    for statement in ir.walk(kernel.body):
        for value in operands_of(statement):
            visit(value, seen)
        for dim in dims_of(statement):
            visit_dim(dim, seen)
    return list(found)


def _function(function: ir.Function) -> str:
    parameters = ", ".join(map(str, function.parameters))
    body = "" if function.body is None else f" = {expression_text(function.body)}"
    return f"    function {function.name}({parameters}) -> {function.dtype}{body}"


def kernel_text(kernel: ir.Kernel) -> str:
    """The whole kernel: signature, local buffers, body, notes."""
    sizes = ["*", *map(_symbol, kernel.dims)] if kernel.dims else []
    signature = ", ".join([*map(_parameter, kernel.parameters), *sizes])
    lines = [f"kernel {kernel.name}({signature}):"]
    lines += map(_function, functions_of(kernel))
    lines += [f"    local {buffer!r}{_data(buffer)}" for buffer in kernel.locals]
    lines += _block(kernel.body, "")
    lines += [f"    # note: {note}" for note in kernel.notes]
    return "\n".join(lines) + "\n"
