"""Bindings: inputs and outputs that are named once and used by many runs.

Inputs are read where they are; outputs that were bound to memory are written there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, final

import numpy as np

from tilewright.api.inference.node_arg import NodeArg, element_dtype
from tilewright.api.inference.ort_value import (
    OrtValue,
    check_device,
    check_place,
    checked_shape,
    checked_value,
)
from tilewright.base.dtypes import DType
from tilewright.base.errors import UserError
from tilewright.base.options import count_option, methods_option, text_option
from tilewright.base.separate_arrays import check_apart
from tilewright.base.text import did_you_mean
from tilewright.runtime.plan_executor import Array, as_array

_HIGHEST: Final = (1 << 64) - 1


class Bindable(Protocol):
    """What has inputs and outputs: an `InferenceSession`."""

    def get_inputs(self) -> Sequence[NodeArg]: ...

    def get_outputs(self) -> Sequence[NodeArg]: ...


@final
class IOBinding:
    """What a session's runs take and where their results go: `IOBinding(session)`.

    Ownership: keeps what is bound; memory bound by its address must outlive the binding.
    Thread-safety: one thread at a time.
    """

    __slots__ = ("_input_names", "_inputs", "_output_names", "_outputs", "_results")

    def __init__(self, session: Bindable) -> None:
        methods_option("session", session, ("get_inputs", "get_outputs"))
        self._input_names: Final = tuple(arg.name for arg in session.get_inputs())
        self._output_names: Final = tuple(arg.name for arg in session.get_outputs())
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array | None] = {}
        self._results: dict[str, Array] = {}

    @property
    def inputs(self) -> Mapping[str, Array]:
        """What is bound, by name."""
        return self._inputs

    @property
    def output_names(self) -> tuple[str, ...]:
        """The outputs that are bound, in the order of binding; all where none is."""
        return tuple(self._outputs) or self._output_names

    def bind_cpu_input(self, name: str, arr_on_cpu: object) -> None:
        """Take an input from an array.  Raises: InputError, UserError for an unknown name."""
        self._inputs[_known(name, self._input_names, "input")] = as_array(arr_on_cpu)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Take an input from a value.  Raises: UserError for an unknown name."""
        self.bind_cpu_input(name, checked_value(name, ortvalue).numpy())

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: object,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Take an input from an address.

        Nothing can check that the memory is there and holds that many elements: reading it may end the
        process if it does not.

        Raises: UserError for an unknown name or type, an impossible shape or address, or a device
        that is not the CPU.
        """
        check_device(device_type, device_id)
        self.bind_cpu_input(name, array_at(buffer_ptr, element_dtype(element_type), shape))

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: object = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output: in new memory, or at an address, as for `bind_input`.

        Raises: UserError for an unknown name or type, an impossible shape or address, or a device
        that is not the CPU.
        """
        check_device(device_type, device_id)
        place = None
        if buffer_ptr is not None:
            if element_type is None or shape is None:
                raise UserError(
                    f"output '{name}' is bound to an address without type and shape"
                )
            place = array_at(buffer_ptr, element_dtype(element_type), shape)
        self._outputs[_known(name, self._output_names, "output")] = place

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Have an output written to a value.  Raises: UserError for an unknown name."""
        place = checked_value(name, ortvalue).numpy()
        self._outputs[_known(name, self._output_names, "output")] = place

    def clear_binding_inputs(self) -> None:
        """Bind no input any more."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Bind no output any more."""
        self._outputs.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Nothing: the CPU's memory is always current."""

    def synchronize_outputs(self) -> None:
        """Nothing: a run has ended when it returns."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order of binding."""
        return [OrtValue(array) for array in self._results.values()]

    def copy_outputs_to_cpu(self) -> list[Array]:
        """Copies of the outputs of the last run, in the order of binding."""
        return [array.copy() for array in self._results.values()]

    def accept(self, results: Mapping[str, Array]) -> None:
        """Put the outputs of a run where they belong.

        Raises: UserError if one does not fit, or two are bound to the same memory; none is written then.
        """
        self._results.clear()
        names = self.output_names
        places = [self._outputs.get(name) for name in names]
        for name, place in zip(names, places, strict=True):
            if place is not None:
                check_place(place, results[name], f"output '{name}'")
        check_apart(names, places)
        for name, place in zip(names, places, strict=True):
            if place is not None:
                np.copyto(place, results[name])
            self._results[name] = results[name] if place is None else place


def array_at(address: int, dtype: DType, shape: Sequence[int]) -> Array:
    """An array over memory that somebody else owns.  Raises: UserError for what cannot be memory."""
    bits = np.dtype(f"V{dtype.itemsize}")
    sizes = checked_shape(shape, dtype)
    count_option("buffer_ptr", address, least=int(math.prod(sizes) > 0), most=_HIGHEST)

    class Memory:
        __array_interface__: Final = {
            "version": 3,
            "data": (address, False),
            "shape": sizes,
            "typestr": bits.str,
        }

    return np.asarray(Memory()).view(dtype.numpy)


def _known(name: str, names: Sequence[str], kind: str) -> str:
    text_option("name", name, f"the name of an {kind}")
    if name not in names:
        raise UserError(
            f"there is no {kind} '{name}'",
            hint=did_you_mean(name, names) or f"{kind}s: {', '.join(names)}",
        )
    return name
