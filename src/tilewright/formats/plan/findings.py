"""What the checks of a call found, as the error that the caller gets.

A plan's checks and those that bytecode describes come here; the records are written by kernels.
Called by the plan executor and by the `tilewright` module of the virtual machine.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, final

from tilewright.base.errors import index_error
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.formats.plan.steps import CHECK_BYTES, CHECK_PASSED, IndexCheck

_RECORD: Final = struct.Struct("<q")

Row = tuple[str, int, int, int, int]
"""Of one check: location, axis, size, low, high."""


@final
@record
class IndexReport:
    """The checks of calls of certain sizes, in the order of the nodes.

    Called with the records of a call, it raises for the first that failed.
    """

    rows: tuple[Row, ...]

    @classmethod
    def bound(
        cls, checks: Sequence[IndexCheck], number: Callable[[Dim], int]
    ) -> IndexReport:
        """The report where `number` gives the value of every size."""
        return cls(
            tuple(
                (c.location, c.axis, number(c.size), number(c.low), number(c.high))
                for c in checks
            )
        )

    def __call__(self, records: memoryview) -> None:
        """Raise InputError, if a record holds an index."""
        for place, (location, axis, size, low, high) in enumerate(self.rows):
            (found,) = _RECORD.unpack_from(records, place * CHECK_BYTES)
            if found != CHECK_PASSED:
                raise index_error(
                    found, low, high, axis=axis, size=size, location=location or None
                )
