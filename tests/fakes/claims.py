"""Claims of an analysis, counted against an oracle: none may be wrong, and most true ones must be made."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from tilewright.compiler.kernel.ir import For, Kernel
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.kernel.text import kernel_text

LOG = logging.getLogger(__name__)

Claims = Callable[[Kernel, For], Iterator[tuple[str, object, bool, bool]]]
"""Of one loop of a kernel: (claim, about what, whether it is claimed, whether it is true)."""


def check_claims(
    kernels: Iterable[tuple[int, Kernel]], claims: Claims, names: Iterable[str]
) -> dict[str, float]:
    """No claim about the kernels, given with their seeds, is wrong; the share of the true ones that is made."""
    found: collections.Counter[str] = collections.Counter()
    true: collections.Counter[str] = collections.Counter()
    for seed, kernel in kernels:
        for loop in loops(kernel.body):
            for claim, about, claimed, is_true in claims(kernel, loop):
                wrong = f"{claim} {about} in '{loop.var.name}', seed {seed}"
                assert is_true or not claimed, f"{wrong}\n{kernel_text(kernel)}"
                true[claim] += is_true
                found[claim] += claimed
    for name in names:
        LOG.info("%s: %d of %d found", name, found[name], true[name])
    return {name: found[name] / true[name] for name in names}


def check_floors(shares: Mapping[str, float], floors: Mapping[str, float]) -> None:
    """The analysis has not become more careful than it was."""
    low = {claim: share for claim, share in shares.items() if share < floors[claim]}
    assert not low
