"""The stages from a scheduled kernel to one of scalars and lanes, which all printers for CPUs ask for.

What a back end adds stands in its own folder: steps of its own, and the stage that writes text.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.target import Target
from tilewright.compiler.backends.backend import Stage, lowering_stage
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.lowering.decide import decide, tests_places
from tilewright.compiler.lowering.expand_casts import expand_casts
from tilewright.compiler.lowering.flatten import flatten
from tilewright.compiler.lowering.fuse_multiply_add import fuse_multiply_add
from tilewright.compiler.lowering.math.expand import expand_math
from tilewright.compiler.lowering.math.pieces import Means
from tilewright.compiler.lowering.serialize_threads import serialize_threads
from tilewright.compiler.lowering.simplify import simplify
from tilewright.compiler.lowering.transpose import transpose
from tilewright.compiler.lowering.unroll import unroll
from tilewright.compiler.lowering.vectorize import vectorize


def _unrolled(kernel: Kernel) -> Kernel:
    """Only with copies of its own does each step know more of its places than all steps do."""
    copies = unroll(kernel)
    return decide(copies, masks=True) if tests_places(kernel.body) else copies


def lane_stages(
    target: Target, means: Means, *, after_fma: Sequence[Stage] = ()
) -> tuple[Stage, ...]:
    """Scheduled kernel → kernel of scalars and lanes.

    Args:
        target: the CPU.
        means: instructions that the printer has for mathematical functions.
        after_fma: steps of the back end that want products and sums in one instruction.
    """
    fused = (
        lowering_stage(
            "fuse-multiply-add",
            "sums of products in reductions are one instruction",
            lambda kernel: fuse_multiply_add(kernel, floats=target.has_fma),
        ),
        *(after_fma if target.has_fma else ()),
    )
    return (
        lowering_stage(
            "serialize-threads",
            "threads of a workgroup are loops, one after the other up to each barrier",
            serialize_threads,
        ),
        lowering_stage("expand-casts", "casts are those of machines", expand_casts),
        lowering_stage("flatten", "an index is one number", flatten),
        lowering_stage(
            "decide",
            "what bounds decide is gone: empty loops, known conditions",
            lambda kernel: decide(simplify(kernel)),
        ),
        *fused,
        lowering_stage("vectorize", "VECTOR loops are lanes", vectorize),
        lowering_stage(
            "unroll",
            "UNROLL loops are copies, of which each tests only what is not known of its places",
            _unrolled,
        ),
        lowering_stage(
            "transpose",
            "strided vectors side by side are blocks, transposed in registers",
            transpose,
        ),
        lowering_stage(
            "expand-math",
            "functions are arithmetic: no operator needs a library",
            lambda kernel: expand_math(kernel, means),
        ),
    )
