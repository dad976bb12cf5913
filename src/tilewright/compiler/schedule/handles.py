"""Handles: what a primitive made, so that nobody has to find it again.

A handle is the name of a loop or a buffer with a type of its own; names are unique within a kernel, so a
handle is good for as long as what it names is there.  Code that is cut up is handed back as `Piece`s.
Called by the primitives, which return handles, and by whoever asks for them (`Schedule.apply`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NewType, final

from tilewright.base.record import record
from tilewright.compiler.kernel.ir import Statement
from tilewright.compiler.kernel.rewrite import loops

LoopName = NewType("LoopName", str)
BufferName = NewType("BufferName", str)


@final
@record
class Piece:
    """One of the pieces that code was cut into: `piece[loop]` is what became of a loop in it.

    Attributes:
        renamed: loops that have other names here; the others kept theirs.
    """

    renamed: Mapping[str, LoopName]

    def __getitem__(self, loop: str) -> LoopName:
        return self.renamed.get(loop, LoopName(loop))

    def then(self, further: Piece) -> Piece:
        """A piece of this piece, in the names of the code that this one was cut from."""
        again = {old: further[new] for old, new in self.renamed.items()}
        return Piece({**further.renamed, **again})


WHOLE: Final = Piece({})
"""Code that was not cut."""


def copy_piece(original: Sequence[Statement], copy: Sequence[Statement]) -> Piece:
    """The piece that `copy` is, whose loops are those of `original` in the same order."""
    pairs = zip(loops(original), loops(copy), strict=True)
    return Piece({old.var.name: LoopName(new.var.name) for old, new in pairs})
