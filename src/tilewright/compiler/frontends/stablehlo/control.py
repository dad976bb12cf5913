"""Rows for control flow, tuples, tokens, and what is trivial in one process.

A loop whose condition is known trip after trip is written out where that is worth it; every other one is a loop of
the program, and of branches whose condition is not known one runs (`kit.control`).

Source: StableHLO specification, "while", "if", "case", "tuple", collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.call import Call, real
from tilewright.compiler.frontends.stablehlo.held import (
    Held,
    Token,
    Tuple,
    flattened,
    restored,
)
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.frontends.stablehlo.tree import Operation

MAX_TRIPS: Final = 1024
"""No more trips are looked at to find out whether a loop of few nodes ends."""


_NOTED: Final = (
    "interpreter.probe",
    "stablehlo.infeed",
    "stablehlo.recv",
    "stablehlo.send",
)


def _while(call: Call) -> list[Held]:
    """A loop; what is noted turn by turn, and what waits for other processes, happens once."""
    e = call.maker
    if call.services.world.is_shared or _notes(call.operation):
        state = _written_out(call, lambda: 0)
        if state is None:
            raise UnsupportedError(
                "a loop of several processes whose trips depend on data is not supported"
            )
        return state
    with e.region() as trial:
        is_short = _written_out(call, lambda: len(trial.graph.nodes)) is not None
    if is_short:
        written = _written_out(call, lambda: 0)
        assert written is not None, "it was the first time"
        return written
    forms = list(call.operands)

    def go_on(values: list[Tensor]) -> Tensor:
        (going,) = call.inline(call.region(0), restored(forms, values))
        return real(going)

    def trip(values: list[Tensor]) -> list[Tensor]:
        return flattened(call.inline(call.region(1), restored(forms, values)))

    return restored(forms, control.loop(e, flattened(forms), go_on, trip))


def _notes(operation: Operation) -> bool:
    """Whether something in a loop must not be looked at twice."""
    return any(
        inner.name in _NOTED or _notes(inner)
        for region in operation.regions
        for block in region.blocks
        for inner in block.operations
    )


def _written_out(call: Call, cost: Callable[[], int]) -> list[Held] | None:
    """Trip after trip; None where data decides about one, or where it costs too much."""
    state = list(call.operands)
    for _ in range(MAX_TRIPS):
        (going,) = call.inline(call.region(0), state)
        known = real(going).array
        if known is None or cost() > control.UNROLLED_NODES:
            return None
        if not bool(known.reshape(())):
            return state
        state = call.inline(call.region(1), state)
    return None


def _if(call: Call) -> list[Held]:
    condition = call.tensor(0)
    if condition.array is not None:
        return call.inline(call.region(0 if condition.array.reshape(()) else 1), ())
    return _chosen(call, condition, (0, 1))


def _chosen(call: Call, condition: Tensor, regions: Sequence[int]) -> list[Held]:
    """The results of the first region, or of what the others come to."""
    forms: list[Held] = []

    def branch(number: int) -> list[Tensor]:
        forms[:] = call.inline(call.region(number), ())
        return flattened(forms)

    def otherwise() -> list[Tensor]:
        _, *rest = regions
        if len(rest) == 1:
            return branch(rest[0])
        return flattened(_chosen(call, _is_number(call, rest[0]), rest))

    e = call.maker
    results = control.conditional(e, condition, lambda: branch(regions[0]), otherwise)
    if not forms:
        return []
    return restored(forms, results)


def _is_number(call: Call, number: int) -> Tensor:
    index = call.tensor(0)
    return call.maker.op("equal", index, call.maker.scalar(number, index.dtype))


def _case(call: Call) -> list[Held]:
    """An index out of range is the last branch."""
    index, count = call.tensor(0), len(call.operation.regions)
    if not count:
        raise ModelError("has no branches")
    if index.array is not None:
        number = int(index.array.reshape(()))
        inside = 0 <= number < count
        return call.inline(call.region(number if inside else count - 1), ())
    if count == 1:
        return call.inline(call.region(0), ())
    return _chosen(call, _is_number(call, 0), range(count))


def _tuple(call: Call) -> Tuple:
    return Tuple(tuple(call.operands))


def _element(call: Call) -> Held:
    held, index = call.held(0), call.integer("index")
    if not isinstance(held, Tuple) or not 0 <= index < len(held.items):
        raise ModelError(f"there is no element {index} of a tuple")
    return held.items[index]


def _async_start(call: Call) -> Tuple:
    """What will be there in the future is there at once."""
    return Tuple(tuple(call.inline(call.region(0), call.operands)))


def _async_done(call: Call) -> list[Held]:
    held = call.held(0)
    if not isinstance(held, Tuple):
        raise ModelError("waits for what was not started")
    return list(held.items)


def _barrier(call: Call) -> list[Held]:
    return list(call.operands)


def _token(call: Call) -> Token:
    del call
    return Token()


ROWS: Final[tuple[Row, ...]] = (
    row("after_all", _token, keeps=True),
    row("async_done", _async_done, keeps=True),
    row("async_start", _async_start, keeps=True),
    row("case", _case, keeps=True),
    row("create_token", _token, keeps=True),
    row("get_tuple_element", _element, keeps=True),
    row("if", _if, keeps=True),
    row("optimization_barrier", _barrier, keeps=True),
    row("tuple", _tuple, keeps=True),
    row("while", _while, keeps=True),
)
