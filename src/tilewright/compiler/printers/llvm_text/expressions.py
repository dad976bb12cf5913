"""Kernel expressions as LLVM instructions.

One method per kind of expression and one table per operation; the semantics are those at the top
of `kernel.ir`.  `f16` and `bf16` arithmetic happens in f32 and is rounded after every operation.
Called by statements and memory of this room.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, assert_never, final

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import HALVES, DType
from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Dim, Opaque, Operation
from tilewright.base.target import Target
from tilewright.compiler.kernel.fields import children, operands_first
from tilewright.compiler.kernel.instructions import form_for, meaning
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
from tilewright.compiler.kernel.lanes import has_lanes, is_call, room_of_lanes
from tilewright.compiler.printers.llvm_text import interleave
from tilewright.compiler.printers.llvm_text.arithmetic import Abilities, Arithmetic
from tilewright.compiler.printers.llvm_text.conversions import Conversions
from tilewright.compiler.printers.llvm_text.functions import Functions
from tilewright.compiler.printers.llvm_text.indices import Indices
from tilewright.compiler.printers.llvm_text.instructions import apply_form
from tilewright.compiler.printers.llvm_text.memory import Memory
from tilewright.compiler.printers.llvm_text.registers import Registers
from tilewright.compiler.printers.llvm_text.types import (
    Value,
    constant,
    split_type,
    value_type,
    vector,
)
from tilewright.compiler.printers.llvm_text.writer import FunctionWriter

_DEEPEST: Final = 64
"""Operands below each other that a call stack is used for; each takes several of its frames."""
_FLOAT_VERBS: Final = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER_VERBS: Final = {
    "add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor",
    "shl": "shl",
}  # fmt: skip
_ORDERED: Final = {
    "eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
}  # fmt: skip
_OF_LANES: Final = {
    "eq": ("eq", 0), "ne": ("ne", 0), "lt": ("slt", 0), "gt": ("sgt", 0), "le": ("slt", 1), "ge": ("sgt", -1),
}  # fmt: skip
"""Comparisons of vectors, which lack two of them: those are others with a number that is so much larger."""
_FLOAT_INTRINSICS: Final = {"abs": "fabs", "sqrt": "sqrt"}
_ROUNDINGS: Final = {
    "floor": "floor", "ceil": "ceil", "round": "roundeven", "trunc": "trunc",
}  # fmt: skip


@final
class Expressions:
    """Turns expressions into operands; owns the memory and index emitters of a function."""

    def __init__(
        self, writer: FunctionWriter, registers: Registers, target: Target
    ) -> None:
        self.writer: FunctionWriter = writer
        self.target: Target = target
        self.a: Arithmetic = Arithmetic(writer, Abilities.of(target))
        self.conversions: Conversions = Conversions(self.a)
        self.indices: Indices = Indices(writer, self._index_of)
        self.memory: Memory = Memory(
            self.a, self.indices, registers, self.value, self.wide_index
        )
        self.functions: Functions = Functions(self.a, partial(_function_body, target))
        self._arguments: list[Value] = []
        self._known: dict[int, Value] = {}
        self._depth: int = (
            0  # of the expression that is being asked for, below its statement
        )
        self._meanings: list[Expression] = []

    def value(self, node: Expression) -> Value:
        """The operand that holds `node`; what comes again in a statement is asked for once."""
        place = id(node)
        known = self._known.get(place)
        if known is not None:
            return known
        if self._depth == _DEEPEST:
            self._emit_parts(node)
        self._depth += 1
        value = self._known[place] = self._emit(node)
        self._depth -= 1
        return value

    def _emit_parts(self, node: Expression) -> None:
        """Emit what is below a node, the deepest first, so that no call stack is as deep as the expression."""
        above, self._depth = self._depth, 0
        for part in operands_first(
            children(node), children, lambda part: id(part) in self._known
        ):
            self.value(part)
        self._depth = above

    def _emit(self, node: Expression) -> Value:  # noqa: C901, PLR0911, PLR0912 - one per kind
        match node:
            case Load():
                return self.memory.load(node)
            case Fma():
                return self._fma(node)
            case Binary():
                return self._binary(node)
            case Const():
                return self._const(node)
            case Splat():
                return self.a.splat(self.value(node.operand), node.lanes)
            case Index():
                return self._index(node)
            case Unary():
                return self._unary(node)
            case Compare():
                return self._compare(node)
            case Select():
                return self._select(node)
            case Cast():
                return self._cast(node)
            case Bitcast():
                return self._bitcast(node)
            case Horizontal():
                return self._horizontal(node)
            case Transposed():
                return self._transposed(node)
            case Permuted():
                return self.a.shuffle(self.value(node.operand), None, list(node.order))
            case Call():
                operands = [self._operand(x, node.lanes) for x in node.operands]
                return self.functions.call(node.function, operands)
            case Intrinsic():
                return self._intrinsic(node)
            case Argument():
                return self._arguments[node.position]
            case _:
                assert_never(node)

    def in_turns(self, chains: Sequence[interleave.Chain]) -> dict[int, Value]:
        """What stores write, by id of the store, computed side by side."""
        self.begin_statement()
        for step in interleave.in_turns(chains):
            self.value(step)
        return {id(chain.store): self.value(chain.store.value) for chain in chains}

    def begin_statement(self) -> None:
        """Forget the values of expressions: what was before may have changed memory."""
        self._known.clear()

    # --- leaves ----------------------------------------------------------------------------

    def _const(self, node: Const) -> Value:
        return constant(node.value, node.dtype, node.lanes)

    def _index(self, node: Index) -> Value:
        if node.lanes > 1 and has_lanes(node.dim):
            wide = self.wide_index(node.dim, node.lanes)
        else:
            wide = self.a.splat(self.indices.value(node.dim), node.lanes)
        value = self.conversions.cast(wide, dtypes.i64, node.dtype)
        if node.lanes == 1 or node.stride == 0:
            return value
        if not node.dtype.is_integer:
            step = self.a.iota(node.lanes, node.stride, "i64")
            total = self.a.binary("add", wide, step)
            return self.conversions.cast(total, dtypes.i64, node.dtype)
        step = self.a.iota(node.lanes, node.stride, node.dtype.llvm)
        return self.a.binary("add", value, step)

    def _index_of(self, payload: Expression) -> Value:
        """A data-dependent index as i64."""
        return self.conversions.cast(self.value(payload), payload.dtype, dtypes.i64)

    def wide_index(self, dim: Dim, lanes: int) -> Value:
        """An index whose opaque parts may be vectors, one i64 per lane."""
        if isinstance(dim, int) or not has_lanes(dim):
            return self.a.splat(self.indices.value(dim), lanes)
        scalar: Dim = dim.constant
        total: Value | None = None
        for monomial, factor in dim.terms:
            single = symbolic.Expr(((monomial, factor),), 0)
            if not has_lanes(single):
                scalar = scalar + single
                continue
            term = self.a.splat(constant(factor, dtypes.i64), lanes)
            for atom in monomial:
                term = self.a.binary("mul", self._wide_atom(atom, lanes), term)
            total = term if total is None else self.a.binary("add", total, term)
        rest = self.a.splat(self.indices.value(scalar), lanes)
        return rest if total is None else self.a.binary("add", total, rest)

    def _wide_atom(self, atom: symbolic.Atom, lanes: int) -> Value:
        if isinstance(atom, Opaque) and isinstance(atom.payload, Expression):
            value = self._index_of(atom.payload)
            return value if atom.payload.lanes > 1 else self.a.splat(value, lanes)
        if isinstance(atom, Operation):
            left = self.wide_index(atom.left, lanes)
            if atom.op in ("min", "max"):
                right = self.wide_index(atom.right, lanes)
                return self.a.intrinsic(f"s{atom.op}", left, right)
            divided = self.indices.lanes_divided(atom, left)
            if divided is not None:
                return divided
            right = self.wide_index(atom.right, lanes)
            rest = self.a.floor_rest(left, right, signed=True)
            if atom.op == "mod":
                return rest
            exact = self.a.binary("sub", left, rest)
            return self.a.divide(exact, right, signed=True, rest=False)
        return self.a.splat(self.indices.atom(atom), lanes)

    # --- operations ------------------------------------------------------------------------

    def _operand(self, node: Expression, lanes: int) -> Value:
        value = self.value(node)
        return self.a.splat(value, lanes) if node.lanes != lanes else value

    def _wide(self, node: Expression, lanes: int) -> Value:
        """A float operand in its computation type."""
        value = self._operand(node, lanes)
        return (
            self.conversions.from_half(value, node.dtype) if node.dtype in HALVES else value
        )

    def _narrow(self, value: Value, dtype: DType) -> Value:
        return self.conversions.cast(value, dtypes.f32, dtype) if dtype in HALVES else value

    def _unary(self, node: Unary) -> Value:
        if node.op == "is_nan":
            operand = self._wide(node.operand, node.lanes)
            if not node.operand.dtype.is_float:
                return constant(0, dtypes.bool_, node.lanes)
            return self.a.is_nan(operand)
        if not node.operand.dtype.is_float:
            return self._integer_unary(node)
        operand = self._wide(node.operand, node.lanes)
        return self._narrow(self._float_unary(node.op, operand), node.dtype)

    def _float_unary(self, op: str, operand: Value) -> Value:
        if op == "neg":
            return self.a.op(operand.type, f"fneg {operand}", operand)
        if op in _FLOAT_INTRINSICS:
            return self.a.intrinsic(_FLOAT_INTRINSICS[op], operand)
        if op in _ROUNDINGS:
            return self.a.rounded(_ROUNDINGS[op], operand)
        raise InternalError(f"no machine code for '{op}' on {operand.type}")

    def _integer_unary(self, node: Unary) -> Value:
        operand = self._operand(node.operand, node.lanes)
        if node.op == "neg":
            return self.a.binary("sub", self.a.integer(operand, 0), operand)
        if node.op == "not":
            return self.a.binary("xor", operand, self.a.integer(operand, -1))
        if node.op == "abs":
            if not node.dtype.is_signed:
                return operand
            _, lanes = split_type(operand.type)
            flag = Value("false", "i1")
            suffix = node.dtype.llvm if lanes == 1 else f"v{lanes}{node.dtype.llvm}"
            return self.writer.call(
                operand.type, f"llvm.abs.{suffix}", operand, flag, speculate=False
            )
        if node.op in _ROUNDINGS:
            return operand
        raise InternalError(f"no machine code for '{node.op}' on {node.operand.dtype}")

    def _binary(self, node: Binary) -> Value:
        if node.left.dtype.is_float:
            left = self._wide(node.left, node.lanes)
            right = self._wide(node.right, node.lanes)
            return self._narrow(self._float_binary(node.op, left, right), node.dtype)
        left = self._operand(node.left, node.lanes)
        right = self._operand(node.right, node.lanes)
        return self._integer_binary(node, left, right)

    def _float_binary(self, op: str, left: Value, right: Value) -> Value:
        if op in _FLOAT_VERBS:
            return self.a.binary(_FLOAT_VERBS[op], left, right)
        if op in ("min", "max"):
            return self.a.extreme(op, left, right)
        if op == "copysign":
            return self.a.intrinsic("copysign", left, right)
        if op == "scale":
            return self.a.scaled(left, right)
        raise InternalError(f"no machine code for '{op}' on {left.type}")

    def _integer_binary(self, node: Binary, left: Value, right: Value) -> Value:
        op, dtype = node.op, node.left.dtype
        signed = dtype.is_integer and dtype.is_signed
        if op in _INTEGER_VERBS:
            return self.a.binary(_INTEGER_VERBS[op], left, right)
        if op == "shr":
            return self.a.binary("ashr" if signed else "lshr", left, right)
        if op in ("min", "max"):
            if dtype.is_bool:
                return self.a.binary("and" if op == "min" else "or", left, right)
            return self.a.intrinsic(f"{'s' if signed else 'u'}{op}", left, right)
        if op in ("div", "mod"):
            return self.a.divide(left, right, signed=signed, rest=op == "mod")
        if op == "floormod":
            return self.a.floor_rest(left, right, signed=signed)
        raise InternalError(f"no machine code for '{op}' on {dtype}")

    def _fma(self, node: Fma) -> Value:
        if node.dtype.is_float:
            a, b, c = (self._wide(x, node.lanes) for x in (node.a, node.b, node.c))
            return self._narrow(self.a.fma(a, b, c), node.dtype)
        a, b, c = (self._operand(x, node.lanes) for x in (node.a, node.b, node.c))
        return self.a.binary("add", self.a.binary("mul", a, b), c)

    def _compare(self, node: Compare) -> Value:
        small = self._of_lanes(node)
        if small is not None:
            return small
        dtype = node.left.dtype
        if dtype.is_float:
            left, right = (
                self._wide(node.left, node.lanes),
                self._wide(node.right, node.lanes),
            )
            return self.a.compare(f"fcmp {_ORDERED[node.op]}", left, right)
        left = self._operand(node.left, node.lanes)
        right = self._operand(node.right, node.lanes)
        sign = "" if node.op in ("eq", "ne") else "s" if _signed(dtype) else "u"
        return self.a.compare(f"icmp {sign}{node.op}", left, right)

    def _of_lanes(self, node: Compare) -> Value | None:
        """`index + stride * lane < bound`, or another comparison, as one of small constants with one scalar."""
        found = room_of_lanes(node)
        if found is None:
            return None
        (room, stride), lanes = found, node.left.lanes
        verb, step = _OF_LANES[node.op]
        # What is farther from the lanes than one step is as good as one step.
        far = (lanes - 1) * stride
        least = min(far, 0) - (0 if verb == "slt" else 1)
        bound = self.indices.short(room + step, least, max(far, 0) + 1)
        iota = self.a.iota(lanes, stride, "i32")
        return self.a.compare(f"icmp {verb}", iota, self.a.splat(bound, lanes))

    def _select(self, node: Select) -> Value:
        if is_call(node.if_true):
            return self._cold_select(node)
        condition = self.value(node.condition)
        if node.condition.lanes != node.lanes and node.condition.lanes != 1:
            condition = self.a.splat(condition, node.lanes)
        if_true = self._operand(node.if_true, node.lanes)
        if_false = self._operand(node.if_false, node.lanes)
        return self.a.select(condition, if_true, if_false)

    def _cold_select(self, node: Select) -> Value:
        """A choice whose first side is behind a branch; what is computed there stays there."""
        condition = self._operand(node.condition, node.lanes)
        usual = self._operand(node.if_false, node.lanes)
        outside = dict(self._known)
        value = self.functions.cold(
            condition, usual, lambda: self._operand(node.if_true, node.lanes)
        )
        self._known = outside
        return value

    def _intrinsic(self, node: Intrinsic) -> Value:
        """One of the machine's instructions, or what it means where the machine has none so wide."""
        form = form_for(node.instruction, self.target, node.lanes)
        if form is not None:
            return apply_form(self.a, form, [self.value(x) for x in node.operands])
        # Kept, since values are known by the identity of expressions.
        self._meanings.append(meaning(node.instruction, node.operands))
        return self.value(self._meanings[-1])

    def body(self, root: Expression, arguments: list[Value]) -> Value:
        """The value of a function's body."""
        self._arguments = arguments
        return self.value(root)

    def _cast(self, node: Cast) -> Value:
        value = self._operand(node.operand, node.lanes)
        return self.conversions.cast(value, node.operand.dtype, node.dtype)

    def _bitcast(self, node: Bitcast) -> Value:
        return self.a.reinterpret(
            self.value(node.operand), value_type(node.dtype, node.lanes)
        )

    def _transposed(self, node: Transposed) -> Value:
        """One column; the first one asked for brings the whole block into registers."""
        known = self.writer.scope.values
        key = ("columns", str(id(node.rows)))
        if (*key, "0") not in known:
            rows = [self.value(row) for row in node.rows]
            for column in range(node.lanes):
                value = self.a.column(rows, column, node.dtype.bits)
                known[*key, str(column)] = value
        return known[*key, str(node.column)]

    def _horizontal(self, node: Horizontal) -> Value:
        """One value of all lanes; whether one is NaN is asked once, not in every step."""
        whole = self._wide(node.operand, node.operand.lanes)
        if not (node.dtype.is_float and node.op in ("min", "max")):
            return self._narrow(self._tree(whole, partial(self._combine, node)), node.dtype)
        lost = self.a.any_lane(self.a.is_nan(whole))
        best = self._tree(whole, partial(self.a.ordered_extreme, node.op))
        chosen = self.a.select(lost, self.a.float(best, math.nan), best)
        return self._narrow(chosen, node.dtype)

    def _tree(self, whole: Value, combine: Callable[[Value, Value], Value]) -> Value:
        """A tree over the lanes: halves are combined until one is left."""
        left_over: list[Value] = []
        while split_type(whole.type)[1] > 1:
            _, lanes = split_type(whole.type)
            low, high, rest = self.a.halves(whole)
            if rest:
                left_over.append(self.a.lane(whole, lanes - 1))
            whole = combine(low, high)
        for item in left_over:
            whole = combine(whole, item)
        return whole

    def _combine(self, node: Horizontal, left: Value, right: Value) -> Value:
        if node.dtype.is_float:
            return self._float_binary(node.op, left, right)
        blank = Const(0, node.dtype)
        return self._integer_binary(Binary(node.op, blank, blank, node.dtype), left, right)


def _function_body(
    target: Target, writer: FunctionWriter, root: Expression, arguments: list[Value]
) -> Value:
    return Expressions(writer, Registers(), target).body(root, arguments)


def _signed(dtype: DType) -> bool:
    return dtype.is_integer and dtype.is_signed


__all__ = ["Expressions", "value_type", "vector"]
