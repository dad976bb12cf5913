"""Runs Relax functions: finds the functions they call once, translates each when it is first called.

One machine belongs to one executable, its library and one heap.  What users see is the module around it
(`modules`).

Thread-safety: functions may be called from several threads; each call has registers and memory of its own.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast, final

import numpy as np

from tilewright.base.errors import InputError, TilewrightError
from tilewright.base.text import did_you_mean
from tilewright.formats.dlpack_types import DataType
from tilewright.formats.relax_executable import (
    VM_REGISTER,
    ArgumentKind,
    Call,
    Constant,
    Function,
    FunctionKind,
    RelaxExecutable,
    ShapeConstant,
    TensorConstant,
)
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import (
    PackedFunction,
    get_global_func,
    packed_function,
)
from tilewright.runtime.packed.machine_module import (
    Instrument,
    MemoryManager,
    call_told,
)
from tilewright.runtime.packed.module import Module
from tilewright.runtime.packed.tensors import tensor_of
from tilewright.runtime.relax_machine.builtins import (
    BUILTINS,
    INT64,
    TAKE_THE_MACHINE,
    Tensor,
)
from tilewright.runtime.relax_machine.compiled import CompiledFunctions
from tilewright.runtime.relax_machine.errors import ArgumentTypeError
from tilewright.runtime.relax_machine.storage import (
    Allocator,
    data_type_of,
    dense_tensor,
    size_in_bytes,
)
from tilewright.runtime.relax_machine.translate import NAMES, Translation, translate
from tilewright.runtime.relax_machine.uses import Uses, find_uses

_BUILTIN_PREFIX: Final = "vm.builtin."
_CPU: Final = 1
_MACHINE_CODE: Final = frozenset({"library", "static_library"})
"""Kinds of modules whose functions keep no argument."""
_NAMES_SHOWN: Final = 8
_NO_USES: Final = Uses(frozenset(), frozenset(), frozenset())
_PASSED_AS_THEY_ARE: Final = (
    tvm_ffi.Array, tvm_ffi.Shape, tvm_ffi.Function, str, int, float, type(None),
)  # fmt: skip


@final
class RelaxMachine:
    """The functions of an executable, ready to be called.

    Args:
        executable: verified.
        imports: modules that have the functions it calls; the first one that has a name wins.
        manager: whether memory is kept for the next call.

    Raises: InputError with all functions that it calls and nobody has.
    """

    def __init__(
        self, executable: RelaxExecutable, imports: Sequence[Module], manager: MemoryManager
    ) -> None:
        self.executable: Final[RelaxExecutable] = executable
        self.host: Final[Allocator] = Allocator(_CPU, 0, int(manager))
        self.imports: Final[tuple[Module, ...]] = tuple(imports)
        self.keeps_memory: Final[bool] = manager is MemoryManager.POOLED
        self._kernels: set[int] = set()
        self._rows: Final[dict[str, int]] = {
            one.name: index for index, one in enumerate(executable.functions)
        }
        self.constants: Final[tuple[Any, ...]] = tuple(
            self._constant(one, index) for index, one in enumerate(executable.constants)
        )
        self._packed: Final[Mapping[int, Callable[..., Any]]] = self._find_packed()
        self._values: dict[int, PackedFunction] = {}
        self._entries: dict[str, tuple[int, int]] = {}
        self._compiled: CompiledFunctions | None = None
        self._instrument: Instrument | None = None
        self._code: _Code = _Code(self)

    # --- what modules ask ---------------------------------------------------------------------

    def function_names(self) -> Sequence[str]:
        """All functions that can be called."""
        kinds = (FunctionKind.BYTECODE, FunctionKind.COMPILED)
        return tuple(one.name for one in self.executable.functions if one.kind in kinds)

    def parameter_names(self, function: str) -> Sequence[str]:
        """What the parameters are called; `arg0`, ... where the executable does not say."""
        found = self._function(function)
        numbered = tuple(f"arg{place}" for place in range(found.argument_count))
        return found.parameter_names or numbered

    def call(self, function: str, arguments: Sequence[Any]) -> Any:
        """Run a function.

        Args:
            function: its name.
            arguments: tensors (whatever has `__dlpack__`), shapes, numbers, texts, functions, tuples.

        Raises: ArgumentTypeError for another number of arguments; ArgumentTypeError,
            ArgumentValueError and ArgumentMatchError for arguments that the function does not take; what
            a kernel or a registered function raises.
        """
        index, count = self._entries.get(function) or self._entry(function)
        if len(arguments) != count:
            self._check_count(index, arguments)
        return self._code.call(index, map(as_value, arguments))

    def _entry(self, name: str) -> tuple[int, int]:
        """The row of a function, and the number of its arguments."""
        function = self._function(name)
        self._entries[name] = found = self._rows[name], function.argument_count
        return found

    def set_instrument(self, instrument: Instrument | None) -> None:
        """Have every call of a kernel, a built-in or a registered function told to `instrument`."""
        self._instrument = instrument
        self._code = _Code(self, is_instrumented=instrument is not None)

    def source(self, function: str) -> str:
        """The Python function that a function of bytecode became."""
        return self._code.source(self._rows[self._function(function).name])

    # --- what built-ins ask -------------------------------------------------------------------

    def allocator(self, device_index: int) -> Allocator:
        """Of a device by its place; -1 is the host.  Raises: InputError."""
        if device_index not in (-1, 0):
            raise InputError(f"device {device_index}, this machine has one")
        return self.host

    def heap(self, count: int) -> tuple[tvm_ffi.Tensor, memoryview]:
        """A shape heap, and its numbers."""
        storage = self.host.storage(size_in_bytes((count,), INT64))
        words = memoryview(storage.memory).cast("q")[:count]
        return storage.tensor(0, (count,), INT64), words

    # --- functions ----------------------------------------------------------------------------

    def is_kernel(self, index: int) -> bool:
        """Whether a row of the table is machine code of a library."""
        return index in self._kernels

    def callee(self, index: int) -> Callable[..., Any]:
        """A packed function, or a function of ours as Python calls it."""
        packed = self._packed.get(index)
        return packed if packed is not None else self._code.function(index)

    def compiled(self, index: int) -> Callable[..., Any]:
        """A compiled function.  Raises: InputError when no library has its code."""
        if self._compiled is None:
            values = [self.value(one) for one in range(len(self.executable.functions))]
            self._compiled = CompiledFunctions(self, self.constants, values)
        return self._compiled.bind(self.executable.functions[index], self.imports)

    def value(self, index: int) -> PackedFunction:
        """A function of the table as a value that may go anywhere; it does not keep the machine.

        The collector of cycles does not see through a packed function.
        """
        found = self._values.get(index)
        if found is None:
            if index in self._packed:
                found = packed_function(self._packed[index])
            else:
                found = packed_function(_weak_call(weakref.ref(self), index))
            self._values[index] = found
        return found

    def call_value(self, index: int, arguments: Sequence[Any]) -> Any:
        """Run a function that was passed as a value."""
        self._check_count(index, arguments)
        return self._code.call(index, arguments)

    def instrumented(self, index: int, *arguments: Any) -> Any:
        """Call a packed function, and tell the instrument before and after."""
        instrument = self._instrument
        assert instrument is not None, "only instrumented code calls this"
        shown = [None if one is self else one for one in arguments]
        return call_told(
            instrument,
            self.value(index),
            self.executable.functions[index].name,
            shown,
            lambda: self._packed[index](*arguments),
        )

    def _function(self, name: str) -> Function:
        index = self._rows.get(name)
        if index is None or self.executable.functions[index].kind is FunctionKind.PACKED:
            names = self.function_names()
            raise InputError(
                f"no function '{name}'",
                location=self.executable.location,
                hint=did_you_mean(name, names)
                or f"it has {', '.join(names[:_NAMES_SHOWN])}",
            )
        return self.executable.functions[index]

    def _check_count(self, index: int, arguments: Sequence[Any]) -> None:
        function = self.executable.functions[index]
        if len(arguments) != function.argument_count:
            names = ", ".join(function.parameter_names)
            raise ArgumentTypeError(
                f"got {len(arguments)} arguments, expected {function.argument_count}"
                + (f" ({names})" if names else ""),
                location=f"{self.executable.location}: function '{function.name}'",
            )

    def _find_packed(self) -> Mapping[int, Callable[..., Any]]:
        found: dict[int, Callable[..., Any]] = {}
        missing: list[str] = []
        for index, function in enumerate(self.executable.functions):
            if function.kind is not FunctionKind.PACKED:
                continue
            callee = self._find(index, function.name)
            if callee is None:
                missing.append(function.name)
            else:
                found[index] = callee
        if missing:
            shown = ", ".join(f"'{name}'" for name in missing[:_NAMES_SHOWN])
            more = len(missing) - _NAMES_SHOWN
            raise InputError(
                f"calls functions that nobody has: {shown}"
                + (f" and {more} more" if more > 0 else ""),
                location=self.executable.location,
                hint=_missing_hint(missing),
            )
        self._check_machine_arguments(found)
        return found

    def _find(self, index: int, name: str) -> Callable[..., Any] | None:
        for module in self.imports:
            for one in module.walk():
                function = one.find_function(name)
                if function is not None:
                    if one.kind in _MACHINE_CODE:
                        self._kernels.add(index)
                    return function
        return BUILTINS.get(name) or get_global_func(name, allow_missing=True)

    def _check_machine_arguments(self, packed: Mapping[int, Callable[..., Any]]) -> None:
        """TVM's own functions cannot be given our machine."""
        for call in self.executable.instructions:
            if not isinstance(call, Call) or call.function not in packed:
                continue
            name = self.executable.functions[call.function].name
            for place, argument in enumerate(call.arguments):
                is_machine = (
                    argument.kind is ArgumentKind.REGISTER and argument.value == VM_REGISTER
                )
                if is_machine and (place > 0 or name not in TAKE_THE_MACHINE):
                    raise InputError(
                        f"'{name}' takes TVM's virtual machine itself, which this is not",
                        location=self.executable.location,
                    )

    # --- constants ----------------------------------------------------------------------------

    def _constant(self, constant: Constant, index: int) -> Any:
        match constant:
            case TensorConstant():
                return self._constant_tensor(constant, index)
            case ShapeConstant(sizes):
                return tvm_ffi.Shape(sizes)
            case DataType():
                return tvm_ffi.dtype(str(constant))
            case _:
                return constant

    def _constant_tensor(self, constant: TensorConstant, index: int) -> tvm_ffi.Tensor:
        """A copy: elements in the file are not aligned."""
        scope = self.executable.memory_scopes.get(index, "global")
        if scope not in ("", "global"):
            raise InputError(
                f"constant {index} lies in memory scope '{scope}', expected 'global'",
                location=self.executable.location,
            )
        size = size_in_bytes(constant.shape, constant.element_type)
        storage = self.host.storage(max(size, len(constant.data)))
        memoryview(storage.memory)[: len(constant.data)] = constant.data
        return storage.tensor(0, constant.shape, constant.element_type)


