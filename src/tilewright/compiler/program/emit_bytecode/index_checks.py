"""Code that looks at what checks of indices found, and fails for it.  Called by `main`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast, final

from tilewright.base.symbolic import Dim
from tilewright.base.symbolic import symbol as symbol_of
from tilewright.compiler.program.emit_bytecode.function import HalFunction, Place
from tilewright.compiler.program.ir import Dispatch, Program, Storage, results_of
from tilewright.formats.bytecode.drafts import Register
from tilewright.formats.plan import CHECK_BYTES, IndexCheck


@final
class IndexChecks:
    """The records of one program, each of which holds the least i64 where nothing was found.

    Args:
        function: that is built.
        program: whose kernels check.
        places: where its storages are.
    """

    def __init__(
        self, function: HalFunction, program: Program, places: Mapping[Storage, Place]
    ) -> None:
        self.function: HalFunction = function
        self.program: Program = program
        self._places: Mapping[Storage, Place] = places
        self._written: list[int] = []  # since the last look

    def note(self, step: Dispatch) -> None:
        """Remember the records that a kernel writes."""
        storage = self.program.check_storage
        self._written += [
            cast("int", entry.offset_bytes) // CHECK_BYTES
            for entry in results_of(step)
            if entry.storage is storage
        ]

    def look_at_written(self) -> None:
        """With control flow: look at each record behind the commands that write it."""
        storage = self.program.check_storage
        for index in self._written if storage is not None else ():
            assert storage is not None, "asked above"
            place = self._places[storage]
            self._refuse(place.buffer, self._halves(place, index), index)
        self._written = []

    def look_at_all(self) -> None:
        """Fail for what the kernels found: this runtime says which index, others which node."""
        storage = self.program.check_storage
        if storage is None:
            return
        build, place = self.function.build, self._places[storage]
        # Here, for what is computed behind the branch is not there behind its end.
        records = [self._halves(place, i) for i in range(len(self.program.checks))]
        ordinal = self.function.module.import_("tilewright.check_indices")
        ask, look, done = build.block(), build.block(), build.block()
        build.branch_if(build.emit("import.resolved", ordinal), ask, look)
        build.place(look)
        for index, halves in enumerate(records):
            self._refuse(place.buffer, halves, index)
        build.branch(done)
        build.place(ask)
        self._ask(place, storage.size_bytes)
        build.branch(done)
        build.place(done)

    def _halves(self, place: Place, index: int) -> list[Register]:
        """Where both halves of a record begin."""
        start = place.offset + CHECK_BYTES * index
        return [self.function.size(start + half) for half in (0, 4)]

    def _ask(self, place: Place, size_bytes: Dim) -> None:
        function, program = self.function, self.program
        described = {
            "dims": [dim.name for dim in program.dims],
            "checks": [
                [c.location, c.axis, str(c.size), str(c.low), str(c.high)]
                for c in program.checks
            ],
        }
        text = json.dumps(described, separators=(",", ":"))
        dims = [function.dims[symbol_of(dim.name)] for dim in program.dims]
        span = (place.buffer, place.offset, size_bytes)
        function.call("tilewright.check_indices", text, *span, dims)

    def _refuse(self, buffer: Register, halves: Sequence[Register], index: int) -> None:
        """Fail unless the record holds the least i64, which is loaded in halves."""
        function, build = self.function, self.function.build
        low, high = (function.load(buffer, half) for half in halves)
        sign = build.emit("xor.i32", high, function.i32(-(1 << 31)))
        finding = build.emit("or.i32", low, sign)
        function.refuse(finding, _said(self.program.checks[index]))


def _said(check: IndexCheck) -> str:
    return (
        f"{check.location}: an index is out of range on axis {check.axis} of size "
        f"{check.size}, expected {check.low} .. {check.high}"
    )
