"""Expand loops of kind UNROLL.

    for i in 0..2 (unroll): C[i] = A[i]     ->     C[0] = A[0]; C[1] = A[1]

What does not depend on an expanded variable is shared by all copies, so the work is proportional
to what differs.  Requires: linear indices.  Ensures: no loop of kind UNROLL; register buffers
indexed by expanded variables have constant indices.  Loops too large to expand become serial.
Called by `machine`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, assert_never, final

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Expr, Symbol
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.fields import (
    Mutator,
    children,
    dims_of,
    payloads,
    with_inner,
)
from tilewright.compiler.kernel.rewrite import (
    FreshNames,
    Rewriter,
    substitute,
    with_body,
)
from tilewright.compiler.lowering.simplify import fold, fold_statement

MAX_STATEMENTS: Final = 1 << 14
"""A kernel is not expanded beyond so many statements; outer loops stay loops then."""


def unroll(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel without UNROLL loops."""
    body = _limit(kernel.body)
    names = frozenset(
        s.var.key
        for s in ir.walk(body)
        if isinstance(s, ir.For) and s.kind is ir.LoopKind.UNROLL
    )
    if not names:
        return with_body(kernel, body)
    return with_body(kernel, _Expander(names, FreshNames.of(kernel)).body(body))


def _limit(body: Sequence[ir.Statement]) -> ir.Body:
    """`body` with UNROLL loops of unknown extent, and those beyond the limit, made serial."""
    return tuple(_limited(statement)[0] for statement in body)


def _limited(statement: ir.Statement) -> tuple[ir.Statement, int]:
    """The statement and how many statements it expands to."""
    if not isinstance(statement, ir.For | ir.If):
        return statement, 1
    inside = [_limited(s) for s in statement.body]
    size = sum(count for _, count in inside)
    body = tuple(s for s, _ in inside)
    if isinstance(statement, ir.If):
        return with_inner(statement, body), size + 1
    kind = statement.kind
    if kind is ir.LoopKind.UNROLL:
        if isinstance(statement.extent, int) and size * statement.extent <= MAX_STATEMENTS:
            size *= statement.extent
        else:
            kind = ir.LoopKind.SERIAL
    return ir.For(
        statement.var, statement.extent, body, kind, statement.reduction
    ), size + 1


