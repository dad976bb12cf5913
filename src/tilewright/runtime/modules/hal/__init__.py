"""The `hal` module: what bytecode calls to use devices.

`create_hal_module` makes it for a list of devices; `register_hal_types` names the classes that
its references have.  Functions are keyed on name and signature, so modules of every release that
IREE's compilers wrote since 3.0 find what they import.

Source: IREE `modules/hal/exports.inl`, releases 3.0 to 3.13.
"""

from tilewright.runtime.modules.hal.module import (
    HAL_VERSION,
    create_hal_module,
    register_hal_types,
)

__all__ = ["HAL_VERSION", "create_hal_module", "register_hal_types"]
