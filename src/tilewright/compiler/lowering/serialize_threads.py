"""Run the threads of a workgroup one after the other: loops, split at the barriers.

    for t in 8 (thread.x): A(t); barrier; B(t)   ->   for t in 8: A(t);  for t_2 in 8: B(t_2)

Loops and conditionals with a barrier inside come to stand around the threads, which is the same because all
threads take them alike.  Registers that live across a barrier become an array with an element for each
thread, in the workgroup's memory.  Requires: nothing.  Ensures: no loop over threads, no barrier.  Called by
`machine` for processors whose workgroups have one thread.

Source: Jääskeläinen et al., pocl: A Performance-Portable OpenCL Implementation, 2015, section 4.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import final

from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Dim, Expr, Symbol
from tilewright.compiler.analysis.strides import linear_index
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.fields import parts, with_inner
from tilewright.compiler.kernel.grid import THREAD_KINDS, has_barrier, thread_chain
from tilewright.compiler.kernel.rewrite import (
    FreshNames,
    Rewriter,
    dim_symbols,
    expression_symbols,
    loads,
    substitute,
    with_body,
)


def serialize_threads(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with a workgroup of one thread."""
    if not any(
        isinstance(s, ir.For) and s.kind in THREAD_KINDS for s in ir.walk(kernel.body)
    ):
        return kernel
    step = _Serializer(kernel)
    body = step.outside(kernel.body)
    kept = tuple(step.promoted.get(buffer, buffer) for buffer in kernel.locals)
    return with_body(kernel, body, locals_=kept)


@final
class _Serializer:
    """Rewrites the threads of one kernel."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel: ir.Kernel = kernel
        self.names: FreshNames = FreshNames.of(kernel)
        self.chain: tuple[ir.For, ...] = ()
        self.is_first: bool = True
        self.promoted: dict[ir.Buffer, ir.Buffer] = {}

    def outside(self, body: Sequence[ir.Statement]) -> ir.Body:
        """Statements around the threads."""
        return tuple(new for old in body for new in self._around(old))

    def _around(self, statement: ir.Statement) -> ir.Body:
        if not isinstance(statement, ir.For | ir.If):
            return (statement,)
        if isinstance(statement, ir.If) or statement.kind not in THREAD_KINDS:
            return (with_inner(statement, self.outside(statement.body)),)
        self.chain, self.is_first = thread_chain(statement), True
        body = self.chain[-1].body
        self._promote(body)
        return self._split(body)

    # --- registers -------------------------------------------------------------------------

    def _promote(self, body: ir.Body) -> None:
        """Give registers that live across a barrier an element for each thread."""
        uses: Counter[ir.Buffer] = Counter()
        _count(body, uses, again=False)
        threads = tuple(loop.extent for loop in self.chain)
        for buffer in self.kernel.locals:
            if buffer.space is ir.Space.REGISTER and uses[buffer] > 1:
                size = math.prod(d for d in buffer.shape if isinstance(d, int))
                self.promoted[buffer] = ir.Buffer(
                    buffer.name, buffer.dtype, (*threads, size), ir.Space.WORKGROUP
                )

    def _place(self, buffer: ir.Buffer, indices: tuple[Dim, ...]) -> tuple[Dim, ...]:
        linear = len(indices) == 1 != len(buffer.shape)
        place = indices[0] if linear else linear_index(buffer, indices)
        return (*(Expr.of_atom(loop.var) for loop in self.chain), place)

    def _expression(self, value: ir.Expression) -> ir.Expression:
        if not isinstance(value, ir.Load) or value.buffer not in self.promoted:
            return value
        place = self._place(value.buffer, value.indices)
        return replace(value, buffer=self.promoted[value.buffer], indices=place)

    def _statement(self, statement: ir.Statement) -> ir.Statement:
        if not isinstance(statement, ir.Store) or statement.buffer not in self.promoted:
            return statement
        place = self._place(statement.buffer, statement.indices)
        return replace(statement, buffer=self.promoted[statement.buffer], indices=place)

    # --- loops -----------------------------------------------------------------------------

    def _split(self, body: Sequence[ir.Statement]) -> ir.Body:
        """Loops over the threads around what is between barriers."""
        found: list[ir.Statement] = []
        pending: list[ir.Statement] = []
        for statement in body:
            if not has_barrier(statement):
                pending.append(statement)
                continue
            found += self._threads(pending)
            pending = []
            if isinstance(statement, ir.For | ir.If):
                self._check_alike(statement)
                found.append(with_inner(statement, self._split(statement.body)))
        return (*found, *self._threads(pending))

    def _threads(self, body: Sequence[ir.Statement]) -> ir.Body:
        if not body:
            return ()
        inside = Rewriter(expression=self._expression, statement=self._statement).body(body)
        variables = [loop.var for loop in self.chain]
        if not self.is_first:
            renamed = [
                Symbol(self.names.fresh(v.name), v.lower, v.upper) for v in variables
            ]
            images = zip(variables, renamed, strict=True)
            inside = substitute(inside, {a.name: Expr.of_atom(b) for a, b in images})
            variables = renamed
        self.is_first = False
        for loop, var in zip(reversed(self.chain), reversed(variables), strict=True):
            inside = (ir.For(var, loop.extent, inside, ir.LoopKind.SERIAL),)
        return inside

    def _check_alike(self, statement: ir.For | ir.If) -> None:
        """Raise InternalError unless all threads take a loop or conditional alike."""
        threads = {loop.var.name for loop in self.chain}
        roots = list(parts(statement))
        found = {s.name for root in roots for s in expression_symbols(root)}
        if isinstance(statement, ir.For):
            found |= {s.name for s in dim_symbols(statement.extent)}
        if not found & threads and not any(map(_reads_registers, roots)):
            return
        kind = "loop" if isinstance(statement, ir.For) else "conditional"
        raise InternalError(
            f"kernel '{self.kernel.name}': a barrier in divergent control flow: threads differ in "
            f"the {kind} around it"
        )


def _reads_registers(value: ir.Expression) -> bool:
    return any(load.buffer.space is ir.Space.REGISTER for load in loads(value))


def _count(body: Sequence[ir.Statement], uses: Counter[ir.Buffer], *, again: bool) -> None:
    """In how many pieces between barriers each buffer is used; those that run again count twice."""
    pending: list[ir.Statement] = []

    def close() -> None:
        used = {load.buffer for load in loads(pending)}
        used |= {s.buffer for s in ir.walk(pending) if isinstance(s, ir.Store)}
        for buffer in used:
            uses[buffer] += 2 if again else 1
        pending.clear()

    for statement in body:
        if not has_barrier(statement):
            pending.append(statement)
            continue
        close()
        if isinstance(statement, ir.For | ir.If):
            _count(statement.body, uses, again=again or isinstance(statement, ir.For))
    close()
