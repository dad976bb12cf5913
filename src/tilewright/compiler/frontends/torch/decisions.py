"""What torch decided by the example of a program, and what helps a call for which it would decide otherwise.

A call that does not keep a decision fails at a check of sizes, whose error says numbers; here is said which decision that
was, in the words of the module.  Not the checks themselves, which `checks` makes.  Called by `calling`, when a call failed.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from tilewright.base import symbolic
from tilewright.base.errors import UserError
from tilewright.base.symbolic import Dim, Expr, Symbol
from tilewright.compiler.frontends.torch.program import (
    Decision,
    Formula,
    Part,
    Ref,
    Relation,
)

ANOTHER_BRANCH: Final = (
    "for other calls compile with another example, or decide by torch.cond"
)
A_COPY: Final = (
    "for other calls compile with another example, or write to a copy (y.clone())"
)


def remedy_of(
    decisions: Iterable[Decision],
    given: Iterable[tuple[Sequence[Dim], Sequence[int]]],
) -> str | None:
    """The first decision that a call does not keep, and what helps; None where it keeps all.

    Args:
        decisions: of the program.
        given: of each input its sizes as the program has them, and those of the call.
    """
    sizes = _sizes(given)
    broken = next((each for each in decisions if not _keeps(each, sizes)), None)
    if broken is None:
        return None
    return f"torch decided by the example, for which {broken.text}; {broken.remedy}"


def _sizes(given: Iterable[tuple[Sequence[Dim], Sequence[int]]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for dims, numbers in given:
        for dim, number in zip(dims, numbers, strict=False):
            atom = symbolic.only_atom(dim)
            if isinstance(atom, Symbol):
                found.setdefault(atom.name, number)
    return found


def _keeps(decision: Decision, sizes: Mapping[str, int]) -> bool:
    """Whether it holds for sizes; what cannot be computed from them alone is taken to hold."""
    try:
        return bool(_value(decision.holds, sizes))
    except ZeroDivisionError:
        return False
    except (UserError, KeyError, ValueError, OverflowError):
        return True


def _value(part: Part, sizes: Mapping[str, int]) -> Any:
    """A number, or whether something holds.  Raises: UserError or KeyError for what sizes do not say."""
    if isinstance(part, Expr):
        return symbolic.evaluate(part, sizes)
    if isinstance(part, Ref):
        raise KeyError(part.name)
    if not isinstance(part, Formula | Relation):
        return part
    return _OPERATIONS[part.op](*(_value(each, sizes) for each in part.parts))


_OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge, "logical_not": operator.not_,
    "logical_and": lambda *parts: all(parts), "logical_or": lambda *parts: any(parts),
    "add": lambda *parts: sum(parts), "mul": lambda *parts: math.prod(parts),
    "sub": operator.sub, "div": operator.truediv, "pow": operator.pow, "max": max, "min": min, "abs": abs,
    "floor": math.floor, "ceil": math.ceil, "round": round, "sqrt": math.sqrt, "exp": math.exp,
    "log": math.log, "sin": math.sin, "cos": math.cos, "tanh": math.tanh,
}  # fmt: skip
