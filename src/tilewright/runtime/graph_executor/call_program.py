"""A program that is called with arrays, seen as one whose tensors are set and read: a plan, a library.

Its sizes may depend on a call: an input that is set takes the shape of what it is set to.  Called by
`factory` and by those who load libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, final

import numpy as np

from tilewright.base.errors import InputError
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.runtime.graph_executor.program import check_array
from tilewright.runtime.plan_executor.tensors import Array

_ALIGNMENT: Final = 64


class Callee(Protocol):
    """What is called: fresh arrays come out, or results go into those that are given."""

    def __call__(self, *arrays: Array) -> Sequence[Array]: ...


CallInto = Callable[[Sequence[Array], Sequence[Array | None]], Sequence[Array]]
"""(inputs, outputs with None for those to be made) -> all outputs."""


@final
class CallProgram:
    """A program around a call.

    Args:
        callee: takes all inputs, gives all outputs; it makes new ones in every call.
        inputs: its inputs in order.
        outputs: its outputs in order.
        parameters: further inputs, which `bind_parameters` takes.
        bind_parameters: called with all parameters before the first run and after one was set; gives
            the callee.
        call_into: runs with outputs of the caller; without it results are copied into them.

    Thread-safety: one thread at a time.
    """

    def __init__(
        self,
        callee: Callee | None,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        *,
        parameters: Sequence[TensorSpec] = (),
        bind_parameters: Callable[[Sequence[Array]], Callee] | None = None,
        call_into: CallInto | None = None,
    ) -> None:
        self.inputs: tuple[TensorSpec, ...] = (*inputs, *parameters)
        self.outputs: tuple[TensorSpec, ...] = tuple(outputs)
        self._callee: Callee | None = callee
        self._bind_parameters: Callable[[Sequence[Array]], Callee] | None = bind_parameters
        self._call_into: CallInto | None = call_into
        self._count: int = len(inputs)
        self._arrays: list[Array | None] = [None] * len(self.inputs)
        self._owned: list[bool] = [False] * len(self.inputs)  # made here, not bound
        self._ready: tuple[Array, ...] | None = None  # the inputs, once all are there
        self._bound: list[Array | None] = [None] * len(self.outputs)
        self._results: Sequence[Array] | None = None

    def input(self, index: int) -> Array:
        """What the next run reads: the memory itself.

        Raises: InputError for an input whose size depends on the call, before it is set.
        """
        found = self._arrays[index]
        if found is None:
            spec = self.inputs[index]
            sizes = [size for size in spec.shape if isinstance(size, int)]
            if len(sizes) != len(spec.shape):
                raise InputError(
                    f"{spec} is not set, and its shape depends on the call",
                    location=f"input '{spec.name}'",
                )
            found = self._keep(index, _zeros(sizes, spec), owned=True)
        return found

    def set_input(self, index: int, array: Array) -> None:
        """Copy an array to where the next run reads it."""
        spec = self.inputs[index]
        check_array(array, spec, "input")
        target = self._arrays[index]
        if target is None or not self._owned[index] or target.shape != array.shape:
            target = self._keep(index, _zeros(array.shape, spec), owned=True)
        np.copyto(target, array)
        if index >= self._count:
            self._callee = None

    def bind_input(self, index: int, array: Array) -> None:
        """Let runs read this array itself."""
        check_array(array, self.inputs[index], "input")
        if not array.flags.c_contiguous:
            raise InputError(
                "the array is not dense in row-major order",
                location=f"input '{self.inputs[index].name}'",
            )
        self._keep(index, array, owned=False)
        if index >= self._count:
            self._callee = None

    def bind_output(self, index: int, array: Array) -> None:
        """Let runs write into this array itself."""
        spec = self.outputs[index]
        check_array(array, spec, "output")
        if not array.flags.writeable or not array.flags.c_contiguous:
            raise InputError(
                "the array is read-only or not dense in row-major order",
                location=f"output '{spec.name}'",
            )
        self._bound[index] = array

    def output(self, index: int) -> Array:
        """What the last run gave.

        Raises: InputError before the first run where the size depends on the call.
        """
        bound = self._bound[index]
        if bound is not None:
            return bound
        if self._results is None:
            spec = self.outputs[index]
            if not all(isinstance(size, int) for size in spec.shape):
                raise InputError(
                    f"{spec} has no value before the first run",
                    location=f"output '{spec.name}'",
                )
            return _zeros([int(str(size)) for size in spec.shape], spec)
        return self._results[index]

    @property
    def callee(self) -> Callee:
        """What is called, with the parameters that are set."""
        return self._callee or self._bind()

    @property
    def arrays(self) -> tuple[Array, ...]:
        """What it is called with.  Raises: InputError for an input that is not set and must be."""
        if self._ready is None:
            self._ready = tuple(self.input(i) for i in range(self._count))
        return self._ready

    def run(self) -> None:
        """Call it."""
        callee = self._callee or self._bind()
        arrays = self._ready or self.arrays
        if not any(array is not None for array in self._bound):
            self._results = callee(*arrays)
        elif self._call_into is not None:
            self._results = self._call_into(arrays, self._bound)
        else:
            self._results = self._copied(callee(*arrays))

    def _copied(self, results: Sequence[Array]) -> Sequence[Array]:
        for index, (result, target) in enumerate(zip(results, self._bound, strict=True)):
            if target is None:
                continue
            if target.shape != result.shape:
                raise InputError(
                    f"the result has shape {result.shape}, the array {target.shape}",
                    location=f"output '{self.outputs[index].name}'",
                )
            np.copyto(target, result)
        return results

    def _keep(self, index: int, array: Array, *, owned: bool) -> Array:
        self._arrays[index] = array
        self._owned[index] = owned
        self._ready = None
        return array

    def _bind(self) -> Callee:
        assert self._bind_parameters is not None, (
            "a program without parameters has a callee"
        )
        parameters = [self.input(i) for i in range(self._count, len(self.inputs))]
        self._callee = self._bind_parameters(parameters)
        return self._callee


def _zeros(shape: Sequence[int], spec: TensorSpec) -> Array:
    """An array of zeros on an address that any kernel can do with."""
    size_bytes = int(np.prod(shape, dtype=np.int64)) * spec.dtype.itemsize
    memory = np.zeros(size_bytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size_bytes].view(spec.dtype.numpy).reshape(shape)
