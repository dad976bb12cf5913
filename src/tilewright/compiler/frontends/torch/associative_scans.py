"""`associative_scan` over as many rows as a call decides.

Torch writes such a scan out, row pairs by row pairs, and so fixes their number.  Here it is a loop: each trip joins every
row with the one 1, 2, 4, … places before it.  Called by `export`.

Source: `torch._higher_order_ops.associative_scan`, mode "generic".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.differentiated import operators_of
from tilewright.compiler.frontends.torch.substitutes import Substitute, Tracing

# Torch's tensors have no types that we see.
Held = Any
Combine = Callable[..., Held]


def open_scans() -> AbstractContextManager[None]:
    """While this thread traces in this context, scans over rows of an open number are loops."""
    return _SCANS.used()


def _scans(theirs: Any, tracing: Tracing) -> Any:
    @functools.wraps(theirs)
    def scan(
        operator: Combine, leaves: Sequence[Held], dim: int = 0, additional_inputs: Any = ()
    ) -> Sequence[Held]:
        is_known = isinstance(leaves[0].shape[dim], int)
        if is_known or dim or additional_inputs or not tracing.depth:
            return theirs(operator, leaves, dim, additional_inputs)
        return _joined(operator, leaves)

    return scan


def _joined(operator: Combine, leaves: Sequence[Held]) -> Sequence[Held]:
    """Each leaf [rows, ...] as its running join; `operator` joins many rows with as many."""
    torch, pytree = border.load(), border.load("torch.utils._pytree")
    count = leaves[0].shape[0]
    places = torch.arange(count)
    # By operators: torch loses what is batched in a loop.
    flat = lambda *rows: pytree.tree_leaves(operator(*rows))  # noqa: E731
    join = operators_of(flat, [*leaves, *map(torch.clone, leaves)])

    def go_on(shift: Held, *_: Held) -> Held:
        return shift < count

    def trip(shift: Held, *held: Held) -> tuple[Held, ...]:
        sources = places - shift
        before = [rows.index_select(0, sources.clamp(min=0)) for rows in held]
        made = join(*before, *held)
        kept = [
            torch.where((sources >= 0).reshape(-1, *[1] * (old.dim() - 1)), new, old)
            for new, old in zip(made, held, strict=True)
        ]
        return shift * 2, *kept

    loop = border.load("torch._higher_order_ops").while_loop
    begin = (torch.ones((), dtype=torch.int64), *(leaf.contiguous() for leaf in leaves))
    return list(loop(go_on, trip, begin)[1:])


_SCANS: Final = Substitute(
    lambda: border.load("torch._higher_order_ops.associative_scan"),
    "generic_associative_scan",
    _scans,
)
