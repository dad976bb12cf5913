"""A plan of ours as the program of a graph executor: its kernels and functions come from a module.

The graph's JSON carries the plan in its metadata.  Called by `factory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ArchiveError
from tilewright.formats.graph_json import Graph
from tilewright.formats.plan import Plan, from_graph
from tilewright.formats.plan.json_form import graph_form
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.runtime import native
from tilewright.runtime.graph_executor.call_program import CallProgram
from tilewright.runtime.loaders.executable_library import LoadedExecutable
from tilewright.runtime.packed.module import Module
from tilewright.runtime.plan_executor import HostFunction, PlanExecutor
from tilewright.runtime.plan_executor.tensors import Array


@runtime_checkable
class ExecutableModule(Protocol):
    """A module whose kernels a plan can run."""

    def load_executable(self) -> LoadedExecutable:
        """The kernels, ready to be called."""
        ...

    def plan_of(self, plan: Plan) -> Plan:
        """The plan by which these kernels run the model of `plan`, which may be of another level.

        Raises: ArchiveError for a plan of another model.
        """
        ...


def is_plan(graph: Graph) -> bool:
    """Whether the metadata of a graph hold a plan."""
    metadata = graph.metadata
    return isinstance(metadata, dict) and "tilewright" in metadata


def has_functions_only(graph: Graph, module: Module) -> bool:
    """Whether a module has functions for what a plan has kernels for, and no kernels that it could run.

    A plan whose steps all call functions runs as the plan that it is, which may have sizes that a call decides.
    """
    if any(isinstance(one, ExecutableModule) for one in module.walk()):
        return False
    steps = from_graph(graph).steps
    return any(
        module.get_function(target, query_imports=True) is not None
        for target in {s.target for s in steps if s.kind in ("dispatch", "host")}
    )


def plan_program(
    graph: Graph,
    module: Module,
    pool: native.Pool | None,
    heap: native.Heap,
    *,
    host_function: HostFunction | None = None,
) -> CallProgram:
    """The program of a plan; its constants are parameters.

    Args:
        graph: with the plan in its metadata.
        module: its kernels are those of the first `ExecutableModule` among it and its imports; the
            functions that it calls may be in any.
        pool: the workers, or None for the calling thread alone.
        heap: where memory comes from.
        host_function: runs ops that have no kernel.

    Raises: ArchiveError for a damaged plan.
    """
    plan = from_graph(graph)
    code = next((one for one in module.walk() if isinstance(one, ExecutableModule)), None)
    executable = None
    if code is not None:
        executable, own = code.load_executable(), code.plan_of(plan)
        if own is not plan:
            plan, graph = own, graph_form(own)
    else:
        _refuse_kernels(plan, module)

    def bind(parameters: Sequence[Array]) -> PlanExecutor:
        return PlanExecutor(
            plan,
            executable,
            [one.reshape(-1).view(np.uint8).data for one in parameters],
            pool=pool,
            host_function=host_function,
            heap=heap,
            find_function=lambda name: module.get_function(name, query_imports=True),
        )

    parameters = _parameters(plan, graph)
    return CallProgram(
        None,
        plan_specs(plan, plan.inputs),
        plan_specs(plan, plan.outputs),
        parameters=parameters,
        bind_parameters=bind,
    )


def _refuse_kernels(plan: Plan, module: Module) -> None:
    """Raise where a plan has kernels, which no module has."""
    wanted = next((step.target for step in plan.steps if step.kind == "dispatch"), None)
    if wanted is None:
        return
    has_model = module.implements_function("default")
    raise ArchiveError(
        f"no module has the kernels of the graph, such as '{wanted}'",
        location="graph",
        hint="this one has the whole model and makes executors itself: lib['default'](device)"
        if has_model
        else "give the module that was built with the graph: graph_json, lib, params = build(...)",
    )


def plan_executor_program(executor: PlanExecutor) -> CallProgram:
    """The program of a plan executor that has its constants."""
    plan = executor.plan
    return CallProgram(
        executor,
        plan_specs(plan, plan.inputs),
        plan_specs(plan, plan.outputs),
        call_into=executor.run_into,
    )


def plan_specs(plan: Plan, rows: Sequence[tuple[str, int]]) -> tuple[TensorSpec, ...]:
    """The inputs or outputs of a plan, by their names and entries."""
    return tuple(
        TensorSpec(name, plan.entries[entry].dtype, plan.entries[entry].shape)
        for name, entry in rows
    )


def _parameters(plan: Plan, graph: Graph) -> list[TensorSpec]:
    """The constants in their order, each seen as its first tensor, or as bytes if that is a part."""
    names = {
        graph.entries.storage_id[graph.entry(node)]: graph.nodes[node].name
        for node in graph.arguments[len(plan.inputs) :]
    }
    first = {entry.storage: entry for entry in reversed(plan.entries)}
    found: list[TensorSpec] = []
    for index, storage in enumerate(plan.storages):
        if storage.kind != "constant":
            continue
        name = names.get(index) or storage.name or f"p{index}"
        spec = TensorSpec(name, dtypes.u8, (storage.size_bytes,))
        entry = first.get(index)
        if entry is not None and entry.size_bytes == storage.size_bytes:
            spec = TensorSpec(name, entry.dtype, entry.shape)
        found.append(spec)
    return found
