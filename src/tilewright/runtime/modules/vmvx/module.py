"""Puts the rows of the `vmvx` module together and names its types."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.runtime.modules.vmvx.elementwise import ROWS as ELEMENTWISE_ROWS
from tilewright.runtime.modules.vmvx.tiles import ROWS as TILE_ROWS
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.native_module import NativeFunction, NativeModule, metered


def create_vmvx_module(*, is_metered: bool = False) -> NativeModule:
    """The module.  Thread-safety: its functions may run on any thread.

    Args:
        is_metered: for kernels that are not trusted.
    """
    rows: Sequence[NativeFunction] = (*ELEMENTWISE_ROWS, *TILE_ROWS)
    if is_metered:
        rows = [metered(row) for row in rows]
    return NativeModule("vmvx", rows, types={"bytes": VmBuffer})
