"""The virtual machine as users see it: load `.vmfb` archives, call their functions with arrays.

Runs our own modules and those of IREE's compilers, on any device a driver makes.  Not here: the
interpreter (`vm`), what the `hal` module does (`modules.hal`), artifacts with plans (`session`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, cast, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.budget import Budget, Limits, budget_of
from tilewright.base.dense_arrays import in_order
from tilewright.base.errors import DeviceError, InputError, UserError
from tilewright.base.foreign_tensors import unmasked
from tilewright.base.separate_arrays import check_apart
from tilewright.base.symbolic import symbol
from tilewright.base.text import did_you_mean
from tilewright.formats.artifact import is_artifact, read_needs
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.plan import Step
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.formats.variant_choice import choose_variant
from tilewright.formats.vmfb import ModuleDef, read_archive
from tilewright.runtime import native
from tilewright.runtime.bytecode_machine.given_arrays import (
    check_shapes,
    check_target,
    check_types,
    find_element_type,
    known_element_type,
)
from tilewright.runtime.bytecode_machine.recorded_calls import (
    RecordedCalls,
    changes_globals,
    is_repeatable,
)
from tilewright.runtime.bytecode_machine.wanted_device import tell_wanted_device
from tilewright.runtime.drivers import DEFAULT_DEVICE, registry
from tilewright.runtime.hal.buffer import BufferUsage, MemoryType
from tilewright.runtime.hal.buffer_view import BufferView
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.element_type import Array, bit_count, pack
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.local.local_device import LocalDevice
from tilewright.runtime.loaders.module_file import read_module_file
from tilewright.runtime.modules.executable_policy import ExecutablePolicy
from tilewright.runtime.modules.hal import create_hal_module, register_hal_types
from tilewright.runtime.modules.hal_inline import create_hal_inline_module
from tilewright.runtime.modules.hal_loader import create_hal_loader_module
from tilewright.runtime.modules.tilewright import (
    FindFunction,
    HostFunction,
    create_tilewright_module,
)
from tilewright.runtime.vm.bytecode_module import BytecodeMode, BytecodeModule
from tilewright.runtime.vm.context import Context
from tilewright.runtime.vm.floats import round_f32
from tilewright.runtime.vm.frame import Debugger, Tracer
from tilewright.runtime.vm.integers import wrap_i32, wrap_i64
from tilewright.runtime.vm.invocation import Invocation
from tilewright.runtime.vm.module import Callee, Module, ModuleFunction
from tilewright.runtime.vm.ref import Instance

_COPY_LIMIT_BYTES: Final = 1024
"""Up to here copying costs less than finding out whether an array can be used in place."""
_MEMORY_TYPE: Final = int(MemoryType.DEVICE_LOCAL)
_USAGE: Final = int(BufferUsage.DEFAULT)
_DECLARATION: Final = "iree.abi.declaration"
_MODEL: Final = "iree.abi.model"
_COARSE_FENCES: Final = "coarse-fences"
_ITEM: Final = re.compile(r"%([\w.$-]+):\s*(tensor<([^<>]*)>|\w+)")
_ASYNC_SUFFIX: Final = "$async"
_ON_DEMAND: Final[Mapping[str, Callable[[Device, ExecutablePolicy], Module]]] = {
    "hal_inline": lambda device, policy: create_hal_inline_module(device, policy=policy),
    "hal_loader": create_hal_loader_module,
}
"""Native modules that are registered when the first module depends on them."""


@final
class BytecodeMachine:
    """Modules in one context on one device.

    Args:
        device: a device, or the URI of one.
        threads: for devices with workers; None = the cores this process may use.
        host_function: runs ops that have no kernel (see `tilewright.load`).
        find_function: gives the packed function of a symbol, or None, for programs that call some.
        modules: native modules to offer beside `hal` and `tilewright`.
        tracer: hears of `trace` and `print` instructions.
        mode: `translate` (the default) turns each function into a Python function when it is
            first called; `interpret` runs instruction by instruction.
        untrusted: run no machine code of the modules, only kernels in bytecode (VMVX), offer no
            ops of the host, and hold them to `limits`.
        limits: what loading and each call may take, or a budget that is under way; default: for
            modules that are not trusted those of `Limits()`, for others none.
        debugger: called at `break` instructions, for example Python's `breakpoint`.

    Thread-safety: calls from several threads are independent as long as the modules' functions do
    not write globals.
    """

    def __init__(  # noqa: PLR0913 - keyword-only options
        self,
        device: str | Device = DEFAULT_DEVICE,
        *,
        threads: int | None = None,
        host_function: HostFunction | None = None,
        find_function: FindFunction | None = None,
        modules: Sequence[Module] = (),
        tracer: Tracer | None = None,
        mode: BytecodeMode | None = None,
        untrusted: bool = False,
        limits: Limits | Budget | None = None,
        debugger: Debugger | None = None,
    ) -> None:
        self.budget: Budget | None = budget_of(
            Limits() if untrusted and limits is None else limits
        )
        self.device: Device = (
            registry.create_device(device, threads=threads)
            if isinstance(device, str)
            else device
        )
        self.instance: Instance = Instance()
        register_hal_types(self.instance)
        self._policy: ExecutablePolicy = ExecutablePolicy(
            is_trusted=not untrusted, budget=self.budget
        )
        hal = create_hal_module([self.device], policy=self._policy)
        self.context: Context = Context([hal])
        if not untrusted:
            checked = self.device.checked if isinstance(self.device, LocalDevice) else None
            self.context.register(
                create_tilewright_module(host_function, checked, find_function)
            )
        for module in modules:
            self.context.register(module)
        self._tracer: Tracer | None = tracer
        self._mode: BytecodeMode | None = mode
        self._debugger: Debugger | None = debugger
        self._loaded: list[BytecodeModule] = []

    @staticmethod
    def from_file(
        path: str | Path,
        device: str | Device = DEFAULT_DEVICE,
        *,
        threads: int | None = None,
        host_function: HostFunction | None = None,
        mode: BytecodeMode | None = None,
        untrusted: bool = False,
        limits: Limits | None = None,
    ) -> BytecodeMachine:
        """A machine with one archive loaded; its constants stay in the file, mapped read-only.

        Raises: ArchiveError, DeviceError.
        """
        machine = BytecodeMachine(
            device,
            threads=threads,
            host_function=host_function,
            mode=mode,
            untrusted=untrusted,
            limits=limits,
        )
        with machine.charged():
            machine.load_module(read_module_file(path), str(path))
        return machine

    def load(self, data: HostBytes, location: str = "module") -> BytecodeModule:
        """Verify and register a module, and run its `__init`.

        Args:
            data: the archive, which must stay unchanged.
            location: how errors call it.

        Raises: ArchiveError for a module that does not verify; DeviceError (PERMISSION_DENIED) for
        one with machine code alone that is not trusted; whatever `__init` raises.
        """
        with self.charged():
            return self.load_module(read_archive(data, location), location)

    def charged(self) -> AbstractContextManager[object]:
        """Around what one call, or loading, does: charged to the budget where there is one."""
        return nullcontext() if self.budget is None else self.budget.call()

    def load_module(
        self, definition: ModuleDef, location: str = "module"
    ) -> BytecodeModule:
        """The same for a module that was read; also TargetError without code for the device's CPU."""
        with self.charged():
            return self._load_module(definition, location)

    def _load_module(self, definition: ModuleDef, location: str) -> BytecodeModule:
        if is_artifact(definition) and self.device.machine is not None:
            needs = read_needs(definition, location)
            choose_variant(needs, self.device.machine, location)
        module = BytecodeModule(
            definition,
            self.instance,
            location=location,
            tracer=self._tracer,
            mode=self._mode,
            limits=self.budget,
            debugger=self._debugger,
        )
        self._offer(module)
        try:
            self.context.register(module)
        except DeviceError as error:
            if self._policy.refused:
                raise self._policy.refusal() from error
            tell_wanted_device(error, self.device.id, registry.REGISTRY.names())
            error.location = error.location or location
            raise
        self._loaded.append(module)
        return module

    def _offer(self, module: Module) -> None:
        """Register what the module depends on and we can make."""
        known = {present.name for present in self.context.modules}
        for wanted in module.dependencies:
            create = _ON_DEMAND.get(wanted.name)
            if create is not None and wanted.name not in known:
                self.context.register(create(self.device, self._policy))

    @property
    def functions(self) -> tuple[str, ...]:
        """Full names of the functions that users call."""
        return tuple(name for module in self._loaded for name in _public_names(module))

    def function(self, name: str | None = None) -> VmFunction:
        """A function of a module that was loaded, the last one first.

        Args:
            name: with or without its module's; None for the only one of the module loaded last.

        Raises: UserError when there is no such function, or several to choose from.
        """
        wanted = self._only_function() if name is None else name
        for module in reversed(self._loaded):
            for local in (wanted, wanted.removeprefix(f"{module.name}.")):
                found = None if local.startswith("__") else module.function(local)
                if found is not None:
                    full = f"{module.name}.{local}"
                    callee = self.context.unchecked(full)
                    return VmFunction(self, full, found, callee, module)
        names = self.functions
        raise UserError(
            f"no function '{wanted}'",
            hint=did_you_mean(wanted, [*names, *(n.partition(".")[2] for n in names)])
            or f"functions: {', '.join(names)}",
        )

    def _only_function(self) -> str:
        """The function that there is no need to name."""
        names = [n for module in self._loaded[-1:] for n in _public_names(module)]
        plain = [n for n in names if not n.endswith(_ASYNC_SUFFIX)] or names
        if len(plain) != 1:
            raise UserError(
                f"the module has {len(plain)} functions, say which",
                hint=f"function= (of commands: --function=) one of: {', '.join(plain)}",
            )
        return plain[0]

    def invoke(self, name: str, *inputs: object) -> list[object]:
        """Call a function; arrays and numbers in, arrays and numbers out."""
        return self.function(name)(*inputs)

    def records(self, module: BytecodeModule, function: ModuleFunction) -> bool:
        """Whether calls of a function may be recorded and replayed instead of run again."""
        is_watched = self._tracer or self.budget or self._debugger
        is_stepped = self._mode == "interpret"  # asked for, so every call does it
        if is_watched or is_stepped or not isinstance(self.device, LocalDevice):
            return False
        convention = function.convention
        if not convention.results or {*convention.arguments, *convention.results} != {
            "ref"
        }:
            return False
        ordinals = {export.name: export.function for export in module.definition.exports}
        if not is_repeatable(module.effects(ordinals[function.name])):
            return False
        others = set(range(module.function_count)) - {ordinals.get("__init", -1)}
        return not any(changes_globals(module.effects(ordinal)) for ordinal in others)

    def to_view(self, array: Array, *, copies: bool = False) -> BufferView:
        """An array on the device: in place where it can be used there, else a copy.

        Args:
            array: of any layout.
            copies: never in place, for functions that may write to what they are called with.

        Raises: InputError for an element type that tensors do not have.
        """
        shape, element_type = array.shape, known_element_type(array.dtype)
        if element_type is None:
            element_type = find_element_type(array.dtype)
            bits = bit_count(element_type)
            array = array if bits >= 8 else pack(array, bits)
        allocator = self.device.allocator
        if array.nbytes <= _COPY_LIMIT_BYTES:
            buffer = allocator.allocate(_MEMORY_TYPE, _USAGE, array.nbytes)
            buffer.write(array.tobytes())
            return BufferView(buffer, shape, element_type)
        dense = in_order(array)
        memory = dense.reshape(-1).view(np.uint8)
        imported = None
        if not copies:
            imported = allocator.import_host(_MEMORY_TYPE, _USAGE, memory)
        if imported is None:
            imported = allocator.allocate(_MEMORY_TYPE, _USAGE, dense.nbytes)
            imported.write(view_bytes(memory))
        return BufferView(imported, shape, element_type)


