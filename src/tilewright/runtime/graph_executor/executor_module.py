"""A graph executor as a module: TVM's functions by name, as packed functions.

What `lib["default"](device)` gives.  Not here: the face for Python (`graph_module`).

Source: TVM 0.19, `GraphExecutor::GetFunction`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

from tilewright.base.bound_to_process import BoundToProcess
from tilewright.base.errors import InputError
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.runtime.graph_executor.executor import (
    GraphExecutor,
    parameter_names,
)
from tilewright.runtime.graph_executor.program import Program
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import PackedFunction, packed_function
from tilewright.runtime.packed.module import Module
from tilewright.runtime.packed.tensors import given, tensor_of
from tilewright.runtime.plan_executor.tensors import Array


@final
class ExecutorModule(BoundToProcess, Module):
    """The functions of an executor.

    `set_input(key, tensor)`, `set_input_zero_copy(key, tensor)`, `set_output_zero_copy(key, tensor)`,
    `get_input(key)`, `get_output(number[, tensor])`, `get_num_inputs()`, `get_num_outputs()`,
    `get_input_index(name)`, `get_input_info()`, `get_output_info()`, `run()`, `run_from_inputs(key,
    tensor, ...)`, `load_params(bytes)`, `share_params(module, bytes)`.  Tensors go in and come out as
    tvm-ffi's.

    Args:
        executor: whose functions.

    Thread-safety: one thread at a time, as the executor's.
    """

    _made_again = "tilewright.runtime.load_module(path)['default'](device)"
    kind = "GraphExecutor"

    def __init__(self, executor: GraphExecutor) -> None:
        super().__init__()
        self.executor: Final[GraphExecutor] = executor
        self._functions: dict[str, PackedFunction] = {}  # made when they are asked for

    def find_function(self, name: str) -> PackedFunction | None:
        """The function, always the same one."""
        found = self._functions.get(name)
        if found is None and name in _FUNCTIONS:
            found = packed_function(_FUNCTIONS[name](self.executor))
            self._functions[name] = found
        return found

    def function_names(self) -> Sequence[str]:
        """All of them."""
        return tuple(_FUNCTIONS)


def executor_module(program: Program) -> ExecutorModule:
    """The module around an executor of a program."""
    return ExecutorModule(GraphExecutor(program))


def executor_of(module: object) -> GraphExecutor:
    """The executor in a module.  Raises: InputError for any other module."""
    if isinstance(module, ExecutorModule):
        return module.executor
    kind = module.kind if isinstance(module, Module) else type(module).__name__
    raise InputError(
        f"no graph executor but '{kind}'",
        hint='make one: GraphModule(lib["default"](device)), or graph_executor.create(...)',
    )


def _packed(array: Array) -> tvm_ffi.Tensor:
    return tensor_of(array)


def _setting(setter: Callable[[Any, object], None]) -> Callable[..., None]:
    def call(key: Any, value: object) -> None:
        setter(key, given(value))

    return call


def _get_output(executor: GraphExecutor) -> Callable[..., Any]:
    def get_output(index: int, out: object = None) -> tvm_ffi.Tensor | None:
        if out is None:
            return _packed(executor.get_output(index))
        executor.copy_output(index, given(out))
        return None

    return get_output


def _run_from_inputs(executor: GraphExecutor) -> Callable[..., Any]:
    def run_from_inputs(*pairs: object) -> list[tvm_ffi.Tensor]:
        arrays = executor.run_from_inputs(*map(given, pairs))
        return [_packed(array) for array in arrays]

    return run_from_inputs


def _share_params(executor: GraphExecutor) -> Callable[..., Any]:
    def share_params(other: object, data: bytes) -> None:
        executor.share_params(executor_of(other), parameter_names(bytes(data)))

    return share_params


def _info(specs: Sequence[TensorSpec]) -> Mapping[str, Mapping[str, object]]:
    """Shapes and types by name; a size that a call decides is -1, as in TVM."""
    shapes = {
        spec.name: tvm_ffi.Shape(tuple(d if isinstance(d, int) else -1 for d in spec.shape))
        for spec in specs
    }
    return {"shape": shapes, "dtype": {s.name: str(s.dtype.numpy) for s in specs}}


_FUNCTIONS: Final[Mapping[str, Callable[[GraphExecutor], Callable[..., Any]]]] = {
    "set_input": lambda executor: _setting(executor.set_input),
    "set_input_zero_copy": lambda executor: _setting(executor.set_input_zero_copy),
    "set_output_zero_copy": lambda executor: _setting(executor.set_output_zero_copy),
    "get_input": lambda executor: lambda key: _packed(executor.get_input(key)),
    "get_output": _get_output,
    "get_num_inputs": lambda executor: lambda: executor.input_count,
    "get_num_outputs": lambda executor: lambda: executor.output_count,
    "get_input_index": lambda executor: executor.input_index,
    "get_input_info": lambda executor: lambda: _info(executor.input_info()),
    "get_output_info": lambda executor: lambda: _info(executor.output_info()),
    "run": lambda executor: executor.run,
    "run_from_inputs": _run_from_inputs,
    "load_params": lambda executor: lambda data: executor.load_params(bytes(data)),
    "share_params": _share_params,
}
