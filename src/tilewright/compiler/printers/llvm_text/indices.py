"""Index arithmetic: dimensions to i64 values, buffer elements to pointers.

The terms of an index are summed from the outermost scope inwards, so everything invariant is
computed once, outside.  In a loop without loops inside, a term linear in the loop variable becomes
an induction variable: a pointer that advances, or one integer shared by many pointers.  Constant
offsets stay at the use, where the processor's addressing mode takes them.  Called by memory and
expressions of this room.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.errors import InternalError
from tilewright.base.record import field, record
from tilewright.base.symbolic import Dim, Expr, Monomial, Opaque, Operation, Symbol
from tilewright.compiler.kernel.fields import payloads
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.kernel.lanes import has_lanes
from tilewright.compiler.printers.llvm_text.divisions import Divisions
from tilewright.compiler.printers.llvm_text.types import Value, number
from tilewright.compiler.printers.llvm_text.writer import FunctionWriter, Scope

_MOST_I32: Final = (1 << 31) - 1
SHARED_FROM = 3
"""From so many pointers with one step on, they share an integer induction variable."""


@final
@record
class _Counted:
    """A quotient that a loop counts: what it is in the first iteration and in each, the remainder, and by what it grows."""

    first: Value
    quotient: Value
    rest: Value
    carry: Value


@final
@record(eq=False, frozen=False)
class LoopFrame:
    """What addresses need to know about an open loop.

    Attributes:
        name: the loop variable.
        innermost: no loop inside; only such loops get induction variables.
        users: step -> the base pointers that move by it.
        phis: `(name, type, first, next)` to be written when the loop closes.
    """

    name: str
    scope: Scope
    innermost: bool
    users: dict[Dim, set[object]] = field(default_factory=dict)
    phis: list[tuple[str, str, str, str]] = field(default_factory=list)
    steps: dict[tuple[str, ...], Value] = field(default_factory=dict)
    counts: dict[tuple[Dim, str], _Counted] = field(default_factory=dict)
    splits: dict[object, tuple[Dim, Dim] | None] = field(default_factory=dict)

    def split(self, dim: Dim) -> tuple[Dim, Dim] | None:
        """`dim` as factor of the loop variable and rest; None when it is not linear."""
        if isinstance(dim, int):
            return 0, dim
        # Unrolled accesses differ in their constants only.
        if dim.terms not in self.splits:
            self.splits[dim.terms] = symbolic.linear(dim - dim.constant, self.name)
        linear = self.splits[dim.terms]
        return None if linear is None else (linear[0], linear[1] + dim.constant)


@final
class Indices:
    """Emits the integer side of a function."""

    def __init__(
        self, writer: FunctionWriter, opaque: Callable[[Expression], Value]
    ) -> None:
        self.writer: FunctionWriter = writer
        self.opaque: Callable[[Expression], Value] = opaque
        self.divisions: Divisions = Divisions(writer)
        self.symbols: dict[str, Value] = {}
        self.sizes: set[str] = set()
        self.bounds: dict[str, symbolic.Bounds] = {}
        self.frames: list[LoopFrame] = []
        self._payloads: dict[object, tuple[Expression, ...]] = {}

    # --- values ----------------------------------------------------------------------------

    def value(self, dim: Dim) -> Value:
        """`dim` as an i64 operand."""
        if isinstance(dim, int):
            return number(dim)
        total: Value | None = None
        for term in self._terms(dim):
            total = term if total is None else self.add(total, term)
        if total is None:
            return number(dim.constant)
        return self.add(total, number(dim.constant)) if dim.constant else total

    def kept(self, dim: Dim, least: int, most: int) -> Value:
        """`dim` as an i32 operand, kept between two limits of 32 bits."""
        (low, high), value = self.interval(dim), self.value(dim)
        if high is None or high > most:
            value = self.writer.call("i64", "llvm.smin.i64", value, number(most))
        if low is None or low < least:
            value = self.writer.call("i64", "llvm.smax.i64", value, number(least))
        return self.writer.pure("i32", f"trunc {value} to i32", value)

    def short(self, dim: Dim, least: int, most: int) -> Value:
        """`dim` as an i32 operand, kept between two limits if 32 bits may not hold it."""
        low, high = self.interval(dim)
        if low is not None and high is not None and max(-low, high) <= _MOST_I32:
            least, most = low, high
        return self.kept(dim, least, most)

    def _terms(self, dim: Expr) -> list[Value]:
        """The terms of a polynomial, outermost first."""
        terms = [self._term(monomial, factor) for monomial, factor in dim.terms]
        terms.sort(key=lambda value: value.level)
        return terms

    def _term(self, monomial: Monomial, factor: int) -> Value:
        frame = self.frames[-1] if self.frames else None
        if frame is not None and frame.innermost:
            rest = _without(monomial, frame.name)
            if rest is not None:
                step = self._product(rest, factor)
                if step.level < frame.scope.level:
                    return self._induction(frame, step)
        return self._product(monomial, factor)

    def _product(self, monomial: Monomial, factor: int) -> Value:
        if not monomial:
            return number(factor)
        values = sorted((self.atom(atom) for atom in monomial), key=lambda v: v.level)
        if factor != 1 and len(values) > 1:
            values[0] = self._scale(values[0], factor)
            factor = 1
        total = values[0]
        for value in values[1:]:
            total = self.writer.pure(
                "i64", f"mul i64 {total.text}, {value.text}", total, value
            )
        return self._scale(total, factor)

    def _scale(self, value: Value, factor: int) -> Value:
        if factor == 1:
            return value
        if factor > 0 and factor & (factor - 1) == 0:
            shift = factor.bit_length() - 1
            return self.writer.pure("i64", f"shl i64 {value.text}, {shift}", value)
        return self.writer.pure("i64", f"mul i64 {value.text}, {factor}", value)

    def add(self, left: Value, right: Value) -> Value:
        """Sum of two i64 operands."""
        return self.writer.pure("i64", f"add i64 {left.text}, {right.text}", left, right)

    def atom(self, atom: symbolic.Atom) -> Value:
        """One factor of a monomial."""
        if isinstance(atom, Symbol):
            found = self.symbols.get(atom.key)
            if found is None:
                raise InternalError(f"index uses the unknown symbol '{atom.key}'")
            return found
        if isinstance(atom, Operation):
            return self._operation(atom)
        if isinstance(atom, Opaque) and isinstance(atom.payload, Expression):
            return self.opaque(atom.payload)
        raise InternalError(f"index atom '{atom}' has no value in machine code")

    def _operation(self, atom: Operation) -> Value:
        if atom.op in ("min", "max"):
            left, right = self.value(atom.left), self.value(atom.right)
            return self.writer.call("i64", f"llvm.s{atom.op}.i64", left, right)
        nonnegative = self.is_nonnegative(atom.left)
        if isinstance(atom.right, int):
            left, right = self.value(atom.left), number(atom.right)
            return self._divide(atom.op, left, right, atom.right, nonnegative=nonnegative)
        right = self._divisor(atom.right, self.value(atom.right))
        counted = self._counted(atom.left, right, nonnegative=nonnegative)
        if counted is not None:
            return counted.quotient if atom.op == "floordiv" else counted.rest
        return self._by_size(atom.op, self.value(atom.left), right, nonnegative=nonnegative)

    def _by_size(self, op: str, left: Value, right: Value, *, nonnegative: bool) -> Value:
        """A quotient or remainder by a size that is not known."""
        if self.divisions.pays(left, right):
            return self.divisions.divide(op, left, right, nonnegative=nonnegative)
        return self._divide(op, left, right, None, nonnegative=nonnegative)

    def lanes_divided(self, atom: Operation, left: Value) -> Value | None:
        """A quotient or remainder of lanes by a size that is one number for all of them, and is not known."""
        if isinstance(atom.right, int) or has_lanes(atom.right):
            return None
        right = self._divisor(atom.right, self.value(atom.right))
        nonnegative = self.is_nonnegative(atom.left)
        return self.divisions.divide(atom.op, left, right, nonnegative=nonnegative)

    def _divisor(self, dim: Dim, value: Value) -> Value:
        """The value of a divisor; what may be less than 1 divides nothing that is looked at."""
        least = self.interval(dim)[0]
        if least is not None and least >= 1:
            return value
        return self.writer.call("i64", "llvm.smax.i64", value, number(1))

    def is_nonnegative(self, dim: Dim) -> bool:
        """Whether a number is surely not below zero."""
        low, _ = self.interval(dim)
        return low is not None and low >= 0

    def _divide(
        self, op: str, left: Value, right: Value, known: int | None, *, nonnegative: bool
    ) -> Value:
        pure, is_mod = self.writer.pure, op == "mod"
        if known is not None and known > 0 and known & (known - 1) == 0:
            if is_mod:
                return pure("i64", f"and i64 {left.text}, {known - 1}", left)
            shift = known.bit_length() - 1
            return pure("i64", f"ashr i64 {left.text}, {shift}", left)
        operands = f"{left.text}, {right.text}"
        if nonnegative:
            verb = "urem" if is_mod else "udiv"
            return pure("i64", f"{verb} i64 {operands}", left, right)
        rest = pure("i64", f"srem i64 {operands}", left, right)
        negative = pure("i1", f"icmp slt i64 {rest.text}, 0", rest)
        if is_mod:
            wrapped = self.add(rest, right)
            return pure(
                "i64", f"select {negative}, {wrapped}, {rest}", negative, wrapped, rest
            )
        quotient = pure("i64", f"sdiv i64 {operands}", left, right)
        borrow = pure("i64", f"sext {negative} to i64", negative)
        return self.add(quotient, borrow)

    def interval(self, dim: Dim) -> symbolic.Bounds:
        """Bounds of `dim`, loop extents taken into account."""
        if isinstance(dim, int):
            return (dim, dim)
        return symbolic.bounds(dim)

    # --- induction variables ---------------------------------------------------------------

    def _counted(self, dim: Dim, right: Value, *, nonnegative: bool) -> _Counted | None:
        """`dim` divided by a size that stays, where the innermost loop that changes it lets it grow by one or not at all.

        Quotient and remainder go on with the loop then: it compares, and divides nothing.
        """
        used = symbolic.names_in((dim,))
        frame = next((f for f in reversed(self.frames) if f.name in used), None)
        if frame is None or not isinstance(dim, Expr):
            return None
        known = frame.counts.get((dim, right.text))
        if known is None and right.level < frame.scope.level:
            begin = self._begin(frame, dim)
            if begin is not None and begin[0].level < frame.scope.level:
                known = self._count(frame, *begin, right, nonnegative=nonnegative)
                frame.counts[dim, right.text] = known
        return known

    def _begin(self, frame: LoopFrame, dim: Expr) -> tuple[Value, Value] | None:
        """What a number is in the first iteration of a loop, and by what it grows in each, which is 1 or 0; None for others."""
        linear = symbolic.linear(dim, frame.name)
        if linear is not None:
            return (self.value(linear[1]), number(1)) if linear[0] == 1 else None
        for monomial, factor in dim.terms:
            atom, rest = monomial[0], dim - Expr(((monomial, factor),), 0)
            if len(monomial) > 1 or factor != 1 or not isinstance(atom, Operation):
                continue
            if atom.op != "floordiv" or isinstance(atom.right, int):
                continue
            right = self._divisor(atom.right, self.value(atom.right))
            nonnegative = self.is_nonnegative(atom.left)
            below = self._counted(atom.left, right, nonnegative=nonnegative)
            if below is not None and below.carry.level == frame.scope.level:
                return self.add(below.first, self.value(rest)), below.carry
        return None

    def _count(
        self,
        frame: LoopFrame,
        first: Value,
        step: Value,
        right: Value,
        *,
        nonnegative: bool,
    ) -> _Counted:
        """Let quotient and remainder of what begins with `first` and grows by `step` go on with a loop."""
        starts = [
            self._by_size(op, first, right, nonnegative=nonnegative)
            for op in ("floordiv", "mod")
        ]
        names = [self.writer.fresh(prefix) for prefix in ("q", "n", "c")]
        quotient, rest, carry = names
        frame.scope.latch += (
            f"{rest}.up = add i64 {rest}, {step.text}",
            f"{carry}.is = icmp eq i64 {rest}.up, {right.text}",
            f"{carry} = zext i1 {carry}.is to i64",
            f"{rest}.next = select i1 {carry}.is, i64 0, i64 {rest}.up",
            f"{quotient}.next = add i64 {quotient}, {carry}",
        )
        for name, start in zip((quotient, rest), starts, strict=True):
            frame.phis.append((name, "i64", start.text, f"{name}.next"))
        values = (Value(name, "i64", frame.scope.level) for name in names)
        return _Counted(starts[0], *values)

    def _induction(self, frame: LoopFrame, step: Value) -> Value:
        """The integer that starts at 0 and grows by `step` per iteration."""
        if step.text == "1":
            return self.symbols[frame.name]
        return self._advance(frame, number(0), step, "i64")

    def _advance(self, frame: LoopFrame, first: Value, step: Value, unit: str) -> Value:
        """`first`, moved by `step` per iteration; a pointer to `unit`s or an integer."""
        key = (first.text, step.text, unit)
        known = frame.steps.get(key)
        if known is not None:
            return known
        name = self.writer.fresh("p" if first.type == "ptr" else "n")
        if first.type == "ptr":
            advance = f"getelementptr {unit}, ptr {name}, i64 {step.text}"
        else:
            advance = f"add i64 {name}, {step.text}"
        frame.scope.latch.append(f"{name}.next = {advance}")
        frame.phis.append((name, first.type, first.text, f"{name}.next"))
        value = Value(name, first.type, frame.scope.level)
        frame.steps[key] = value
        return value

    def from_memory(self, dim: Dim) -> tuple[str, ...]:
        """The operands that `dim` takes from memory.

        A store may change them: equal indices are the same place only while these agree.
        """
        if isinstance(dim, int):
            return ()
        found = self._payloads.get(dim.terms)
        if found is None:
            found = self._payloads[dim.terms] = tuple(payloads(dim))
        return tuple(self.opaque(payload).text for payload in found)

    # --- pointers --------------------------------------------------------------------------

    def pointer(self, base: Value, unit: str, dim: Dim) -> Value:
        """The address of element `dim` of an array of `unit`s at `base`."""
        if isinstance(dim, int):
            return self._displace(base, unit, dim)
        key = ("address", base.text, unit, dim.terms, self.from_memory(dim))
        for scope in reversed(self.writer.scopes):
            known = scope.values.get(key)
            if known is not None:
                return self._displace(known, unit, dim.constant)
        address = self._address(base, unit, dim - dim.constant)
        self.writer.scopes[address.level].values[key] = address
        return self._displace(address, unit, dim.constant)

    def _address(self, base: Value, unit: str, dim: Dim) -> Value:
        frame = self.frames[-1] if self.frames else None
        step: Dim = 0
        rest: Dim = dim
        if frame is not None and frame.innermost:
            linear = frame.split(dim)
            if linear is not None:
                step, rest = linear
        address = base
        if isinstance(rest, Expr):
            address = self._anchored(base, unit, rest) or self._sum(base, unit, rest)
        if frame is not None and step != 0:
            address = self._move(frame, address, unit, step)
        return address

    def _sum(self, address: Value, unit: str, dim: Expr) -> Value:
        """The address so many elements further."""
        for term in self._terms(dim):
            address = self.writer.pure(
                "ptr", f"getelementptr {unit}, {address}, {term}", address, term
            )
        return address

    def _anchored(self, base: Value, unit: str, dim: Expr) -> Value | None:
        """The address as one that loops move, and a distance that only sizes decide; None where it is not both.

        Rows that lie an open distance apart share the first.  Where LLVM sees how it moves, it has a pointer for each row
        instead, in every loop around, and keeps them all on the stack.
        """
        frame = self.frames[-1] if self.frames else None
        distance = Expr(tuple(term for term in dim.terms if self._is_size(term[0])), 0)
        moved = dim - distance
        if frame is None or not distance.terms or not isinstance(moved, Expr):
            return None
        anchor = self._sum(base, unit, moved)
        if anchor.level == 0:
            return None  # no loop moves it
        hidden = f'call ptr asm "", "=r,0"({anchor})'
        address = self.writer.pure("ptr", hidden, anchor)
        apart = self.value(distance)
        return self.writer.pure(
            "ptr", f"getelementptr {unit}, {address}, {apart}", address, apart
        )

    def _is_size(self, monomial: Monomial) -> bool:
        """Whether all of a product are sizes of the call, none of which is read from memory."""
        product = Expr(((monomial, 1),), 0)
        names = {symbol.key for symbol in symbolic.symbols(product)}
        return bool(names) and names <= self.sizes and not any(payloads(product))

    def _move(self, frame: LoopFrame, address: Value, unit: str, step: Dim) -> Value:
        """`address + step * loop variable`."""
        by = self.value(step)
        shared = len(frame.users.get(step, ())) >= SHARED_FROM
        level = frame.scope.level
        if by.level < level and address.level < level and not shared:
            return self._advance(frame, address, by, unit)
        if by.level < level:
            offset = self._induction(frame, by)
        else:
            counter = self.symbols[frame.name]
            offset = self.writer.pure(
                "i64", f"mul i64 {by.text}, {counter.text}", by, counter
            )
        return self.writer.pure(
            "ptr", f"getelementptr {unit}, {address}, {offset}", address, offset
        )

    def _displace(self, address: Value, unit: str, constant: int) -> Value:
        if constant == 0:
            return address
        return self.writer.local("ptr", f"getelementptr {unit}, {address}, i64 {constant}")


def _without(monomial: Monomial, name: str) -> Monomial | None:
    """The monomial divided by the symbol; None when it is not linear in it."""
    rest: list[symbolic.Atom] = []
    found = 0
    for atom in monomial:
        if isinstance(atom, Symbol):
            if atom.key == name:
                found += 1
                continue
        elif any(s.key == name for part in atom.parts() for s in symbolic.symbols(part)):
            return None
        rest.append(atom)
    return tuple(rest) if found == 1 else None
