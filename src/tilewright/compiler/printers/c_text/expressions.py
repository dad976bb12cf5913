"""Kernel expressions as C.

What several operations of a statement use becomes a variable before it; the rest nests.  Halves compute in
f32 and are rounded after every operation.  Called by `statements`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, assert_never, final

from tilewright.base import dtypes
from tilewright.base.dtypes import HALVES
from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel.fields import children, operands_first, parts, repeated
from tilewright.compiler.kernel.instructions import all_forms, meaning
from tilewright.compiler.kernel.ir import (
    Argument,
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Expression,
    Fma,
    Function,
    Horizontal,
    Index,
    Intrinsic,
    Load,
    Permuted,
    Select,
    Splat,
    Transposed,
    Unary,
)
from tilewright.compiler.kernel.lanes import (
    has_lanes,
    is_call,
    room_of_first_lanes,
    room_of_lanes,
)
from tilewright.compiler.printers.c_text.definitions import Definitions
from tilewright.compiler.printers.c_text.functions import Functions
from tilewright.compiler.printers.c_text.indices import Indices
from tilewright.compiler.printers.c_text.memory import Memory
from tilewright.compiler.printers.c_text.types import (
    VARIABLE,
    Value,
    bare,
    literal,
    type_of,
)
from tilewright.compiler.printers.c_text.values import Values

_SIGNS: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_WORD: Final = re.compile(r"\w+")
_FLOAT_SIGNS: Final = ("add", "sub", "mul", "div")
_LEAVES: Final = (Const, Argument, Index)
_DEEPEST: Final = 64
"""Operands below each other that a call stack is used for; each takes several of its frames."""


@final
class Expressions:
    """Prints the expressions of one kernel.

    Args:
        definitions: what the file has.
        one_rounding: whether the machine multiplies and adds with one rounding.
    """

    def __init__(self, definitions: Definitions, *, one_rounding: bool) -> None:
        self.definitions: Definitions = definitions
        self.one_rounding: bool = one_rounding
        self.v: Values = Values(definitions)
        self.indices: Indices = Indices(self.v, self.value)
        self.memory: Memory = Memory(self.v, self.indices, self.value)
        self.functions: Functions = Functions(definitions, self._body)
        self.arguments: list[Value] = []
        self.names: dict[str, str] = {}
        self._repeated: frozenset[int] = frozenset()
        self._known: dict[int, Value] = {}
        self._count: int = 0
        self._depth: int = 0  # of the expression that is being printed, below its statement

    # --- statements ------------------------------------------------------------------------

    def begin(self, roots: Iterable[Expression]) -> None:
        """A new statement, which evaluates `roots`."""
        self.names = {}
        self._known = {}
        self._repeated = _used_again(roots)

    def value(self, node: Expression) -> Value:
        """The operand that holds `node`."""
        known = self._known.get(id(node))
        if known is not None:
            return known
        if self._depth == _DEEPEST:
            self._name_parts(node)
        self._depth += 1
        value = self._print(node)
        self._depth -= 1
        if id(node) in self._repeated:
            value = self._known[id(node)] = self.named(value)
        return value

    def _name_parts(self, node: Expression) -> None:
        """Give what is below a node variables, the deepest first, so that no call stack is as deep as the expression."""
        above, self._depth = self._depth, 0
        for part in operands_first(children(node), children, self._needs_no_name):
            value = self.value(part)
            if id(part) not in self._known:
                self._known[id(part)] = self.named(value)
        self._depth = above

    def _needs_no_name(self, node: Expression) -> bool:
        return isinstance(node, _LEAVES) or id(node) in self._known

    def named(self, value: Value) -> Value:
        """A variable that holds `value` from here on."""
        if value.first and not value.first.isdigit():
            value = value._replace(first=self._variable("int64_t", value.first))
        self.v.definitions.vector(value.dtype, value.lanes, value.width)
        return value._replace(text=self._variable(type_of(value), value.text))

    def _variable(self, type_: str, text: str) -> str:
        self._count += 1
        name = VARIABLE.format(self._count)
        self.names[name] = f"const {type_} {name} = {bare(text)};"
        return name

    def names_for(self, lines: Sequence[str]) -> list[str]:
        """The variables that `lines` use, or that those need."""
        words = set(_WORD.findall("\n".join(lines)))
        found: list[str] = []
        for name, line in reversed(self.names.items()):
            if name in words:
                found.append(line)
                words.update(_WORD.findall(line))
        return found[::-1]

    def _print(self, node: Expression) -> Value:  # noqa: C901, PLR0911, PLR0912 - one per kind
        match node:
            case Const():
                return self._const(node)
            case Index():
                return self._index(node)
            case Load():
                return self.memory.load(node)
            case Unary():
                return self._unary(node)
            case Binary():
                return self._binary(node)
            case Fma():
                return self._fma(node)
            case Compare():
                return self._compare(node)
            case Select():
                return self._select(node)
            case Cast():
                return self.v.cast(self._operand(node.operand, node.lanes), node.dtype)
            case Bitcast():
                return self._bitcast(node)
            case Splat():
                return self.v.splat(self.value(node.operand), node.lanes)
            case Horizontal():
                return self._horizontal(node)
            case Transposed():
                return self._transposed(node)
            case Permuted():
                return self._permuted(node)
            case Call():
                operands = [self._operand(x, node.lanes) for x in node.operands]
                return self.functions.call(node.function, operands)
            case Intrinsic():
                return self._intrinsic(node)
            case Argument():
                return self.arguments[node.position]
            case _:
                assert_never(node)

    # --- pieces ----------------------------------------------------------------------------

    def _operand(self, node: Expression, lanes: int) -> Value:
        return self.v.splat(self.value(node), lanes)

    def _wide(self, node: Expression, lanes: int) -> Value:
        """A float operand in its computation type."""
        value = self._operand(node, lanes)
        return self.v.cast(value, dtypes.f32) if value.dtype in HALVES else value

    # --- leaves ----------------------------------------------------------------------------

    def _const(self, node: Const) -> Value:
        return self.v.splat(Value(literal(node.value, node.dtype), node.dtype), node.lanes)

    def _index(self, node: Index) -> Value:
        if node.lanes == 1:
            return self.v.cast(Value(self.indices.dim(node.dim), dtypes.i64), node.dtype)
        if has_lanes(node.dim) or not node.dtype.is_integer:
            wide = self.indices.wide_dim(node.dim, node.lanes)
            if node.stride:
                steps = self.v.iota(dtypes.i64, node.lanes, node.stride)
                wide = self.v.apply("add", dtypes.i64, wide, steps)
            return self.v.cast(wide, node.dtype)
        first = self.v.cast(Value(self.indices.dim(node.dim), dtypes.i64), node.dtype)
        first = self.v.splat(first, node.lanes)
        if node.stride == 0:
            return first
        steps = self.v.iota(node.dtype, node.lanes, node.stride)
        return self.v.apply("add", node.dtype, first, steps)

    # --- operations ------------------------------------------------------------------------

    def _unary(self, node: Unary) -> Value:
        if node.op == "is_nan":
            x = self._wide(node.operand, node.lanes)
            return self.v.compared("!=", x, x)
        if node.dtype.is_bool:
            x = self._operand(node.operand, node.lanes)
            sign = "!" if node.lanes == 1 else "~"
            return x._replace(text=f"({sign}{x.text})", first="")
        x = self._wide(node.operand, node.lanes)
        if not node.dtype.is_float and node.op in ("floor", "ceil", "trunc", "round"):
            return x
        return self.v.cast(self.v.apply(node.op, x.dtype, x), node.dtype)

    def _binary(self, node: Binary) -> Value:
        if node.dtype.is_bool:
            return self._logical(node)
        left, right = self._wide(node.left, node.lanes), self._wide(node.right, node.lanes)
        if left.dtype.is_float and node.op in _FLOAT_SIGNS:
            text = f"({left.text} {_SIGNS[node.op]} {right.text})"
            return self.v.cast(left._replace(text=text), node.dtype)
        # Of `min` and `max` the right operand is looked at for NaN, which a constant is not.
        if node.op in ("min", "max") and isinstance(node.left, Const):
            left, right = right, left
        return self.v.cast(self.v.apply(node.op, left.dtype, left, right), node.dtype)

    def _logical(self, node: Binary) -> Value:
        op = {"min": "and", "max": "or"}.get(node.op, node.op)
        left, right = self._masks(node.left, node.right, node.lanes)
        return left._replace(text=f"({left.text} {_SIGNS[op]} {right.text})", first="")

    def _masks(
        self, left: Expression, right: Expression, lanes: int
    ) -> tuple[Value, Value]:
        """Two bools with lanes of one width."""
        pair = self._operand(left, lanes), self._operand(right, lanes)
        width = max(value.width for value in pair)
        return self.v.mask(pair[0], width), self.v.mask(pair[1], width)

    def _fma(self, node: Fma) -> Value:
        a, b, c = (self._wide(x, node.lanes) for x in (node.a, node.b, node.c))
        if not node.dtype.is_float:
            return self.v.apply("add", node.dtype, self.v.apply("mul", node.dtype, a, b), c)
        function = self.definitions.fused(a.dtype, a.lanes, one_rounding=self.one_rounding)
        texts = ", ".join(bare(x.text) for x in (a, b, c))
        return self.v.cast(Value(f"{function}({texts})", a.dtype, a.lanes), node.dtype)

    def _compare(self, node: Compare) -> Value:
        small = self._of_lanes(node)
        if small is not None:
            return small
        if node.left.dtype.is_bool:
            left, right = self._masks(node.left, node.right, node.lanes)
            if node.lanes > 1:  # true is -1 there
                left, right = right, left
        else:
            left = self._wide(node.left, node.lanes)
            right = self._wide(node.right, node.lanes)
        return self.v.compared(_SIGNS[node.op], left, right)

    def _of_lanes(self, node: Compare) -> Value | None:
        """`index + stride * lane < bound`, or another comparison, by one of small numbers, not of wide indices."""
        found = room_of_lanes(node)
        if found is None:
            return None
        (room, stride), lanes = found, node.left.lanes
        counts = room_of_first_lanes(node) is not None
        # What is farther from the lanes than one step is as good as one step.
        far = (lanes - 1) * stride
        count = self._kept(room, 0 if counts else min(far, 0) - 1, max(far, 0) + 1)
        wide = self.v.splat(Value(f"(int32_t){count}", dtypes.i32), lanes)
        mask = self.v.compared(
            _SIGNS[node.op], self.v.iota(dtypes.i32, lanes, stride), wide
        )
        return mask._replace(first=count) if counts else mask

    def _kept(self, dim: Dim, least: int, most: int) -> str:
        """A number kept between two limits."""
        if isinstance(dim, int):
            return str(min(max(dim, least), most))
        above = self.indices.extreme("max", self.indices.dim(dim), str(least))
        return self.indices.extreme("min", above, str(most))

    def _select(self, node: Select) -> Value:
        condition = self._operand(node.condition, node.lanes)
        if_false = self._operand(node.if_false, node.lanes)
        is_cold = node.lanes > 1 and is_call(node.if_true)
        if is_cold:
            condition, if_false = self.named(condition), self.named(if_false)
        if_true = self._operand(node.if_true, node.lanes)
        chosen = self.v.choose(condition, if_true, if_false)
        if not is_cold:
            return chosen
        text = f"({self.v.any_lane(condition)} ? {chosen.text} : {if_false.text})"
        return chosen._replace(text=text)

    def _bitcast(self, node: Bitcast) -> Value:
        value = self.value(node.operand)
        if node.lanes == 1 or value.lanes == 1:
            return self.v.reinterpret(value, node.dtype, node.lanes)
        type_ = self.definitions.vector(node.dtype, node.lanes)
        return Value(f"(({type_}){value.text})", node.dtype, node.lanes)

    def _horizontal(self, node: Horizontal) -> Value:
        value = self._wide(node.operand, node.operand.lanes)
        if node.dtype.is_bool:
            raise InternalError("no C for lanes of bool combined")
        function = self.definitions.horizontal(node.op, value.dtype, value.lanes)
        return self.v.cast(
            Value(f"{function}({bare(value.text)})", value.dtype), node.dtype
        )

    def _transposed(self, node: Transposed) -> Value:
        type_ = self.definitions.vector(node.dtype, node.lanes)
        rows = [self.value(row) for row in node.rows]
        items = ", ".join(f"{row.text}[{node.column}]" for row in rows)
        return Value(f"(({type_}){{{items}}})", node.dtype, node.lanes)

    def _permuted(self, node: Permuted) -> Value:
        type_ = self.definitions.vector(node.dtype, node.lanes)
        whole = self.named(self.value(node.operand))
        items = ", ".join(f"{whole.text}[{place}]" for place in node.order)
        return Value(f"(({type_}){{{items}}})", node.dtype, node.lanes)

    def _intrinsic(self, node: Intrinsic) -> Value:
        """The machine's instruction where the compiler has it, else what it means."""
        if node.instruction.tile_lanes > 1:
            return self._tiles(node)
        row = node.instruction
        letters = [Argument(n, dtype) for n, dtype in enumerate(row.operands)]
        function = Function(row.name, row.operands, row.dtype, meaning(row, letters))
        forms = [form for form in all_forms(row) if form.lanes == node.lanes]
        operands = [self._operand(x, node.lanes) for x in node.operands]
        return self.functions.call(function, operands, forms)

    def _tiles(self, node: Intrinsic) -> Value:
        """An instruction of tiles: what it means is said of all lanes together."""
        row = node.instruction
        letters = [Argument(n, dtype, node.lanes) for n, dtype in enumerate(row.operands)]
        forms = [form for form in all_forms(row) if form.lanes == node.lanes]
        operands = [self._operand(x, node.lanes) for x in node.operands]
        return self.functions.call_whole(row.name, meaning(row, letters), operands, forms)

    # --- functions -------------------------------------------------------------------------

    def _body(self, root: Expression, arguments: list[Value]) -> tuple[list[str], str]:
        """The lines of a function's body and what it returns."""
        inner = Expressions(self.definitions, one_rounding=self.one_rounding)
        inner.arguments = arguments
        inner.begin([root])
        value = inner.value(root)
        return inner.names_for([value.text]), value.text


def _used_again(roots: Iterable[Expression]) -> frozenset[int]:
    """The ids of operations that a statement uses more than once."""
    found = repeated(roots, parts).items()
    return frozenset(at for at, value in found if not isinstance(value, (*_LEAVES, Call)))
