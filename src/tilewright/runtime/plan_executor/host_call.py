"""A step that runs in Python: the reference implementation of an op, on views of the bindings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import final

import numpy as np

from tilewright.base.errors import InputError, TilewrightError
from tilewright.formats.plan import HostCall, Step, resolve_attribute
from tilewright.runtime.plan_executor.tensors import (
    Array,
    TensorType,
    describe,
    describe_array,
)

# (op, attributes, operands with None for absent ones) -> results
HostFunction = Callable[
    [str, Mapping[str, object], Sequence[Array | None]], Sequence[Array]
]


@final
class BoundHostCall:
    """What the C core calls: byte views in, results written into the last of them.

    Thread-safety: calls are independent as far as the function's are.
    """

    __slots__ = ("_attributes", "_call", "_function", "_step", "_types")

    def __init__(
        self,
        step: Step,
        call: HostCall,
        function: HostFunction,
        types: Sequence[TensorType],
        env: Mapping[str, int],
    ) -> None:
        self._step: Step = step
        self._call: HostCall = call
        self._function: HostFunction = function
        self._types: tuple[TensorType, ...] = tuple(types)
        self._attributes: Mapping[str, object] = {
            name: resolve_attribute(value, env) for name, value in call.attributes.items()
        }

    def __call__(self, *views: memoryview) -> None:
        arrays = [
            np.frombuffer(view, dtype.numpy, count=math.prod(shape)).reshape(shape)
            for view, (dtype, shape) in zip(views, self._types, strict=True)
        ]
        count = len(arrays) - self._step.result_count
        operands: list[Array | None] = [None] * self._call.operand_count
        for place, array in zip(self._call.present, arrays[:count], strict=True):
            array.flags.writeable = False  # operands may share bytes with other tensors
            operands[place] = array
        try:
            results = self._function(self._step.target, self._attributes, operands)
        except TilewrightError as error:
            error.location = error.location or self._call.location or self._where
            raise
        self._store(results, arrays[count:], self._types[count:])

    @property
    def _where(self) -> str:
        return f"step '{self._step.name}'"

    def _store(
        self,
        results: Sequence[Array],
        targets: Sequence[Array],
        types: Sequence[TensorType],
    ) -> None:
        where = self._where
        if len(results) != len(targets):
            raise InputError(
                f"got {len(results)} results, expected {len(targets)}", location=where
            )
        for result, target, (dtype, shape) in zip(results, targets, types, strict=True):
            if result.shape != shape or result.dtype != dtype.numpy:
                raise InputError(
                    f"got {describe_array(result)}, expected {describe(dtype, shape)}",
                    location=where,
                    hint="the values of an input decide a shape that was compiled in",
                )
            target[...] = result
