"""A graph of TVM's form over storages, recorded into one command list.

Kernels of ours and copies are commands; a packed function is a call with tensors that were made
before.  Commands that touch different storages may run at the same time.  Called by `factory`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast, final

import numpy as np

from tilewright.base.errors import ArchiveError, InputError
from tilewright.formats.graph_json import Graph
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.runtime import native
from tilewright.runtime.graph_executor.operators import (
    Operator,
    find_operators,
    group,
    lifetimes,
)
from tilewright.runtime.graph_executor.prepared_call import PreparedCall
from tilewright.runtime.graph_executor.program import check_array
from tilewright.runtime.graph_executor.storage_pool import (
    ALIGNMENT,
    StoragePool,
    entry_types,
)
from tilewright.runtime.packed.kernel_function import RecordableKernel, TensorArgument
from tilewright.runtime.packed.module import Module
from tilewright.runtime.plan_executor.tensors import Array
from tilewright.runtime.recorder import Recorder

if TYPE_CHECKING:
    from tilewright.runtime.packed.functions import PackedFunction


@final
class GraphProgram:
    """A graph with the functions it calls.

    Args:
        graph: what to run.
        module: where its functions are.
        pool: the workers, or None for the calling thread alone.
        heap: where memory comes from.
        location: how errors call the graph.

    Raises: ArchiveError for a function that nobody has, or a graph that cannot run here.
    Ownership: keeps the module, its memory and the arrays that were bound.
    Thread-safety: one thread at a time; programs that share parameters may run beside each other.
    """

    def __init__(
        self,
        graph: Graph,
        module: Module,
        pool: native.Pool | None,
        heap: native.Heap,
        location: str = "graph",
    ) -> None:
        self.graph: Graph = graph
        self.location: str = location
        self.operators: tuple[Operator, ...] = find_operators(graph, module, location)
        types = entry_types(graph, location)
        self._groups: tuple[int, ...] = group(self.operators, types)
        self.storages: StoragePool = StoragePool(
            graph, types, lifetimes(self.operators, self._groups, types), heap
        )
        self.inputs: tuple[TensorSpec, ...] = tuple(
            self._spec(graph.nodes[node].name, graph.entry(node))
            for node in graph.arguments
        )
        self.outputs: tuple[TensorSpec, ...] = tuple(
            self._spec(graph.nodes[head.node].name, graph.entry_of(head))
            for head in graph.heads
        )
        self._module: Module = module
        self._workers: native.Pool | None = pool
        self._heap: native.Heap = heap
        self._commands: native.CommandList | None = None
        self._prepared: list[tuple[Operator, PreparedCall]] = []
        self._call: Callable[[], object] | None = None
        self._targets: dict[int, Array] = {}  # what inputs are copied to
        self._written: frozenset[int] = self._storages_of(
            entry for operator in self.operators for entry in operator.results
        )
        self._passed: frozenset[int] = self._storages_of(
            entry
            for operator in self.operators
            if operator.function is not None
            for entry in operator.arguments
        )

    # --- tensors

    def input(self, index: int) -> Array:
        """What the next run reads: the memory itself."""
        return self.storages.view(self._input_entry(index))

    def set_input(self, index: int, array: Array) -> None:
        """Copy an array to where the next run reads it."""
        target = self._targets.get(index)
        if target is None:
            storage = self.storages.storage_of(self._input_entry(index))
            if self.storages.release(storage):  # a caller's array is not written
                self._exchange(storage, self.storages.buffer(storage))
            target = self._targets[index] = self.input(index)
        if array.shape != target.shape or array.dtype != target.dtype:
            check_array(array, self.inputs[index], "input")
        np.copyto(target, array)

    def bind_input(self, index: int, array: Array) -> None:
        """Let runs read this array itself.

        Raises: InputError for one of another type, that is not dense, or whose address does not do.
        """
        self._bind(self._input_entry(index), self.inputs[index], array, "input")

    def bind_output(self, index: int, array: Array) -> None:
        """Let runs write into this array itself."""
        entry = self.graph.entry_of(self.graph.heads[index])
        self._bind(entry, self.outputs[index], array, "output")

    def output(self, index: int) -> Array:
        """What the last run wrote: the memory itself."""
        return self.storages.view(self.graph.entry_of(self.graph.heads[index]))

    def share_input(self, index: int, other: GraphProgram, other_index: int) -> None:
        """Read the parameter of another program: its memory, not a copy.

        Raises: InputError if it has another type here, or runs write where it lies.
        """
        spec, theirs = self.inputs[index], other.inputs[other_index]
        check_array(other.input(other_index), spec, "parameter")
        mine = self.storages.storage_of(self._input_entry(index))
        given = other.storages.storage_of(other._input_entry(other_index))
        room = other.storages.room_of(given)
        if (
            mine in self._written
            or given in other._written
            or room < self.storages.room_of(mine)
        ):
            raise InputError(
                "shares its storage with other tensors, which runs write",
                location=f"parameter '{theirs.name}'",
            )
        self._exchange(mine, other.storages.buffer(given))

    def _spec(self, name: str, entry: int) -> TensorSpec:
        found = self.storages.types[entry]
        return TensorSpec(name, found.dtype, found.shape)

    def _input_entry(self, index: int) -> int:
        return self.graph.entry(self.graph.arguments[index])

    def _storages_of(self, entries: Iterable[int]) -> frozenset[int]:
        return frozenset(self.storages.storage_of(entry) for entry in entries)

    def _bind(self, entry: int, spec: TensorSpec, array: Array, subject: str) -> None:
        check_array(array, spec, subject)
        where = f"{subject} '{spec.name}'"
        storage = self.storages.storage_of(entry)
        if not array.flags.c_contiguous:
            raise InputError("the array is not dense in row-major order", location=where)
        needs_writing = storage in self._written or storage in self._passed
        if needs_writing and not array.flags.writeable:
            raise InputError("the array is read-only", location=where)
        if storage in self._passed and array.ctypes.data % ALIGNMENT:
            raise InputError(
                f"its address is no multiple of {ALIGNMENT}, which packed functions count on",
                location=where,
                hint=f"copy it with set_{subject}, or fill the array that get_{subject} gives"
                if subject == "input"
                else "copy it with get_output(index, out=array)",
            )
        if array.nbytes < self.storages.room_of(storage):
            raise InputError(
                f"its storage has {self.storages.room_of(storage)} bytes for several tensors, "
                f"the array {array.nbytes}",
                location=where,
                hint="copy it instead",
            )
        self._exchange(storage, array)

    def _exchange(self, storage: int, buffer: native.Memory | Array) -> None:
        self.storages.bind(storage, buffer)
        for operator, call in self._prepared:
            if any(self.storages.storage_of(e) == storage for e in operator.arguments):
                call.bind(self._arrays_of(operator))
        self._call = None
        self._targets.clear()

    # --- running

    def run(self) -> None:
        """Run all operators.

        Raises: what a packed function raises; DeviceError naming the kernel that failed.
        """
        call = self._call or self._prepare()
        try:
            call()
        except native.KernelError as error:
            raise error.for_user from error

    def call_of(self, operators: Sequence[Operator]) -> Callable[[], object]:
        """A call that runs these operators, over the memory as it is bound now."""
        kept = self._prepared
        commands = self._record([(operator, True) for operator in operators])
        self._prepared = kept  # of the whole graph
        return self._recorded(commands)

    def _prepare(self) -> Callable[[], object]:
        if self._commands is None:
            before = (-1, *self._groups)
            waits = (own != last for own, last in zip(self._groups, before, strict=False))
            self._commands = self._record(list(zip(self.operators, waits, strict=True)))
        self._call = self._recorded(self._commands)
        return self._call

    def _recorded(self, commands: native.CommandList) -> Callable[[], object]:
        buffers = cast("Sequence[memoryview]", self.storages.buffers())
        return native.RecordedCall(commands, self._workers, (), (), buffers, self._heap)

    def _record(self, operators: Sequence[tuple[Operator, bool]]) -> native.CommandList:
        """The list of some operators, each with whether it waits for those before."""
        self._prepared = []
        recorder = Recorder()
        self.storages.add_slots(recorder, self._written)
        for operator, barrier in operators:
            if operator.kernel is not None:
                self._record_kernel(recorder, operator, operator.kernel, barrier=barrier)
            elif operator.function is not None:
                self._record_call(recorder, operator, operator.function)
            else:
                self._record_copy(recorder, operator, barrier=barrier)
        return recorder.build()

    def _record_call(
        self, recorder: Recorder, operator: Operator, function: PackedFunction
    ) -> None:
        call = PreparedCall(function, self._where(operator))
        call.bind(self._arrays_of(operator))
        recorder.host_call(call, ())
        self._prepared.append((operator, call))

    def _arrays_of(self, operator: Operator) -> list[Array]:
        """What the operator's function is called with."""
        arrays = (self.storages.view(entry) for entry in operator.arguments)
        return [array.reshape(-1) if operator.flattens else array for array in arrays]

    def _record_kernel(
        self,
        recorder: Recorder,
        operator: Operator,
        kernel: RecordableKernel,
        *,
        barrier: bool,
    ) -> None:
        arguments = [
            TensorArgument(
                self.storages.types[entry].dtype,
                self._shape_of(entry, operator),
                self.storages.place(entry),
            )
            for entry in operator.arguments
        ]
        try:
            kernel.record(recorder, arguments, barrier=barrier)
        except InputError as error:
            raise ArchiveError(
                error.message
                if error.location is None
                else f"{error.location}: {error.message}",
                location=self._where(operator),
                hint=error.hint,
            ) from error

    def _shape_of(self, entry: int, operator: Operator) -> tuple[int, ...]:
        found = self.storages.types[entry]
        if not operator.flattens:
            return found.shape
        return (found.size_bytes // found.dtype.itemsize,)

    def _record_copy(
        self, recorder: Recorder, operator: Operator, *, barrier: bool
    ) -> None:
        source, target = (self.storages.place(entry) for entry in operator.arguments)
        if source[2] != target[2]:
            raise ArchiveError(
                f"copies {source[2]} bytes to {target[2]}", location=self._where(operator)
            )
        if source[2] != 0 and source != target:
            recorder.copy(target, source, barrier=barrier)

    def _where(self, operator: Operator) -> str:
        return f"{self.location}: node {operator.node} '{operator.name:.80}'"
