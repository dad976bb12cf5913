"""Rows for control flow, tuples, tokens, and what is trivial in one process.

A loop whose condition is known trip after trip is written out where that is worth it; every other one is a loop of
the program, and of branches whose condition is not known one runs (`kit.control`).

Source: StableHLO specification, "while", "if", "case", "tuple", collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.agreement import agree
from tilewright.compiler.frontends.stablehlo.call import Call, real
from tilewright.compiler.frontends.stablehlo.demands import each_is_same
from tilewright.compiler.frontends.stablehlo.held import (
    Held,
    Token,
    Tuple,
    flattened,
    restored,
)
from tilewright.compiler.frontends.stablehlo.region_demands import (
    carries,
    gives_results,
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
        state = _written_out(call)
        if state is None:
            raise UnsupportedError(
                "a loop of several processes whose trips depend on data is not supported"
            )
        return state
    written = call.services.attempt(
        call.operation, lambda: _written_out(call), control.UNROLLED_NODES
    )
    if written is not None:
        return written
    forms = list(call.operands)

    def go_on(values: list[Tensor]) -> Tensor:
        return _condition(call, restored(forms, values))

    def trip(values: list[Tensor]) -> list[Tensor]:
        return flattened(_trip(call, restored(forms, values)))

    return restored(forms, control.loop(e, flattened(forms), go_on, trip))


def _notes(operation: Operation) -> bool:
    """Whether something in a loop must not be looked at twice."""
    return any(
        inner.name in _NOTED or _notes(inner)
        for region in operation.regions
        for block in region.blocks
        for inner in block.operations
    )


def _written_out(call: Call) -> list[Held] | None:
    """Trip after trip; None where data decides about one, or where there are too many."""
    state = list(call.operands)
    for _ in range(MAX_TRIPS):
        known = _condition(call, state).array
        if known is None:
            return None
        if not bool(known.reshape(())):
            return state
        state = _trip(call, state)
    return None


def _condition(call: Call, state: Sequence[Held]) -> Tensor:
    """Whether a loop goes on.  Raises: ModelError for what is no truth value."""
    given = call.inline(call.region(0), state)
    if len(given) != 1:
        raise ModelError(f"the condition gives {len(given)} values, expected one")
    return _single(real(given[0]), dtypes.bool_, "the condition")


def _trip(call: Call, state: Sequence[Held]) -> list[Held]:
    """What the body of a loop gives.  Raises: ModelError where that is not what it is given in the next trip."""
    given = call.inline(call.region(1), state)
    results = call.operation.results
    if len(given) != len(results):
        raise ModelError(f"the body gives {len(given)} values, expected {len(results)}")
    for value, held in zip(results, given, strict=True):
        agree(call.maker, value.type, held, "the body gives")
    return given


def _single(tensor: Tensor, dtype: DType, subject: str) -> Tensor:
    """A tensor that decides.  Raises: ModelError unless it is one number of a type."""
    if tensor.dtype is not dtype or tensor.shape:
        raise ModelError(f"{subject} is {tensor.type}, expected {dtype}[]")
    return tensor


def _if(call: Call) -> list[Held]:
    condition = _single(call.tensor(0), dtypes.bool_, "the condition")
    if condition.array is not None:
        return call.inline(call.region(0 if condition.array.reshape(()) else 1), ())
    return _chosen(call, condition, *(partial(_branch, call, n) for n in (0, 1)))


def _branch(call: Call, number: int) -> list[Held]:
    return call.inline(call.region(number), ())


def _chosen(
    call: Call,
    condition: Tensor,
    then: Callable[[], list[Held]],
    otherwise: Callable[[], list[Held]],
) -> list[Held]:
    """The results of one of two branches."""
    forms: list[Held] = []

    def flat(branch: Callable[[], list[Held]]) -> list[Tensor]:
        forms[:] = branch()
        return flattened(forms)

    results = control.conditional(
        call.maker, condition, partial(flat, then), partial(flat, otherwise)
    )
    return restored(forms, results) if forms else []


def _case(call: Call) -> list[Held]:
    """An index out of range is the last branch."""
    index = _single(call.tensor(0), dtypes.i32, "the index")
    count = len(call.operation.regions)
    if not count:
        raise ModelError("has no branches")
    if index.array is not None:
        number = int(index.array.reshape(()))
        return _branch(call, number if 0 <= number < count else count - 1)
    return _among(call, range(count))


def _among(call: Call, numbers: range) -> list[Held]:
    """The results of one of some regions, which is found by halves: a hundred in a chain would nest a hundred deep."""
    if len(numbers) == 1:
        return _branch(call, numbers[0])
    half = len(numbers) // 2
    parts = (partial(_among, call, part) for part in (numbers[:half], numbers[half:]))
    return _chosen(call, _is_before(call, numbers, half), *parts)


def _is_before(call: Call, numbers: range, half: int) -> Tensor:
    """Whether the index is one of the first of these numbers; negative ones, without a sign, are beyond all."""
    e, index = call.maker, call.tensor(0)
    if half == 1:
        return e.op("equal", index, e.scalar(numbers[0], index.dtype))
    return e.op("less", e.cast(index, dtypes.u32), e.scalar(numbers[half], dtypes.u32))


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
    row("case", _case, keeps=True, demands=(gives_results,)),
    row("create_token", _token, keeps=True),
    row("get_tuple_element", _element, keeps=True),
    row("if", _if, keeps=True, demands=(gives_results,)),
    row("optimization_barrier", _barrier, keeps=True, demands=(each_is_same,)),
    row("tuple", _tuple, keeps=True),
    row("while", _while, keeps=True, demands=(carries,)),
)