def _public_names(module: BytecodeModule) -> list[str]:
    return [
        f"{module.name}.{function.name}"
        for function in module.functions
        if not function.name.startswith("__")
    ]


@final
class VmFunction:
    """A function, ready to be called with arrays."""

    def __init__(
        self,
        machine: BytecodeMachine,
        name: str,
        function: ModuleFunction,
        callee: Callee,
        module: BytecodeModule,
    ) -> None:
        self.name: str = name
        self.declaration: str = function.attributes.get(_DECLARATION, "")
        self._machine: BytecodeMachine = machine
        self._callee: Callee = callee
        self._is_async: bool = function.attributes.get(_MODEL, "") == _COARSE_FENCES
        banks = function.convention.arguments
        self._banks: tuple[Any, ...] = banks[:-2] if self._is_async else banks
        self.result_banks: tuple[str, ...] = tuple(function.convention.results)
        self._results: int = len(self.result_banks)
        inputs, outputs = parse_declaration(self.declaration)
        self.inputs: tuple[TensorSpec, ...] = inputs
        self.outputs: tuple[TensorSpec, ...] = outputs
        self.checked: tuple[TensorSpec, ...] = ()  # what is known to hold for inputs
        # Kernels of our own never write to inputs.  Those of other compilers may work in place on
        # what they are called with; their own runtimes hand them copies.
        self._copies_inputs: bool = not is_artifact(module.definition)
        self.recorded: RecordedCalls | None = None
        if machine.records(module, function):
            self.recorded = RecordedCalls(
                cast("LocalDevice", machine.device),
                self._to_view,
                self._call,
                self._check,
                copies_inputs=self._copies_inputs,
            )

    @property
    def input_names(self) -> tuple[str, ...]:
        """As declared, else `input0` and so on."""
        if len(self.inputs) == len(self._banks):
            return tuple(name for name, _, _ in self.inputs)
        return tuple(f"input{i}" for i in range(len(self._banks)))

    @property
    def output_names(self) -> tuple[str, ...]:
        """As declared, else `output0` and so on."""
        if len(self.outputs) == self._results:
            return tuple(name for name, _, _ in self.outputs)
        return tuple(f"output{i}" for i in range(self._results))

    def __call__(self, *inputs: object) -> list[object]:
        """Call; arrays and numbers in order.

        Raises: InputError for inputs that do not fit; DeviceError with the trace of the module's
        functions in its notes.
        """
        if self._machine.budget is not None:
            with self._machine.charged():
                return self._arrays(inputs)
        if self.recorded is not None and len(inputs) == len(self._banks):
            replayed = self.recorded(inputs)
            if replayed is not None:
                return replayed
        return self._arrays(inputs)

    def _arrays(self, inputs: Sequence[object]) -> list[object]:
        results = self._call(self._arguments(inputs))
        return [r.to_numpy() if isinstance(r, BufferView) else r for r in results]

    def _call(self, arguments: Sequence[object]) -> Sequence[object]:
        """The results of the bytecode, tensors as buffer views."""
        if self._is_async:
            signal = Fence.at(self._machine.device.create_semaphore(), 1)
            results = self._callee(*arguments, None, signal)
            signal.wait()
        else:
            results = self._callee(*arguments)
        if self._results == 0:
            return ()
        return (results,) if self._results == 1 else cast("tuple[object, ...]", results)

    def begin(
        self, *inputs: object, wait: Fence | None = None, signal: Fence | None = None
    ) -> Invocation:
        """A call before its first instruction: resume it, await it, or step through it.

        Args:
            inputs: as for a call.
            wait: for functions with fences: reached before the inputs are used.
            signal: likewise: reached when the results are there.

        Returns: an invocation whose results are those of the bytecode, tensors as buffer views.
        Raises: InputError for inputs that do not fit.
        """
        fences = (wait, signal) if self._is_async else ()
        arguments = self._arguments(inputs)
        return self._machine.context.begin(self.name, *arguments, *fences)

    def _arguments(self, inputs: Sequence[object]) -> list[object]:
        if len(inputs) != len(self._banks):
            raise InputError(
                f"got {len(inputs)} inputs, expected {len(self._banks)}: "
                + ", ".join(self.input_names),
                location=self.name,
            )
        self._check(inputs)
        to_view, argument = self._to_view, self._argument
        return [
            to_view(cast("Array", value))
            if value.__class__ is np.ndarray and bank == "ref"
            else argument(index, bank, value)
            for index, (bank, value) in enumerate(zip(self._banks, inputs, strict=True))
        ]

    def _check(self, inputs: Sequence[object]) -> None:
        check_shapes(self.checked, inputs)
        check_types(self.input_names, inputs)

    def _to_view(self, array: Array) -> BufferView:
        return self._machine.to_view(array, copies=self._copies_inputs)

    def _array(self, index: int, value: object) -> Array:
        try:
            return unmasked(value)
        except InputError as error:
            location = f"{self.name}: input '{self.input_names[index]}'"
            raise InputError(error.message, location=location, hint=error.hint) from error

    def _argument(self, index: int, bank: str, value: object) -> object:
        if bank == "ref":
            if value is None or isinstance(value, BufferView):
                return value
            return self._to_view(self._array(index, value))
        try:
            return _NUMBERS[bank](value)
        except (TypeError, ValueError, OverflowError) as error:
            is_array = isinstance(value, np.ndarray)
            shown = f"{value.dtype}{list(value.shape)}" if is_array else f"{value!r:.80}"
            raise InputError(
                f"got {shown}, expected a number for {bank}",
                location=f"{self.name}: input '{self.input_names[index]}'",
            ) from error


