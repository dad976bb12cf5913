"""Simplification: the identities of arithmetic, movement and attention (`*_rewrites`), to a fixed point.

Local and always worth it; patterns of several nodes with a name of their own are recognised by
`recognize_activations` and `recognize_norms`.
"""

from __future__ import annotations

from typing import ClassVar, final

from tilewright.base.record import record
from tilewright.compiler.passes import Rewrites, merge_rewrites
from tilewright.compiler.transforms.arithmetic_rewrites import REWRITES as ARITHMETIC
from tilewright.compiler.transforms.attention_rewrites import REWRITES as ATTENTION
from tilewright.compiler.transforms.movement_rewrites import REWRITES as MOVEMENT
from tilewright.compiler.transforms.rewrite_pass import RewritePass


@final
@record(kw_only=True)
class Simplify(RewritePass):
    """Apply identities until none is left.

    Requires: nothing.  Ensures: constants stand right of commutative ops; no reshape of a
    reshape, transpose of a transpose, slice of a slice; no op with a neutral operand.
    """

    ensures: ClassVar[frozenset[str]] = frozenset({"simplified"})

    def rewrites(self) -> Rewrites:
        """All tables."""
        return merge_rewrites(ARITHMETIC, MOVEMENT, ATTENTION)
