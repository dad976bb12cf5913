"""A kernel called with tensors: recorded once per set of shapes, then run.

What makes a packed function of a kernel.  Who calls many kernels again and again records them into one
list instead (`packed.kernel_function`).
"""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import InputError
from tilewright.runtime import native
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.kernel_function import KernelFunction, TensorArgument
from tilewright.runtime.packed.tensors import array_of
from tilewright.runtime.recorder import Recorder

_LISTS_KEPT: Final = 32


@final
class KernelCall:
    """Runs a kernel on dense tensors, operands before results, in the calling thread.

    Args:
        kernel: which.
        result_count: how many of its last tensors it writes.

    Thread-safety: calls from several threads are independent.
    """

    def __init__(self, kernel: KernelFunction, result_count: int) -> None:
        self._kernel: Final = kernel
        self._result_count: Final = result_count
        self._lists: dict[tuple[object, ...], native.CommandList] = {}

    def __call__(self, *tensors: Any) -> None:
        """Run it.  Raises: InputError for tensors of other types or shapes."""
        arrays = [self._array(index, tensor) for index, tensor in enumerate(tensors)]
        for index, array in enumerate(arrays):
            is_result = index >= len(arrays) - self._result_count
            if not array.flags.c_contiguous or (is_result and not array.flags.writeable):
                problem = "dense, in row-major order" + (
                    " and writable" if is_result else ""
                )
                raise InputError(
                    f"tensor {index} is not {problem}",
                    location=f"kernel '{self._kernel.name}'",
                    hint="numpy.ascontiguousarray(x), or numpy.empty(shape, dtype) for a result",
                )
        key = tuple((array.dtype, array.shape) for array in arrays)
        commands = self._lists.get(key) or self._record(key, arrays)
        commands.run(None, [array.reshape(-1).view(np.uint8).data for array in arrays])

    def _array(self, index: int, tensor: object) -> np.ndarray[Any, Any]:
        if isinstance(tensor, tvm_ffi.Tensor):
            return array_of(tensor)
        raise InputError(
            f"tensor {index}: got {type(tensor).__name__}, expected a tensor",
            location=f"kernel '{self._kernel.name}'",
        )

    def _record(
        self, key: tuple[object, ...], arrays: list[np.ndarray[Any, Any]]
    ) -> native.CommandList:
        recorder = Recorder()
        first_result = len(arrays) - self._result_count
        arguments: list[TensorArgument] = []
        for index, array in enumerate(arrays):
            slot = recorder.slot(array.nbytes, writable=index >= first_result)
            place = (slot, 0, array.nbytes)
            arguments.append(
                TensorArgument(dtypes.from_numpy(array.dtype), array.shape, place)
            )
        self._kernel.record(recorder, arguments)
        commands = recorder.build()
        if len(self._lists) >= _LISTS_KEPT:
            self._lists.clear()
        self._lists[key] = commands
        return commands
