"""Puts the rows of the `vmvx` module together and names its types."""

from __future__ import annotations

from tilewright.runtime.modules.vmvx.elementwise import ROWS as ELEMENTWISE_ROWS
from tilewright.runtime.modules.vmvx.tiles import ROWS as TILE_ROWS
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.native_module import NativeModule


def create_vmvx_module() -> NativeModule:
    """The module.  Thread-safety: its functions may run on any thread."""
    rows = (*ELEMENTWISE_ROWS, *TILE_ROWS)
    return NativeModule("vmvx", rows, types={"bytes": VmBuffer})
