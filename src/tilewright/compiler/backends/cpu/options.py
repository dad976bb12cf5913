"""What a caller may choose about LLVM code generation."""

from __future__ import annotations

from typing import final

from tilewright.base.record import record


@final
@record(kw_only=True)
class Options:
    """Options of the LLVM backend.

    Attributes:
        opt: effort of LLVM's code generator, 0 to 3; the IR passes are not run at any level.
    """

    opt: int = 2
