"""The kernels of a plan as functions of their tensors: for graphs that call them by name.

A step says for its tensors which grid and push constants its kernel takes; with sizes that are expressions,
this holds for all tensors of such shapes.  Called by modules that offer kernels (`Module.find_kernel`).
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.formats.plan import Plan, Step
from tilewright.runtime.loaders.executable_library import LoadedExecutable
from tilewright.runtime.packed.kernel_function import KernelFunction


def kernel_functions(
    plan: Plan, executable: LoadedExecutable
) -> Mapping[str, KernelFunction]:
    """The kernels by name, without those that steps use for tensors of different types.

    Args:
        plan: whose steps say what the kernels take.
        executable: where they are; every function keeps it.
    """
    found: dict[str, KernelFunction | None] = {}
    for step in plan.steps:
        if step.kind != "dispatch" or step.target not in executable.exports:
            continue
        made = _function(plan, step, executable)
        if found.setdefault(step.target, made) != made:
            found[step.target] = None
    return {name: function for name, function in found.items() if function is not None}


def _function(plan: Plan, step: Step, executable: LoadedExecutable) -> KernelFunction:
    export = executable.exports[step.target]
    entries = (plan.entries[index] for index in step.arguments)
    return KernelFunction(
        step.target,
        export.function,
        tuple((entry.dtype, entry.shape) for entry in entries),
        step.grid,
        step.dims,
        environment=executable.environment.address,
        local_memory_bytes=export.local_memory_bytes,
        owner=executable,
    )
