"""A packed function with its tensors, made once: what a call costs is the call.

Three times as fast as describing the tensors in every call (`packed.tensor_call`), which suits buffers that
change.  Called by `graph_program`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

from tilewright.base.errors import TilewrightError
from tilewright.runtime.packed.tensors import tensor_of
from tilewright.runtime.plan_executor.tensors import Array

if TYPE_CHECKING:
    from tilewright.runtime.packed.ffi import tvm_ffi
    from tilewright.runtime.packed.functions import PackedFunction


@final
class PreparedCall:
    """A host call of a command list, without arguments of its own.

    Args:
        function: what is called.
        where: what its errors call the place.
    """

    __slots__ = ("_function", "_tensors", "_where")

    def __init__(self, function: PackedFunction, where: str) -> None:
        self._function: Final[PackedFunction] = function
        self._where: Final = where
        self._tensors: tuple[tvm_ffi.Tensor, ...] = ()

    def bind(self, arrays: Sequence[Array]) -> None:
        """Take these arrays from now on."""
        self._tensors = tuple(tensor_of(array) for array in arrays)

    def __call__(self) -> None:
        try:
            self._function(*self._tensors)
        except TilewrightError as error:
            error.location = error.location or self._where
            raise
        except Exception as error:
            error.add_note(f"in {self._where}")
            raise
