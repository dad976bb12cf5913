"""What calls must keep of what torch decided by the example, as operations of the program.

Their names are what errors of a call say that keeps it not.  Called by `reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from tilewright.base.errors import TilewrightError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.torch.guards import Guard, condition
from tilewright.compiler.frontends.torch.program import Argument, Operation, Relation
from tilewright.compiler.frontends.torch.relation_text import (
    Places,
    places_of,
    text_of,
)
from tilewright.compiler.frontends.torch.sizes import Sizes

ASSERTED: Final = "aten._assert_scalar.default"
_REMEDY: Final = ", the branch of the example: for other calls compile with another example, or decide by torch.cond"


def checks_of(
    guards: Iterable[Guard],
    answers: Iterable[Any],
    inputs: Sequence[tuple[str, Sequence[Dim]]],
    sizes: Sizes,
) -> tuple[Operation, ...]:
    """Guards and answers of torch, which has the latter as expressions of SymPy, as assertions.

    Args:
        guards: what has to hold, as torch writes it down.
        answers: and what it was told while it traced.
        inputs: of each input of the user its name and its shape.
        sizes: translates sizes.
    """
    shapes, places = [shape for _, shape in inputs], places_of(inputs, sizes.given_names)
    return (
        *_checks("guard", guards, lambda guard: condition(guard, shapes), places),
        *_checks("answer", answers, sizes.relation, places),
    )


def _checks(
    name: str, given: Iterable[Any], read: Callable[[Any], Argument], places: Places
) -> Iterator[Operation]:
    """Conditions as assertions, those of the program with the reason where our sizes have no word for them."""
    for count, each in enumerate(given):
        reason, expected = "", None
        try:
            expected = read(each)
        except TilewrightError as error:
            if isinstance(each, Guard) and each.is_operators:
                continue
            reason = error.message
        if not isinstance(expected, bool):
            shown = text_of(expected, places) if isinstance(expected, Relation) else each
            yield asserting(f"{name}_{count} ({shown}{_REMEDY})", expected, reason=reason)


def asserting(name: str, expected: Argument, *, reason: str, place: str = "") -> Operation:
    """The operation that fails where a condition on sizes does not hold, or the reason why there is none."""
    arguments = {"self": expected}
    return Operation(
        name, ASSERTED, arguments, (), is_list=True, place=place, reason=reason
    )
