"""The signature of a scheduled kernel: all that the host side asks about it.

Requires: no local buffer in device memory (`lowering.promote_scratch`).  Called by the pipeline, and by
`kernel_cache`, which keeps signatures so that a kernel known from an earlier compilation needs no
schedule.
"""

from __future__ import annotations

from tilewright.base.outcome import Outcome, Verdict
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.kernel.grid import grid_extents
from tilewright.compiler.kernel.ir import AccessMode, Kernel
from tilewright.compiler.program.in_place import may_overwrite
from tilewright.compiler.program.ir import KernelSignature


def signature_of(kernel: Kernel) -> KernelSignature:
    """What the program needs of `kernel`."""
    return KernelSignature(
        name=kernel.name,
        parameters=tuple(
            (p.buffer.name, TensorType(p.buffer.dtype, p.buffer.shape))
            for p in kernel.parameters
        ),
        dims=kernel.dims,
        grid=grid_extents(kernel),
        overwrites=frozenset(_overwrites(kernel)),
        # Loops that nobody scheduled run as they stand.
        verdict=kernel.verdict or Verdict(Outcome.GENERIC),
    )


def _overwrites(kernel: Kernel) -> list[tuple[int, int]]:
    parameters = list(enumerate(kernel.parameters))
    return [
        (i, j)
        for i, source in parameters
        for j, target in parameters
        if source.access is AccessMode.READ
        and target.access.writes
        and may_overwrite(kernel, source.buffer, target.buffer)
    ]