@final
class _Expander(Mutator):
    """Writes copies of statements under an assignment of numbers to loop variables."""

    def __init__(self, names: frozenset[str], fresh: FreshNames) -> None:
        super().__init__()
        self.names: frozenset[str] = names
        self._fresh: FreshNames = fresh
        self._copied: set[int] = set()
        self.env: dict[str, int] = {}
        self._free: dict[int, tuple[ir.Expression, tuple[str, ...]]] = {}
        self._dim_free: dict[Dim, tuple[str, ...]] = {}
        self._linear: dict[Dim, tuple[tuple[tuple[str, int], ...], Dim] | None] = {}
        self._dims: dict[tuple[Dim, tuple[int, ...]], Dim] = {}
        self._memo: dict[tuple[int, tuple[int, ...]], ir.Expression] = {}

    # --- statements ------------------------------------------------------------------------

    def body(self, body: Sequence[ir.Statement]) -> ir.Body:
        """The copies of `body` for the current assignment."""
        result: list[ir.Statement] = []
        for statement in body:
            self._statement(statement, result)
        return tuple(result)

    def _statement(self, statement: ir.Statement, out: list[ir.Statement]) -> None:
        match statement:
            case ir.Store():
                new = self.rebuilt(statement)
                out.extend((new,) if new.mask is None else fold_statement(new))
            case ir.For():
                self._for(statement, out)
            case ir.If():
                condition = self.expression(statement.condition)
                if not isinstance(condition, ir.Const):
                    out.append(ir.If(condition, self.body(statement.body)))
                elif condition.value:
                    out.extend(self.body(statement.body))
            case ir.Prefetch():
                out.append(self.rebuilt(statement))
            case ir.Barrier():
                out.append(statement)
            case _:
                assert_never(statement)

    def _for(self, loop: ir.For, out: list[ir.Statement]) -> None:
        if loop.kind is ir.LoopKind.UNROLL and isinstance(loop.extent, int):
            for step in range(loop.extent):
                self.env[loop.var.key] = step
                for statement in loop.body:
                    self._statement(statement, out)
            self.env.pop(loop.var.key, None)
            return
        extent = self.dim(loop.extent)
        if extent == 0:
            return
        body = self.body(loop.body)
        var = loop.var
        if id(loop) in self._copied:
            var = Symbol(self._fresh.fresh(var.key), var.lower, var.upper)
            body = substitute(body, {loop.var.key: Expr.of_atom(var)})
        self._copied.add(id(loop))
        out.append(ir.For(var, extent, body, loop.kind, loop.reduction))

    # --- indices ---------------------------------------------------------------------------

    def dim(self, dim: Dim) -> Dim:
        """An index under the current assignment."""
        if isinstance(dim, int):
            return dim
        free = self._free_of_dim(dim)
        if not free:
            return dim
        linear = self._linear_of(dim, free)
        if linear is not None:
            terms, rest = linear
            offset = 0
            for name, factor in terms:
                offset += self.env[name] * factor
            return rest + offset
        key = (dim, tuple(self.env[n] for n in free))
        known = self._dims.get(key)
        if known is None:
            known = self._dims[key] = self._substitute(dim, {n: self.env[n] for n in free})
        return known

    def _substitute(self, dim: Dim, env: Mapping[str, Dim]) -> Dim:
        if any(True for _ in payloads(dim)):
            return Rewriter(dims=env, expression=fold).dim(dim)
        return symbolic.substitute(dim, env)

    def _free_of_dim(self, dim: Expr) -> tuple[str, ...]:
        """The expanded variables in an index, those inside loaded indices too."""
        known = self._dim_free.get(dim)
        if known is None:
            names = {s.key for s in symbolic.symbols(dim)} & self.names
            for payload in payloads(dim):
                names.update(self._free_of(payload))
            known = self._dim_free[dim] = tuple(sorted(names))
        return known

    def _linear_of(
        self, dim: Expr, free: tuple[str, ...]
    ) -> tuple[tuple[tuple[str, int], ...], Dim] | None:
        """The index as constant multiples of the variables plus a rest without them."""
        if dim in self._linear:
            return self._linear[dim]
        terms: list[tuple[str, int]] = []
        rest: Dim = dim
        found: tuple[tuple[tuple[str, int], ...], Dim] | None = None
        for name in free:
            linear = symbolic.linear(rest, name)
            if linear is None or not isinstance(linear[0], int):
                break
            terms.append((name, linear[0]))
            rest = linear[1]
        else:
            if isinstance(rest, int) or not self._free_of_dim(rest):
                found = (tuple(terms), rest)
        self._linear[dim] = found
        return found

    # --- expressions -----------------------------------------------------------------------

    def _free_of(self, value: ir.Expression) -> tuple[str, ...]:
        """The expanded variables that a value depends on."""
        known = self._free.get(id(value))
        if known is None:
            names: set[str] = set()
            for dim in dims_of(value):
                if isinstance(dim, Expr):
                    names.update(self._free_of_dim(dim))
            for part in children(value):
                names.update(self._free_of(part))
            known = self._free[id(value)] = (value, tuple(sorted(names)))
        return known[1]

    def expression(self, value: ir.Expression) -> ir.Expression:
        """A value under the current assignment; equal assignments give the same node."""
        free = self._free_of(value)
        if not free:
            return value
        env = self.env
        key = (id(value), tuple([env[name] for name in free]))
        known = self._memo.get(key)
        if known is None:
            known = self._memo[key] = fold(self.rebuilt(value))
        return known
