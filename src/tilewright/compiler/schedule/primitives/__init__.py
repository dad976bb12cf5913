"""The schedule primitives: checked rewrites `Kernel -> Kernel`, registered by name."""

from tilewright.compiler.schedule.primitives.alike import split_alike as split_alike
from tilewright.compiler.schedule.primitives.grid import bind as bind
from tilewright.compiler.schedule.primitives.grid import join as join
from tilewright.compiler.schedule.primitives.guards import drop_guards as drop_guards
from tilewright.compiler.schedule.primitives.guards import settle_tests as settle_tests
from tilewright.compiler.schedule.primitives.guards import sink_guards as sink_guards
from tilewright.compiler.schedule.primitives.hints import prefetch as prefetch
from tilewright.compiler.schedule.primitives.hints import prefetch_lines as prefetch_lines
from tilewright.compiler.schedule.primitives.inlining import forward as forward
from tilewright.compiler.schedule.primitives.inlining import inline as inline
from tilewright.compiler.schedule.primitives.inlining import (
    reverse_inline as reverse_inline,
)
from tilewright.compiler.schedule.primitives.instruction_tiles import (
    multiply_tiles as multiply_tiles,
)
from tilewright.compiler.schedule.primitives.instructions import tensorize as tensorize
from tilewright.compiler.schedule.primitives.interior import interior as interior
from tilewright.compiler.schedule.primitives.loops import fuse as fuse
from tilewright.compiler.schedule.primitives.loops import reorder as reorder
from tilewright.compiler.schedule.primitives.loops import split as split
from tilewright.compiler.schedule.primitives.loops import tile as tile
from tilewright.compiler.schedule.primitives.loops import unroll as unroll
from tilewright.compiler.schedule.primitives.loops import vectorize as vectorize
from tilewright.compiler.schedule.primitives.memory import cache_read as cache_read
from tilewright.compiler.schedule.primitives.memory import cache_write as cache_write
from tilewright.compiler.schedule.primitives.memory import compute_at as compute_at
from tilewright.compiler.schedule.primitives.memory import expand as expand
from tilewright.compiler.schedule.primitives.memory import keep_line as keep_line
from tilewright.compiler.schedule.primitives.memory import privatize as privatize
from tilewright.compiler.schedule.primitives.memory import separate as separate
from tilewright.compiler.schedule.primitives.memory import set_scope as set_scope
from tilewright.compiler.schedule.primitives.nests import fission as fission
from tilewright.compiler.schedule.primitives.nests import fuse_nests as fuse_nests
from tilewright.compiler.schedule.primitives.reduction import begin_with as begin_with
from tilewright.compiler.schedule.primitives.reduction import rfactor as rfactor
from tilewright.compiler.schedule.primitives.reduction import subtotal as subtotal
from tilewright.compiler.schedule.primitives.reduction import term_by_term as term_by_term
from tilewright.compiler.schedule.primitives.tails import overlap as overlap
from tilewright.compiler.schedule.primitives.tails import partition as partition
from tilewright.compiler.schedule.primitives.tails import shorten as shorten
from tilewright.compiler.schedule.primitives.tails import specialize as specialize
from tilewright.compiler.schedule.primitives.tails import split_counts as split_counts
from tilewright.compiler.schedule.primitives.tails import split_powers as split_powers
from tilewright.compiler.schedule.primitives.tails import trim as trim
from tilewright.compiler.schedule.primitives.tails import widen as widen
from tilewright.compiler.schedule.primitives.versions import (
    precompute_factors as precompute_factors,
)
from tilewright.compiler.schedule.primitives.versions import version as version
from tilewright.compiler.schedule.primitives.versions import (
    version_by_limits as version_by_limits,
)
from tilewright.compiler.schedule.primitives.versions import (
    version_of_sizes as version_of_sizes,
)
