"""The graph executor: replays a plan natively, without a virtual machine.

A plan is bound once per set of dynamic dimensions: grids, push constants and the arena are
computed, every command is recorded in the C core, and a call only patches pointers.  Not here:
reading artifacts (`session`), control flow (`virtual_machine`).

Thread-safety: calls from several threads are independent.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast, final

import numpy as np

from tilewright.base.arena import Block, pack
from tilewright.base.dtypes import DType
from tilewright.base.errors import ArchiveError, InputError
from tilewright.base.symbolic import Dim, evaluate
from tilewright.formats.plan import Entry, Plan, Step, decode_attribute
from tilewright.runtime import native
from tilewright.runtime.loaders.embedded_elf import LoadedExecutable

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]
# (op, attributes, operands with None for absent ones) -> results
HostFunction = Callable[
    [str, Mapping[str, object], Sequence[Array | None]], Sequence[Array]
]

BOUND_PLAN_LIMIT: Final = 32
# What the buffer protocol calls each type; types it has no letter for travel as their bits.
_FORMATS: Final[Mapping[str, str]] = {
    "bool": "?",
    "i8": "b",
    "u8": "B",
    "i16": "h",
    "u16": "H",
    "i32": "i|l",
    "u32": "I|L",
    "i64": "l|q",
    "u64": "L|Q",
    "f16": "e",
    "f32": "f",
    "f64": "d",
}
_BITS: Final[Mapping[int, str]] = {8: "B", 16: "H"}


@final
@dataclass(frozen=True, slots=True)
class BoundPlan:
    """A plan for one set of dimensions, recorded in the C core."""

    plan: native.Plan
    invocation: native.Invocation
    command_steps: tuple[int, ...]  # the plan's step of each native command
    arena_bytes: int
    output_types: tuple[tuple[DType, tuple[int, ...]], ...]
    scratch: tuple[int, ...]


@final
class GraphExecutor:
    """Runs one plan.

    Args:
        plan: what to run.
        executable: the loaded kernels.
        constants: one buffer per constant storage of the plan, in order; never copied.
        pool: the workers, or None for the calling thread alone.
        host_function: runs reference implementations; needed if the plan has `host` steps.
    """

    def __init__(
        self,
        plan: Plan,
        executable: LoadedExecutable | None,
        constants: Sequence[object],
        *,
        pool: native.Pool | None = None,
        host_function: HostFunction | None = None,
    ) -> None:
        self.plan: Plan = plan
        self.input_names: tuple[str, ...] = tuple(name for name, _ in plan.inputs)
        self.output_names: tuple[str, ...] = tuple(name for name, _ in plan.outputs)
        self._executable: LoadedExecutable | None = executable
        self._constants: tuple[object, ...] = tuple(constants)
        self._pool: native.Pool | None = pool
        self._host_function: HostFunction | None = host_function
        self._bound: OrderedDict[tuple[int, ...], BoundPlan] = OrderedDict()
        self._lock: threading.Lock = threading.Lock()
        self._inputs: tuple[Entry, ...] = tuple(plan.entries[e] for _, e in plan.inputs)
        self._static: BoundPlan | None = self.bind(()) if plan.is_static else None

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Run on C-contiguous arrays of the right types; outputs are fresh arrays.

        Raises: InputError naming the input that does not fit.
        """
        bound = self._static if self._static is not None else self.bound_for(arrays)
        try:
            result = bound.invocation(*arrays)
        except (TypeError, ValueError, BufferError) as error:
            fixed = self._conform(arrays, error)
            result = bound.invocation(*fixed)
        results = (
            (result,) if len(bound.output_types) == 1 else cast("tuple[Array, ...]", result)
        )
        return cast("tuple[Array, ...]", self._typed(bound, results))

    def dimensions_of(self, arrays: Sequence[Array]) -> dict[str, int]:
        """The value of each dynamic dimension in a call with these inputs."""
        return {name: np.shape(arrays[i])[axis] for name, i, axis in self.plan.dims}

    def bound_for(self, arrays: Sequence[Array]) -> BoundPlan:
        """The recorded plan for the dimensions of these inputs."""
        self._check_count(arrays)
        key: list[int] = []
        for name, index, axis in self.plan.dims:
            shape = np.shape(arrays[index])
            if axis >= len(shape):
                raise self._mismatch(index, arrays[index])
            if shape[axis] < 0:
                raise InputError(f"dimension '{name}' is negative")
            key.append(shape[axis])
        return self.bind(tuple(key))

    def bind(self, dims: tuple[int, ...]) -> BoundPlan:
        """Record the plan for these values of `plan.dims`; cached, least recently used dropped."""
        with self._lock:
            bound = self._bound.get(dims)
            if bound is None:
                bound = _Binder(self, dims).bind()
                self._bound[dims] = bound
                if len(self._bound) > BOUND_PLAN_LIMIT:
                    self._bound.popitem(last=False)
            else:
                self._bound.move_to_end(dims)
            return bound

    def profile(self, arrays: Sequence[Array]) -> list[tuple[Step, int]]:
        """Run once, one command at a time: (step, nanoseconds) in order."""
        bound = self._static if self._static is not None else self.bound_for(arrays)
        inputs = [_as_bits(np.ascontiguousarray(a)) for a in arrays]
        outputs = [np.empty(shape, dtype.numpy) for dtype, shape in bound.output_types]
        scratch = [native.Memory(max(size, 1)) for size in bound.scratch]
        buffers = [*inputs, *(_as_bits(o) for o in outputs), *self._constants, *scratch]
        times = bound.plan.run_timed(self._pool, buffers)
        return [
            (self.plan.steps[step], time)
            for step, time in zip(bound.command_steps, times, strict=True)
        ]

    def _typed(self, bound: BoundPlan, results: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(
            r if r.dtype == dtype.numpy else r.view(dtype.numpy)
            for r, (dtype, _) in zip(results, bound.output_types, strict=True)
        )

    def _conform(self, arrays: Sequence[Array], error: Exception) -> list[object]:
        """Bring layout in order (contiguity, bit views) or say what is wrong with which input."""
        self._check_count(arrays)
        fixed: list[object] = []
        changed = False
        for index, (array, entry) in enumerate(zip(arrays, self._inputs, strict=True)):
            given = np.asarray(array)
            fits = given.dtype == entry.dtype.numpy and given.ndim == len(entry.shape)
            if not fits or not self._shape_fits(given, entry):
                raise self._mismatch(index, array) from error
            bits = _as_bits(np.ascontiguousarray(given))
            changed |= bits is not array
            fixed.append(bits)
        if not changed:
            raise InputError(str(error)) from error
        return fixed

    def _shape_fits(self, array: Array, entry: Entry) -> bool:
        return all(
            not isinstance(want, int) or want == got
            for want, got in zip(entry.shape, array.shape, strict=True)
        )

    def _check_count(self, arrays: Sequence[Array]) -> None:
        if len(arrays) != len(self._inputs):
            raise InputError(
                f"got {len(arrays)} inputs, expected {len(self._inputs)}: "
                + ", ".join(self.input_names)
            )

    def _mismatch(self, index: int, array: object) -> InputError:
        entry = self._inputs[index]
        given = np.asarray(array)
        want = f"{entry.dtype}[{', '.join(map(str, entry.shape))}]"
        got = f"{given.dtype}[{', '.join(map(str, given.shape))}]"
        return InputError(
            f"got {got}, expected {want}", location=f"input '{self.input_names[index]}'"
        )


def _as_bits(array: Array) -> Array:
    """The array itself, or its bit pattern where the buffer protocol has no letter for it."""
    if array.dtype.kind == "V" or array.dtype.num >= 256:
        return array.view(np.uint8 if array.dtype.itemsize == 1 else np.uint16)
    return array


class _Binder:
    """Evaluates every symbolic size of a plan and records its commands."""

    def __init__(self, executor: GraphExecutor, dims: tuple[int, ...]) -> None:
        self.executor: GraphExecutor = executor
        self.plan: Plan = executor.plan
        self.env: dict[str, int] = {
            name: value for (name, _, _), value in zip(self.plan.dims, dims, strict=True)
        }
        self.builder: native.PlanBuilder = native.PlanBuilder()
        self.places: list[tuple[int, int]] = []  # (slot, byte offset) per storage
        self.command_steps: list[int] = []

    def number(self, value: Dim) -> int:
        return value if isinstance(value, int) else evaluate(value, self.env)

    def bind(self) -> BoundPlan:
        plan = self.plan
        output_types = tuple(
            (e.dtype, tuple(self.number(d) for d in e.shape))
            for e in (plan.entries[index] for _, index in plan.outputs)
        )
        arena = self._place_storages()
        for index, step in enumerate(plan.steps):
            self._record(index, step)
        native_plan = self.builder.build()
        invocation = native.Invocation(
            native_plan,
            self.executor._pool,  # pyright: ignore[reportPrivateUsage]
            [self._input_spec(name, plan.entries[e]) for name, e in plan.inputs],
            [functools.partial(np.empty, shape, _wire(t)) for t, shape in output_types],
            self.executor._constants,  # pyright: ignore[reportPrivateUsage]
        )
        return BoundPlan(
            native_plan,
            invocation,
            tuple(self.command_steps),
            arena,
            output_types,
            (arena,) if arena else (),
        )

    def _input_spec(self, name: str, entry: Entry) -> tuple[str, str, tuple[int, ...]]:
        formats = _FORMATS.get(entry.dtype.name, _BITS.get(entry.dtype.bits, "B"))
        return name, formats, tuple(self.number(d) for d in entry.shape)

    def _place_storages(self) -> int:
        """Number the slots as the invocation wants them: inputs, outputs, constants, arena."""
        plan = self.plan
        self.places = [(-1, 0)] * len(plan.storages)
        for _, entry in plan.inputs:
            self._slot(plan.entries[entry].storage, writable=False)
        for _, entry in plan.outputs:
            self._slot(plan.entries[entry].storage, writable=True)
        for index, storage in enumerate(plan.storages):
            if storage.kind == "constant":
                self._slot(index, writable=False)
        return self._place_transients()

    def _slot(self, storage: int, *, writable: bool) -> None:
        size = self.number(self.plan.storages[storage].size_bytes)
        self.places[storage] = (self.builder.slot(size, writable=writable), 0)

    def _place_transients(self) -> int:
        rows = [(i, s) for i, s in enumerate(self.plan.storages) if s.kind == "transient"]
        blocks = [Block(self.number(s.size_bytes), s.first, s.last) for _, s in rows]
        if self.plan.arena_bytes >= 0:
            offsets, size = [s.offset_bytes for _, s in rows], self.plan.arena_bytes
        else:
            packing = pack(blocks)
            offsets, size = list(packing.offsets), packing.size_bytes
        if any(
            o < 0 or o + b.size_bytes > size for o, b in zip(offsets, blocks, strict=True)
        ):
            raise ArchiveError("a transient lies outside the arena", location="plan")
        if size:
            slot = self.builder.slot(size, writable=True)
            for (index, _), offset in zip(rows, offsets, strict=True):
                self.places[index] = (slot, offset)
        return size

    def _binding(self, entry: Entry) -> tuple[int, int, int]:
        slot, offset = self.places[entry.storage]
        return slot, offset + self.number(entry.offset_bytes), self.number(entry.size_bytes)

    def _record(self, index: int, step: Step) -> None:
        entries = [self.plan.entries[e] for e in step.arguments]
        bindings = [self._binding(e) for e in entries]
        match step.kind:
            case "dispatch":
                self._dispatch(step, bindings)
            case "copy":
                source, target = bindings
                if source[2] == 0:
                    return
                self.builder.copy(target, source, barrier=True)
            case _:
                self._host(step, entries, bindings)
        self.command_steps.append(index)

    def _dispatch(self, step: Step, bindings: list[tuple[int, int, int]]) -> None:
        executable = self.executor._executable  # pyright: ignore[reportPrivateUsage]
        export = None if executable is None else executable.exports.get(step.target)
        if export is None or executable is None:
            raise ArchiveError(f"executable has no kernel '{step.target}'", location="plan")
        constants = tuple(self.number(d) for d in step.dims)
        if export.binding_count != len(bindings) or export.constant_count != len(constants):
            raise ArchiveError(
                f"kernel '{step.target}' takes {export.binding_count} bindings and "
                f"{export.constant_count} constants, the plan passes {len(bindings)} and "
                f"{len(constants)}",
                location="plan",
            )
        grid = tuple(self.number(d) for d in step.grid)
        self.builder.dispatch(
            export.function,
            bindings,
            cast("tuple[int, int, int]", grid),
            constants=constants,
            environment=executable.environment.address,
            local_memory_bytes=export.local_memory_bytes,
            barrier=step.barrier,
        )
        self.builder.keep(executable)

    def _host(
        self, step: Step, entries: list[Entry], bindings: list[tuple[int, int, int]]
    ) -> None:
        function = self.executor._host_function  # pyright: ignore[reportPrivateUsage]
        if function is None:
            raise ArchiveError(
                f"step '{step.name}' needs the reference implementation of '{step.target}'",
                location="plan",
                hint="load the artifact with tilewright.load, which brings them",
            )
        types = [(e.dtype, tuple(self.number(d) for d in e.shape)) for e in entries]
        count = len(entries) - step.result_count
        self.builder.host_call(
            _HostCall(step, function, types, self.env),
            bindings,
            writable=tuple(i >= count for i in range(len(entries))),
            barrier=True,
        )


def _wire(dtype: DType) -> np.dtype[np.generic]:
    """The numpy type that carries `dtype` through the buffer protocol."""
    if dtype.name in _FORMATS:
        return dtype.numpy
    return np.dtype(np.uint8 if dtype.bits <= 8 else np.uint16)


@final
class _HostCall:
    """Calls a reference implementation on views of the bindings."""

    __slots__ = ("_env", "_function", "_step", "_types")

    def __init__(
        self,
        step: Step,
        function: HostFunction,
        types: list[tuple[DType, tuple[int, ...]]],
        env: Mapping[str, int],
    ) -> None:
        self._step: Step = step
        self._function: HostFunction = function
        self._types: list[tuple[DType, tuple[int, ...]]] = types
        self._env: Mapping[str, int] = env

    def __call__(self, *views: memoryview) -> None:
        arrays = [
            np.frombuffer(
                view, dtype.numpy, count=int(np.prod(shape, dtype=np.int64))
            ).reshape(shape)
            for view, (dtype, shape) in zip(views, self._types, strict=True)
        ]
        count = len(arrays) - self._step.result_count
        attributes = self._step.attributes or {}
        operands: list[Array | None] = [None] * cast("int", attributes["operand_count"])
        for place, array in zip(
            cast("list[int]", attributes["present"]), arrays[:count], strict=True
        ):
            operands[place] = array
        stored = cast("Mapping[str, object]", attributes["values"])
        values = {
            name: decode_attribute(value, self._env) for name, value in stored.items()
        }
        results = self._function(self._step.target, values, operands)
        for target, result in zip(arrays[count:], results, strict=True):
            if target.shape != result.shape:
                raise InputError(
                    f"'{self._step.target}' gave shape {result.shape}, expected {target.shape}"
                )
            target[...] = result
