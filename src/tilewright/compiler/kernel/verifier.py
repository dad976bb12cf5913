"""Checks that a kernel is well formed; run between lowering steps and in every test.

Scoping and uniqueness of names, dtypes and lanes, index counts, the place of grid loops, register
buffers.  Says what is wrong with the statement's text.  Whether the kernel computes the right
thing is the evaluator's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel import numerics
from tilewright.compiler.kernel.ir import (
    Access,
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
    Prefetch,
    Select,
    Space,
    Splat,
    Statement,
    Store,
    Transposed,
    Unary,
    children,
)
from tilewright.compiler.kernel.rewrite import expression_dims, payloads
from tilewright.compiler.kernel.text import expression_text, kernel_text, statement_lines

_GRID: Final = (LoopKind.GRID_X, LoopKind.GRID_Y, LoopKind.GRID_Z)


def verify(kernel: Kernel) -> None:
    """Check `kernel`.

    Raises: InternalError naming the first broken rule, with the kernel's text.
    """
    _Verifier(kernel).run()


@final
class _Verifier:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel: Kernel = kernel
        self.dims: frozenset[str] = frozenset(s.name for s in kernel.dims)
        self.scope: set[str] = set(self.dims)
        self.ever: set[str] = set(self.dims)
        self.readable: set[Buffer] = set(kernel.locals)
        self.writable: set[Buffer] = {
            b for b in kernel.locals if b.space is not Space.CONSTANT
        }
        for parameter in kernel.parameters:
            if parameter.access is not Access.WRITE:
                self.readable.add(parameter.buffer)
            if parameter.access is not Access.READ:
                self.writable.add(parameter.buffer)
        self.checked: dict[int, Expression] = {}

    def fail(self, message: str) -> InternalError:
        return InternalError(
            f"kernel '{self.kernel.name}': {message}", dump=kernel_text(self.kernel)
        )

    def run(self) -> None:
        buffers = [p.buffer for p in self.kernel.parameters] + list(self.kernel.locals)
        names = [b.name for b in buffers]
        if len(set(names)) != len(names):
            raise self.fail("two buffers share a name")
        if len(self.dims) != len(self.kernel.dims):
            raise self.fail("two dims share a name")
        for buffer in buffers:
            self._buffer(buffer)
        self._body(self.kernel.body, grid_allowed=True)

    def _buffer(self, buffer: Buffer) -> None:
        for dim in buffer.shape:
            for symbol in symbolic.symbols(dim):
                if symbol.name not in self.dims:
                    raise self.fail(
                        f"{buffer!r} uses the unknown dimension '{symbol.name}'"
                    )
        static = all(isinstance(d, int) for d in buffer.shape)
        if buffer.space is Space.REGISTER and not static:
            raise self.fail(f"register buffer {buffer!r} has a dynamic shape")
        if (buffer.space is Space.CONSTANT) != (buffer.data is not None):
            raise self.fail(f"{buffer!r}: data and space constant go together")
        if buffer.data is not None:
            count: Dim = 1
            for dim in buffer.shape:
                count = count * dim
            if count != len(buffer.data):
                raise self.fail(f"{buffer!r} has {len(buffer.data)} values")

    # --- statements ----------------------------------------------------------------------

    def _body(self, body: Sequence[Statement], *, grid_allowed: bool) -> None:
        alone = sum(not isinstance(s, Comment) for s in body) == 1
        for statement in body:
            try:
                self._statement(statement, grid_allowed=grid_allowed and alone)
            except _BrokenError as broken:
                line = statement_lines(statement)[0]
                raise self.fail(f"{broken.reason} in `{line}`") from None

    def _statement(self, statement: Statement, *, grid_allowed: bool) -> None:
        if isinstance(statement, Store):
            self._store(statement)
        elif isinstance(statement, For):
            self._loop(statement, grid_allowed=grid_allowed)
        elif isinstance(statement, If):
            self._expression(statement.condition)
            if not statement.condition.dtype.is_bool or statement.condition.lanes != 1:
                raise _BrokenError("the condition is not a scalar bool")
            self._body(statement.body, grid_allowed=False)
        elif isinstance(statement, Prefetch):
            self._prefetch(statement)
        elif not isinstance(statement, Comment):
            raise _BrokenError("unknown statement")

    def _loop(self, loop: For, *, grid_allowed: bool) -> None:
        grid = loop.kind in _GRID
        if grid and not grid_allowed:
            raise _BrokenError("a grid loop inside other code")
        if loop.kind in (LoopKind.UNROLL, LoopKind.VECTOR) and not isinstance(
            loop.extent, int
        ):
            raise _BrokenError("an unrolled or vector loop needs a constant extent")
        self._dim(loop.extent)
        name = loop.var.name
        if name in self.ever:
            raise _BrokenError(f"the name '{name}' is taken")
        self.ever.add(name)
        self.scope.add(name)
        self._body(loop.body, grid_allowed=grid)
        self.scope.discard(name)
        # Expressions checked inside the loop may use its variable: forget them.
        self.checked.clear()

    def _store(self, store: Store) -> None:
        if store.buffer not in self.writable:
            raise _BrokenError(f"{store.buffer!r} is not writable here")
        self._expression(store.value)
        if store.value.dtype is not store.buffer.dtype:
            raise _BrokenError(f"value of {store.value.dtype} for {store.buffer!r}")
        self._indices(store.buffer, store.indices, store.value.lanes)
        self._mask(store.mask, store.value.lanes)

    def _prefetch(self, hint: Prefetch) -> None:
        if hint.buffer not in self.readable and hint.buffer not in self.writable:
            raise _BrokenError(f"{hint.buffer!r} is not known here")
        if hint.buffer.space is Space.REGISTER:
            raise _BrokenError("registers are not cached")
        if hint.level not in (1, 2, 3):
            raise _BrokenError(f"cache level {hint.level}, expected 1, 2 or 3")
        self._indices(hint.buffer, hint.indices, 1)

    def _mask(self, mask: Expression | None, lanes: int) -> None:
        if mask is None:
            return
        self._expression(mask)
        if not mask.dtype.is_bool or mask.lanes != lanes:
            raise _BrokenError(f"mask of {mask.dtype} x {mask.lanes} for {lanes} lanes")

    # --- indices -------------------------------------------------------------------------

    def _indices(self, buffer: Buffer, indices: Sequence[Dim], lanes: int) -> None:
        if len(indices) not in (len(buffer.shape), 1):
            raise _BrokenError(f"{len(indices)} indices into {buffer!r}")
        for index in indices:
            self._dim(index, lanes)

    def _dim(self, dim: Dim, lanes: int = 1) -> None:
        for symbol in symbolic.symbols(dim):
            if symbol.name not in self.scope:
                raise _BrokenError(f"'{symbol.name}' is not in scope")
        for payload in payloads(dim):
            self._expression(payload)
            if payload.lanes not in (1, lanes) or not payload.dtype.is_integer:
                raise _BrokenError(
                    "a data-dependent index must be a scalar integer or one per lane"
                )

    # --- expressions ---------------------------------------------------------------------

    def _expression(self, root: Expression) -> None:
        if id(root) in self.checked:
            return
        for part in children(root):
            self._expression(part)
        for dim in expression_dims(root):
            self._dim(dim, root.lanes)
        problem = self._problem(root)
        if problem is not None:
            raise _BrokenError(f"{problem} in `{expression_text(root)}`")
        self.checked[id(root)] = root

    def _problem(self, e: Expression) -> str | None:
        if isinstance(e, Load):
            if e.buffer not in self.readable and e.buffer not in self.writable:
                return f"{e.buffer!r} is not readable here"
            self._indices(e.buffer, e.indices, e.lanes)
            self._mask(e.mask, e.lanes)
            return None
        if isinstance(e, Binary):
            known = e.op in numerics.BINARY
            return _agree(e, (e.left, e.right)) if known else f"unknown operator '{e.op}'"
        if isinstance(e, Compare):
            if e.op not in numerics.COMPARE:
                return f"unknown comparison '{e.op}'"
            if e.left.dtype is not e.right.dtype:
                return f"operands {e.left.dtype} and {e.right.dtype}"
            return _lanes(e, (e.left, e.right))
        return _call_problem(e) if isinstance(e, Call) else _other_problem(e)


def _call_problem(e: Call) -> str | None:
    given = tuple(operand.dtype for operand in e.operands)
    if given != e.function.parameters:
        return f"operands {given}, expected {e.function.parameters}"
    return _lanes(e, e.operands)


def _other_problem(e: Expression) -> str | None:  # noqa: PLR0911 - one per kind
    if isinstance(e, Unary):
        if e.op not in numerics.UNARY:
            return f"unknown operator '{e.op}'"
        if e.op == "is_nan":
            return None if e.dtype is dtypes.bool_ else "is_nan gives bool"
        return _agree(e, (e.operand,))
    if isinstance(e, Fma):
        return _agree(e, (e.a, e.b, e.c))
    if isinstance(e, Select):
        if not e.condition.dtype.is_bool or e.condition.lanes != e.lanes:
            return f"condition of {e.condition.dtype} x {e.condition.lanes}"
        return _agree(e, (e.if_true, e.if_false))
    if isinstance(e, Cast | Bitcast):
        return _conversion_problem(e)
    if isinstance(e, Splat):
        return None if e.operand.lanes == 1 and e.dtype is e.operand.dtype else "bad splat"
    if isinstance(e, Horizontal):
        good = e.lanes == 1 and e.dtype is e.operand.dtype
        return None if good else "bad horizontal"
    if isinstance(e, Transposed):
        square = len(e.rows) == e.lanes and 0 <= e.column < e.lanes
        return _agree(e, e.rows) if square else f"column {e.column} of {len(e.rows)} rows"
    if isinstance(e, Index):
        return None if e.dtype.is_integer else f"an index of {e.dtype}"
    return None if isinstance(e, Const) else f"unknown expression {type(e).__name__}"


def _conversion_problem(e: Cast | Bitcast) -> str | None:
    source = e.operand.dtype
    if isinstance(e, Bitcast) and (
        e.dtype.itemsize != source.itemsize or e.dtype.is_bool or source.is_bool
    ):
        return f"bits of {source} as {e.dtype}"
    return _lanes(e, (e.operand,))


def _agree(e: Expression, parts: Sequence[Expression]) -> str | None:
    wrong = [p.dtype for p in parts if p.dtype is not e.dtype]
    return f"operand of {wrong[0]}, expected {e.dtype}" if wrong else _lanes(e, parts)


def _lanes(e: Expression, parts: Sequence[Expression]) -> str | None:
    wrong = [p.lanes for p in parts if p.lanes != e.lanes]
    return f"operand with {wrong[0]} lanes, expected {e.lanes}" if wrong else None


@final
class _BrokenError(Exception):
    """A broken rule, before the statement's text is added."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason: str = reason
