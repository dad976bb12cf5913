"""Makes executors: of a graph and a module, on a device.

A graph whose metadata hold a plan of ours runs as that plan, with everything that TVM's form has no room
for; any other runs node by node, as does one whose kernels are functions of a library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tilewright.base.errors import UserError
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.options import wrong
from tilewright.formats.graph_json import read_graph
from tilewright.runtime import native
from tilewright.runtime.drivers.local_task.workers import create_pool
from tilewright.runtime.graph_executor.executor_module import (
    ExecutorModule,
    executor_module,
)
from tilewright.runtime.graph_executor.graph_program import GraphProgram
from tilewright.runtime.graph_executor.plan_program import (
    has_functions_only,
    is_plan,
    plan_executor_program,
    plan_program,
)
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.genuine import as_module
from tilewright.runtime.plan_executor import PlanExecutor

if TYPE_CHECKING:
    from tilewright.runtime.hal.local.local_device import LocalDevice

CPU: Final = 1  # DLPack's device type


def create(
    graph_json: str | bytes | memoryview,
    libmod: object,
    device: object = None,
    *,
    threads: int | None = None,
) -> ExecutorModule:
    """An executor of a graph.

    Args:
        graph_json: the graph, as TVM wrote it up to 0.19, or as a factory of ours gives it.
        libmod: the module with its functions, ours or a `tvm_ffi.Module`; its imports count.
        device: `cpu(0)`, a local device or its URI (`local-task://?threads=2`); a list: the first of it.
        threads: that kernels of ours run on; None: the cores this process may use, or the device's.

    Raises: ArchiveError for a damaged graph, or a function that no module has, naming the node;
    UserError for a device that is not the host's.
    """
    if not isinstance(graph_json, str | bytes | bytearray | memoryview):
        raise wrong("graph_json", graph_json, "the text of a graph")
    module = as_module(libmod)
    pool, heap = host_of(device, threads)
    graph = read_graph(graph_json)
    check_devices(graph.entries.device_index, "graph")
    if is_plan(graph) and not has_functions_only(graph, module):
        return executor_module(plan_program(graph, module, pool, heap))
    return executor_module(GraphProgram(graph, module, pool, heap))


def check_devices(indices: Sequence[int] | None, location: str) -> None:
    """Raise UserError for tensors that are to lie elsewhere than on the host."""
    foreign = sorted(set(indices or ()) - {CPU})
    if foreign:
        raise UserError(
            f"places tensors on device type {foreign[0]}, expected {CPU} (the host) for all",
            location=f"{location}: 'attrs': 'device_index'",
            hint="compile the model for llvm or c",
        )


def host_of(
    device: object, threads: int | None = None
) -> tuple[native.Pool | None, native.Heap]:
    """Workers and memory of a device of the host.

    Raises: as `local_device`.
    """
    found = local_device(device, threads)
    if found is None:
        return create_pool(threads or 0), native.Heap()
    return found.pool, found.heap


def local_device(device: object, threads: int | None = None) -> LocalDevice | None:
    """The local device that is meant; None: the host as it is (nothing, or `cpu(0)`).

    Args:
        device: as for `create`.
        threads: of a device that is made here.

    Raises: UserError for a device that is not of the host.
    """
    if isinstance(device, list | tuple):
        device = device[0] if device else None
    if device is None:
        return None
    if not isinstance(device, tvm_ffi.Device):
        return _local(device, threads)
    if int(device.dlpack_device_type()) != CPU:
        raise UserError(f"the graph executor runs on the host, not on '{device}'")
    if device.index:
        raise UserError(f"there is one host, not '{device}'", hint="tilewright.cpu(0)")
    return None


def _local(device: object, threads: int | None) -> LocalDevice:
    with LATE_IMPORTS:  # an executor on the host needs no device
        from tilewright.runtime.drivers import registry  # noqa: PLC0415
        from tilewright.runtime.hal.local.local_device import LocalDevice  # noqa: PLC0415

    if isinstance(device, str):
        device = registry.create_device(device, threads=threads)
    if not isinstance(device, LocalDevice):
        raise UserError(f"the graph executor runs on local devices, not on '{device}'")
    return device


def create_executor_module(executor: PlanExecutor) -> ExecutorModule:
    """The executor module of a model that is loaded: what `lib["default"](device)` gives.

    Args:
        executor: the model's plan with its kernels and weights, on its device (of a session: what
            `host_of` gives for a device).
    """
    return executor_module(plan_executor_program(executor))
