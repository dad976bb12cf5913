"""Turn loops of kind VECTOR into lanes.

    for v in 0..16 (vector): C[i + v] = A[2*v] * s     ->   C[i] = A[0 : 32 : 2] * splat(s)   (x 16)

Loads and stores follow the coefficient of the lane variable: 0 is a scalar, a constant a stride,
anything else one index per lane.  Conditions on the lane become masks.  A store that every lane
would do to one element must be a reduction; its lanes are combined first.  A loop that cannot be
turned into lanes (sequential dependence, lanes inside lanes) is unrolled, or runs serially.

Requires: linear indices, bounded symbols.  Ensures: no loop of kind VECTOR.  That iterations do not
depend on each other is what the schedule vouches for.  Called by `machine`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, assert_never, final

from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Dim, Opaque
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel import ir, numerics
from tilewright.compiler.kernel.fields import children, payloads, with_children, with_inner
from tilewright.compiler.kernel.rewrite import (
    as_index,
    expression_symbols,
    is_target,
    lane_index,
    loads,
    stores,
    with_body,
)
from tilewright.compiler.lowering.simplify import fold

_MOST_I32: Final = (1 << 31) - 1
MAX_UNROLL: Final = 64
"""Loops that cannot become lanes are unrolled up to this extent."""


class _NoLanesError(Exception):
    """The loop at hand cannot become lanes."""


def vectorize(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with vectors instead of VECTOR loops."""
    return with_body(kernel, _body(kernel.body))


def _body(body: Sequence[ir.Statement]) -> ir.Body:
    return tuple(new for old in body for new in _statement(old))


def _statement(statement: ir.Statement) -> Sequence[ir.Statement]:
    if not isinstance(statement, ir.For | ir.If):
        return (statement,)
    inside = _body(statement.body)
    if isinstance(statement, ir.If) or statement.kind is not ir.LoopKind.VECTOR:
        return (with_inner(statement, inside),)
    extent = statement.extent
    if isinstance(extent, int):
        try:
            return _Lanes(statement.var.name, extent, reduction=statement.reduction).body(
                inside
            )
        except _NoLanesError:
            pass
    small = isinstance(extent, int) and extent <= MAX_UNROLL
    kind = ir.LoopKind.UNROLL if small else ir.LoopKind.SERIAL
    return (ir.For(statement.var, extent, inside, kind, statement.reduction),)


