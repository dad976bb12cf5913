"""From a scheduled kernel to one that a code generator prints: the order of the steps.

Every step keeps what the kernel evaluator computes.  Called by the pipeline.
"""

from __future__ import annotations

from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.lowering.contract import contract
from tilewright.compiler.lowering.decide import decide
from tilewright.compiler.lowering.expand_casts import expand_casts
from tilewright.compiler.lowering.flatten import flatten
from tilewright.compiler.lowering.math.expand import expand_math
from tilewright.compiler.lowering.math.pieces import Means
from tilewright.compiler.lowering.simplify import simplify
from tilewright.compiler.lowering.transpose import transpose
from tilewright.compiler.lowering.unroll import unroll
from tilewright.compiler.lowering.vectorize import vectorize


def lower(kernel: Kernel, target: Target, means: Means | None = None) -> Kernel:
    """The kernel with linear indices, lanes and no loop left to expand.

    `means` are the instructions that the printer has for functions; None: all of the target's.
    """
    # Casts are between types that machines have.
    kernel = expand_casts(kernel)
    # Multi-dimensional indices become one; symbols get bounds.
    kernel = flatten(kernel)
    # What bounds decide is gone: empty loops, known conditions.
    kernel = decide(simplify(kernel))
    # Sums of products in reductions use one instruction where the target has it.
    if target.has_fma:
        kernel = contract(kernel)
    # VECTOR loops become lanes.  From here no loop of that kind exists.
    kernel = vectorize(kernel)
    # UNROLL loops become copies.  From here loops are SERIAL or on the grid.
    kernel = unroll(kernel)
    # Strided vectors side by side become blocks that are transposed in registers.
    kernel = transpose(kernel)
    # Functions become arithmetic.  From here no operator needs a library.
    return expand_math(kernel, means or Means.of(target))
