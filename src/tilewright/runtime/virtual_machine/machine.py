"""The virtual machine that users hold: functions by name, devices, inputs that stay, times, profiles.

Speaks to a module with the functions of `packed.machine_module`, whoever made it: our artifacts,
exported models, libraries of TVM.  Not here: how functions run.

Source: TVM 0.27, `tvm.runtime.vm.VirtualMachine`; `profile` as TVM had it up to 0.23.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast, final

import numpy as np

from tilewright.base.bound_to_process import BoundToProcess
from tilewright.base.errors import InputError
from tilewright.base.foreign_tensors import refuse_mask
from tilewright.base.options import wrong
from tilewright.runtime.packed.devices import Device
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import PackedFunction
from tilewright.runtime.packed.genuine import as_module
from tilewright.runtime.packed.machine_module import (
    LOAD_MACHINE,
    Instrument,
    InstrumentResult,
    MachineEngine,
    MachineModule,
    MemoryManager,
    call_told,
    is_tuple,
)
from tilewright.runtime.packed.module import Module
from tilewright.runtime.packed.tensors import array_of, tensor_from, tensor_of
from tilewright.runtime.packed.time_evaluator import BenchmarkResult
from tilewright.runtime.virtual_machine.metrics import Count, Metric
from tilewright.runtime.virtual_machine.report import Report, make_report

MemoryConfig = str | Mapping[Device, str] | None
_MANAGERS: Final = {one.name.lower(): one for one in MemoryManager}
_CPU: Final = 1


@final
class VirtualMachine(BoundToProcess):
    """Functions of a module on devices: `machine["main"](x)`.

    Tensors come back as tvm-ffi's: `numpy.from_dlpack(y)` makes arrays of them, `tilewright.runtime.array_of(y)`
    of those of a type, too, that numpy does not have.

    Args:
        module: what `load_module`, `build` or TVM gave: a module, or what has one as `module`.
        device: the device, or several: the last one is the host.
        memory_cfg: `naive` (memory comes from the system and goes back), `pooled` (it is kept for the next
            tensor; the default), or one of them per device.

    Raises: InputError for a module without functions, or a device that it cannot run on.
    Thread-safety: calling functions is as the module says; what is set, invoked and got belongs to one
    thread at a time.
    """

    _made_again = "tilewright.VirtualMachine(tilewright.runtime.load_module(path), device)"

    def __init__(
        self,
        module: Module | tvm_ffi.Module,
        device: Device | Sequence[Device],
        memory_cfg: MemoryConfig = None,
    ) -> None:
        rows = _initialization(device, memory_cfg)
        self.module: Final[Module] = _open(as_module(getattr(module, "module", module)))
        self.module["vm_initialization"](*(number for row in rows for number in row))
        self._device: str = f"cpu{rows[0][1]}"

    def __repr__(self) -> str:
        return f"<VirtualMachine on {self._device}, module of kind '{self.module.kind}'>"

    def __getitem__(self, name: str) -> PackedFunction:
        """The function `name`.  Raises: InputError with the functions there are."""
        return self.module[name]

    # --- inputs, a call, outputs

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep the arguments of a function on its device; `invoke_stateful` calls it with them.

        From here on the function is not called in another way.  Arrays and tensors of the host are copied.

        Args:
            func_name: the function.
            args: arrays, numbers, texts, or tuples of such, in the order of the parameters that
                `kwargs` do not name.
            kwargs: arguments by the names of the parameters.
        Raises: InputError for a name that the function does not have, or another number of arguments.
        """
        placed = self._place(func_name, args, kwargs)
        self.module["set_input"](func_name, *(kept_copy(value) for value in placed))

    def invoke_stateful(self, func_name: str) -> None:
        """Call a function with what `set_input` set.  Raises: InputError where nothing is set."""
        self.module["invoke_stateful"](func_name)

    def get_outputs(self, func_name: str) -> Any:
        """What the last `invoke_stateful` gave: a tensor, or tuples of such, nested as they are.

        Raises: InputError where there was no call.
        """
        get, arity = self.module["get_output"], self.module["get_output_arity"]

        def at(*path: int) -> Any:
            count = int(arity(func_name, *path))
            if count < 0:
                return get(func_name, *path)
            return tuple(at(*path, index) for index in range(count))

        return at()

    # --- functions of functions

    def invoke_closure(self, closure: Any, *args: Any) -> Any:
        """Call a closure that a function gave.  Raises: InputError for elements below a mask."""
        refuse_mask(args)
        return self.module["invoke_closure"](closure, *args)

    def save_function(
        self,
        func_name: str,
        saved_name: str,
        *args: Any,
        include_return: bool = True,
        **kwargs: Any,
    ) -> None:
        """Keep a function with its arguments, under a name by which it is called without any.

        Args:
            func_name: the function.
            saved_name: the name; it may replace one that was saved before.
            args: as for `set_input`.
            include_return: give back what the function gives; None otherwise.
            kwargs: as for `set_input`.
        Raises: InputError for a name that a function of the module has; as `set_input`.
        """
        placed = [kept_copy(value) for value in self._place(func_name, args, kwargs)]
        self.module["save_function"](func_name, saved_name, int(include_return), *placed)

    def _place(
        self, func_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Sequence[Any]:
        """The arguments in order; those by name go where they belong, the others fill the rest."""
        if not kwargs:
            return args
        names = self._parameter_names(func_name)
        unknown = [name for name in kwargs if name not in names]
        if unknown:
            raise InputError(
                f"'{func_name}' has no parameter '{unknown[0]}'",
                hint=f"its parameters: {', '.join(names)}",
            )
        if len(args) + len(kwargs) != len(names):
            raise InputError(
                f"'{func_name}' got {len(args) + len(kwargs)} arguments, expected "
                f"{len(names)}: {', '.join(names)}"
            )
        rest = iter(args)
        return [kwargs[name] if name in kwargs else next(rest) for name in names]

    def _parameter_names(self, func_name: str) -> list[str]:
        count = int(self.module["get_function_arity"](func_name))
        name_of = self.module["get_function_param_name"]
        return [str(name_of(func_name, index)) for index in range(count)]

    # --- looking at calls

    def set_instrument(self, instrument: Instrument | None) -> None:
        """Have `instrument` called before and after every call of a kernel; None ends it.

        It is called as `(function, symbol, before_run, result, *arguments)` and may answer
        `tilewright.runtime.InstrumentResult.SKIP_RUN` before, which leaves the call out.

        Raises: UserError for what cannot be called; InputError for a module whose kernels cannot be told
        apart.
        """
        if instrument is not None and not callable(instrument):
            raise wrong("instrument", instrument, "a function or None")
        self.module["set_instrument"](instrument)

    def time_evaluator(  # noqa: PLR0913 - TVM's parameters
        self,
        func_name: str,
        dev: Device | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str | Callable[..., object] = "",
    ) -> Callable[..., BenchmarkResult]:
        """What measures a function: call it with the function's arguments.

        Args:
            func_name: the function, or one that `save_function` saved.
            dev: where it runs; the machine's device.
            number: calls of a repeat, whose mean is one result.
            repeat: how many results there are.
            min_repeat_ms: how long a repeat lasts at least; it gets more calls until it does.
            cooldown_interval_ms: how long to rest.
            repeats_to_cooldown: after how many repeats.
            cache_flush_bytes: bytes that are written before each repeat.
            f_preproc: a function, or the name of a global one, that is called before each repeat.

        Returns: a callable that returns a `BenchmarkResult`: seconds, and a table as text.
        """
        return self.module.time_evaluator(
            func_name,
            dev,
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
            cache_flush_bytes=cache_flush_bytes,
            f_preproc=f_preproc,
        )

    def profile(self, func_name: str, *args: Any) -> Report:
        """Call a function and say how long each kernel took.

        Three calls: one that nobody counts, one without a watch whose time is the `Total` (or the sum of the
        kernels, if that is more), and one whose kernels are timed.  An instrument that was set is gone
        afterwards.

        Returns: a report: `table()`, `csv()`, `json()`, `compare(other)`.
        Raises: InputError for elements below a mask, and what the function raises.
        """
        refuse_mask(args)
        function = self.module[func_name]
        self.set_instrument(None)
        function(*args)
        # Not of the watched call: there, tensors are made for the watch, of weights by copying.
        begin = time.perf_counter_ns()
        function(*args)
        whole_us = (time.perf_counter_ns() - begin) / 1e3
        watch = _Watch()
        self.set_instrument(watch)
        try:
            function(*args)
        finally:
            self.set_instrument(None)
        configuration: dict[str, Metric] = {
            "Executor": f"virtual machine over a module of kind '{self.module.kind}'",
            "Calls": Count(len(watch.rows)),
        }
        return make_report(
            watch.rows,
            whole_us=max(whole_us, sum(row[2] for row in watch.rows)),
            device=self._device,
            configuration=configuration,
        )


@final
class _Watch:
    """An instrument that takes the time of every kernel's call."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, float]] = []
        self._begun: list[int] = []

    def __call__(
        self, function: object, symbol: str, before: bool, result: object, *arguments: Any
    ) -> int:
        del function, result
        if before:
            self._begun.append(time.perf_counter_ns())
        else:
            duration_us = (time.perf_counter_ns() - self._begun.pop()) / 1e3
            shapes = ", ".join(_shape_text(a) for a in arguments if hasattr(a, "shape"))
            self.rows.append((str(symbol), shapes, duration_us))
        return InstrumentResult.NO_OP


def _shape_text(tensor: Any) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


@final
class _Functions(MachineEngine):
    """The functions of a module that knows nothing of virtual machines."""

    def __init__(self, module: Module) -> None:
        self._module: Module = module
        self._instrument: Instrument | None = None

    def function_names(self) -> Sequence[str]:
        return self._module.function_names()

    def parameter_names(self, function: str) -> Sequence[str] | None:
        """Those of a model's main function, if the module says them."""
        count, name = map(self._module.get_function, ("get_num_inputs", "get_input_name"))
        if function != self._module.entry_name or count is None or name is None:
            return None
        return tuple(str(name(index)) for index in range(int(count())))

    def call(self, function: str, arguments: Sequence[Any]) -> object:
        packed = self._module[function]
        instrument = self._instrument
        if instrument is None:
            return packed(*arguments)
        return call_told(
            instrument, packed, function, arguments, lambda: packed(*arguments)
        )

    def set_instrument(self, instrument: Instrument | None) -> None:
        self._instrument = instrument


def _open(module: Module) -> Module:
    """The module of a machine: itself, the one that it makes, or one around its functions."""
    if module.implements_function("vm_initialization"):
        return module
    make = module.get_function(LOAD_MACHINE)
    if make is not None:
        return as_module(make())
    names = module.function_names()
    if not names:
        raise InputError(
            f"a module of kind '{module.kind}' has no functions to run",
            hint="load a library or an artifact: tilewright.runtime.load_module",
        )
    return MachineModule(lambda _: _Functions(module), names)


def _initialization(
    device: Device | Sequence[Device], memory_cfg: MemoryConfig
) -> list[tuple[int, int, int]]:
    """Type, number and memory manager of each device; the last is the host."""
    devices = list(device) if isinstance(device, Sequence) else [device]
    if not devices or not all(isinstance(one, tvm_ffi.Device) for one in devices):
        raise wrong("device", device, "a device or several", "tilewright.cpu(0)")
    if devices[-1].dlpack_device_type() != _CPU:
        devices.append(tvm_ffi.device("cpu", 0))
    for one in memory_cfg if isinstance(memory_cfg, Mapping) else ():
        if one not in devices:
            raise InputError(
                f"memory_cfg names '{one}', the machine has {', '.join(map(str, devices))}"
            )
    return [
        (int(one.dlpack_device_type()), int(one.index), int(_manager(memory_cfg, one)))
        for one in devices
    ]


def _manager(memory_cfg: MemoryConfig, device: Device) -> MemoryManager:
    chosen: object = memory_cfg
    if isinstance(memory_cfg, Mapping):
        chosen = memory_cfg.get(device)
    if chosen is None:
        return MemoryManager.POOLED
    if not isinstance(chosen, str) or chosen not in _MANAGERS:
        raise wrong("memory_cfg", chosen, "'naive' or 'pooled', or one of them per device")
    return _MANAGERS[chosen]


def kept_copy(value: Any) -> Any:
    """An argument that later changes of the caller's arrays do not reach."""
    refuse_mask(value)
    if is_tuple(value):
        return [kept_copy(member) for member in cast("Sequence[Any]", value)]
    if not isinstance(value, np.ndarray):
        if not hasattr(value, "__dlpack__") or value.__dlpack_device__()[0] != _CPU:
            return value
        value = array_of(tensor_from(value))
    return tensor_of(np.array(value, order="C", copy=True))
