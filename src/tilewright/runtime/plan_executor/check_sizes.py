"""Sizes of a call that a plan does not run with, refused before anything runs.

Where some sizes are known only later, what depends on them is looked at then.  Called by `binding` and `flow`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from tilewright.base.errors import InputError
from tilewright.base.symbolic import Dim
from tilewright.formats.plan.flow_layout import open_extents
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


@final
class SizeChecks:
    """What must hold of sizes that are known at one place of a plan.

    Attributes:
        equalities: sizes that must agree.
        extents: sizes that an image smaller than the windows over it makes negative.
    """

    __slots__ = ("equalities", "extents")

    def __init__(
        self, equalities: Iterable[tuple[Dim, Dim]] = (), extents: Iterable[Dim] = ()
    ) -> None:
        self.equalities: list[tuple[Dim, Dim]] = list(equalities)
        self.extents: list[Dim] = list(extents)

    def __call__(self, steps: StepRecorder) -> None:
        """Refuse sizes for which something does not hold.  Raises: InputError."""
        for left, right in self.equalities:
            steps.expect(left, right)
        for size in self.extents:
            if steps.number(size) < 0:
                raise InputError(
                    f"sizes are too small for this model: {size} is {steps.number(size)} "
                    f"for {steps.given}"
                )


def check_sizes(steps: StepRecorder) -> None:
    """Refuse sizes that do not agree, and images smaller than the windows that slide over them.

    Raises: InputError.
    """
    SizeChecks(steps.plan.equalities, open_extents(steps.plan))(steps)
