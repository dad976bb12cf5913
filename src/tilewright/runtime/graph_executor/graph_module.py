"""The face of the graph executor for Python, with the words of TVM's `GraphModule`.

Source: TVM 0.19, `python/tvm/contrib/graph_executor.py`.
"""

from __future__ import annotations

import functools
from typing import Final

from tilewright.base.bound_to_process import BoundToProcess
from tilewright.base.options import wrong
from tilewright.runtime.graph_executor.executor import (
    GraphExecutor,
    Key,
    parameter_names,
)
from tilewright.runtime.graph_executor.executor_module import executor_of
from tilewright.runtime.graph_executor.tensor import Tensor, tensor
from tilewright.runtime.packed.functions import PackedFunction
from tilewright.runtime.packed.module import Module
from tilewright.runtime.packed.time_evaluator import BenchmarkResult, TimeEvaluator


class GraphModule(BoundToProcess):
    """A graph executor: set inputs, run, get outputs.

    Args:
        module: what `create` gave, or the function `default` of a factory for a device.

    Raises: InputError for another module.
    Ownership: keeps the executor; tensors that it gives are views of its memory.
    Thread-safety: one thread at a time; make an executor for each thread, they can share parameters.
    """

    _made_again = "tilewright.graph_executor.GraphModule(module) over tilewright.runtime.load_module(path)"

    def __init__(self, module: Module) -> None:
        self.module: Final[Module] = module
        self._executor: GraphExecutor = executor_of(module)

    def set_input(
        self, key: Key | None = None, value: object = None, **params: object
    ) -> None:
        """Copy tensors to where the next run reads them.

        Args:
            key: name or number of an input or parameter.
            value: numpy array, anything with DLPack, or what converts to an array.
            params: further ones by name.

        Raises: InputError naming the input: unknown, of another type, or of another shape.
        """
        if key is not None:
            self._executor.set_input(key, value)
        self._executor.set_inputs(params)

    def set_input_zero_copy(
        self, key: Key | None = None, value: object = None, **params: object
    ) -> None:
        """Let runs read the caller's memory itself, until the input is set again.

        Raises: InputError for a tensor that does not fit, is not dense, or has an address that does not do.
        """
        if key is not None:
            self._executor.set_input_zero_copy(key, value)
        for name, one in params.items():
            self._executor.set_input_zero_copy(name, one)

    def set_output_zero_copy(self, key: Key, value: object) -> None:
        """Let runs write an output into the caller's memory itself."""
        self._executor.set_output_zero_copy(key, value)

    def run(self, **inputs: object) -> None:
        """Run once, with further inputs by name."""
        if inputs:
            self._executor.set_inputs(inputs)
        self._executor.run()

    def run_from_inputs(self, *pairs: object) -> list[Tensor]:
        """Set inputs, run, and give copies of all outputs.

        Args:
            pairs: name or number, value, name or number, value ...
        """
        return [tensor(array) for array in self._executor.run_from_inputs(*pairs)]

    def get_output(self, index: int, out: object = None) -> Tensor:
        """An output of the last run.

        Args:
            index: its number.
            out: a tensor of its type to copy it into, which is given back.

        Returns: the executor's memory, which the next run writes again (`.numpy()` copies), or `out`.
        """
        if out is None:
            return tensor(self._executor.get_output(index))
        self._executor.copy_output(index, out)
        return out  # pyright: ignore[reportReturnType] - what the caller gave

    def get_input(self, key: Key, out: object = None) -> Tensor:
        """The memory that the next run reads, or `out` with a copy of it."""
        found = tensor(self._executor.get_input(key))
        if out is None:
            return found
        found.copyto(out)  # pyright: ignore[reportArgumentType]
        return out  # pyright: ignore[reportReturnType]

    def get_num_inputs(self) -> int:
        """How many inputs and parameters there are."""
        return self._executor.input_count

    def get_num_outputs(self) -> int:
        """How many outputs there are."""
        return self._executor.output_count

    def get_input_index(self, name: str) -> int:
        """The number of an input or parameter; -1 for an unknown name."""
        return self._executor.input_index(name)

    def get_input_info(self) -> tuple[dict[str, tuple[object, ...]], dict[str, str]]:
        """Shapes and data types of the inputs by name, without the parameters that were loaded."""
        specs = self._executor.input_info()
        return {s.name: s.shape for s in specs}, {s.name: str(s.dtype.numpy) for s in specs}

    def get_output_info(self) -> tuple[dict[str, tuple[object, ...]], dict[str, str]]:
        """Shapes and data types of the outputs by name."""
        specs = self._executor.output_info()
        return {s.name: s.shape for s in specs}, {s.name: str(s.dtype.numpy) for s in specs}

    def load_params(self, params_bytes: bytes | bytearray | memoryview) -> None:
        """Set parameters from the bytes of a TVM parameter file; names of no input are passed over."""
        self._executor.load_params(params_bytes)

    def share_params(
        self, other: GraphModule, params_bytes: bytes | bytearray | memoryview
    ) -> None:
        """Read the parameters of another executor instead of copies.

        Args:
            other: the executor that has them.
            params_bytes: a parameter file; only its names are read.
        """
        if not isinstance(other, GraphModule):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong("other", other, "the GraphModule whose parameters are read")
        self._executor.share_params(other._executor, parameter_names(params_bytes))

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self.get_num_inputs()} inputs and parameters, "
            f"{self.get_num_outputs()} outputs>"
        )

    def __getitem__(self, name: str) -> PackedFunction:
        """A function of the executor as a packed function."""
        return self.module[name]

    def benchmark(  # noqa: PLR0913 - TVM's parameters
        self,
        device: object = None,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        **inputs: object,
    ) -> BenchmarkResult:
        """How long a run takes.

        Args:
            device: for TVM's sake; the executor's own is used.
            func_name: another function of the executor without arguments.
            repeat: how many results there are.
            number: runs of a result, which is their mean.
            min_repeat_ms: a result takes at least so long, with more runs if need be.
            limit_zero_time_iterations: see `TimeEvaluator`.
            end_to_end: count setting the inputs and copying the outputs, too.
            cooldown_interval_ms: how long to rest.
            repeats_to_cooldown: after how many results.
            inputs: set before, or with `end_to_end` in every run.
        """
        del device
        measure = functools.partial(
            TimeEvaluator,
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            limit_zero_time_iterations=limit_zero_time_iterations,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
        )
        if end_to_end:
            pairs = [item for pair in inputs.items() for item in pair]
            return measure(lambda: self._executor.run_from_inputs(*pairs))()
        self._executor.set_inputs(inputs)
        return measure(self._executor.run if func_name == "run" else self[func_name])()
