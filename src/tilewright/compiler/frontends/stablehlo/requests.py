"""Which operations are checks, and what each asks for.

The `check` dialect and the custom calls that JAX's modules make of it.  Called by the importer, which
turns requests into outputs and `Check`s.

Source: StableHLO, stablehlo/tests/CheckOps.td; the interpreter's tool for what custom calls allow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.stablehlo.held import Held
from tilewright.compiler.frontends.stablehlo.literal_values import held_of
from tilewright.compiler.frontends.stablehlo.tree import (
    Dense,
    Number,
    Operation,
    Place,
    Symbol,
)

_ALMOST: Final = 0.0001
_CALLED_ALMOST: Final = 0.001
_ULPS: Final = 3.0
_NOTED: Final = "check.expect_serialized_eq"
_DIALECT: Final = {
    _NOTED: ("eq", 0.0),
    "check.expect_almost_eq": ("almost_eq", _ALMOST),
    "check.expect_almost_eq_const": ("almost_eq", _ALMOST),
    "check.expect_close": ("close", _ULPS),
    "check.expect_eq": ("eq", 0.0),
    "check.expect_eq_const": ("eq", 0.0),
}
_CALLED: Final = {
    "check.expect_almost_eq": ("almost_eq", _CALLED_ALMOST),
    "check.expect_close": ("close", _ULPS),
    "check.expect_eq": ("eq", 0.0),
}


@final
@dataclass(frozen=True, slots=True, eq=False)
class CheckRequest:
    """A check before its operands are outputs."""

    rule: str
    place: Place
    actual: Held
    expected: Held
    tolerance: float


Probes = Mapping[str, Sequence[Held]]
Request = Callable[[Sequence[Held], NodeMaker], CheckRequest]


def find_request(operation: Operation, probes: Probes) -> Request | None:
    """What makes the request of an operation that is a check; None: it is none.

    Args:
        operation: any.
        probes: values that were noted under a name, in order.
    """
    if operation.name == "stablehlo.custom_call":
        target = operation.attributes.get("call_target_name")
        name = target.name if isinstance(target, Symbol) else str(target)
        found = _CALLED.get(name)
    else:
        found = _DIALECT.get(operation.name)
    if found is None:
        return None
    rule, tolerance = found
    allowed = _tolerance(operation, tolerance)

    def request(operands: Sequence[Held], maker: NodeMaker) -> CheckRequest:
        values = list(operands)
        if operation.name == _NOTED:
            values.append(_noted(operation, probes))
        literal = operation.attributes.get("value")
        if isinstance(literal, Dense):
            values.append(held_of(literal, maker))
        if len(values) != 2:
            raise ModelError(f"compares {len(values)} values, expected 2")
        return CheckRequest(rule, operation.place, values[0], values[1], allowed)

    return request


def _noted(operation: Operation, probes: Probes) -> Held:
    """What a probe saw: the value that shall be equal."""
    name, turn = (operation.attributes.get(n) for n in ("probe_id", "iter"))
    seen = probes.get(name, ()) if isinstance(name, str) else ()
    index = int(turn.value) if isinstance(turn, Number) else 0
    if not 0 <= index < len(seen):
        raise ModelError(f"probe '{name}' saw {len(seen)} values, asked for number {index}")
    return seen[index]


def _tolerance(operation: Operation, default: float) -> float:
    for name in ("tolerance", "max_ulp_difference"):
        found = operation.attributes.get(name)
        if isinstance(found, Number):
            return float(found.value)
    return default
