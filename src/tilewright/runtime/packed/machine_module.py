"""A virtual machine as a module: the functions that TVM's has, over whatever runs the functions.

Inputs are set, a function is invoked, and outputs are asked for, each by a call of its own: so that
a caller far away, or one in C, needs to hold no tensors.  What users see is `runtime.virtual_machine`.
Not here: how a function runs (`MachineEngine`).

Source: TVM 0.27, `VirtualMachineImpl` (names, arguments and rules of the functions).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast, final, runtime_checkable

from tilewright.base.bound_to_process import BoundToProcess
from tilewright.base.errors import InputError
from tilewright.base.text import did_you_mean, plural
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import PackedFunction, packed_function
from tilewright.runtime.packed.module import Module
from tilewright.runtime.packed.tensors import kept

KIND: Final = "virtual_machine"
LOAD_MACHINE: Final = "vm_load_executable"
"""The function by which other modules give the virtual machine of their functions."""
_CPU: Final = 1  # DLPack's number


@final
class MemoryManager(enum.IntEnum):
    """Where a machine's tensors lie; the numbers are TVM's.

    `NAIVE` asks the system for every tensor and gives it back; `POOLED` keeps what is given back for
    the next.
    """

    NAIVE = 1
    POOLED = 2


class InstrumentResult(enum.IntEnum):
    """What an instrument answers before a call; the numbers are TVM's."""

    NO_OP = 0
    SKIP_RUN = 1


Instrument = Callable[..., object]
"""Called as `(function, symbol, before_run, result, *arguments)` around every call of a kernel."""


class MachineEngine(Protocol):
    """What runs the functions of a machine."""

    def function_names(self) -> Sequence[str]:
        """All functions that can be called."""
        ...

    def parameter_names(self, function: str) -> Sequence[str] | None:
        """What the parameters are called; None where nobody knows."""
        ...

    def call(self, function: str, arguments: Sequence[Any]) -> object:
        """Run it.  Returns a tensor, a number, or a tuple of such (nested)."""
        ...

    def set_instrument(self, instrument: Instrument | None) -> None:
        """Have every kernel's call told to `instrument` from here on.

        Raises: InputError for an engine that cannot.
        """
        ...


@runtime_checkable
class HasPackedFunctions(Protocol):
    """An engine whose functions can be called without Python between."""

    def packed(self, function: str) -> PackedFunction:
        """A function of `function_names()`."""
        ...


OpenEngine = Callable[[MemoryManager], MachineEngine]