def _whole_number(value: object, bits: int) -> int:
    """A number of so many bits, signed or not.  Raises: ValueError for another."""
    number = int(cast("int", value))
    if number != value or not -(1 << (bits - 1)) <= number < 1 << bits:
        raise ValueError(value)
    return number


_NUMBERS: Final[Mapping[str, Callable[[Any], float]]] = {
    "i32": lambda value: wrap_i32(_whole_number(value, 32)),
    "i64": lambda value: wrap_i64(_whole_number(value, 64)),
    "f32": lambda value: round_f32(float(value)),
    "f64": float,
}
"""What a value becomes in each bank of registers."""


@final
class BytecodeExecutor:
    """A function in the terms of sessions: like the plan executor, but through the machine.

    Args:
        machine: with the module loaded.
        name: the function; None for the only one.
        inputs: what it takes, where better known than declared.
        outputs: what it returns, likewise.
    """

    def __init__(
        self,
        machine: BytecodeMachine,
        name: str | None = None,
        *,
        inputs: tuple[TensorSpec, ...] | None = None,
        outputs: tuple[TensorSpec, ...] | None = None,
    ) -> None:
        self.machine: BytecodeMachine = machine
        self.function: VmFunction = machine.function(name)
        self.function.checked = inputs or ()
        self.inputs: tuple[TensorSpec, ...] = inputs or self.function.inputs
        self.outputs: tuple[TensorSpec, ...] = outputs or self.function.outputs
        self.input_names: tuple[str, ...] = (
            tuple(n for n, _, _ in inputs) if inputs else self.function.input_names
        )
        self.output_names: tuple[str, ...] = (
            tuple(n for n, _, _ in outputs) if outputs else self.function.output_names
        )

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Run on arrays in order; outputs are fresh arrays."""
        return tuple(np.asarray(result) for result in self.function(*arrays))

    def run_into(
        self, arrays: Sequence[Array], outputs: Sequence[Array | None]
    ) -> tuple[Array, ...]:
        """Run, and copy results into arrays of the caller, where there are some.

        Raises: InputError for an array of another type or layout, or two over the same memory; none is written then.
        """
        results = self(*arrays)
        rows = list(zip(self.output_names, outputs, results, strict=True))
        for name, target, made in rows:
            if target is not None:
                check_target(target, made, name)
        check_apart(self.output_names, outputs)
        for _, target, made in rows:
            if target is not None:
                np.copyto(target, made)
        return tuple(made if target is None else target for _, target, made in rows)

    def profile(self, arrays: Sequence[Array]) -> list[tuple[Step, native.Timing]]:
        """Run once, one command at a time: each with its times, in order."""
        device = self.machine.device
        device.profiling_begin()
        try:
            self.function(*arrays)
        finally:
            times = device.profiling_end()
        return [
            (
                Step("dispatch", t.name, t.name, (), 0, grid=t.workgroup_count),
                native.Timing(t.begin_ns, t.duration_ns, t.threads),
            )
            for t in times
        ]

    def dimensions_of(self, arrays: Sequence[Array]) -> Mapping[str, int]:
        """The value of each dynamic dimension in a call with these inputs."""
        found: dict[str, int] = {}
        for (_, _, shape), array in zip(self.inputs, arrays, strict=False):
            for dim, extent in zip(shape, np.shape(array), strict=False):
                if not isinstance(dim, int):
                    found[str(dim)] = extent
        return found


def parse_declaration(
    text: str,
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs and outputs of `sync func @f(%x: tensor<?x4xf32>) -> (%y: tensor<4xf32>)`.

    Returns: nothing for a side with something else than tensors of types that we have.
    """
    before, arrow, behind = text.partition("->")
    return _specs(before), _specs(behind) if arrow else ()


def _specs(text: str) -> tuple[TensorSpec, ...]:
    specs: list[TensorSpec] = []
    for name, _, inner in _ITEM.findall(text):
        *dims, element = inner.split("x") if inner else [""]
        try:
            dtype = dtypes.parse("bool" if element == "i1" else element)
            shape = tuple(
                symbol(f"{name}_{axis}") if dim == "?" else int(dim)
                for axis, dim in enumerate(dims)
            )
        except (UserError, ValueError):
            return ()
        specs.append(TensorSpec(name, dtype, shape))
    return tuple(specs)
