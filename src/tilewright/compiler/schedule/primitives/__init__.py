"""The schedule primitives: checked rewrites `Kernel -> Kernel`, registered by name."""

from tilewright.compiler.schedule.primitives.grid import bind, join
from tilewright.compiler.schedule.primitives.guards import (
    drop_guards,
    settle_tests,
    sink_guards,
)
from tilewright.compiler.schedule.primitives.hints import prefetch, prefetch_lines
from tilewright.compiler.schedule.primitives.inlining import forward, inline, reverse_inline
from tilewright.compiler.schedule.primitives.instruction_tiles import multiply_tiles
from tilewright.compiler.schedule.primitives.instructions import tensorize
from tilewright.compiler.schedule.primitives.interior import interior
from tilewright.compiler.schedule.primitives.loops import (
    fuse,
    reorder,
    split,
    tile,
    unroll,
    vectorize,
)
from tilewright.compiler.schedule.primitives.memory import (
    cache_read,
    cache_write,
    compute_at,
    expand,
    keep_line,
    privatize,
    separate,
    set_scope,
)
from tilewright.compiler.schedule.primitives.nests import fission, fuse_nests
from tilewright.compiler.schedule.primitives.reduction import (
    begin_with,
    rfactor,
    subtotal,
    term_by_term,
)
from tilewright.compiler.schedule.primitives.tails import (
    partition,
    shorten,
    specialize,
    split_counts,
    split_powers,
    trim,
    widen,
)
from tilewright.compiler.schedule.primitives.versions import (
    precompute_factors,
    version,
    version_of_sizes,
)

__all__ = [
    "begin_with",
    "bind",
    "cache_read",
    "cache_write",
    "compute_at",
    "drop_guards",
    "expand",
    "fission",
    "forward",
    "fuse",
    "fuse_nests",
    "inline",
    "interior",
    "join",
    "keep_line",
    "multiply_tiles",
    "partition",
    "precompute_factors",
    "prefetch",
    "prefetch_lines",
    "privatize",
    "reorder",
    "reverse_inline",
    "rfactor",
    "separate",
    "set_scope",
    "settle_tests",
    "shorten",
    "sink_guards",
    "specialize",
    "split",
    "split_counts",
    "split_powers",
    "subtotal",
    "tensorize",
    "term_by_term",
    "tile",
    "trim",
    "unroll",
    "vectorize",
    "version",
    "version_of_sizes",
    "widen",
]
