"""What calls must keep of what torch decided by the example, as operations of the program.

Their names are what errors of a call say that keeps it not.  Called by `reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from tilewright.base.errors import TilewrightError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.torch.decisions import A_COPY, ANOTHER_BRANCH
from tilewright.compiler.frontends.torch.guards import Guard, condition
from tilewright.compiler.frontends.torch.program import (
    Argument,
    Decision,
    Operation,
    Relation,
)
from tilewright.compiler.frontends.torch.relation_text import (
    Places,
    places_of,
    text_of,
)
from tilewright.compiler.frontends.torch.sizes import Sizes

ASSERTED: Final = "aten._assert_scalar.default"


@final
@dataclass(frozen=True, slots=True)
class Check:
    """An assertion, and the decision that it is made of; None where our sizes have no word for it."""

    operation: Operation
    decision: Decision | None


def checks_of(
    guards: Iterable[Guard],
    branches: Iterable[Any],
    copies: Iterable[Any],
    inputs: Sequence[tuple[str, Sequence[Dim]]],
    sizes: Sizes,
) -> tuple[Check, ...]:
    """Guards and answers of torch, which has the latter as expressions of SymPy, as assertions.

    Args:
        guards: what has to hold, as torch writes it down.
        branches: and what it was told while it traced, where that decided what comes next,
        copies: or which tensors are copies.
        inputs: of each input of the user its name and its shape.
        sizes: translates sizes.
    """
    shapes, places = [shape for _, shape in inputs], places_of(inputs, sizes.given_names)
    kinds = (
        ("guard", guards, lambda guard: condition(guard, shapes), ANOTHER_BRANCH),
        ("answer", branches, sizes.relation, ANOTHER_BRANCH),
        ("copy", copies, sizes.relation, A_COPY),
    )  # fmt: skip
    return tuple(check for kind in kinds for check in _checks(*kind, places))


def _checks(
    name: str,
    given: Iterable[Any],
    read: Callable[[Any], Argument],
    remedy: str,
    places: Places,
) -> Iterator[Check]:
    """Conditions as assertions, those of the program with the reason where our sizes have no word for them."""
    for count, each in enumerate(given):
        reason, help_, expected = "", "", None
        try:
            expected = read(each)
        except TilewrightError as error:
            if isinstance(each, Guard) and each.is_operators:
                continue
            reason, help_ = error.message, error.hint or remedy
        if isinstance(expected, bool):
            continue
        decision = (
            Decision(text_of(expected, places), expected, remedy)
            if isinstance(expected, Relation)
            else None
        )
        shown = each if decision is None else decision.text
        operation = asserting(
            f"{name}_{count} ({shown})", expected, reason=reason, remedy=help_
        )
        yield Check(operation, decision)


def asserting(
    name: str, expected: Argument, *, reason: str, place: str = "", remedy: str = ""
) -> Operation:
    """The operation that fails where a condition on sizes does not hold, or the reason why there is none, and what helps."""
    arguments = {"self": expected}
    return Operation(
        name,
        ASSERTED,
        arguments,
        (),
        is_list=True,
        place=place,
        reason=reason,
        remedy=remedy,
    )
