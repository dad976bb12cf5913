"""Calls: picks the binding for the dimensions of the inputs and runs it.

The fast path hands the arrays to the C core as they are; only what it refuses is looked at here,
to bring its layout in order or to say which input does not fit.

Thread-safety: calls from several threads are independent.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dense_arrays import in_order
from tilewright.base.dtypes import DType
from tilewright.base.errors import InputError, UserError
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.log import Log
from tilewright.base.separate_arrays import check_apart
from tilewright.base.symbolic import Dim, evaluate, names_in
from tilewright.base.text import format_bytes, plural
from tilewright.formats.byte_view import Buffer
from tilewright.formats.plan import FLOW_KINDS, Dimension, Plan, Step
from tilewright.runtime import native
from tilewright.runtime.loaders.executable_library import LoadedExecutable
from tilewright.runtime.plan_executor.binding import BoundPlan, bind_plan
from tilewright.runtime.plan_executor.flow import FlowRunner
from tilewright.runtime.plan_executor.flow_stepper import FlowStepper
from tilewright.runtime.plan_executor.host_call import HostFunction
from tilewright.runtime.plan_executor.prepared_call import PreparedCall, PreparedFlow
from tilewright.runtime.plan_executor.record_steps import (
    BROADCAST_HINT,
    FindFunction,
    Resources,
)
from tilewright.runtime.plan_executor.results import (
    check_places,
    result_array,
    result_for,
)
from tilewright.runtime.plan_executor.shared_memory import saved, updated_inputs
from tilewright.runtime.plan_executor.stepper import PlanStepper
from tilewright.runtime.plan_executor.tensors import (
    Array,
    TensorType,
    as_bits,
    describe,
    describe_array,
    wire_type,
)

BOUND_PLAN_LIMIT: Final = 32
_LOG: Final = Log("runtime")


@final
class PlanExecutor:
    """Runs one plan.

    Args:
        plan: what to run.
        executable: the loaded kernels.
        constants: one buffer per constant storage of the plan, in order; never copied.
        pool: the workers, or None for the calling thread alone.
        host_function: runs reference implementations; needed if the plan has `host` steps.
        find_function: gives the packed function of a symbol, or None; needed if the plan has `call` steps.
        heap: what calls take their memory from; None: one of its own, without bound.

    Raises: ArchiveError when the plan does not fit the executable or the constants; DeviceError
    (RESOURCE_EXHAUSTED) for more than the heap has, from here or from a call.
    """

    def __init__(
        self,
        plan: Plan,
        executable: LoadedExecutable | None,
        constants: Sequence[Buffer],
        *,
        pool: native.Pool | None = None,
        host_function: HostFunction | None = None,
        heap: native.Heap | None = None,
        find_function: FindFunction | None = None,
    ) -> None:
        self.plan: Plan = plan
        self.input_names: tuple[str, ...] = tuple(name for name, _ in plan.inputs)
        self.output_names: tuple[str, ...] = tuple(name for name, _ in plan.outputs)
        self._heap: native.Heap = heap or native.Heap()
        self._resources: Resources = Resources(
            plan,
            executable,
            tuple(constants),
            pool,
            host_function,
            self._heap,
            find_function,
        )
        self._bound: OrderedDict[tuple[int, ...], BoundPlan] = OrderedDict()
        self._latest: tuple[list[tuple[int, ...]], BoundPlan] | None = None
        self._updated: frozenset[tuple[int, int]] = updated_inputs(plan)
        self._lock: threading.RLock = fork_lock(Rank.BINDING)
        self._flow: FlowRunner | None = None
        if plan.has_reads or plan.has_blocks:
            self._flow = FlowRunner(self._resources)
        self._static: BoundPlan | None = self.bind(()) if plan.is_static else None

    @property
    def executable(self) -> LoadedExecutable | None:
        """The kernels."""
        return self._resources.executable

    @property
    def constants(self) -> tuple[Buffer, ...]:
        """One buffer per constant storage of the plan, in order."""
        return self._resources.constants

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Run on arrays of the right types; outputs are fresh arrays.

        Raises: InputError naming the input that does not fit; DeviceError naming the kernel that failed.
        """
        if self._flow is not None:
            return self._run_flow(self._flow, arrays, [None] * len(self.output_names))
        bound = self._static if self._static is not None else self.bound_for(arrays)
        try:
            result = self._run(bound, arrays)
        except native.KernelError as error:
            raise error.for_user from error
        outputs = (result,) if len(bound.output_types) == 1 else result
        if bound.output_bits:
            return tuple(
                o.view(dtype.numpy)
                for o, (dtype, _) in zip(outputs, bound.output_types, strict=True)
            )
        return cast("tuple[Array, ...]", outputs)

    def call_over(
        self,
        tensors: type,
        allocate: Callable[
            [DType, tuple[int, ...], Callable[[], Array]], Callable[[], Any]
        ],
    ) -> native.RecordedCall | None:
        """A call that takes and returns tensors of another library, looked at by DLPack's table of C functions.

        It returns one result, or a tuple, and raises TypeError or ValueError for what it does not take as it is.

        Args:
            tensors: their type.
            allocate: of type and shape of a result, and what makes an array for it as other calls do, what makes a fresh
                tensor, dense, for each call.

        Returns: None where sizes or the course of a call are open, or the type has no such table.
        """
        bound = self._static
        if bound is None or self._flow is not None:
            return None
        outputs = [
            allocate(
                dtype, shape, partial(result_array, self._heap, shape, wire_type(dtype))
            )
            for dtype, shape in bound.output_types
        ]
        try:
            return bound.over(outputs=outputs, tensors=tensors)
        except (AttributeError, TypeError):
            return None

    def run_into(
        self, arrays: Sequence[Array], outputs: Sequence[Array | None]
    ) -> tuple[Array, ...]:
        """Run with results written into arrays of the caller.

        An output that updates an input is written in place where both are one array.  An input that an output
        overlaps otherwise is copied first.

        Args:
            arrays: the inputs.
            outputs: for each output a dense array of its type, or None to make one.

        Raises: InputError for an array that does not fit.
        """
        if self._flow is not None:
            self._check_output_count(outputs)
            return self._run_flow(self._flow, arrays, outputs)
        bound = self._static if self._static is not None else self.bound_for(arrays)
        inputs = self._conform(bound.input_types, arrays)
        results = self._targets(bound, outputs)
        wired = [
            as_bits(r, dtype)
            for r, (dtype, _) in zip(results, bound.output_types, strict=True)
        ]
        try:
            inputs = saved(inputs, wired, self._updated)
            bound.commands.run(
                self._resources.pool, self._buffers(bound, inputs, wired), self._heap
            )
        except native.KernelError as error:
            raise error.for_user from error
        return tuple(results)

    def prepare(
        self, arrays: Sequence[Array], outputs: Sequence[Array | None]
    ) -> PreparedCall | PreparedFlow:
        """A call that is checked once and made again and again, with what the arrays hold each time.

        Args:
            arrays: the inputs, dense.
            outputs: as `run_into` takes them.

        Raises: InputError for an array that does not fit, or that would have to be copied for each call.
        """
        if self._flow is not None:
            return self._prepare_flow(self._flow, arrays, outputs)
        bound = self._static if self._static is not None else self.bound_for(arrays)
        inputs = self._conform(bound.input_types, arrays)
        results = self._targets(bound, outputs)
        typed = zip(results, bound.output_types, strict=True)
        wired = [as_bits(result, dtype) for result, (dtype, _) in typed]
        self._check_not_copied(arrays, saved(inputs, wired, self._updated))
        buffers = cast("Sequence[memoryview]", [*inputs, *wired, *self.constants])
        return PreparedCall(
            bound, self._resources.pool, self._heap, buffers, tuple(results)
        )

    def _check_not_copied(self, arrays: Sequence[Array], used: Sequence[Array]) -> None:
        for name, given, taken in zip(self.input_names, arrays, used, strict=True):
            # Nothing shares memory with an array of nothing.
            if given is not taken and taken.size and not np.shares_memory(given, taken):
                problem = "would be copied for each call, expected a dense array of its own"
                raise InputError(problem, location=f"input '{name}'")

    def _prepare_flow(
        self,
        flow: FlowRunner,
        arrays: Sequence[Array],
        outputs: Sequence[Array | None],
    ) -> PreparedFlow:
        """Results whose sizes the inputs decide are made once; others are looked at, or made, in each call."""
        self._check_output_count(outputs)
        env = self.dimensions_of(arrays)
        inputs = self._conform(flow.input_types(env), arrays)
        check_apart(self.output_names, outputs)
        results = [
            given if type_ is None else result_for(self._heap, type_, given, name)
            for name, type_, given in zip(
                self.output_names, flow.output_types(env), outputs, strict=True
            )
        ]
        self._check_not_copied(arrays, saved(inputs, results, self._updated))
        return PreparedFlow(flow, env, inputs, results)

    def _run_flow(
        self,
        flow: FlowRunner,
        arrays: Sequence[Array],
        outputs: Sequence[Array | None],
        times: list[tuple[Step, native.Timing]] | None = None,
    ) -> tuple[Array, ...]:
        """A call of a plan with control flow."""
        env = self.dimensions_of(arrays)
        inputs = self._conform(flow.input_types(env), arrays)
        try:
            if any(output is not None for output in outputs):
                check_places(self.output_names, flow.output_types(env), outputs)
                inputs = saved(inputs, outputs, self._updated)
            return flow.run(env, inputs, outputs, times)
        except native.KernelError as error:
            raise error.for_user from error

    def _check_output_count(self, outputs: Sequence[Array | None]) -> None:
        if len(outputs) != len(self.output_names):
            raise InputError(
                f"got {len(outputs)} outputs, expected {len(self.output_names)}: "
                f"{', '.join(self.output_names) or 'none'}"
            )

    def _targets(self, bound: BoundPlan, outputs: Sequence[Array | None]) -> list[Array]:
        """The arrays that take the results.  Raises: InputError for one that does not fit."""
        self._check_output_count(outputs)
        rows = zip(self.output_names, bound.output_types, outputs, strict=True)
        targets = [
            result_for(self._heap, type_, given, name) for name, type_, given in rows
        ]
        check_apart(self.output_names, outputs)
        return targets

    def _buffers(
        self, bound: BoundPlan, inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> Sequence[memoryview]:
        """What the slots of a bound plan are given, with an arena of its own."""
        scratch = bound.scratch(self._heap)
        buffers = [*inputs, *outputs, *self._resources.constants, *scratch]
        return cast("Sequence[memoryview]", buffers)

    def _run(self, bound: BoundPlan, arrays: Sequence[Array]) -> Any:
        if bound.input_bits:  # bits of any type would pass for them
            return bound.call(*self._conform(bound.input_types, arrays))
        try:
            return bound.call(*arrays)
        except (TypeError, ValueError, BufferError):
            fixed = self._conform(bound.input_types, arrays)
            if all(a is b for a, b in zip(fixed, arrays, strict=True)):
                raise  # the inputs fit: the error comes from a step
            return bound.call(*fixed)

    def dimensions_of(self, arrays: Sequence[Array]) -> dict[str, int]:
        """The value of each dynamic dimension in a call with these inputs."""
        return dict(
            zip((d.name for d in self.plan.dims), self._dims_of(arrays), strict=True)
        )

    def bound_for(self, arrays: Sequence[Array]) -> BoundPlan:
        """The recorded plan for the dimensions of these inputs.

        Most calls have the shapes of the call before them, which say all that is asked.
        """
        try:
            shapes = [array.shape for array in arrays]
        except AttributeError:  # lists and numbers, which are made arrays later
            return self.bind(self._dims_of(arrays))
        latest = self._latest
        if latest is not None and latest[0] == shapes:
            return latest[1]
        bound = self.bind(self._dims_of(arrays))
        self._latest = (shapes, bound)
        return bound

    def bind(self, dims: tuple[int, ...]) -> BoundPlan:
        """Record the plan for these values of `plan.dims`; cached, least recently used dropped."""
        with self._lock:
            bound = self._bound.get(dims)
            if bound is None:
                bound = bind_plan(self._resources, dims)
                self._bound[dims] = bound
                self._tell(dims, bound)
                if len(self._bound) > BOUND_PLAN_LIMIT:
                    self._bound.popitem(last=False)
            else:
                self._bound.move_to_end(dims)
            return bound

    def _tell(self, dims: tuple[int, ...], bound: BoundPlan) -> None:
        names = (dim.name for dim in self.plan.dims)
        sizes = ", ".join(f"{n} = {size}" for n, size in zip(names, dims, strict=True))
        _LOG.info(
            "%s: recorded %s for %s, %s of intermediate tensors",
            self.plan.name,
            plural(bound.commands.command_count, "command"),
            sizes or "its one shape",
            format_bytes(bound.arena_bytes),
        )

    def profile(self, arrays: Sequence[Array]) -> list[tuple[Step, native.Timing]]:
        """Run one command at a time: each step with its times, in order.

        The first of two runs is not counted: it is the one that touches fresh memory.

        Raises: InputError naming the input that does not fit.
        """
        if self._flow is not None:
            outputs = [None] * len(self.output_names)
            self._run_flow(self._flow, arrays, outputs)
            noted: list[tuple[Step, native.Timing]] = []
            self._run_flow(self._flow, arrays, outputs, noted)
            return noted
        bound = self._static if self._static is not None else self.bound_for(arrays)
        inputs = self._conform(bound.input_types, arrays)
        outputs = [
            as_bits(np.empty(shape, dtype.numpy), dtype)
            for dtype, shape in bound.output_types
        ]
        views, heap = self._buffers(bound, inputs, outputs), self._heap
        try:
            bound.commands.run_timed(self._resources.pool, views, heap)
            times = bound.commands.run_timed(self._resources.pool, views, heap)
        except native.KernelError as error:
            raise error.for_user from error
        return [
            (self.plan.steps[step], native.Timing.of(time))
            for step, time in zip(bound.command_steps, times, strict=True)
            if step is not None and self.plan.steps[step].kind not in FLOW_KINDS
        ]

    def stepper(self, arrays: Sequence[Array]) -> PlanStepper:
        """The steps of a call with these inputs, to be run one by one.

        Raises: InputError naming the input that does not fit; UserError for a plan with control flow (rows are of loops alone).
        """
        if self.plan.has_flow:
            raise UserError(
                "a program with control flow does not run step by step",
                location=self.plan.name,
                hint="call it, or look at its times with profile",
            )
        bound = self._static if self._static is not None else self.bound_for(arrays)
        inputs = self._conform(bound.input_types, arrays)
        return PlanStepper(self._resources, self._dims_of(arrays), inputs)

    def flow_stepper(self, arrays: Sequence[Array]) -> FlowStepper:
        """The steps of a call with these inputs, of any plan, in the order in which they run.

        Raises: InputError naming the input that does not fit.
        """
        env = self.dimensions_of(arrays)
        runner = FlowRunner(self._resources, is_stepwise=True)
        inputs = self._conform(runner.input_types(env), arrays)
        return FlowStepper(runner, env, inputs)

    def _dims_of(self, arrays: Sequence[Array]) -> tuple[int, ...]:
        self._check_count(arrays)
        return tuple(self._dim_of(dim, arrays[dim.input]) for dim in self.plan.dims)

    def _dim_of(self, dim: Dimension, array: Array) -> int:
        shape = np.shape(array)
        if dim.axis >= len(shape):
            raise self._mismatch(dim.input, array)
        return shape[dim.axis]

    def _conform(self, types: Sequence[TensorType], arrays: Sequence[Array]) -> list[Array]:
        """Bring layout in order (contiguity, bit views) or say what is wrong with which input."""
        self._check_count(arrays)
        fixed: list[Array] = []
        for index, array in enumerate(arrays):
            given = np.asarray(array)
            dtype, shape = types[index]
            if given.dtype != dtype.numpy or given.shape != shape:
                raise self._mismatch(index, given, self.dimensions_of(arrays))
            fixed.append(as_bits(in_order(given), dtype))
        return fixed

    def _check_count(self, arrays: Sequence[Array]) -> None:
        if len(arrays) != len(self.input_names):
            wanted = ", ".join(self.input_names) or "none"
            raise InputError(
                f"got {len(arrays)} inputs, expected {len(self.input_names)}: {wanted}"
            )

    def _mismatch(
        self, index: int, array: object, dims: Mapping[str, int] | None = None
    ) -> InputError:
        """The error for an input; `dims` are what the inputs say of the dimensions, if they do."""
        _, place = self.plan.inputs[index]
        entry = self.plan.entries[place]
        given = np.asarray(array)
        wanted = describe(entry.dtype, entry.shape)
        names = sorted(names_in(entry.shape))
        if dims and names and given.ndim == len(entry.shape):
            wanted += f" with {', '.join(f'{name} = {dims[name]}' for name in names)}"
        hint = None
        is_number = given.dtype.kind in "biuf" or dtypes.find_numpy(given.dtype) is not None
        if (
            is_number
            and given.dtype != entry.dtype.numpy
            and given.ndim == len(entry.shape)
        ):
            hint = f"convert it with .astype('{entry.dtype.numpy}')"
        elif dims and _misses_by_one(entry.shape, given.shape, dims):
            hint = BROADCAST_HINT
        return InputError(
            f"got {describe_array(given)}, expected {wanted}",
            location=f"input '{self.input_names[index]}'",
            hint=hint,
        )


def _misses_by_one(
    shape: Sequence[Dim], given: Sequence[int], dims: Mapping[str, int]
) -> bool:
    """Whether an open axis has 1 where another input says another size, or the other way round."""
    if len(shape) != len(given):
        return False
    sizes = [d if isinstance(d, int) else evaluate(d, dims) for d in shape]
    return any(
        not isinstance(dim, int) and wanted != size and 1 in (wanted, size)
        for dim, wanted, size in zip(shape, sizes, given, strict=True)
    )
