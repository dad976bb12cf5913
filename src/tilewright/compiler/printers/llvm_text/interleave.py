"""Stores whose values are long chains of arithmetic, side by side: their steps are written in turns.

    a1 a2 a3 … store a; b1 b2 b3 … store b    ->    a1 b1 a2 b2 a3 b3 … store a; store b

Each step of a polynomial waits four cycles for the one before, while a processor starts two of them in
every cycle.  It looks only some sixty instructions ahead, two or three chains, and LLVM keeps the order it is given.  The
constants of a step are read once for all chains, too.  Called by `statements`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, final

from tilewright.base.record import record
from tilewright.compiler.kernel.fields import operands_first, parts
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

_STRAIGHT: Final = (
    Fma | Binary | Unary | Compare | Select | Cast | Bitcast | Splat | Load | Const
)
"""Kinds that are always computed; a call or an index may be skipped or shared."""
_LEAST_STEPS: Final = 8
"""Shorter chains fit into what a processor looks ahead."""
_REGISTERS_PER_CHAIN: Final = 5
"""A chain keeps about three vectors, and shares constants with its neighbours."""


@final
@record
class Chain:
    """A store of vector arithmetic in many steps.

    Attributes:
        store: the store.
        levels: the steps of its value: those that need nothing, those that need only these, and so on.
        loads: what value and mask load.
    """

    store: Store
    levels: tuple[tuple[Expression, ...], ...]
    loads: tuple[Load, ...]


@final
@record
class Run:
    """Statements in order; `ahead` are those of them whose values can be computed before all of them."""

    statements: tuple[Statement, ...]
    ahead: tuple[Chain, ...] = ()


def runs(body: Sequence[Statement], registers: int) -> Iterator[Run]:
    """The statements in order, in runs whose long chains may be computed in turns.

    Args:
        body: statements.
        registers: vector registers of the target.
    """
    chains = [_chain(statement) for statement in body]
    run: list[Store] = []
    ahead: list[Chain] = []
    width = 1
    rests = _rests(body, chains)
    for statement, chain, (left, waiting) in zip(body, chains, rests, strict=True):
        # A chain that is left over would wait for each of its own steps: it joins the ones before.
        most = width + (width > 1 and left == 1)
        full = chain is not None and (
            len(ahead) == most or not _reads_nothing_of(run, chain)
        )
        if run and (full or not isinstance(statement, Store)):
            yield Run(tuple(run), tuple(ahead))
            run, ahead = [], []
        if chain is not None:
            width = width if ahead else _width(waiting, registers)
            ahead.append(chain)
        if isinstance(statement, Store) and ahead:
            run.append(statement)
        else:
            yield Run((statement,))
    if run:
        yield Run(tuple(run), tuple(ahead))


def _chain(statement: Statement) -> Chain | None:
    if not isinstance(statement, Store) or statement.value.lanes == 1:
        return None
    steps = _steps(statement.value)
    # Depth, not the number of steps: what is twice in a value may be one object or two.
    if len(steps) <= _LEAST_STEPS or not all(isinstance(x, _STRAIGHT) for x in steps):
        return None
    levels = _by_depth(steps)
    if len(levels) <= _LEAST_STEPS:
        return None
    steps = [step for level in levels for step in level]
    guard = () if statement.mask is None else _steps(statement.mask)
    loads = tuple(x for x in (*steps, *guard) if isinstance(x, Load))
    return Chain(statement, levels, loads)


def _rests(
    body: Sequence[Statement], chains: Sequence[Chain | None]
) -> list[tuple[int, int]]:
    """Of a row of stores, from each on: how many chains follow, and how many elements of registers these load."""
    found: list[tuple[int, int]] = []
    left, waiting = 0, 0
    for statement, chain in zip(reversed(body), reversed(chains), strict=True):
        left, waiting = (left, waiting) if isinstance(statement, Store) else (0, 0)
        loads = () if chain is None else chain.loads
        left += chain is not None
        waiting += len(
            {(x.buffer, x.indices) for x in loads if x.buffer.space is Space.REGISTER}
        )
        found.append((left, waiting))
    return found[::-1]


def _width(waiting: int, registers: int) -> int:
    """How many chains have room: one beside totals of a loop that wait in registers for theirs."""
    return max(registers // _REGISTERS_PER_CHAIN, 1) if waiting <= registers // 4 else 1


def in_turns(chains: Iterable[Chain]) -> Iterator[Expression]:
    """The steps of all values, level by level.

    What comes twice in a value is as deep in both places, so it does not matter whether it is one object.
    """
    levels = (chain.levels for chain in chains)
    for steps in itertools.zip_longest(*levels, fillvalue=()):
        yield from itertools.chain.from_iterable(steps)


def _by_depth(steps: Iterable[Expression]) -> tuple[tuple[Expression, ...], ...]:
    """Steps, operands first, by how many steps are before them at least."""
    found: list[list[Expression]] = []
    depths: dict[int, int] = {}
    for step in steps:
        depth = 0
        for part in parts(step):
            below = depths[id(part)]
            if below >= depth:
                depth = below + 1
        depths[id(step)] = depth
        if depth == len(found):
            found.append([])
        found[depth].append(step)
    return tuple(map(tuple, found))


def _reads_nothing_of(run: Sequence[Store], chain: Chain) -> bool:
    """Whether what a store computes with is the same before and after the run."""
    return not any(_may_overlap(load, other) for load in chain.loads for other in run)


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
    return list(operands_first((root,), parts))
