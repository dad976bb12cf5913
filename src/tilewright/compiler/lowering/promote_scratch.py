"""Turn temporaries that a schedule left in device memory into parameters of the kernel.

Requires: a scheduled kernel.  Ensures: no local buffer is in `Space.DEVICE`; the new parameters
follow the results, in order of the locals.  The program gives them transient memory.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.compiler.kernel.ir import AccessMode, Kernel, Parameter, Space


def promote_scratch(kernel: Kernel) -> Kernel:
    """The kernel with every local in device space as a trailing READ_WRITE parameter."""
    scratch = [b for b in kernel.locals if b.space is Space.DEVICE]
    if not scratch:
        return kernel
    return replace(
        kernel,
        parameters=(
            *kernel.parameters,
            *(Parameter(b, AccessMode.READ_WRITE) for b in scratch),
        ),
        locals=tuple(b for b in kernel.locals if b.space is not Space.DEVICE),
    )