@final
class _Lanes:
    """Rewrites the body of one vector loop."""

    def __init__(self, name: str, lanes: int, *, reduction: bool) -> None:
        self.name: str = name
        self.lanes: int = lanes
        self.reduction: bool = reduction
        self.mask: ir.Expression | None = None
        self.lane: Dim = lane_index(lanes)
        self._memo: dict[tuple[int, int], tuple[ir.Expression, ir.Expression]] = {}

    # --- statements ------------------------------------------------------------------------

    def body(self, body: Sequence[ir.Statement]) -> ir.Body:
        """The statements with lanes."""
        return tuple(new for old in body for new in self._statement(old))

    def _statement(self, statement: ir.Statement) -> Sequence[ir.Statement]:
        match statement:
            case ir.Store():
                return (self._store(statement),)
            case ir.For():
                return (self._for(statement),)
            case ir.If():
                return self._if(statement)
            case ir.Prefetch():
                return self._prefetch(statement)
            case ir.Barrier():
                raise _NoLanesError
            case _:
                assert_never(statement)

    def _for(self, loop: ir.For) -> ir.Statement:
        # Where no lane is active, nothing may be loaded: not the count either.
        masked = self.mask is not None and any(payloads(loop.extent))
        if masked or self._depends(loop.extent):
            raise _NoLanesError
        return with_inner(loop, self.body(loop.body))

    def _prefetch(self, hint: ir.Prefetch) -> Sequence[ir.Statement]:
        """What lane 0 asks for; none where every lane reads somewhere else."""
        (index,) = hint.indices
        base, stride = self._index(index)
        if stride == 0 and base is not index:
            return ()
        return (ir.Prefetch(hint.buffer, (base,), hint.level),)

    def _if(self, statement: ir.If) -> Sequence[ir.Statement]:
        condition = self.value(statement.condition)
        if condition.lanes == 1 and self.mask is None:
            return (ir.If(condition, self.body(statement.body)),)
        if _changes_its_mask(statement):
            raise _NoLanesError
        saved = self.mask
        wide = e.splat(condition, self.lanes)
        self.mask = wide if saved is None else fold(self._and(saved, wide))
        inside = self.body(statement.body)
        self.mask = saved
        return inside

    def _and(self, left: ir.Expression, right: ir.Expression) -> ir.Expression:
        return ir.Binary("and", left, right, dtypes.bool_, self.lanes)

    def _masked(self, mask: ir.Expression | None) -> ir.Expression | None:
        """The mask of an access inside the current conditionals."""
        own = None if mask is None else e.splat(self.value(mask), self.lanes)
        if own is None or self.mask is None:
            return self.mask if own is None else own
        return fold(self._and(self.mask, own))

    def _store(self, store: ir.Store) -> ir.Store:
        (index,) = store.indices
        base, stride = self._index(index)
        if stride == 0 and base is index:
            return self._store_one(store, index)
        value = e.splat(self.value(store.value), self.lanes)
        return ir.Store(store.buffer, (base,), value, stride, self._masked(store.mask))

    def _store_one(self, store: ir.Store, index: Dim) -> ir.Store:
        """All lanes store to one element."""
        combined = self._reduced(store)
        if combined is not None:
            return ir.Store(store.buffer, (index,), combined)
        value = self.value(store.value)
        mask = None if store.mask is None else self.value(store.mask)
        if (
            value.lanes > 1
            or self.mask is not None
            or (mask is not None and mask.lanes > 1)
        ):
            raise _NoLanesError
        return ir.Store(store.buffer, (index,), value, mask=mask)

    def _reduced(self, store: ir.Store) -> ir.Expression | None:
        """`T op lanes-of-x combined`, when the store is `T = T op x` and x has lanes."""
        value = store.value
        ways: tuple[tuple[ir.Expression, ir.Expression], ...] = ()
        op = "add"
        if isinstance(value, ir.Fma):
            ways = ((value.c, ir.Binary("mul", value.a, value.b, value.dtype)),)
        elif isinstance(value, ir.Binary) and value.op in ir.COMBINING_OPS:
            op, ways = value.op, ((value.left, value.right), (value.right, value.left))
        found = next((way for way in ways if self._is_target(way[0], store)), None)
        if found is None:
            return None
        total, item = found
        reads = any(load.buffer is store.buffer for load in loads(item))
        if reads or store.mask is not None:
            raise _NoLanesError
        exact = not value.dtype.is_float or op in ("min", "max")
        if not (self.reduction or exact):
            raise _NoLanesError
        wide = self.value(item)
        if wide.lanes == 1 and self.mask is None and op in ("min", "max", "and", "or"):
            return ir.Binary(op, total, wide, value.dtype)
        wide = e.splat(wide, self.lanes)
        if self.mask is not None:
            neutral = e.const(numerics.identity(op, value.dtype), value.dtype, self.lanes)
            wide = e.select(self.mask, wide, neutral)
        return ir.Binary(op, total, ir.Horizontal(op, wide, value.dtype), value.dtype)

    def _is_target(self, value: ir.Expression, store: ir.Store) -> bool:
        return isinstance(value, ir.Load) and value.mask is None and is_target(value, store)

    # --- indices ---------------------------------------------------------------------------

    def _depends(self, dim: Dim) -> bool:
        if isinstance(dim, int):
            return False
        if self.name in dim.names:
            return True
        return any(
            any(s.key == self.name for s in expression_symbols(p)) for p in payloads(dim)
        )

    def _index(self, dim: Dim) -> tuple[Dim, int]:
        """The index of lane 0 and the stride; a stride of 0 with a new index is per lane."""
        if not self._depends(dim):
            return dim, 0
        if self._same_in_lanes(dim):
            linear = symbolic.linear(dim, self.name)
            if linear is not None and isinstance(linear[0], int):
                return linear[1], linear[0]
        wide = symbolic.map_opaque(dim, self._opaque)
        return symbolic.substitute(wide, {self.name: self.lane}), 0

    def _same_in_lanes(self, dim: Dim) -> bool:
        """Whether what `dim` takes from memory is one scalar for all lanes.

        Under a mask it is not: where no lane is active, nothing may be loaded.
        """
        return all(
            self.mask is None
            and isinstance(atom.payload, ir.Expression)
            and self.value(atom.payload) is atom.payload
            for atom in symbolic.opaques(dim)
        )

    def _opaque(self, atom: Opaque) -> Dim:
        if not isinstance(atom.payload, ir.Expression):
            return symbolic.Expr.of_atom(atom)
        return as_index(self.value(atom.payload))

    # --- expressions -----------------------------------------------------------------------

    def value(self, value: ir.Expression) -> ir.Expression:
        """The value with lanes, or unchanged when it does not depend on the lane."""
        key = (id(value), id(self.mask))
        known = self._memo.get(key)
        if known is None:
            known = self._memo[key] = (value, self._value(value))
        return known[1]

    def _value(self, value: ir.Expression) -> ir.Expression:
        if value.lanes > 1:
            raise _NoLanesError
        if isinstance(value, ir.Const):
            return value
        if isinstance(value, ir.Bitcast) and value.operand.lanes > 1:
            return self._word(value, value.operand)
        if isinstance(value, ir.Index):
            return self._index_value(value)
        if isinstance(value, ir.Load):
            return self._load(value)
        parts = [_short_number(value, part) for part in children(value)]
        new = [self.value(part) for part in parts]
        if all(a is b for a, b in zip(parts, new, strict=True)):
            return value
        if all(part.lanes == 1 for part in new):
            return fold(with_children(value, new))
        if isinstance(value, ir.Horizontal):
            raise _NoLanesError
        wide = with_children(value, [e.splat(part, self.lanes) for part in new])
        return fold(replace(wide, lanes=self.lanes))

    def _word(self, word: ir.Bitcast, block: ir.Expression) -> ir.Expression:
        """A word made of elements side by side.

        Where the blocks of all lanes lie next to each other, they are one vector of elements.
        """
        if (
            not isinstance(block, ir.Load)
            or block.mask is not None
            or self.mask is not None
        ):
            raise _NoLanesError
        base, stride = self._index(block.indices[0])
        if stride == 0 and base is block.indices[0]:
            return word
        if block.stride != 1 or stride != block.lanes:
            raise _NoLanesError
        whole = replace(block, indices=(base,), lanes=block.lanes * self.lanes)
        return e.bitcast(whole, word.dtype)

    def _index_value(self, value: ir.Index) -> ir.Expression:
        base, stride = self._index(value.dim)
        if base is value.dim and stride == 0:
            return value
        return ir.Index(base, value.dtype, self.lanes, stride)

    def _load(self, load: ir.Load) -> ir.Expression:
        (index,) = load.indices
        base, stride = self._index(index)
        private = load.buffer.space is ir.Space.REGISTER
        if stride == 0 and base is index:
            mask = None if load.mask is None else self.value(load.mask)
            # One element for all lanes, unless some of them shall not have it.
            is_one = mask is None or mask.lanes == 1
            if is_one and (private or self.mask is None):
                same = mask is load.mask
                return load if same else ir.Load(load.buffer, (index,), mask=mask)
            return ir.Load(load.buffer, (index,), self.lanes, 0, self._masked(load.mask))
        mask = self._masked(load.mask)
        if private and load.mask is None and self._inside(load.buffer, base, stride):
            mask = None
        return ir.Load(load.buffer, (base,), self.lanes, stride, mask)

    def _inside(self, buffer: ir.Buffer, base: Dim, stride: int) -> bool:
        """Whether every lane is surely inside a register buffer."""
        low, high = symbolic.bounds(base)
        reach = (self.lanes - 1) * stride
        size = math.prod(d for d in buffer.shape if isinstance(d, int))
        if low is None or high is None:
            return False
        return low + min(reach, 0) >= 0 and high + max(reach, 0) < size


def _short_number(value: ir.Expression, part: ir.Expression) -> ir.Expression:
    """A number of loops that becomes a float, of half its bits where they surely hold it: these are converted many at a time."""
    is_float = isinstance(value, ir.Cast) and value.dtype.is_float
    if not is_float or not isinstance(part, ir.Index) or part.dtype is not dtypes.i64:
        return part
    low, high = symbolic.bounds(part.dim)
    is_short = low is not None and high is not None and max(-low, high) <= _MOST_I32
    return ir.Index(part.dim, dtypes.i32) if is_short else part


def _changes_its_mask(statement: ir.If) -> bool:
    """Whether a store after which more follows changes what the condition reads.

    The condition is taken once, but as a mask it is computed anew for every access.
    """
    read = {load.buffer for load in loads(statement.condition)}
    last = statement.body[-1] if statement.body else None
    return any(s.buffer in read for s in stores(statement.body) if s is not last)
