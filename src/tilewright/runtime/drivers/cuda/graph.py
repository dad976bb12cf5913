"""Operations as a CUDA graph: built once, launched many times, updated where addresses change.

Operations between two barriers depend on the first barrier and not on each other.  Called by
command buffers, on the queue's thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_void_p
from typing import Final, final

from tilewright.runtime.drivers.cuda.context import CudaContext, CudaStream, drop
from tilewright.runtime.drivers.cuda.operations import (
    DeviceCopy,
    HostCopy,
    Launch,
    MemoryFill,
    Operation,
)
from tilewright.runtime.drivers.cuda.resource import Resource
from tilewright.runtime.drivers.cuda.storage import host_address
from tilewright.runtime.drivers.cuda.stream_commands import pack_parameters
from tilewright.runtime.drivers.cuda.structures import (
    CopyParams,
    FillParams,
    KernelNodeParams,
)

_HOST, _DEVICE = 1, 2  # CUmemorytype
_LOG_BYTES: Final = 1024

Groups = Sequence[Sequence[Operation]]
"""Operations between barriers."""


@final
class _Node:
    """How an operation of one kind becomes a node: its functions and its parameters."""

    __slots__ = ("has_context", "keep", "kind", "params")

    def __init__(self, operation: Operation) -> None:
        self.keep: object = None  # what the parameters point to
        self.has_context: bool = True
        match operation:
            case DeviceCopy(target, source, size_bytes):
                self.kind: str = "Memcpy"
                self.params: ctypes.Structure = _copy_params(target, size_bytes)
                self.params.source.memory_type = _DEVICE
                self.params.source.device = source
            case HostCopy(target, data):
                self.kind = "Memcpy"
                self.params = _copy_params(target, len(data))
                self.params.source.memory_type = _HOST
                self.params.source.host = host_address(data)
            case MemoryFill(target, value, element_bytes, width, height, pitch):
                self.kind = "Memset"
                self.params = FillParams(target, pitch, value, element_bytes, width, height)
            case Launch(kernel, grid):
                self.kind = "Kernel"
                self.has_context = False
                places, memory = pack_parameters(operation)
                self.keep = (places, memory)
                self.params = KernelNodeParams(
                    kernel.handle,
                    grid,
                    kernel.block,
                    kernel.shared_bytes,
                    ctypes.addressof(places),
                    None,
                )


def _copy_params(target: int, size_bytes: int) -> CopyParams:
    params = CopyParams(width=size_bytes, height=1, depth=1)
    params.target.memory_type = _DEVICE
    params.target.device = target
    return params


@final
class CudaGraph:
    """An executable graph and the operations it stands for.

    Ownership: keeps bytes of the host that copies read; memory of the GPU and modules are kept by
    whoever launches it.
    """

    __slots__ = ("_executable", "_graph", "_nodes", "_resources", "context", "groups")

    def __init__(self, context: CudaContext, groups: Groups) -> None:
        self._resources: list[Resource] = []
        self.context: CudaContext = context
        self.groups: tuple[tuple[Operation, ...], ...] = tuple(map(tuple, groups))
        self._nodes: list[list[int]] = []
        self._graph: int = context.create("cuGraphCreate", 0)
        self._resources.append(context.own("cuGraphDestroy", self._graph))
        with context:
            self._add_nodes()
            self._executable: int = self._instantiate()
        self._resources.append(context.own("cuGraphExecDestroy", self._executable))

    def __del__(self) -> None:
        for resource in reversed(self._resources):
            drop(resource)

    # --- building -------------------------------------------------------------------------------

    def _add_nodes(self) -> None:
        before: list[int] = []
        for group in self.groups:
            if len(before) > 1:
                before = [self._add("cuGraphAddEmptyNode", before)]
            nodes = [self._add_operation(operation, before) for operation in group]
            self._nodes.append(nodes)
            before = nodes or before

    def _add_operation(self, operation: Operation, before: list[int]) -> int:
        node = _Node(operation)
        arguments: tuple[object, ...] = (ctypes.byref(node.params),)
        if node.has_context:
            arguments += (self.context.handle,)
        return self._add(f"cuGraphAdd{node.kind}Node", before, *arguments)

    def _add(self, function: str, before: list[int], *arguments: object) -> int:
        node = c_void_p()
        edges = (c_void_p * len(before))(*before)
        self.context.library.call(
            function, ctypes.byref(node), self._graph, edges, len(before), *arguments
        )
        return node.value or 0

    def _instantiate(self) -> int:
        library = self.context.library
        executable, node = c_void_p(), c_void_p()
        log = ctypes.create_string_buffer(_LOG_BYTES)
        name = "cuGraphInstantiate"
        result = library.try_call(
            name,
            ctypes.byref(executable),
            self._graph,
            ctypes.byref(node),
            log,
            _LOG_BYTES,
        )
        if result:
            detail = log.value.decode("utf-8", "replace").strip()
            raise library.error(name, result, detail)
        return executable.value or 0

    # --- running --------------------------------------------------------------------------------

    def try_update(self, groups: Groups) -> bool:
        """Put other addresses in; whether that is enough to make it a graph of these operations."""
        if _shape(groups) != _shape(self.groups):
            return False
        changes = [
            (self._nodes[index][place], operation)
            for index, (old, new) in enumerate(zip(self.groups, groups, strict=True))
            for place, operation in enumerate(new)
            if operation != old[place]
        ]
        if any(isinstance(o, MemoryFill) and o.height != 1 for _, o in changes):
            return False  # fills of several rows cannot be updated
        with self.context:
            for node, operation in changes:
                self._update(node, operation)
        self.groups = tuple(map(tuple, groups))
        return True

    def _update(self, handle: int, operation: Operation) -> None:
        node = _Node(operation)
        arguments: tuple[object, ...] = (ctypes.byref(node.params),)
        if node.has_context:
            arguments += (self.context.handle,)
        self.context.library.call(
            f"cuGraphExec{node.kind}NodeSetParams", self._executable, handle, *arguments
        )

    def launch(self, stream: CudaStream) -> None:
        """Put the graph into a stream."""
        self.context.call("cuGraphLaunch", self._executable, stream.handle)


def _shape(groups: Groups) -> list[list[object]]:
    """What an update cannot change: kinds of operations, kernels, rows of fills."""
    return [[_kind(operation) for operation in group] for group in groups]


def _kind(operation: Operation) -> object:
    match operation:
        case Launch(kernel):
            return kernel
        case MemoryFill(_, _, element_bytes, _, height):
            return (MemoryFill, element_bytes, height == 1)
        case _:
            return type(operation)
