"""The primitive that puts an instruction of the machine in the place of a loop: tensorize.

That they compute the same is proven by unification: the loop is matched with the instruction's own loops,
statement by statement and operand by operand.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim
from tilewright.base.text import did_you_mean
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.expressions import bitcast
from tilewright.compiler.kernel.fields import children, fields_of
from tilewright.compiler.kernel.instructions import INSTRUCTIONS
from tilewright.compiler.kernel.rewrite import dim_symbols, only_statement
from tilewright.compiler.kernel.text import expression_text
from tilewright.compiler.schedule.trace import primitive
from tilewright.compiler.schedule.tree import find, rewrite

_COMMUTATIVE: Final = ("add", "mul")


@primitive
def tensorize(
    kernel: ir.Kernel, loop: str, instruction: str, *, inexact: bool = False
) -> ir.Kernel:
    """Let one instruction do what a loop does; `vectorize` then applies it to all lanes.

    An instruction of tiles takes the place of the nest over a tile, whose outermost loop is `loop`, and is in
    lanes at once.

    Of packed operands the loop must read elements side by side, in its order.  An instruction that
    rounds otherwise than its loop, or flushes small numbers, takes consent: `inexact`.

    rewrite:
        for k in 4: c[i] += i32(a[m, 4 * p + k]) * i32(b[p, i, k])
        ->
        c[i] = vpdpbusd(c[i], bits<i32>(a[m, 4 * p : 4 lanes]), bits<i32>(b[p, i, 0 : 4 lanes]))

        for i in 2: for j in 2: for k in 8: c[2 * i + j] += i32(a[p, 8 * i + k]) * i32(b[p, 8 * j + k])
        ->
        c[0 : 4 lanes] = smmla(c[0 : 4 lanes], bits<i32>(a[p, 0 : 16 lanes]), bits<i32>(b[p, 0 : 16 lanes]))

    Raises: ScheduleError for an unknown instruction, or a loop that means something else: the
    message says where they part.
    """
    row = INSTRUCTIONS.get(instruction)
    if row is None:
        raise ScheduleError(
            f"unknown instruction '{instruction}'",
            hint=did_you_mean(instruction, INSTRUCTIONS),
        )
    if row.replaces is not None and not inexact:
        raise ScheduleError(
            f"instruction '{instruction}' is not what the loop says: it {row.caution}",
            hint="inexact=True accepts that",
        )
    found = find(kernel, loop)
    store = _Unifier(kernel, row).unify(row.replaces or row.body, found)
    return rewrite(kernel, found, (store,))


@final
class _Unifier:
    """Matches a loop with those of an instruction; knows what each parameter stands for."""

    def __init__(self, kernel: ir.Kernel, row: ir.Instruction) -> None:
        self.kernel: ir.Kernel = kernel
        self.row: ir.Instruction = row
        self.stands_for: dict[ir.Buffer, ir.Load] = {}
        self.loops: dict[str, ir.For] = {}

    def fail(self, reason: str) -> ScheduleError:
        """The error that says where the two part."""
        return ScheduleError(
            f"the loop is not what '{self.row.name}' computes: {reason}",
            location=self.kernel.name,
        )

    def unify(self, pattern: ir.Body, loop: ir.For) -> ir.Store:
        """The statement that takes the place of `loop`.  Raises: ScheduleError."""
        (inner,) = pattern
        store: ir.Statement | None = loop
        while isinstance(inner, ir.For):
            self.loops[inner.var.name] = self._same_loop(inner, store)
            store, (inner,) = only_statement(self.loops[inner.var.name].body), inner.body
        assert isinstance(inner, ir.Store), "instructions are loops around one store"
        if not isinstance(store, ir.Store) or store.mask is not None:
            raise self.fail("expected a single store without a mask inside")
        self._bind(
            ir.Load(inner.buffer, inner.indices), ir.Load(store.buffer, store.indices)
        )
        self._match(inner.value, store.value)
        operands = tuple(self._operand(x) for x in self.row.parameters)
        place = self._first(store.indices)
        value = ir.Intrinsic(self.row, operands, self.row.tile_lanes)
        return replace(store, indices=place, value=value)

    def _same_loop(self, wanted: ir.For, given: ir.Statement | None) -> ir.For:
        """The loop in the place of one of the instruction's.  Raises: ScheduleError."""
        if not isinstance(given, ir.For):
            raise self.fail(f"expected a loop over {wanted.extent} inside")
        if (given.extent, given.reduction) != (wanted.extent, wanted.reduction):
            found, expected = (
                "reduction" if loop.reduction else "loop" for loop in (given, wanted)
            )
            raise self.fail(
                f"a {found} over {given.extent}, expected a {expected} over {wanted.extent}"
            )
        return given

    # --- expressions -----------------------------------------------------------------------

    def _match(self, wanted: ir.Expression, given: ir.Expression) -> None:
        """Bind parameters so that both mean the same.  Raises: ScheduleError."""
        if isinstance(wanted, ir.Load):
            if not isinstance(given, ir.Load):
                raise self.fail(f"`{expression_text(given)}` is not read from memory")
            self._bind(wanted, given)
            return
        data = fields_of(wanted).data
        if type(given) is not type(wanted) or any(
            getattr(given, name) != getattr(wanted, name) for name in data
        ):
            raise self.fail(
                f"`{expression_text(given)}`, expected the form `{expression_text(wanted)}`"
            )
        if isinstance(wanted, ir.Binary) and wanted.op in _COMMUTATIVE:
            self._match_either_way(children(wanted), children(given))
            return
        for one, other in zip(children(wanted), children(given), strict=True):
            self._match(one, other)

    def _match_either_way(
        self, wanted: tuple[ir.Expression, ...], given: tuple[ir.Expression, ...]
    ) -> None:
        before = dict(self.stands_for)
        try:
            for one, other in zip(wanted, given, strict=True):
                self._match(one, other)
        except ScheduleError as first:
            self.stands_for = before
            try:
                for one, other in zip(wanted, reversed(given), strict=True):
                    self._match(one, other)
            except ScheduleError:
                raise first from None

    def _bind(self, wanted: ir.Load, load: ir.Load) -> None:
        """Let a parameter stand for what is read."""
        text, parameter = expression_text(load), wanted.buffer
        if load.dtype is not parameter.dtype or load.lanes != 1 or load.mask is not None:
            raise self.fail(f"`{text}` is of {load.dtype}, expected {parameter.dtype}")
        known = self.stands_for.setdefault(parameter, load)
        if known.buffer is not load.buffer or known.indices != load.indices:
            raise self.fail(f"`{text}` is not `{expression_text(known)}`")
        if not parameter.shape:
            names = {loop.var for loop in self.loops.values()}
            if any(names & dim_symbols(index) for index in load.indices):
                raise self.fail(f"`{text}` is another element in every iteration")
        elif not self._is_packed(wanted, load):
            order = "', '".join(loop.var.name for loop in self._loops_of(wanted))
            raise self.fail(
                f"`{text}` are not elements side by side, in the order of '{order}'"
            )
        elif parameter is not self.row.parameters[0] and load.buffer is self._target:
            raise self.fail(f"'{load.buffer.name}' is read while it is written")

    @property
    def _target(self) -> ir.Buffer:
        """The buffer of the result."""
        return self.stands_for[self.row.parameters[0]].buffer

    def _loops_of(self, wanted: ir.Load) -> list[ir.For]:
        """The loops that an element of a parameter depends on, one for each of its axes."""
        names = [min(s.name for s in dim_symbols(index)) for index in wanted.indices]
        return [self.loops[name] for name in names]

    def _is_packed(self, wanted: ir.Load, load: ir.Load) -> bool:
        """Whether the loops read the elements of a parameter, row by row, out of one row of neighbours."""
        *others, last = load.indices
        steps = dict.fromkeys((loop.var.name for loop in self.loops.values()), 0)
        step = 1
        axes = zip(self._loops_of(wanted), wanted.buffer.shape, strict=True)
        for loop, extent in reversed([*axes]):
            steps[loop.var.name] = step
            step *= int(str(extent))
        for loop in self.loops.values():
            linear = symbolic.linear(last, loop.var.name)
            if linear is None or linear[0] != steps[loop.var.name]:
                return False
            if any(loop.var in dim_symbols(index) for index in others):
                return False
        return True

    # --- operands --------------------------------------------------------------------------

    def _first(self, indices: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Where the first element is."""
        first: dict[str, Dim] = {loop.var.name: 0 for loop in self.loops.values()}
        return tuple(symbolic.substitute(index, first) for index in indices)

    def _operand(self, parameter: ir.Buffer) -> ir.Expression:
        """What the instruction is given for a parameter: packed elements as words, totals as they are."""
        load = self.stands_for[parameter]
        if not parameter.shape:
            return load
        count = math.prod(int(str(extent)) for extent in parameter.shape)
        word = ir.Load(load.buffer, self._first(load.indices), count)
        return bitcast(word, self.row.operands[self.row.parameters.index(parameter)])
