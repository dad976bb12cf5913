"""The `vmvx` module: what kernels in bytecode call for whole rows at once.

`create_vmvx_module` makes it; one instance serves all executables, it has no state.  Functions
are keyed on name and signature.  Every range is checked before it is touched, so kernels that
nobody trusts can only fail.

Source: IREE `modules/vmvx/exports.inl`, the same 32 functions from 3.0 to 3.13.
"""

from tilewright.runtime.modules.vmvx.module import create_vmvx_module

__all__ = ["create_vmvx_module"]
