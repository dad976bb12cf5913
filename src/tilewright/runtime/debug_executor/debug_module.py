"""The debug executor's face: a graph executor that can be run node by node, with TVM's words.

Source: TVM 0.19, `python/tvm/contrib/debugger/debug_executor.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.options import path_option
from tilewright.base.text import did_you_mean
from tilewright.runtime.debug_executor.debug_result import DebugResult
from tilewright.runtime.debug_executor.model_tensors import ModelTensor
from tilewright.runtime.debug_executor.nodes import Nodes, nodes_of
from tilewright.runtime.graph_executor import GraphModule, Tensor
from tilewright.runtime.graph_executor import create as create_executor
from tilewright.runtime.graph_executor.tensor import tensor
from tilewright.runtime.packed.functions import PackedFunction, packed_function
from tilewright.runtime.packed.module import Module
from tilewright.runtime.packed.tensors import tensor_of
from tilewright.runtime.packed.time_evaluator import BenchmarkResult, TimeEvaluator
from tilewright.runtime.plan_executor.tensors import Array
from tilewright.runtime.virtual_machine.metrics import Count, Duration, Percent
from tilewright.runtime.virtual_machine.report import Report

_NAMES_SHOWN: Final = 12
_DEBUG_FUNCTIONS: Final = (
    "run_individual_node", "execute_node", "get_node_output", "debug_get_output",
)  # fmt: skip


def create(
    graph_json_str: str | bytes | memoryview,
    libmod: object,
    device: object = None,
    dump_root: str | Path | None = None,
    *,
    threads: int | None = None,
) -> GraphModuleDebug:
    """A debug executor of a graph.

    Args:
        graph_json_str: the graph, as `graph_executor.create` takes it.
        libmod: the module with its functions.
        device: `cpu(0)`, a local device or its URI.
        dump_root: a folder that `run` writes its files to; None: no files.
        threads: that kernels of ours run on.

    Raises: as `graph_executor.create`.
    """
    module = create_executor(graph_json_str, libmod, device, threads=threads)
    return GraphModuleDebug(module, device, dump_root=dump_root)


@final
class GraphModuleDebug(GraphModule):
    """A graph executor whose nodes can be timed, run and looked at one by one.

    Args:
        module: what `graph_executor.create` gave, or the function `default` of a factory for a device.
        device: for TVM's sake; the executor's own is used.
        graph_json_str: for TVM's sake; the executor knows its graph.
        dump_root: a folder that `run` writes its files to; None: no files.

    Raises: InputError for another module; UserError for one that runs as a whole only.
    Thread-safety: one thread at a time.
    """

    def __init__(
        self,
        module: Module,
        device: object = None,
        graph_json_str: object = None,
        dump_root: str | Path | None = None,
    ) -> None:
        del device, graph_json_str
        super().__init__(module)
        self._nodes: Nodes = nodes_of(self._executor)
        self._dump_root: Path | None = (
            None if dump_root is None else Path(path_option("dump_root", dump_root))
        )
        self._last: DebugResult | None = None

    @property
    def node_names(self) -> tuple[str, ...]:
        """The names of all nodes, inputs and parameters included, in the order in which they run.

        With control flow a step is a node as often as it runs with the inputs of the last pass, and its name says where:
        `loop[2]/branch.then/matmul_0` is the kernel `matmul_0` in a branch in the third trip.
        """
        return tuple(node.name for node in self._nodes.nodes)

    @property
    def model_tensors(self) -> Sequence[ModelTensor]:
        """Which outputs of nodes are values of the model, in its order; with control flow in the last pass."""
        return self._nodes.model_tensors

    @property
    def knows_model(self) -> bool:
        """Whether it is known which values of the model nodes write; names of nodes are all there is otherwise."""
        return self._nodes.knows_model

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return tuple(spec.name for spec in self._executor.program.outputs)

    def results(self, **inputs: object) -> tuple[Array, ...]:
        """Run as a whole and give copies of the outputs, in order.

        Args:
            inputs: set before.
        """
        self._executor.set_inputs(inputs)
        self._executor.run()
        return tuple(
            np.array(self._executor.get_output(index), copy=True)
            for index in range(self._executor.output_count)
        )

    def run(  # pyright: ignore[reportIncompatibleMethodOverride] - as in TVM
        self,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 1,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        **inputs: object,
    ) -> DebugResult:
        """Time every node, and run once more to keep every tensor.

        Args:
            number: runs of a node for one result, which is their mean.
            repeat: results per node.
            min_repeat_ms: a result takes at least so long, with more runs if need be.
            limit_zero_time_iterations: see `TimeEvaluator`.
            cooldown_interval_ms: how long to rest.
            repeats_to_cooldown: after how many results.
            inputs: set before.

        Returns: times and tensors; as text TVM's table.  With a `dump_root` the files are written.
        """
        self._executor.set_inputs(inputs)
        times = self.run_individual(
            number,
            repeat,
            min_repeat_ms,
            limit_zero_time_iterations,
            cooldown_interval_ms,
            repeats_to_cooldown,
        )
        found = DebugResult(
            self._nodes.graph,
            tuple(self._nodes.nodes),
            tuple(tuple(row) for row in times),
            tuple(arrays for _, arrays in self.outputs()),
        )
        self._last = found
        if self._dump_root is not None:
            found.dump(self._dump_root)
        self._executor.run()
        return found

    def prepare(self, **inputs: object) -> None:
        """Take note of the inputs; of a program with control flow they decide which nodes there are.

        Args:
            inputs: set before.
        """
        self._executor.set_inputs(inputs)
        self._nodes.prepare()

    def outputs(self, **inputs: object) -> Iterator[tuple[int, tuple[Array, ...]]]:
        """Run node by node: the number of each, and copies of its outputs, made right after it ran.

        Args:
            inputs: set before.
        """
        self._executor.set_inputs(inputs)
        self._nodes.prepare()
        for index in range(len(self._nodes.nodes)):
            self._run_node(index)
            yield index, self._outputs_of(index)

    def _run_node(self, index: int) -> None:
        call = self._nodes.call(index)
        if call is not None:
            call()

    def _outputs_of(self, index: int) -> tuple[Array, ...]:
        count = self._nodes.nodes[index].output_count
        return tuple(
            np.array(self._nodes.tensor(index, output), copy=True)
            for output in range(count)
        )

    def run_individual(
        self,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
    ) -> list[list[float]]:
        """Seconds of every node, one number per repeat; 0 for inputs and views."""
        self._nodes.prepare()
        return [
            list(
                self._timed(
                    index,
                    number=number,
                    repeat=repeat,
                    min_repeat_ms=min_repeat_ms,
                    limit_zero_time_iterations=limit_zero_time_iterations,
                    cooldown_interval_ms=cooldown_interval_ms,
                    repeats_to_cooldown=repeats_to_cooldown,
                ).results
            )
            for index in range(len(self._nodes.nodes))
        ]

    def run_individual_node(
        self,
        index: int | str,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
    ) -> BenchmarkResult:
        """How long one node takes, by its number or name; those before it run first."""
        wanted = self._node(index)
        self._run_to(wanted)
        return self._timed(
            wanted,
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            limit_zero_time_iterations=limit_zero_time_iterations,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
        )

    def _timed(self, index: int, *, repeat: int, **options: Any) -> BenchmarkResult:
        call = self._nodes.call(index)
        if call is None:
            return BenchmarkResult((0.0,) * repeat)
        return TimeEvaluator(call, repeat=repeat, **options)()

    def execute_node(self, node: int | str) -> list[Tensor]:
        """Run up to a node, by its number or name, and give copies of its outputs."""
        index = self._node(node)
        self._run_to(index)
        return [tensor(array) for array in self._outputs_of(index)]

    def debug_get_output(
        self, node: int | str, out: object = None, output: int = 0
    ) -> Tensor:
        """Run up to a node and give an output of it.

        Args:
            node: its number or name.
            out: an array of its type to copy it into.
            output: which of its outputs.

        Returns: a copy, or `out`.
        """
        index = self._node(node)
        self._run_to(index)
        return self._output_of(index, output, out)

    def get_node_output(
        self, node: int | str, output: int = 0, out: object = None
    ) -> Tensor:
        """What lies now where a node writes an output: its value, if it was the last to run."""
        return self._output_of(self._node(node), output, out)

    def _output_of(self, index: int, output: int, out: object) -> Tensor:
        count = self._nodes.nodes[index].output_count
        if not 0 <= output < count:
            raise InputError(
                f"there is no output {output}, there are {count}",
                location=f"node '{self._nodes.nodes[index].name}'",
            )
        found = tensor(np.array(self._nodes.tensor(index, output), copy=True))
        if out is None:
            return found
        found.copyto(out)  # pyright: ignore[reportArgumentType] - numpy says what does not fit
        return out  # pyright: ignore[reportReturnType] - what the caller gave

    def _run_to(self, last: int) -> None:
        self._nodes.prepare()
        for index in range(last + 1):
            self._run_node(index)

    def _node(self, node: int | str) -> int:
        """The number of a node; of a name the first that has it."""
        names = self.node_names
        if isinstance(node, str):
            if node in names:
                return names.index(node)
            raise InputError(
                f"there is no node '{node:.80}'",
                hint=did_you_mean(node, names)
                or f"nodes: {', '.join(names[:_NAMES_SHOWN])}",
            )
        if isinstance(node, bool) or not isinstance(node, int | np.integer):
            raise InputError(
                f"got {type(node).__name__}, expected the name or number of a node"
            )
        if not 0 <= node < len(names):
            raise InputError(f"there is no node {node}, there are {len(names)}")
        return node

    def profile(self, collectors: object = None, **inputs: object) -> Report:
        """Run node by node and give the times as a report.

        Args:
            collectors: for TVM's sake; times are what is collected.
            inputs: set before.
        """
        del collectors
        self._executor.set_inputs(inputs)
        times = self.run_individual(number=1)
        total = sum(row[0] for row in times)
        calls: list[Mapping[str, Any]] = []
        for node, (seconds,) in zip(self._nodes.nodes, times, strict=True):
            if node.is_parameter or node.function == "__nop":
                continue
            share = 100 * seconds / total if total else 0.0
            calls.append(
                {
                    "Name": node.function,
                    "Duration (us)": Duration(seconds * 1e6),
                    "Percent": Percent(share),
                    "Device": "cpu0",
                    "Count": Count(1),
                    "Node": node.name,
                }
            )
        self._executor.run()
        return Report(tuple(calls), {"cpu0": {"Duration (us)": Duration(total * 1e6)}}, {})

    def get_debug_result(self, sort_by_time: bool = True) -> str:
        """TVM's table of the last run.  Raises: InputError before the first."""
        return self._result.table(sort_by_time)

    def dump(self, folder: str | Path) -> Path:
        """Write graph, tensors and trace of the last run.  Raises: InputError before the first."""
        return self._result.dump(folder)

    @property
    def _result(self) -> DebugResult:
        if self._last is None:
            raise InputError("nothing ran yet", hint="call run() first")
        return self._last

    def tensors(self, **inputs: object) -> Mapping[tuple[int, int], Array]:
        """Run node by node: copies of all outputs, by number of the node and of the output.

        Args:
            inputs: set before.
        """
        return {
            (index, output): array
            for index, row in self.outputs(**inputs)
            for output, array in enumerate(row)
        }

    def __getitem__(self, name: str) -> PackedFunction:
        """A function of the executor or of its debugger as a packed function."""
        if name not in _DEBUG_FUNCTIONS:
            return super().__getitem__(name)
        # Not kept: it holds this object, and what tvm-ffi holds no collector of cycles sees.
        return packed_function(_packed(getattr(self, name)))


def _packed(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose arrays become tensors of tvm-ffi, and whose times become a tuple."""

    def call(*arguments: Any) -> Any:
        found = method(*arguments)
        if isinstance(found, np.ndarray):
            return tensor_of(found)
        if isinstance(found, BenchmarkResult):
            return list(found.results)
        return [tensor_of(array) for array in found]

    return call
