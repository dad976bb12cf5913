"""Index arithmetic as C, in `int64_t`.  Called by expressions, memory and statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Dim, Opaque, Operation, Symbol
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.kernel.lanes import has_lanes
from tilewright.compiler.printers.c_text.types import Value, bare
from tilewright.compiler.printers.c_text.values import Values


@final
class Indices:
    """Prints indices; `evaluate` prints the expressions inside them."""

    def __init__(self, values: Values, evaluate: Callable[[Expression], Value]) -> None:
        self.v: Values = values
        self.evaluate: Callable[[Expression], Value] = evaluate
        self.symbols: dict[str, str] = {}

    def dim(self, dim: Dim) -> str:
        """An index or extent, as `int64_t`."""
        if isinstance(dim, int):
            return str(dim) if abs(dim) < 1 << 31 else f"INT64_C({dim})"
        text = ""
        for monomial, factor in dim.terms:
            product = " * ".join(self._atom(atom) for atom in monomial)
            size = abs(factor)
            term = product if size == 1 else f"{product} * {size}"
            sign = "-" if factor < 0 else "+"
            text = f"{text} {sign} {term}" if text else term if factor > 0 else f"-{term}"
        if dim.constant:
            sign = "-" if dim.constant < 0 else "+"
            text = f"{text} {sign} {abs(dim.constant)}" if text else str(dim.constant)
        return f"({text})" if " " in text else text

    def _atom(self, atom: symbolic.Atom) -> str:
        if isinstance(atom, Symbol):
            return self.symbols[atom.key]
        if isinstance(atom, Operation):
            left, right = self.dim(atom.left), self.dim(atom.right)
            if atom.op in ("min", "max"):
                return self.extreme(atom.op, left, right)
            return self._divide(atom, left, right)
        if isinstance(atom, Opaque) and isinstance(atom.payload, Expression):
            return self.v.cast(self.evaluate(atom.payload), dtypes.i64).text
        raise InternalError(f"index atom '{atom}' has no value in C")

    def extreme(self, op: str, left: str, right: str) -> str:
        """`min` or `max` of two numbers."""
        return (
            f"{self.v.definitions.operator(op, dtypes.i64, 1)}({bare(left)}, {bare(right)})"
        )

    def _divide(self, atom: Operation, left: str, right: str) -> str:
        low = symbolic.bounds(atom.left)[0]
        least = symbolic.bounds(atom.right)[0]
        plain = low is not None and low >= 0 and least is not None and least >= 1
        if plain:
            return f"({left} {'%' if atom.op == 'mod' else '/'} {right})"
        rest = f"{self.v.definitions.operator('floormod', dtypes.i64, 1)}({left}, {right})"
        if atom.op == "mod":
            return rest
        return (
            f"{self.v.definitions.operator('div', dtypes.i64, 1)}({left} - {rest}, {right})"
        )

    def wide_dim(self, dim: Dim, lanes: int) -> Value:
        """An index whose opaque parts may be vectors, one number per lane."""
        if isinstance(dim, int) or not has_lanes(dim):
            return self.v.splat(Value(self.dim(dim), dtypes.i64), lanes)
        scalar: Dim = dim.constant
        texts: list[str] = []
        for monomial, factor in dim.terms:
            single = symbolic.Expr(((monomial, factor),), 0)
            if not has_lanes(single):
                scalar = scalar + single
                continue
            parts = [self._wide_atom(atom, lanes).text for atom in monomial]
            texts.append(
                " * ".join([*parts, f"INT64_C({factor})"] if factor != 1 else parts)
            )
        if not (isinstance(scalar, int) and scalar == 0):
            texts.append(self.v.splat(Value(self.dim(scalar), dtypes.i64), lanes).text)
        return Value(f"({' + '.join(texts)})", dtypes.i64, lanes)

    def _wide_atom(self, atom: symbolic.Atom, lanes: int) -> Value:
        if isinstance(atom, Opaque) and isinstance(atom.payload, Expression):
            return self.v.splat(self.v.cast(self.evaluate(atom.payload), dtypes.i64), lanes)
        if not isinstance(atom, Operation):
            return self.v.splat(Value(self._atom(atom), dtypes.i64), lanes)
        left, right = self.wide_dim(atom.left, lanes), self.wide_dim(atom.right, lanes)
        if atom.op in ("min", "max"):
            return self.v.apply(atom.op, dtypes.i64, left, right)
        rest = self.v.apply("floormod", dtypes.i64, left, right)
        if atom.op == "mod":
            return rest
        exact = left._replace(text=f"({left.text} - {rest.text})")
        return self.v.apply("div", dtypes.i64, exact, right)
