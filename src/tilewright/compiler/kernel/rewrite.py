"""Walking and rewriting kernels: maps, substitution, index atoms, collectors, fresh names.

A `Rewriter` rebuilds expressions and statements bottom-up, sharing what is shared.  It looks into
opaque index atoms, whose payload is an expression (a data-dependent index), so a substitution
reaches the loads inside indices as well.  No transformation is decided here; schedule
primitives, lowering and the evaluator call it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, final

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import InternalError, UserError
from tilewright.base.symbolic import Dim, Expr, Opaque, Symbol
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.fields import REBUILDERS, Mutator, dims_of, parts, payloads
from tilewright.compiler.kernel.text import expression_text

_KNOWN_STATEMENTS: Final = 4096
"""Statements whose loads are remembered: those of a few kernels."""

ExpressionMap = Callable[[ir.Expression], ir.Expression]
StatementMap = Callable[[ir.Statement], ir.Statement | Sequence[ir.Statement]]

# --- data-dependent indices ------------------------------------------------------------------


def as_index(value: ir.Expression) -> Dim:
    """An integer expression as an index; loads become one opaque atom.

    Equal expressions give equal indices (the atom's key is the text of the expression).  A vector
    gives every lane of the access its own index (after vectorization only).
    """
    if isinstance(value, ir.Index) and value.lanes == 1:
        return value.dim
    if isinstance(value, ir.Const) and value.lanes == 1:
        return int(value.value)
    if not value.dtype.is_integer:
        raise InternalError(f"an index must be an integer, got {value.dtype}")
    return symbolic.opaque(value, f"<{expression_text(value)}>")


def lane_index(lanes: int) -> Dim:
    """The number of the lane as an index of a vector access."""
    lane = ir.Index(0, dtypes.i64, lanes, 1)
    return symbolic.opaque(lane, f"<lane of {lanes}>") if lanes > 1 else 0


def from_index(dim: Dim, dtype: DType = dtypes.i64) -> ir.Expression:
    """The value of an index: the inverse of `as_index`."""
    if isinstance(dim, int):
        return ir.Const(dim, dtype)
    payload = opaque_expression(dim)
    if payload is not None and payload.dtype is dtype:
        return payload
    return ir.Index(dim, dtype)


def opaque_expression(dim: Dim) -> ir.Expression | None:
    """The expression behind `dim` when it is exactly one opaque atom."""
    atom = symbolic.only_atom(dim)
    if not isinstance(atom, Opaque) or not isinstance(atom.payload, ir.Expression):
        return None
    return atom.payload


# --- rewriting -------------------------------------------------------------------------------


@final
class Rewriter(Mutator):
    """Rebuilds kernel code with dims, buffers, expressions and statements replaced.

    Args:
        dims: symbol name -> replacement, applied to every index, extent and `Index` value.  A
            loop whose variable is mapped to a plain symbol is renamed.
        buffers: replacement buffers (indices stay).
        expression: called on every rebuilt expression, children first.
        statement: called on every rebuilt statement, inner first; may return several or none.
    """

    __slots__ = ("_dims", "_memo", "dims", "on_expression", "on_statement")

    def __init__(
        self,
        *,
        dims: Mapping[str, Dim] | None = None,
        buffers: Mapping[ir.Buffer, ir.Buffer] | None = None,
        expression: ExpressionMap | None = None,
        statement: StatementMap | None = None,
    ) -> None:
        super().__init__(buffers)
        self.dims: Mapping[str, Dim] = dims or {}
        self.on_expression: ExpressionMap | None = expression
        self.on_statement: StatementMap | None = statement
        # id -> (the original, kept alive; its image)
        self._memo: dict[int, tuple[ir.Expression, ir.Expression]] = {}
        # The same of indices: what was shared stays shared, and so do the answers that each keeps.
        self._dims: dict[int, tuple[Expr, Dim]] = {}

    def dim(self, dim: Dim) -> Dim:
        """The image of an index or extent."""
        if isinstance(dim, int) or not (self.dims or dim.opaques):
            return dim
        known = self._dims.get(id(dim))
        if known is None:
            known = self._dims[id(dim)] = (dim, self._image(dim))
        return known[1]

    def _image(self, dim: Expr) -> Dim:
        inside = dim.opaques
        image: Dim = dim
        if inside and any(self._changes(a) for a in inside):
            image = symbolic.map_opaque(dim, self._opaque)
        return symbolic.substitute(image, self.dims) if self.dims else image

    def _changes(self, atom: Opaque) -> bool:
        payload = atom.payload
        return (
            isinstance(payload, ir.Expression) and self.expression(payload) is not payload
        )

    def _opaque(self, atom: Opaque) -> Dim:
        if not isinstance(atom.payload, ir.Expression):
            return Expr.of_atom(atom)
        image = self.expression(atom.payload)
        return Expr.of_atom(atom) if image is atom.payload else as_index(image)

    def expression(self, value: ir.Expression) -> ir.Expression:
        """The image of an expression."""
        place = id(value)
        known = self._memo.get(place)
        if known is not None:
            return known[1]
        image = REBUILDERS[type(value)](self, value)
        if image is not value and isinstance(image, ir.Index):
            image = _decided(image)
        if self.on_expression is not None:
            image = self.on_expression(image)
        self._memo[place] = (value, image)
        return image

    def statement(self, statement: ir.Statement) -> Sequence[ir.Statement]:
        """The image of a statement, usually one."""
        image = REBUILDERS[type(statement)](self, statement)
        if self.on_statement is None:
            return (image,)
        result = self.on_statement(image)
        return (result,) if isinstance(result, ir.Statement) else tuple(result)

    def variable(self, var: Symbol) -> Symbol:
        """A loop's variable, which may become another one only."""
        image = self.dims.get(var.name)
        if image is None:
            return var
        renamed = as_symbol(image)
        if renamed is None:
            raise InternalError(f"loop variable '{var.name}' cannot become '{image}'")
        return renamed


def _decided(value: ir.Index) -> ir.Expression:
    """An index that has become a number is one."""
    if isinstance(value.dim, int) and value.lanes == 1:
        return ir.Const(value.dim, value.dtype)
    return value


def as_symbol(dim: Dim) -> Symbol | None:
    """The symbol that `dim` consists of, if it is one."""
    atom = symbolic.only_atom(dim)
    return atom if isinstance(atom, Symbol) else None


def map_body(
    body: Sequence[ir.Statement],
    *,
    expression: ExpressionMap | None = None,
    statement: StatementMap | None = None,
) -> ir.Body:
    """The maps applied to every expression and statement of `body`."""
    return Rewriter(expression=expression, statement=statement).body(body)


def substitute(body: Sequence[ir.Statement], dims: Mapping[str, Dim]) -> ir.Body:
    """`body` with symbols replaced; loops of replaced variables must have gone or be renamed."""
    return Rewriter(dims=dims).body(body)


def body_if_defined(
    body: Sequence[ir.Statement], dims: Mapping[str, Dim]
) -> ir.Body | None:
    """`body` with symbols replaced; None where that makes a divisor 0, as a size of 2 does that of `n // 8`."""
    try:
        return substitute(body, dims)
    except UserError:
        return None


def substitute_expression(value: ir.Expression, dims: Mapping[str, Dim]) -> ir.Expression:
    """`value` with symbols replaced."""
    return Rewriter(dims=dims).expression(value)


def substitute_dim(value: Dim, dims: Mapping[str, Dim]) -> Dim:
    """`value` with symbols replaced, those inside data-dependent indices too."""
    if isinstance(value, int) or not value.opaques:
        return symbolic.substitute(value, dims)
    return Rewriter(dims=dims).dim(value)


def dim_if_defined(value: Dim, dims: Mapping[str, Dim]) -> Dim | None:
    """The same; None where that makes a divisor 0."""
    try:
        return substitute_dim(value, dims)
    except UserError:
        return None


def replace_buffers(
    body: Sequence[ir.Statement], buffers: Mapping[ir.Buffer, ir.Buffer]
) -> ir.Body:
    """`body` with other buffers at the same indices."""
    return Rewriter(buffers=buffers).body(body)


def with_body(
    kernel: ir.Kernel, body: ir.Body, *, locals_: Iterable[ir.Buffer] | None = None
) -> ir.Kernel:
    """`kernel` with another body (and other local buffers)."""
    return ir.Kernel(
        kernel.name,
        kernel.parameters,
        kernel.dims,
        kernel.locals if locals_ is None else tuple(locals_),
        body,
        kernel.trace,
        kernel.notes,
    )


def rename_loops(body: Sequence[ir.Statement], names: FreshNames) -> ir.Body:
    """A copy of `body` whose loop variables have fresh names (and their old bounds)."""
    return substitute(body, renamed(loops(body), names))


def renamed(found: Iterable[ir.For], names: FreshNames) -> dict[str, Dim]:
    """By the variable of a loop, one with a fresh name and the same bounds."""
    variables = (loop.var for loop in found)
    return {
        x.name: symbolic.symbol(names.fresh(x.name), x.lower, x.upper) for x in variables
    }


# --- collecting ------------------------------------------------------------------------------


def subexpressions(*values: ir.Expression) -> Iterator[ir.Expression]:
    """Expressions and everything below them, inside indices too; shared parts once."""
    seen: set[int] = set()
    stack = [*reversed(values)]
    while stack:
        current = stack.pop()
        place = id(current)
        if place in seen:
            continue
        seen.add(place)
        yield current
        below = parts(current)
        if below:
            stack.extend(below)


def expressions(body: Sequence[ir.Statement]) -> Iterator[ir.Expression]:
    """Every expression in `body`."""
    for statement in ir.walk(body):
        for root in parts(statement):
            yield from subexpressions(root)


def loads(code: ir.Expression | Sequence[ir.Statement]) -> list[ir.Load]:
    """Every load in an expression or body."""
    if isinstance(code, ir.Expression):
        return [*loads_below(code)]
    found: list[ir.Load] = []
    for statement in code:
        found += loads_of(statement)
        if isinstance(statement, (ir.For, ir.If)):
            found += _loads_in(statement)
    return found


@functools.lru_cache(maxsize=_KNOWN_STATEMENTS)
def _loads_in(nest: ir.For | ir.If) -> tuple[ir.Load, ...]:
    """The loads in the body of a nest; remembered as `loads_of` are."""
    return tuple(loads(nest.body))


@functools.lru_cache(maxsize=_KNOWN_STATEMENTS)
def loads_of(statement: ir.Statement) -> tuple[ir.Load, ...]:
    """The loads of one statement itself, those in indices included.

    Checks ask for them again and again while most of a kernel stays as it is; statements are frozen and
    compared by identity, so what was found once stays true.
    """
    return tuple([load for root in parts(statement) for load in loads_below(root)])


@functools.lru_cache(maxsize=_KNOWN_STATEMENTS)
def loads_below(value: ir.Expression) -> tuple[ir.Load, ...]:
    """The loads in an expression; remembered as `loads_of` are, for statements change more often than what is in them."""
    return tuple([part for part in subexpressions(value) if isinstance(part, ir.Load)])


def is_target(value: ir.Expression, place: ir.Load | ir.Store) -> bool:
    """Whether a value is read from where a store writes, or from where a load reads."""
    return (
        isinstance(value, ir.Load)
        and value.buffer is place.buffer
        and value.indices == place.indices
    )


def stores(body: Sequence[ir.Statement]) -> list[ir.Store]:
    """Every store in `body`, in order."""
    found: list[ir.Store] = []
    for statement in body:
        if isinstance(statement, ir.Store):
            found.append(statement)
        elif isinstance(statement, (ir.For, ir.If)):
            found += _stores_in(statement)
    return found


@functools.lru_cache(maxsize=_KNOWN_STATEMENTS)
def _stores_in(nest: ir.For | ir.If) -> tuple[ir.Store, ...]:
    """The stores in the body of a nest; remembered as `loads_of` are."""
    return tuple(stores(nest.body))


def loops(body: Sequence[ir.Statement]) -> list[ir.For]:
    """Every loop in `body`, outer before inner."""
    found: list[ir.For] = []
    for statement in body:
        if isinstance(statement, (ir.For, ir.If)):
            found += loops_of(statement)
    return found


@functools.lru_cache(maxsize=_KNOWN_STATEMENTS)
def loops_of(nest: ir.For | ir.If) -> tuple[ir.For, ...]:
    """The loops of a nest, itself included, outer before inner; remembered as `loads_of` are."""
    inner = loops(nest.body)
    return (nest, *inner) if isinstance(nest, ir.For) else (*inner,)


def may_hold(nest: ir.For | ir.If, target: ir.Statement) -> bool:
    """False for a nest that surely does not hold `target`: the loops of one are known."""
    return not isinstance(target, ir.For) or target in loops_of(nest)


@functools.lru_cache(maxsize=_KNOWN_STATEMENTS)
def buffers_of(statement: ir.Statement) -> frozenset[ir.Buffer]:
    """What a statement, or what is in it, loads and stores; remembered as `loads_of` are."""
    found = {load.buffer for load in loads_of(statement)}
    if isinstance(statement, ir.Store):
        found.add(statement.buffer)
    elif isinstance(statement, (ir.For, ir.If)):
        found.update(*map(buffers_of, statement.body))
    return frozenset(found)


def only_statement(body: ir.Body) -> ir.Statement | None:
    """The single statement of `body`, if there is just one."""
    return body[0] if len(body) == 1 else None


def buffers_read(body: Sequence[ir.Statement]) -> dict[ir.Buffer, None]:
    """The buffers loaded in `body`, in order of first appearance."""
    return {load.buffer: None for load in loads(body)}


def buffers_written(body: Sequence[ir.Statement]) -> dict[ir.Buffer, None]:
    """The buffers stored in `body`, in order of first appearance."""
    return {store.buffer: None for store in stores(body)}


def split_terms(dim: Dim, names: AbstractSet[str]) -> tuple[Dim, Dim]:
    """An index as (the constant and what depends on none of these variables, the terms that depend on some)."""
    if isinstance(dim, int):
        return dim, 0
    fixed: Dim = dim.constant
    varying: Dim = 0
    for monomial, factor in dim.terms:
        term: Dim = Expr(((monomial, factor),), 0)
        if any(symbol.name in names for symbol in dim_symbols(term)):
            varying = varying + term
        else:
            fixed = fixed + term
    return fixed, varying


def dim_symbols(dim: Dim) -> frozenset[Symbol]:
    """The symbols of an index, those inside data-dependent atoms included."""
    found = set(symbolic.symbols(dim))
    for payload in payloads(dim):
        found |= expression_symbols(payload)
    return frozenset(found)


def expression_symbols(value: ir.Expression) -> frozenset[Symbol]:
    """The symbols an expression depends on through its indices."""
    found: set[Symbol] = set()
    for part in subexpressions(value):
        for dim in dims_of(part):
            found |= symbolic.symbols(dim)
    return frozenset(found)


def body_symbols(body: Sequence[ir.Statement]) -> frozenset[Symbol]:
    """Every symbol in `body`: loop variables (bound or free) and dimensions."""
    found: set[Symbol] = set()
    for statement in ir.walk(body):
        if isinstance(statement, ir.For):
            found.add(statement.var)
        for dim in dims_of(statement):
            found |= symbolic.symbols(dim)
    for value in expressions(body):
        for dim in dims_of(value):
            found |= symbolic.symbols(dim)
    return frozenset(found)


@final
class FreshNames:
    """Hands out names that are not taken yet: `i`, `i_2`, `i_3`."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken: set[str] = set(taken)
        self._counts: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """`stem`, or `stem` with the first free number."""
        base, _, tail = stem.rpartition("_")
        base = base if base and tail.isdigit() else stem
        if stem not in self._taken:
            self._taken.add(stem)
            return stem
        count = self._counts.get(base, 1)
        while True:
            count += 1
            name = f"{base}_{count}"
            if name not in self._taken:
                break
        self._counts[base] = count
        self._taken.add(name)
        return name

    @staticmethod
    def of(kernel: ir.Kernel) -> FreshNames:
        """Names free in `kernel`: loop variables, dims and buffers are taken."""
        taken = {loop.var.name for loop in loops(kernel.body)}
        taken |= {s.name for s in kernel.dims} | {b.name for b in kernel.buffers}
        return FreshNames(taken)


def fixed_buffers(kernel: ir.Kernel) -> frozenset[ir.Buffer]:
    """The parameters that nothing writes while kernels run."""
    return frozenset(p.buffer for p in kernel.parameters if p.access is ir.AccessMode.FIXED)
