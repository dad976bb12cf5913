"""An exported model inside a library: what its C interface adds to the functions of the library.

    lib["default"](device)     an executor, whose runs call the library
    lib["get_graph_params"]()  its weights by name
    lib["main"](x, ...)        where the library has no such function itself (objects that were linked here)

Not here: the interface (`native.model_interface`), loading (`library_module`).
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ArchiveError, InputError
from tilewright.base.lazy import lazy
from tilewright.formats.elf.shared_library import SharedLibraryFile
from tilewright.formats.plan import from_json
from tilewright.formats.plan.weights import weights_of
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.runtime.graph_executor.call_program import CallProgram
from tilewright.runtime.graph_executor.executor_module import (
    ExecutorModule,
    executor_module,
)
from tilewright.runtime.graph_executor.factory import local_device
from tilewright.runtime.graph_executor.plan_program import plan_specs
from tilewright.runtime.native.model_interface import (
    InterfaceModel,
    InterfaceTensor,
    LateCall,
    ModelInterface,
    PreparedCall,
)
from tilewright.runtime.packed.tensors import given, tensor_of
from tilewright.runtime.plan_executor import as_array
from tilewright.runtime.plan_executor.tensors import Array

_SYMBOL: Final = "tilewright_model"
_GETTER: Final = "_get_interface"
_BESIDE: Final = ("_create", "_destroy", "_run_tensors", "_error")


def interface_symbol(file: SharedLibraryFile) -> str | None:
    """The function of a library that gives the interface of its model; None where it has no model."""
    if _SYMBOL in file.symbols:
        return _SYMBOL
    for symbol in file.symbols:
        name = symbol.removesuffix(_GETTER)
        if name != symbol and all(name + one in file.symbols for one in _BESIDE):
            return symbol
    return None


@final
class CompiledModel:
    """The model of a library.

    Args:
        interface: of the model.
    """

    def __init__(self, interface: ModelInterface) -> None:
        self._interface: ModelInterface = interface
        self.functions: Final[Mapping[str, Callable[..., Any]]] = {
            "default": self.create_executor,
            "get_graph_json": self._graph_json,
            "get_graph_params": self._graph_params,
            "get_input_name": lambda index: self._name(interface.inputs, index),
            "get_num_inputs": lambda: len(interface.inputs),
            "get_num_outputs": lambda: len(interface.outputs),
            "get_output_name": lambda index: self._name(interface.outputs, index),
            "main": self.main,
        }

    def _name(self, tensors: Sequence[InterfaceTensor], index: int) -> str:
        if not 0 <= index < len(tensors):
            raise InputError(
                f"there is no tensor {index}, there are {len(tensors)}",
                location=self._interface.location,
            )
        return tensors[index].name

    @lazy
    def _shared(self) -> InterfaceModel:
        return self._interface.create()

    def create_executor(self, *devices: object) -> ExecutorModule:
        """An executor with a model of its own; of a local device it has as many threads.

        Raises: UserError for a device that is not the host.
        """
        device = local_device(devices)
        model = self._interface.create(0 if device is None else device.thread_count)
        inputs, outputs = self._specs(model)
        program = CallProgram(
            _RepeatedCall(model), inputs, outputs, call_into=model.call_into
        )
        return executor_module(program)

    def _specs(
        self, model: InterfaceModel
    ) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
        """Inputs and outputs; where sizes vary, with the names that the plan has for them."""
        interface = self._interface
        if interface.dims:
            # Another release of the plan's form is no reason not to run: names are for people.
            with contextlib.suppress(ArchiveError):
                plan = from_json(model.graph_json().encode())
                return plan_specs(plan, plan.inputs), plan_specs(plan, plan.outputs)
        return (
            tuple(self._spec(one, place) for place, one in enumerate(interface.inputs)),
            tuple(self._spec(one, None) for one in interface.outputs),
        )

    def _spec(self, tensor: InterfaceTensor, place: int | None) -> TensorSpec:
        names = {(dim.input, dim.axis): dim.name for dim in self._interface.dims}
        shape = tuple(
            extent
            if extent >= 0
            else symbolic.symbol(
                names.get((-1 if place is None else place, axis), f"{tensor.name}_{axis}")
            )
            for axis, extent in enumerate(tensor.shape)
        )
        return TensorSpec(tensor.name, dtypes.from_dlpack(*tensor.type), shape)

    def _graph_json(self) -> str:
        return self._shared.graph_json()

    def _graph_params(self) -> dict[str, object]:
        """The weights by name, as the factory of the model gives them.

        Raises: ArchiveError for a library without its plan, or that does not show its weights.
        """
        model = self._shared
        text = model.graph_json()
        if not text:
            raise ArchiveError(
                "it has no plan, which has the names of its weights",
                location=self._interface.location,
            )
        plan = from_json(text.encode())
        sizes = [s.size_bytes for s in plan.storages if s.kind == "constant"]
        constants = [
            model.constant(index, size if isinstance(size, int) else 0).data
            for index, size in enumerate(sizes)
        ]
        # Copies: weights are read-only, which DLPack cannot say.
        return {n: tensor_of(a.copy()) for n, a in weights_of(plan, constants).items()}

    def main(self, *arguments: object) -> object:
        """Call the model: inputs, or inputs and outputs to be filled."""
        arrays = [np.ascontiguousarray(as_array(given(one))) for one in arguments]
        count = len(self._interface.inputs)
        outputs = [as_array(given(one)) for one in arguments[count:]]
        if outputs:
            self._shared.call_into(arrays[:count], outputs)
            return None
        results = [tensor_of(one) for one in self._shared(*arrays[:count])]
        return results[0] if len(results) == 1 else results


@final
class _RepeatedCall:
    """Calls of a model by an executor, whose arrays are the same in most runs, also those it gives.

    Thread-safety: one thread at a time, as an executor.
    """

    def __init__(self, model: InterfaceModel) -> None:
        self._model: InterfaceModel = model
        self._call: PreparedCall | LateCall | None = None

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        call = self._call
        if call is None or not all(map(operator.is_, call.inputs, arrays)):
            count = len(self._model.interface.outputs)
            call = self._call = self._model.prepare(arrays, [None] * count)
        call()
        return call.outputs
