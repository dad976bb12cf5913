"""Calls of plans whose sizes data decides, walked by the C core: no Python from the first step to the last.

What Python has to do with a call is to check its inputs, and to make the arrays of its results when their shapes are
known.  Not here: plans with steps that run in Python, and calls that are watched step by step (`flow`, which does the
same in Python).  Called by `flow`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast, final

from tilewright.base.errors import ArchiveError
from tilewright.formats.plan import Step
from tilewright.formats.plan.flow_layout import FlowLayout
from tilewright.formats.plan.kernel_plan import misfit_of
from tilewright.runtime import native
from tilewright.runtime.native.library import Export
from tilewright.runtime.plan_executor.program_tables import program_tables
from tilewright.runtime.plan_executor.record_steps import Resources
from tilewright.runtime.plan_executor.results import result_for
from tilewright.runtime.plan_executor.tensors import Array, as_bits

if TYPE_CHECKING:
    from tilewright.runtime._native import FlowProgram

_PYTHON_KINDS: Final = ("host", "call")
_MOST: Final = 255  # arguments and sizes of a step


def native_flow(
    resources: Resources, layout: FlowLayout, heap: native.Heap
) -> NativeFlow | None:
    """Who runs calls of the plan natively; None where a step runs in Python, or the core is not there, or something does not fit.

    What does not fit is told by whoever runs the plan in Python.
    """
    core = native.EXTENSION
    if core is None or not all(map(_is_native, resources.plan.steps)):
        return None
    exports = _exports_of(resources)
    if exports is None:
        return None
    executable = resources.executable
    environment = 0 if executable is None else executable.environment.address
    try:
        tables = program_tables(layout, exports, environment)
        constants = tuple(resources.constants)
        program = core.FlowProgram(
            tables.tables, tables.texts, constants, (executable,), heap
        )
    except (OverflowError, ArchiveError):
        return None
    return NativeFlow(resources, heap, program)


def _is_native(step: Step) -> bool:
    """Whether the core carries out such a step."""
    most = max(len(step.arguments), len(step.dims), len(step.sizes))
    return step.kind not in _PYTHON_KINDS and most <= _MOST


def _exports_of(resources: Resources) -> Mapping[str, Export] | None:
    """The kernels that the plan dispatches; None where one is not there, or takes something else."""
    found: dict[str, Export] = {}
    for step in resources.plan.steps:
        if step.kind != "dispatch":
            continue
        executable = resources.executable
        export = None if executable is None else executable.exports.get(step.target)
        if export is None or misfit_of(step, export) is not None:
            return None
        found[step.target] = export
    return found


@final
class NativeFlow:
    """Runs one plan.

    Thread-safety: calls from several threads are independent; what they record is shared.
    """

    def __init__(
        self, resources: Resources, heap: native.Heap, program: FlowProgram
    ) -> None:
        plan = resources.plan
        self._heap: native.Heap = heap
        self._pool: native.Pool | None = resources.pool
        self._program: FlowProgram = program
        self._dims: tuple[str, ...] = tuple(dim.name for dim in plan.dims)
        self._outputs = tuple((n, plan.entries[e].dtype) for n, e in plan.outputs)

    def run(
        self,
        env: Mapping[str, int],
        inputs: Sequence[Array],
        outputs: Sequence[Array | None],
    ) -> tuple[Array, ...]:
        """The results of a call; arguments and errors as of `FlowRunner.run`."""
        results = list(outputs)

        def allocate(place: int, shape: tuple[int, ...]) -> Array:
            name, dtype = self._outputs[place]
            result = result_for(self._heap, (dtype, shape), outputs[place], name)
            results[place] = result
            return as_bits(result, dtype)

        dims = tuple(env[name] for name in self._dims)
        self._program.run(self._pool, dims, tuple(inputs), allocate)
        return tuple(cast("list[Array]", results))
