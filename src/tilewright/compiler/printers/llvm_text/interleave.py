"""Stores whose values are long chains of arithmetic, side by side: their steps are written in turns.

    a1 a2 a3 … store a; b1 b2 b3 … store b    ->    a1 b1 a2 b2 a3 b3 … store a; store b

Each step of a polynomial waits four cycles for the one before, while a processor starts two of them in
every cycle.  It looks only some sixty instructions ahead, two or three chains, and LLVM keeps the order it is given.  The
constants of a step are read once for all chains, too.  Called by `statements`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from tilewright.compiler.kernel.ir import (
    Binary,
    Bitcast,
    Cast,
    Compare,
    Const,
    Expression,
    Fma,
    Load,
    Select,
    Space,
    Splat,
    Statement,
    Store,
    Unary,
)
from tilewright.compiler.kernel.lanes import has_lanes
from tilewright.compiler.kernel.rewrite import parts

_STRAIGHT: Final = (
    Fma | Binary | Unary | Compare | Select | Cast | Bitcast | Splat | Load | Const
)
"""Kinds that are always computed; a call or an index may be skipped or shared."""
_LEAST_STEPS: Final = 8
"""Shorter chains fit into what a processor looks ahead."""
_REGISTERS_PER_CHAIN: Final = 5
"""A chain keeps about three vectors, and shares constants with its neighbours."""


@final
@dataclass(frozen=True, slots=True)
class Run:
    """Statements in order; `ahead` are those of them whose values can be computed before all of them."""

    statements: tuple[Statement, ...]
    ahead: tuple[Store, ...] = ()


def runs(body: Sequence[Statement], registers: int) -> Iterator[Run]:
    """The statements in order, in runs whose long chains may be computed in turns.

    Args:
        body: statements.
        registers: vector registers of the target.
    """
    run: list[Store] = []
    ahead: list[Store] = []
    width = 1
    for position, statement in enumerate(body):
        store = statement if isinstance(statement, Store) else None
        chain = store if store is not None and _is_chain(store) else None
        full = chain is not None and (
            len(ahead) == width or not _reads_nothing_of(run, chain)
        )
        if run and (store is None or full):
            yield Run(tuple(run), tuple(ahead))
            run, ahead = [], []
        if chain is not None:
            width = width if ahead else _width(body[position:], registers)
            ahead.append(chain)
        if store is None or not ahead:
            yield Run((statement,))
        else:
            run.append(store)
    if run:
        yield Run(tuple(run), tuple(ahead))


def _width(following: Sequence[Statement], registers: int) -> int:
    """How many chains have room: one beside totals of a loop that wait in registers for theirs."""
    stores = itertools.takewhile(lambda s: isinstance(s, Store), following)
    waiting = sum(
        1
        for store in stores
        if isinstance(store, Store) and _is_chain(store)
        for step in _steps(store.value)
        if isinstance(step, Load) and step.buffer.space is Space.REGISTER
    )
    return max(registers // _REGISTERS_PER_CHAIN, 1) if waiting <= registers // 4 else 1


def in_turns(values: Iterable[Expression]) -> Iterator[Expression]:
    """The steps of all values, the first of each, the second of each, and so on."""
    for steps in itertools.zip_longest(*map(_steps, values)):
        yield from (step for step in steps if step is not None)


def _is_chain(store: Store) -> bool:
    """Whether a value is vector arithmetic of many steps, and nothing else."""
    if store.value.lanes == 1:
        return False
    steps = _steps(store.value)
    work = sum(1 for step in steps if isinstance(step, Fma | Binary | Unary))
    return work >= _LEAST_STEPS and all(isinstance(step, _STRAIGHT) for step in steps)


def _reads_nothing_of(run: Sequence[Store], store: Store) -> bool:
    """Whether what `store` computes with is the same before and after the run."""
    roots = (store.value,) if store.mask is None else (store.value, store.mask)
    loads = [step for root in roots for step in _steps(root) if isinstance(step, Load)]
    return not any(_may_overlap(load, other) for load in loads for other in run)


def _may_overlap(load: Load, store: Store) -> bool:
    """Whether a load may read what a store writes."""
    if load.buffer is not store.buffer:
        return False
    (read,), (written,) = load.indices, store.indices
    apart = read - written
    scattered = load.stride < 0 or store.stride < 0 or has_lanes(read) or has_lanes(written)
    if scattered or not isinstance(apart, int):
        return True
    return (
        -(load.lanes - 1) * load.stride <= apart <= (store.value.lanes - 1) * store.stride
    )


def _steps(root: Expression) -> list[Expression]:
    """Every expression below `root`, operands first, each once."""
    done: dict[int, Expression] = {}
    stack = [(root, False)]
    while stack:
        value, ready = stack.pop()
        if id(value) in done:
            continue
        if ready:
            done[id(value)] = value
            continue
        stack.append((value, True))
        stack.extend((part, False) for part in reversed(tuple(parts(value))))
    return list(done.values())
