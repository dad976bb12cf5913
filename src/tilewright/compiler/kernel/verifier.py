"""Checks that a kernel is well formed; run between lowering steps and in every test.

Scoping and uniqueness of names, dtypes and lanes, index counts, the place of grid loops, register
buffers.  Says what is wrong with the statement's text.  Whether the kernel computes the right
thing is the evaluator's business.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import assert_never, final

from tilewright.base import symbolic
from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.fields import children, dims_of, payloads
from tilewright.compiler.kernel.grid import GRID_KINDS, THREAD_KINDS
from tilewright.compiler.kernel.rewrite import dim_symbols, expression_symbols
from tilewright.compiler.kernel.text import expression_text, kernel_text, statement_lines


def verify(kernel: ir.Kernel) -> None:
    """Check `kernel`.

    Raises: InternalError naming the first broken rule, with the kernel's text.
    """
    _Verifier(kernel).run()


@final
class _Verifier:
    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel: ir.Kernel = kernel
        self.dims: frozenset[str] = frozenset(s.name for s in kernel.dims)
        self.scope: set[str] = set(self.dims)
        self.ever: set[str] = set(self.dims)
        self.readable: set[ir.Buffer] = set(kernel.locals)
        self.writable: set[ir.Buffer] = {
            b for b in kernel.locals if b.space is not ir.Space.CONSTANT
        }
        for parameter in kernel.parameters:
            if parameter.access.reads:
                self.readable.add(parameter.buffer)
            if parameter.access.writes:
                self.writable.add(parameter.buffer)
        self.checked: dict[int, ir.Expression] = {}
        self.threads: set[str] = set()
        self.thread_kinds: set[ir.LoopKind] = set()
        self.parting: str = ""

    def fail(self, message: str) -> InternalError:
        return InternalError(
            f"kernel '{self.kernel.name}': {message}", dump=kernel_text(self.kernel)
        )

    def run(self) -> None:
        buffers = self.kernel.buffers
        names = [b.name for b in buffers]
        if len(set(names)) != len(names):
            raise self.fail("two buffers share a name")
        if len(self.dims) != len(self.kernel.dims):
            raise self.fail("two dims share a name")
        for buffer in buffers:
            self._buffer(buffer)
        self._body(self.kernel.body, grid_allowed=True)

    def _buffer(self, buffer: ir.Buffer) -> None:
        for dim in buffer.shape:
            for symbol in symbolic.symbols(dim):
                if symbol.name not in self.dims:
                    raise self.fail(
                        f"{buffer!r} uses the unknown dimension '{symbol.name}'"
                    )
        static = all(isinstance(d, int) for d in buffer.shape)
        if buffer.space is ir.Space.REGISTER and not static:
            raise self.fail(f"register buffer {buffer!r} has a dynamic shape")
        if (buffer.space is ir.Space.CONSTANT) != (buffer.data is not None):
            raise self.fail(f"{buffer!r}: data and space constant go together")
        if buffer.data is not None and math.prod(buffer.shape) != len(buffer.data):
            raise self.fail(f"{buffer!r} has {len(buffer.data)} values")

    # --- statements ----------------------------------------------------------------------

    def _body(self, body: Sequence[ir.Statement], *, grid_allowed: bool) -> None:
        alone = len(body) == 1
        for statement in body:
            try:
                self._statement(statement, grid_allowed=grid_allowed and alone)
            except _BrokenError as broken:
                line = statement_lines(statement)[0]
                raise self.fail(f"{broken} in `{line}`") from None

    def _statement(self, statement: ir.Statement, *, grid_allowed: bool) -> None:
        match statement:
            case ir.Store():
                self._store(statement)
            case ir.For():
                self._loop(statement, grid_allowed=grid_allowed)
            case ir.If():
                self._expression(statement.condition)
                if not statement.condition.dtype.is_bool or statement.condition.lanes != 1:
                    raise _BrokenError("the condition is not a scalar bool")
                names = {s.name for s in expression_symbols(statement.condition)}
                self._inside(statement, names)
            case ir.Barrier():
                self._barrier()
            case ir.Prefetch():
                self._prefetch(statement)
            case _:
                assert_never(statement)

    def _inside(self, statement: ir.For | ir.If, names: set[str]) -> None:
        """The body of what `names` decide about: threads that differ in them part there."""
        before = self.parting
        apart = sorted(names & self.threads)
        lanes = isinstance(statement, ir.For) and statement.kind is ir.LoopKind.VECTOR
        if apart or lanes:
            self.parting = (
                f"threads differ in '{apart[0]}'" if apart else "lanes cannot wait"
            )
        self._body(statement.body, grid_allowed=False)
        self.parting = before

    def _barrier(self) -> None:
        if not self.threads:
            raise _BrokenError("a barrier outside of a workgroup's threads")
        if self.parting:
            raise _BrokenError(f"a barrier in divergent control flow: {self.parting}")

    def _threads(self, loop: ir.For) -> None:
        """A loop over threads: outside of everything but the grid and other threads."""
        if not isinstance(loop.extent, int) or loop.extent < 1:
            raise _BrokenError("a workgroup has a constant number of threads")
        if loop.kind in self.thread_kinds:
            raise _BrokenError(f"two loops of kind {loop.kind.value}")
        self.thread_kinds.add(loop.kind)
        self.threads.add(loop.var.name)
        self._body(loop.body, grid_allowed=True)
        self.threads.discard(loop.var.name)
        self.thread_kinds.discard(loop.kind)

    def _loop(self, loop: ir.For, *, grid_allowed: bool) -> None:
        grid = loop.kind in GRID_KINDS
        if grid and (not grid_allowed or self.threads):
            raise _BrokenError("a grid loop inside other code")
        if loop.kind in THREAD_KINDS and not grid_allowed:
            raise _BrokenError("a loop over threads inside other code")
        if loop.kind in (ir.LoopKind.UNROLL, ir.LoopKind.VECTOR) and not isinstance(
            loop.extent, int
        ):
            raise _BrokenError("an unrolled or vector loop needs a constant extent")
        self._dim(loop.extent)
        name = loop.var.name
        if name in self.ever:
            raise _BrokenError(f"the name '{name}' is taken")
        self.ever.add(name)
        self.scope.add(name)
        if grid:
            self._body(loop.body, grid_allowed=True)
        elif loop.kind in THREAD_KINDS:
            self._threads(loop)
        else:
            self._inside(loop, {s.name for s in dim_symbols(loop.extent)})
        self.scope.discard(name)
        # Expressions checked inside the loop may use its variable: forget them.
        self.checked.clear()

    def _store(self, store: ir.Store) -> None:
        if store.buffer not in self.writable:
            raise _BrokenError(f"{store.buffer!r} is not writable here")
        self._expression(store.value)
        if store.value.dtype is not store.buffer.dtype:
            raise _BrokenError(f"value of {store.value.dtype} for {store.buffer!r}")
        self._indices(store.buffer, store.indices, store.value.lanes)
        self._mask(store.mask, store.value.lanes)

    def _prefetch(self, hint: ir.Prefetch) -> None:
        if hint.buffer not in self.readable and hint.buffer not in self.writable:
            raise _BrokenError(f"{hint.buffer!r} is not known here")
        if hint.buffer.space is ir.Space.REGISTER:
            raise _BrokenError("registers are not cached")
        if hint.level not in (1, 2, 3):
            raise _BrokenError(f"cache level {hint.level}, expected 1, 2 or 3")
        self._indices(hint.buffer, hint.indices, 1)

    def _mask(self, mask: ir.Expression | None, lanes: int) -> None:
        if mask is None:
            return
        self._expression(mask)
        if not mask.dtype.is_bool or mask.lanes != lanes:
            raise _BrokenError(f"mask of {mask.dtype} x {mask.lanes} for {lanes} lanes")

    # --- indices -------------------------------------------------------------------------

    def _indices(self, buffer: ir.Buffer, indices: Sequence[Dim], lanes: int) -> None:
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

    def _expression(self, root: ir.Expression) -> None:
        if id(root) in self.checked:
            return
        for part in children(root):
            self._expression(part)
        for dim in dims_of(root):
            self._dim(dim, root.lanes)
        if isinstance(root, ir.Load):
            self._load(root)
        problem = root.problem()
        if problem is not None:
            raise _BrokenError(f"{problem} in `{expression_text(root)}`")
        self.checked[id(root)] = root

    def _load(self, load: ir.Load) -> None:
        if load.buffer not in self.readable and load.buffer not in self.writable:
            text = expression_text(load)
            raise _BrokenError(f"{load.buffer!r} is not readable here in `{text}`")
        self._indices(load.buffer, load.indices, load.lanes)
        self._mask(load.mask, load.lanes)


@final
class _BrokenError(Exception):
    """A broken rule, before the statement's text is added."""