@final
class _Code:
    """The functions of a machine as Python, with or without an instrument."""

    def __init__(self, machine: RelaxMachine, *, is_instrumented: bool = False) -> None:
        self._machine: Final[RelaxMachine] = machine
        self._is_instrumented: Final[bool] = is_instrumented
        self._translations: dict[int, Translation] = {}
        self._lock: Final = threading.RLock()
        table = machine.executable.functions
        self._names: dict[str, Any] = {
            **NAMES,
            "machine": machine,
            "located": self._locate,
            "instrumented": machine.instrumented,
            "new_storage": machine.host.storage,
            **{f"c{i}": one for i, one in enumerate(machine.constants)},
            **{
                f"d{i}": one
                for i, one in enumerate(machine.executable.constants)
                if isinstance(one, DataType)
            },
        }
        for index, function in enumerate(table):
            if function.kind is FunctionKind.PACKED:
                self._names[f"k{index}"] = machine.callee(index)
            elif function.kind is FunctionKind.COMPILED:
                self._names[f"F{index}"] = machine.compiled(index)
            else:
                self._names[f"F{index}"] = self._first_call(index)

    def call(self, index: int, arguments: Iterable[Any]) -> Any:
        """Run a function."""
        return self._names[f"F{index}"](*arguments)

    def function(self, index: int) -> Callable[..., Any]:
        """A function of ours, for calls that come later."""

        def call(*arguments: Any) -> Any:
            return self._names[f"F{index}"](*arguments)

        return call

    def source(self, index: int) -> str:
        """What a function of bytecode became."""
        return self._translation(index).source

    def _first_call(self, index: int) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._bind(index)
            return self._names[f"F{index}"](*arguments)

        return call

    def _translation(self, index: int) -> Translation:
        with self._lock:
            found = self._translations.get(index)
            if found is None:
                machine = self._machine
                function = machine.executable.functions[index]
                uses = _NO_USES
                if not self._is_instrumented:
                    uses = find_uses(machine.executable, function, machine.is_kernel)
                    if not machine.keeps_memory:
                        uses = Uses(uses.heaps, uses.sizes, frozenset())
                found = self._translations[index] = translate(
                    machine.executable,
                    function,
                    index,
                    uses,
                    is_instrumented=self._is_instrumented,
                )
            return found

    def _bind(self, index: int) -> None:
        translation = self._translation(index)
        with self._lock:
            machine, slots = self._machine, translation.frame_slots
            self._names[f"frames{index}"] = []
            self._names[f"new_frame{index}"] = lambda: [
                None if slot.make is None else slot.make(machine) for slot in slots
            ]
            for value in _function_values(
                machine.executable, machine.executable.functions[index]
            ):
                self._names[f"f{value}"] = machine.value(value)
            exec(
                translation.code, self._names
            )  # of our own making, from verified instructions

    def _locate(self, error: Exception, index: int) -> Exception:
        """The error, with the place where it came up first."""
        if getattr(error, "relax_place", None) is not None:
            return error
        translation, executable = self._translations[index], self._machine.executable
        trace = error.__traceback__
        line = 1 if trace is None else trace.tb_lineno
        place = translation.places[min(line, len(translation.places)) - 1]
        name = executable.functions[index].name
        where = f"{executable.location}: function '{name}'"
        if place >= 0:
            one = executable.instructions[place]
            what = (
                f" ('{executable.functions[one.function].name}')"
                if isinstance(one, Call)
                else ""
            )
            where += f": instruction {place}{what}"
        return _placed(error, where)


