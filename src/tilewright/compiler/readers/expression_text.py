"""Expressions of kernel text: what `kernel.text.expression_text` prints, read back.

What stands before the operands decides the kind: `_HEADS` has a row for each kind with a form of its own; a
kind without one is read as it is printed, its class with its data in `<...>`.  Types and lanes follow from
the operands, and every node is asked what is wrong with it.  Called by `kernel_text`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final, get_args

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim, DimReader, Expr, Symbol
from tilewright.base.text_reader import NUMBER, TextReader
from tilewright.compiler.kernel.fields import Role, fields_of
from tilewright.compiler.kernel.instructions import INSTRUCTIONS
from tilewright.compiler.kernel.ir import (
    BINARY_OPS,
    COMBINING_OPS,
    UNARY_OPS,
    Argument,
    Binary,
    Bitcast,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Expression,
    Fma,
    Function,
    Horizontal,
    Index,
    Load,
    Select,
    Splat,
    Transposed,
    Unary,
)
from tilewright.compiler.kernel.rewrite import as_index, lane_index
from tilewright.compiler.kernel.text import INFIX

_DEPTH_LIMIT: Final = 150
_LANE_LIMIT: Final = 4096
_DIGIT_LIMIT: Final = 20
_TYPES: Final = {t.name: t for t in dtypes.ALL}
_SIGNS: Final = {sign: op for op, sign in INFIX.items()}
_SIGN: Final = re.compile(
    "|".join(re.escape(s) for s in sorted(_SIGNS, key=len, reverse=True))
)
_PART: Final = re.compile(r"(t\d+)\s*:=")
_COLUMN: Final = re.compile(r"column_(\d{1,4})$")
_KINDS: Final = {kind.__name__.lower(): kind for kind in get_args(Expression)}


@final
@dataclass
class Scope:
    """What names mean where an expression stands."""

    buffers: dict[str, Buffer] = field(default_factory=dict)
    symbols: dict[str, Symbol] = field(default_factory=dict)
    functions: dict[tuple[str, tuple[DType, ...]], Function] = field(default_factory=dict)
    parameters: tuple[DType, ...] = ()  # those of the function whose body is read


@final
class ExpressionParser:
    """Reads expressions and indices from one line."""

    def __init__(self, line: TextReader, scope: Scope) -> None:
        self.line: TextReader = line
        self.scope: Scope = scope
        self.parts: dict[str, Expression] = {}
        self.depth: int = 0
        self.indices: DimReader = DimReader(
            line, self._symbol, opaque=self._opaque, as_written=True, subject="an index"
        )

    # --- indices -------------------------------------------------------------------------

    def dim(self) -> Dim:
        """An index, an extent or a size."""
        return self.indices.read()

    def _symbol(self, name: str, start: int) -> Dim:
        found = self.scope.symbols.get(name)
        if found is None:
            raise self.line.unknown("variable or size", name, self.scope.symbols, start)
        return Expr.of_atom(found)

    def dims(self, end: str) -> tuple[Dim, ...]:
        """Indices with commas between them, up to one of the tokens `:` and `end`."""
        found: list[Dim] = []
        while not self.line.is_at(end) and not self.line.is_at(":"):
            if found:
                self.line.expect(",")
            found.append(self.dim())
        return tuple(found)

    def _opaque(self) -> Dim:
        """What stands between `<` and `>`: an index that memory decides."""
        line, outer = self.line, self.parts
        start = line.position
        if line.accept("lane of "):
            lane = lane_index(self.lanes())
            line.expect(">")
            return lane
        self.parts = {}
        value = self.expression()
        self.parts = outer
        line.expect(">")
        if not value.dtype.is_integer:
            raise line.error(f"an index of {value.dtype}, expected an integer", at=start)
        return as_index(value)

    def place(self) -> tuple[Buffer, tuple[Dim, ...], int, int]:
        """`x[i, j : 8 lanes step 2]` as (buffer, indices, lanes, step)."""
        line = self.line
        start = line.skip_space()
        name = line.word("a buffer")
        return self._place(name, start)

    def _place(self, name: str, start: int) -> tuple[Buffer, tuple[Dim, ...], int, int]:
        line = self.line
        buffer = self.scope.buffers.get(name)
        if buffer is None:
            raise line.unknown("buffer", name, self.scope.buffers, start)
        line.expect("[")
        indices = self.dims("]")
        lanes, step = 1, 1
        if line.accept(":"):
            lanes = self.lanes()
            line.expect("lanes")
            step = line.whole("a step") if line.accept("step") else 1
        line.expect("]")
        return buffer, indices, lanes, step

    def lanes(self) -> int:
        """A number of lanes."""
        start = self.line.skip_space()
        found = self.line.whole("a number of lanes")
        if not 1 <= found <= _LANE_LIMIT:
            raise self.line.error(f"{found} lanes, expected 1 to {_LANE_LIMIT}", at=start)
        return found

    # --- expressions ---------------------------------------------------------------------

    def expression(self) -> Expression:
        """One expression."""
        self.depth += 1
        if self.depth > _DEPTH_LIMIT:
            raise self.line.error("an expression is nested too deeply")
        value = self._expression()
        self.depth -= 1
        return value

    def _expression(self) -> Expression:
        line = self.line
        if line.accept("("):
            return self._bracketed()
        start = line.skip_space()
        if line.accept("$"):
            return self._argument(start)
        number = line.take(NUMBER)
        if number is not None:
            return self._number(number, start)
        return self._named(line.word("an expression"), start)

    def _bracketed(self) -> Expression:
        """What `(` opens: a part with a name, a load with a mask, or two operands and a sign."""
        line = self.line
        named = line.take(_PART)
        if named is not None:
            value = self.parts[named.split(":")[0].strip()] = self.expression()
            line.expect(")")
            return value
        left = self.expression()
        if isinstance(left, Load) and line.accept("where"):
            value = Load(
                left.buffer, left.indices, left.lanes, left.stride, self.expression()
            )
            line.expect(")")
            return value
        at = line.skip_space()
        sign = line.read(_SIGN, "an operator")
        right = self.expression()
        line.expect(")")
        op = _SIGNS[sign]
        if op in BINARY_OPS:
            return self.made(Binary(op, left, right, left.dtype, left.lanes), at)
        return self.made(Compare(op, left, right, left.lanes), at)

    def _number(self, text: str, start: int) -> Const:
        """A literal: f32 with a point or an exponent, else i64."""
        if not text.lstrip("-").isdecimal():
            return Const(float(text), dtypes.f32)
        if len(text) > _DIGIT_LIMIT:
            raise self.line.error("a number too large for 64 bits", at=start)
        return Const(int(text), dtypes.i64)

    def _argument(self, start: int) -> Argument:
        position = self.line.whole("the position of an argument")
        if not 0 <= position < len(self.scope.parameters):
            raise self.line.error(f"no argument ${position} here", at=start)
        return Argument(position, self.scope.parameters[position])

    def _named(self, name: str, start: int) -> Expression:
        line = self.line
        if line.is_at("["):
            return Load(*self._place(name, start))
        if name in self.parts:
            return self.parts[name]
        read = _column if _COLUMN.match(name) else _HEADS.get(name)
        if read is not None:
            return read(self, name, start)
        if line.is_at("<") and name in _KINDS:
            return self._any_kind(_KINDS[name], start)
        if not line.is_at("("):
            raise line.unknown(
                "name", name, (*self.scope.buffers, *_HEADS, *self.parts), start
            )
        operands = self.operands()
        given = tuple(operand.dtype for operand in operands)
        function = self.scope.functions.get((name, given))
        if function is None or not operands:
            known = [known for known, _ in self.scope.functions]
            subject = f"function of ({', '.join(map(str, given))})"
            raise line.unknown(subject, name, [*known, *_HEADS], start)
        return self.made(Call(function, operands, operands[0].lanes), start)

    def operands(self, count: int | None = None) -> tuple[Expression, ...]:
        """Operands in parentheses, `count` of them if that is given."""
        line = self.line
        line.expect("(")
        start = line.position
        found = line.several(self.expression, ")")
        if count is not None and len(found) != count:
            raise line.error(f"{len(found)} operands, expected {count}", at=start)
        return found

    def dtype(self) -> DType:
        """The name of a data type."""
        start = self.line.skip_space()
        name = self.line.word("a data type")
        if name not in _TYPES:
            raise self.line.unknown("data type", name, _TYPES, start)
        return _TYPES[name]

    def in_angles(self, read: Callable[[], Any]) -> Any:
        """What `read` finds between `<` and `>`."""
        self.line.expect("<")
        value = read()
        self.line.expect(">")
        return value

    def made(self, value: Expression, at: int) -> Expression:
        """`value`, if its types agree."""
        problem = value.problem()
        if problem is not None:
            raise self.line.error(f"{type(value).__name__.lower()}: {problem}", at=at)
        return value

    # --- kinds without ------------------------------------------------------------------

    def _any_kind(self, kind: type[Any], start: int) -> Expression:
        """A class with its data, then its indices, in `<...>`, and its operands."""
        line, roles = self.line, fields_of(kind).roles
        values: dict[str, Any] = {}
        line.expect("<")
        wanted = [n for n, role in roles.items() if role is Role.DATA]
        wanted += [n for n, role in roles.items() if role is Role.INDEX]
        for place, name in enumerate(wanted):
            if place:
                line.expect(",")
            values[name] = self.dim() if roles[name] is Role.INDEX else self._datum()
        line.expect(">")
        operands = list(self.operands())
        for name in (n for n, role in roles.items() if role is Role.OPERAND):
            if not operands:
                raise line.error(f"too few operands of '{kind.__name__.lower()}'", at=start)
            values[name] = operands.pop(0)
        for name in (n for n, role in roles.items() if role is Role.OPERANDS):
            values[name], operands = tuple(operands), []
        if operands or len(values) != len(roles):
            raise line.error(f"not the operands of '{kind.__name__.lower()}'", at=start)
        return self.made(kind(**values), start)

    def _datum(self) -> Any:
        """A number, several in parentheses, a data type, an instruction or a word."""
        if self.line.accept("("):
            return self.line.several(lambda: self.line.whole("a number"), ")")
        if self.line.is_at_digit() or self.line.is_at("-"):
            return self.line.whole("a number")
        name = self.line.word("a value")
        return {"True": True, "False": False, **_TYPES, **INSTRUCTIONS}.get(name, name)


# --- kinds with a form of their own --------------------------------------------------


def _unary(p: ExpressionParser, name: str, start: int) -> Expression:
    (value,) = p.operands(1)
    dtype = dtypes.bool_ if name == "is_nan" else value.dtype
    return p.made(Unary(name, value, dtype, value.lanes), start)


def _binary(p: ExpressionParser, name: str, start: int) -> Expression:
    left, right = p.operands(2)
    return p.made(Binary(name, left, right, left.dtype, left.lanes), start)


def _cast(p: ExpressionParser, name: str, start: int) -> Expression:
    (value,) = p.operands(1)
    dtype = _TYPES[name]
    if isinstance(value, Const) and value.lanes == 1 and _is_literal(value, dtype):
        return Const(value.value, dtype)
    return p.made(Cast(value, dtype, value.lanes), start)


def _bits(p: ExpressionParser, _: str, start: int) -> Expression:
    dtype = p.in_angles(p.dtype)
    (value,) = p.operands(1)
    lanes = value.lanes * value.dtype.itemsize // dtype.itemsize
    return p.made(Bitcast(value, dtype, max(1, lanes)), start)


def _splat(p: ExpressionParser, _: str, start: int) -> Expression:
    lanes = p.in_angles(p.lanes)
    (value,) = p.operands(1)
    if isinstance(value, Const) and value.lanes == 1:
        return Const(value.value, value.dtype, lanes)
    return p.made(Splat(value, lanes, value.dtype), start)


def _index(p: ExpressionParser, _: str, start: int) -> Expression:
    dtype = p.in_angles(p.dtype)
    line = p.line
    line.expect("(")
    dim, lanes, stride = p.dim(), 1, 0
    if line.accept(","):
        line.expect("lanes=")
        lanes = p.lanes()
        line.expect(",")
        line.expect("stride=")
        stride = line.whole("a stride")
    line.expect(")")
    return p.made(Index(dim, dtype, lanes, stride), start)


def _fma(p: ExpressionParser, _: str, start: int) -> Expression:
    a, b, c = p.operands(3)
    return p.made(Fma(a, b, c, a.dtype, a.lanes), start)


def _select(p: ExpressionParser, _: str, start: int) -> Expression:
    condition, yes, no = p.operands(3)
    return p.made(Select(condition, yes, no, yes.dtype, yes.lanes), start)


def _horizontal(p: ExpressionParser, name: str, start: int) -> Expression:
    (value,) = p.operands(1)
    op = name.removeprefix("horizontal_")
    return p.made(Horizontal(op, value, value.dtype), start)


def _column(p: ExpressionParser, name: str, start: int) -> Expression:
    rows = p.operands()
    if not rows:
        raise p.line.error("a column of no rows", at=start)
    column = int(name.removeprefix("column_"))
    return p.made(Transposed(rows, column, rows[0].dtype, len(rows)), start)


def _is_literal(value: Const, dtype: DType) -> bool:
    """Whether `dtype(value)` is how a number of that type is written."""
    if dtype.is_bool:
        return value.dtype.is_bool
    return value.dtype is (dtypes.f32 if dtype.is_float else dtypes.i64)


_Head = Callable[[ExpressionParser, str, int], Expression]
_HEADS: Final[Mapping[str, _Head]] = {
    **dict.fromkeys(UNARY_OPS, _unary),
    **dict.fromkeys((op for op in BINARY_OPS if op not in INFIX), _binary),
    **dict.fromkeys((f"horizontal_{op}" for op in COMBINING_OPS), _horizontal),
    **dict.fromkeys(_TYPES, _cast),
    "True": lambda _, __, ___: Const(True, dtypes.bool_),
    "False": lambda _, __, ___: Const(False, dtypes.bool_),
    "bits": _bits,
    "fma": _fma,
    "index": _index,
    "select": _select,
    "splat": _splat,
}
"""What the word before the operands means."""