@final
class MachineModule(BoundToProcess, Module):
    """The functions of a virtual machine.

    Args:
        open_engine: makes the engine when `vm_initialization` says with which memory.
        names: the engine's functions, for whoever asks before.

    Thread-safety: functions of the engine as the engine says; what is set, invoked and got belongs to
    one thread at a time.
    """

    _made_again = "tilewright.runtime.load_module(path)"
    kind = KIND

    def __init__(self, open_engine: OpenEngine, names: Sequence[str]) -> None:
        super().__init__()
        self._open_engine: OpenEngine = open_engine
        self._names: tuple[str, ...] = tuple(names)
        self._engine: MachineEngine | None = None
        self._inputs: dict[str, tuple[Any, ...]] = {}
        self._outputs: dict[str, object] = {}
        self._saved: dict[str, PackedFunction] = {}
        self._own: Final[dict[str, Callable[..., object]]] = {
            "vm_initialization": self._initialize,
            "set_input": self._set_input,
            "invoke_stateful": self._invoke_stateful,
            "get_output": self._get_output,
            "get_output_arity": self._get_output_arity,
            "get_function_arity": self._get_function_arity,
            "get_function_param_name": self._get_function_param_name,
            "invoke_closure": self._invoke_closure,
            "save_function": self._save_function,
            "set_instrument": self._set_instrument,
        }

    def function_names(self) -> Sequence[str]:
        return (*self._names, *self._saved, *self._own)

    def find_function(self, name: str) -> PackedFunction | None:
        # Made anew: the collector of cycles does not see through a packed function.
        if name in self._own:
            return packed_function(self._own[name])
        known = self._saved.get(name)
        if known is not None or name not in self._names:
            return known
        if isinstance(self._engine, HasPackedFunctions) and name not in self._inputs:
            return self._engine.packed(name)
        return packed_function(lambda *arguments: self._call(name, arguments))

    @property
    def engine(self) -> MachineEngine:
        """What runs the functions.  Raises: InputError before `vm_initialization`."""
        if self._engine is None:
            raise InputError(
                "the virtual machine has no devices yet",
                hint="call vm_initialization(device_type, device_id, memory_manager) first",
            )
        return self._engine

    def _initialize(self, *given: int) -> None:
        rows = [given[i : i + 3] for i in range(0, len(given), 3)]
        if not rows or len(rows[-1]) != 3:
            raise InputError(
                f"vm_initialization got {len(given)} arguments, expected three for each device: "
                "its type, its number and the memory manager"
            )
        if len(rows) > 1 or tuple(rows[0][:2]) != (_CPU, 0):
            given_devices = ", ".join(_device_text(*row[:2]) for row in rows)
            raise InputError(
                f"this machine runs on one CPU, got {given_devices}",
                hint="device=tilewright.cpu(0)",
            )
        managers = {int(one): one for one in MemoryManager}
        manager = managers.get(rows[0][2])
        if manager is None:
            known = ", ".join(f"{one} ({one.name.lower()})" for one in managers.values())
            raise InputError(f"no memory manager {rows[0][2]}, expected {known}")
        self._engine = self._open_engine(manager)
        self._names = tuple(self._engine.function_names())

    def _call(self, name: str, arguments: Sequence[Any]) -> object:
        if name in self._inputs:
            raise InputError(
                f"inputs of '{name}' are set, it cannot be called with others",
                hint=f"call invoke_stateful('{name}'), or make another virtual machine",
            )
        return self.engine.call(name, arguments)

    # --- inputs, a call, outputs

    def _check_name(self, name: str) -> str:
        if name in self._names:
            return name
        hint = did_you_mean(name, self._names) or f"functions: {', '.join(self._names)}"
        raise InputError(f"the virtual machine has no function '{name}'", hint=hint)

    def _check_count(self, name: str, arguments: Sequence[Any]) -> None:
        names = self.engine.parameter_names(self._check_name(name))
        if names is not None and len(names) != len(arguments):
            raise InputError(
                f"'{name}' got {len(arguments)} arguments, expected {len(names)}: "
                f"{', '.join(names) or 'none'}"
            )

    def _set_input(self, name: str, *arguments: Any) -> None:
        self._check_count(name, arguments)
        self._inputs[name] = tuple(map(kept, arguments))
        self._outputs.pop(name, None)

    def _invoke_stateful(self, name: str) -> None:
        if self._check_name(name) not in self._inputs:
            raise InputError(
                f"no inputs of '{name}' are set",
                hint=f"call set_input('{name}', ...) first",
            )
        self._outputs[name] = self.engine.call(name, self._inputs[name])

    def _output_at(self, name: str, path: Sequence[int]) -> object:
        if self._check_name(name) not in self._outputs:
            raise InputError(
                f"'{name}' has no outputs yet", hint=f"call invoke_stateful('{name}') first"
            )
        value = self._outputs[name]
        for depth, index in enumerate(path):
            if not is_tuple(value) or not 0 <= index < len(cast("Sequence[object]", value)):
                place = "".join(f"[{i}]" for i in path[: depth + 1])
                raise InputError(f"'{name}' has no output {place}")
            value = cast("Sequence[object]", value)[index]
        return value

    def _get_output(self, name: str, *path: int) -> object:
        value = self._output_at(name, path)
        if is_tuple(value):
            place = "".join(f"[{i}]" for i in path)
            raise InputError(
                f"output{place} of '{name}' is a tuple",
                hint="ask for its members: get_output(name, index)",
            )
        return value

    def _get_output_arity(self, name: str, *path: int) -> int:
        value = self._output_at(name, path)
        return len(cast("Sequence[object]", value)) if is_tuple(value) else -1

    # --- what functions look like

    def _parameters(self, name: str) -> Sequence[str]:
        names = self.engine.parameter_names(self._check_name(name))
        if names is None:
            raise InputError(
                f"nobody knows the parameters of '{name}'",
                hint="give its arguments by position",
            )
        return names

    def _get_function_arity(self, name: str) -> int:
        return len(self._parameters(name))

    def _get_function_param_name(self, name: str, index: int) -> str:
        names = self._parameters(name)
        if not 0 <= index < len(names):
            raise InputError(
                f"'{name}' has {plural(len(names), 'parameter')}, got the index {index}"
            )
        return names[index]

    # --- functions of functions

    def _invoke_closure(self, closure: Callable[..., object], *arguments: Any) -> object:
        if not callable(closure):
            raise InputError(f"'{type(closure).__name__}' is no closure")
        return closure(*arguments)

    def _save_function(
        self, name: str, saved_name: str, include_return: int, *arguments: Any
    ) -> None:
        if saved_name in self._names or saved_name in self._own:
            raise InputError(
                f"'{saved_name}' is a function of the virtual machine",
                hint="save it under another name",
            )
        self._check_count(name, arguments)
        engine, values = self.engine, tuple(map(kept, arguments))

        def saved() -> object:
            result = engine.call(name, values)
            return result if include_return else None

        self._saved[saved_name] = packed_function(saved)

    def _set_instrument(self, instrument: Instrument | None) -> None:
        self.engine.set_instrument(instrument)


def call_told(
    instrument: Instrument,
    function: object,
    symbol: str,
    arguments: Sequence[Any],
    run: Callable[[], Any],
) -> Any:
    """Run something between two words to the instrument, which may have it left out (None).

    Args:
        instrument: hears of it before and after.
        function: what is called, as the instrument gets it; None where it is no packed function.
        symbol: its name.
        arguments: what the instrument is shown.
        run: calls it.
    """
    answer = instrument(function, symbol, True, None, *arguments)
    if isinstance(answer, int) and answer == InstrumentResult.SKIP_RUN:
        return None
    result = run()
    instrument(function, symbol, False, result, *arguments)
    return result


def is_tuple(value: object) -> bool:
    """Whether a result has members: a tuple or list of Python's or of tvm-ffi's."""
    return isinstance(value, (tuple, list, tvm_ffi.Array, tvm_ffi.List))


def _device_text(kind: int, number: int) -> str:
    try:
        return str(tvm_ffi.Device(kind, number))
    except KeyError:
        return f"a device of type {kind}"