def _placed(error: Exception, where: str) -> Exception:
    if isinstance(error, RecursionError):
        error = InputError(
            "calls are nested deeper than Python's limit",
            hint="a loop in Relax is a function that calls itself: sys.setrecursionlimit(n)",
        )
    if isinstance(error, TilewrightError):
        error.location = where if error.location is None else f"{where}: {error.location}"
    else:
        error.add_note(f"in {where}")
    vars(error)["relax_place"] = where
    return error


def _weak_call(machine: weakref.ref[RelaxMachine], index: int) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        alive = machine()
        if alive is None:
            raise InputError(
                "the virtual machine of this function is gone, keep it as long"
            )
        return alive.call_value(index, arguments)

    return call


def _function_values(executable: RelaxExecutable, function: Function) -> set[int]:
    """Functions that code of this one passes as values."""
    return {
        argument.value
        for one in executable.instructions[function.first : function.end]
        if isinstance(one, Call)
        for argument in one.arguments
        if argument.kind is ArgumentKind.FUNCTION
    }


def _missing_hint(names: Sequence[str]) -> str:
    own = [name for name in names if name.startswith(_BUILTIN_PREFIX)]
    if own:
        return (
            f"'{own[0]}' is a part of TVM's runtime that is not rebuilt here: import tvm first, "
            "or compile the model without it"
        )
    return f"register it: tilewright.register_global_func('{names[0]}', function)"


def _dense(value: tvm_ffi.Tensor) -> tvm_ffi.Tensor:
    """An empty tensor with the strides that kernels expect; numpy's are others."""
    return dense_tensor(value, value.data_ptr(), value.shape, data_type_of(value.dtype))


def as_value(value: Any) -> Any:
    """What a caller gives, as functions take it: tensors and tuples are tvm-ffi's.

    Raises: ArgumentTypeError for anything else.
    """
    if isinstance(value, Tensor):
        return value if value.numel() else _dense(value)
    if isinstance(value, _PASSED_AS_THEY_ARE):
        return value
    if isinstance(value, np.ndarray):
        return as_value(tensor_of(value))
    if hasattr(value, "__dlpack__"):
        return as_value(tvm_ffi.from_dlpack(value))
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[Any]", value)
        return tvm_ffi.Array([as_value(item) for item in items])
    if isinstance(value, (np.integer, np.floating, np.bool_)):
        return value.item()
    if isinstance(value, tvm_ffi.core.CObject):
        return value
    if callable(value):
        return packed_function(value)
    raise ArgumentTypeError(f"an argument of type '{type(value).__name__}'")
