"""Sizes of a call that a plan does not run with, refused before anything runs.

Where some sizes are known only later, what depends on them is looked at then.  Called by `binding` and `flow`.
"""

from __future__ import annotations

from tilewright.base.errors import InputError
from tilewright.base.symbolic import Dim, bounds, symbols
from tilewright.runtime.plan_executor.record_steps import StepRecorder


def leaves_nothing(steps: StepRecorder) -> bool:
    """Whether a dimension of 0 leaves nothing to compute.  Raises: InputError for sizes out of range."""
    plan, is_empty = steps.plan, False
    for dim in plan.dims:
        size, limit = steps.env[dim.name], ""
        if size == 0 and dim.leaves_nothing(plan.entries[e].shape for _, e in plan.outputs):
            is_empty = True
        elif size < dim.minimum:
            limit = f"at least {dim.minimum}"
        elif dim.maximum is not None and size > dim.maximum:
            limit = f"at most {dim.maximum}"
        if limit:
            raise InputError(
                f"dimension '{dim.name}' (axis {dim.axis}) is {size}, expected {limit}",
                location=f"input '{plan.inputs[dim.input][0]}'",
            )
    return is_empty


def check_sizes(steps: StepRecorder, since: frozenset[str] = frozenset()) -> None:
    """Refuse sizes that do not agree, and images smaller than the windows that slide over them.

    Args:
        steps: whose sizes; those that are not known yet are passed over.
        since: look at what depends on these symbols only; none: at all.

    Raises: InputError.
    """
    plan = steps.plan

    def is_due(*sizes: Dim) -> bool:
        names = {symbol.name for size in sizes for symbol in symbols(size)}
        return names <= steps.env.keys() and (not since or not names.isdisjoint(since))

    for left, right in plan.equalities:
        if is_due(left, right) and steps.number(left) != steps.number(right):
            raise InputError(
                f"sizes do not agree: {left} is {steps.number(left)}, "
                f"{right} is {steps.number(right)}"
            )
    extents = (d for e in plan.entries for d in e.shape if not isinstance(d, int))
    # In the order in which exported libraries look at them: errors name the first.
    for size in dict.fromkeys(extents):
        lowest = bounds(size)[0]
        if (lowest is None or lowest < 0) and is_due(size) and steps.number(size) < 0:
            raise InputError(
                f"sizes are too small for this model: {size} is {steps.number(size)} "
                f"for {steps.given}"
            )
