"""The primitive that puts an instruction of the machine in the place of a loop: tensorize.

That they compute the same is proven by unification: the loop is matched with the instruction's own loops,
statement by statement and operand by operand.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim
from tilewright.base.text import did_you_mean
from tilewright.compiler.kernel.expressions import bitcast
from tilewright.compiler.kernel.fields import children, fields_of
from tilewright.compiler.kernel.instructions import INSTRUCTIONS
from tilewright.compiler.kernel.ir import (
    Binary,
    Body,
    Buffer,
    Expression,
    For,
    Instruction,
    Intrinsic,
    Kernel,
    Load,
    Store,
)
from tilewright.compiler.kernel.rewrite import dim_symbols
from tilewright.compiler.kernel.text import expression_text
from tilewright.compiler.schedule.trace import primitive
from tilewright.compiler.schedule.tree import find, only_statement, rewrite

_COMMUTATIVE: Final = ("add", "mul")


@primitive
def tensorize(
    kernel: Kernel, loop: str, instruction: str, *, inexact: bool = False
) -> Kernel:
    """Let one instruction do what a loop does; `vectorize` then applies it to all lanes.

    Of packed operands the loop must read elements side by side, in its order.  An instruction that
    rounds otherwise than its loop, or flushes small numbers, takes consent: `inexact`.

    rewrite:
        for k in 4: c[i] += i32(a[m, 4 * p + k]) * i32(b[p, i, k])
        ->
        c[i] = vpdpbusd(c[i], bits<i32>(a[m, 4 * p : 4 lanes]), bits<i32>(b[p, i, 0 : 4 lanes]))

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
            location=kernel.name,
            hint="inexact=True accepts that",
        )
    found = find(kernel, loop)
    store = _Unifier(kernel, row).unify(row.replaces or row.body, found)
    return rewrite(kernel, found, (store,))


@final
class _Unifier:
    """Matches a loop with those of an instruction; knows what each parameter stands for."""

    def __init__(self, kernel: Kernel, row: Instruction) -> None:
        self.kernel: Kernel = kernel
        self.row: Instruction = row
        self.stands_for: dict[Buffer, Load] = {}

    def fail(self, reason: str) -> ScheduleError:
        """The error that says where the two part."""
        return ScheduleError(
            f"the loop is not what '{self.row.name}' computes: {reason}",
            location=self.kernel.name,
        )

    def unify(self, pattern: Body, loop: For) -> Store:
        """The statement that takes the place of `loop`.  Raises: ScheduleError."""
        (wanted,) = pattern
        assert isinstance(wanted, For), "instructions are one loop around one store"
        inner, store = wanted.body[0], only_statement(loop.body)
        assert isinstance(inner, Store), "instructions are one loop around one store"
        if loop.extent != wanted.extent or not loop.reduction:
            kind = "reduction" if loop.reduction else "loop"
            raise self.fail(
                f"a {kind} over {loop.extent}, expected a reduction over {wanted.extent}"
            )
        if not isinstance(store, Store) or store.mask is not None:
            raise self.fail("expected a single store without a mask inside")
        total = Load(store.buffer, store.indices)
        self._bind(inner.buffer, total, loop)
        self._match(inner.value, store.value, loop)
        operands = [self._operand(x, loop) for x in self.row.parameters]
        return replace(store, value=Intrinsic(self.row, tuple(operands)))

    # --- expressions -----------------------------------------------------------------------

    def _match(self, wanted: Expression, given: Expression, loop: For) -> None:
        """Bind parameters so that both mean the same.  Raises: ScheduleError."""
        if isinstance(wanted, Load):
            if not isinstance(given, Load):
                raise self.fail(f"`{expression_text(given)}` is not read from memory")
            self._bind(wanted.buffer, given, loop)
            return
        data = fields_of(wanted).data
        if type(given) is not type(wanted) or any(
            getattr(given, name) != getattr(wanted, name) for name in data
        ):
            raise self.fail(
                f"`{expression_text(given)}`, expected the form `{expression_text(wanted)}`"
            )
        if isinstance(wanted, Binary) and wanted.op in _COMMUTATIVE:
            self._match_either_way(children(wanted), children(given), loop)
            return
        for one, other in zip(children(wanted), children(given), strict=True):
            self._match(one, other, loop)

    def _match_either_way(
        self, wanted: tuple[Expression, ...], given: tuple[Expression, ...], loop: For
    ) -> None:
        before = dict(self.stands_for)
        try:
            for one, other in zip(wanted, given, strict=True):
                self._match(one, other, loop)
        except ScheduleError as first:
            self.stands_for = before
            try:
                for one, other in zip(wanted, reversed(given), strict=True):
                    self._match(one, other, loop)
            except ScheduleError:
                raise first from None

    def _bind(self, parameter: Buffer, load: Load, loop: For) -> None:
        """Let a parameter stand for what is read."""
        text = expression_text(load)
        if load.dtype is not parameter.dtype or load.lanes != 1 or load.mask is not None:
            raise self.fail(f"`{text}` is of {load.dtype}, expected {parameter.dtype}")
        known = self.stands_for.setdefault(parameter, load)
        if known.buffer is not load.buffer or known.indices != load.indices:
            raise self.fail(f"`{text}` is not `{expression_text(known)}`")
        if not parameter.shape:
            if any(loop.var in dim_symbols(index) for index in load.indices):
                raise self.fail(f"`{text}` is another element in every iteration")
        elif not self._is_packed(load, loop):
            raise self.fail(
                f"`{text}` are not elements side by side, in the order of '{loop.var.name}'"
            )
        elif load.buffer is self._target:
            raise self.fail(f"'{load.buffer.name}' is read while it is written")

    @property
    def _target(self) -> Buffer:
        """The buffer of the result."""
        return self.stands_for[self.row.parameters[0]].buffer

    def _is_packed(self, load: Load, loop: For) -> bool:
        """Whether iteration k reads element k of a row of neighbours."""
        *others, last = load.indices
        linear = symbolic.linear(last, loop.var.name)
        moves = any(loop.var in dim_symbols(index) for index in others)
        return linear is not None and linear[0] == 1 and not moves

    # --- operands --------------------------------------------------------------------------

    def _operand(self, parameter: Buffer, loop: For) -> Expression:
        """What the instruction is given for a parameter: packed elements as one word."""
        load = self.stands_for[parameter]
        if not parameter.shape:
            return load
        (count,) = parameter.shape
        assert isinstance(count, int), "instructions have numbers for shapes"
        first: dict[str, Dim] = {loop.var.name: 0}
        place = tuple(symbolic.substitute(index, first) for index in load.indices)
        word = Load(load.buffer, place, count)
        return bitcast(word, self.row.operands[self.row.parameters.index(parameter)])
