"""What a graph executor runs: tensors that are set, a run, tensors that are read.

Two programs exist: a graph of TVM's form (`graph_program`) and anything that is called with arrays, as a
plan or a library is (`call_program`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tilewright.base.errors import InputError
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.runtime.plan_executor.tensors import Array, describe, describe_array


class Program(Protocol):
    """Tensors by number, and a run over them.

    Thread-safety: one thread at a time.
    """

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """Inputs, then parameters."""
        ...

    @property
    def outputs(self) -> Sequence[TensorSpec]: ...

    def input(self, index: int) -> Array:
        """What the next run reads: the memory itself."""
        ...

    def set_input(self, index: int, array: Array) -> None:
        """Copy an array of the right type to where the next run reads it."""
        ...

    def bind_input(self, index: int, array: Array) -> None:
        """Let runs read this array of the right type itself."""
        ...

    def bind_output(self, index: int, array: Array) -> None:
        """Let runs write into this array of the right type itself."""
        ...

    def output(self, index: int) -> Array:
        """What the last run wrote: the memory itself, which the next run may write again."""
        ...

    def run(self) -> None: ...


def check_array(array: Array, spec: TensorSpec, subject: str) -> None:
    """Raise InputError for an array of another type or shape; sizes that are symbols may be any."""
    fits = array.dtype == spec.dtype.numpy and array.ndim == len(spec.shape)
    if fits and all(
        not isinstance(wanted, int) or given == wanted
        for given, wanted in zip(array.shape, spec.shape, strict=True)
    ):
        return
    is_other_type = array.dtype != spec.dtype.numpy and array.dtype.kind in "biuf"
    raise InputError(
        f"got {describe_array(array)}, expected {describe(spec.dtype, spec.shape)}",
        location=f"{subject} '{spec.name}'",
        hint=f"convert it with .astype('{spec.dtype.numpy}')" if is_other_type else None,
    )
