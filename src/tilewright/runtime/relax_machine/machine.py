"""Finds what Relax functions call, once, and has them run.

The C core runs them (`native_program`); where it was not built, Python does (`interpreter`).  One machine belongs to one executable, its library and one heap.  What users see is the
module around it (`modules`).

Thread-safety: functions may be called from several threads; each call has registers and memory of its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast, final

import numpy as np

from tilewright.base.errors import InputError
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
from tilewright.runtime.native import IS_NATIVE
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
from tilewright.runtime.packed.tensors import kept, tensor_from, tensor_of
from tilewright.runtime.relax_machine.builtins import BUILTINS, TAKE_THE_MACHINE, Tensor
from tilewright.runtime.relax_machine.compiled import find_code
from tilewright.runtime.relax_machine.errors import ArgumentTypeError
from tilewright.runtime.relax_machine.interpreter import Interpreter
from tilewright.runtime.relax_machine.native_program import NativeProgram, native_builtin
from tilewright.runtime.relax_machine.storage import (
    Allocator,
    data_type_of,
    dense_tensor,
    size_in_bytes,
)

_BUILTIN_PREFIX: Final = "vm.builtin."
_CPU: Final = 1
_NAMES_SHOWN: Final = 8
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
        self._rows: Final[dict[str, int]] = {
            one.name: index for index, one in enumerate(executable.functions)
        }
        self.constants: Final[tuple[Any, ...]] = tuple(
            self._constant(one, index) for index, one in enumerate(executable.constants)
        )
        self._packed: Final[Mapping[int, Callable[..., Any]]] = self._find_packed()
        self._values: dict[int, PackedFunction] = {}
        self._instrument: Instrument | None = None
        self._interpreter: Final = Interpreter(self)
        self._program: Final = self._make_program()

    def _make_program(self) -> NativeProgram | None:
        """What the C core runs; None where it was not built.

        Raises: InputError for compiled functions whose code no library has, or that nobody can run.
        """
        table = self.executable.functions
        compiled = {
            index: find_code(one, self.imports)
            for index, one in enumerate(table)
            if one.kind is FunctionKind.COMPILED
        }
        if not IS_NATIVE:
            if compiled:
                raise InputError(
                    "functions that TVM compiled to machine code need the C core, which was not built",
                    location=self.executable.location,
                    hint='compile the model with exec_mode="bytecode"',
                )
            return None
        packed = {
            index: packed_function(callee)
            for index, callee in self._packed.items()
            if callee is not BUILTINS.get(table[index].name)
            or native_builtin(table[index].name) is None
        }
        return NativeProgram(
            self.executable, self.constants, {**packed, **compiled}, self.host.heap
        )

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
        index = self._row(function)
        self._check_count(index, arguments)
        values = map(as_value, arguments)
        if self._program is None:
            return self._interpreter.call(index, values)
        return self._program.entry(index)(*values)

    def packed(self, function: str) -> PackedFunction:
        """The function as one that is called without this object between; keeps its memory and code."""
        index = self._row(function)
        if self._program is None:
            return packed_function(lambda *arguments: self.call(function, arguments))
        return self._program.entry(index)

    def set_instrument(self, instrument: Instrument | None) -> None:
        """Have every call of a kernel, a built-in or a registered function told to `instrument`.

        Calls within functions that TVM compiled to machine code are not seen.
        """
        self._instrument = instrument
        if self._program is not None:
            self._program.set_instrument(instrument)

    # --- what built-ins ask -------------------------------------------------------------------

    def allocator(self, device_index: int) -> Allocator:
        """Of a device by its place; -1 is the host.  Raises: InputError."""
        if device_index not in (-1, 0):
            raise InputError(f"device {device_index}, this machine has one")
        return self.host

    # --- functions ----------------------------------------------------------------------------

    def value(self, index: int) -> PackedFunction:
        """A function of the table as a value that may go anywhere; it does not keep the machine.

        The collector of cycles does not see through a packed function.
        """
        if self._program is not None:
            return self._program.value(index)
        found = self._values.get(index)
        if found is None:
            packed = self._packed.get(index)
            call = _weak_call(weakref.ref(self), index) if packed is None else packed
            found = self._values[index] = packed_function(call)
        return found

    def run_packed(self, index: int, arguments: Sequence[Any]) -> Any:
        """Call a packed function or a built-in; an instrument hears of it before and after."""
        packed, instrument = self._packed[index], self._instrument
        if instrument is None:
            return packed(*arguments)
        shown = [None if one is self else one for one in arguments]
        return call_told(
            instrument,
            self.value(index),
            self.executable.functions[index].name,
            shown,
            lambda: packed(*arguments),
        )

    def call_value(self, index: int, arguments: Sequence[Any]) -> Any:
        """Run a function that was passed as a value, in Python."""
        self._check_count(index, arguments)
        return self._interpreter.call(index, arguments)

    def _row(self, name: str) -> int:
        return self._rows[self._function(name).name]

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
            callee = self._find(function.name)
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

    def _find(self, name: str) -> Callable[..., Any] | None:
        for module in self.imports:
            for one in module.walk():
                function = one.find_function(name)
                if function is not None:
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


def _weak_call(machine: weakref.ref[RelaxMachine], index: int) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        alive = machine()
        if alive is None:
            raise InputError(
                "the virtual machine of this function is gone, keep it as long"
            )
        return alive.call_value(index, arguments)

    return call


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
        return kept(value) if value.numel() else _dense(value)
    if isinstance(value, _PASSED_AS_THEY_ARE):
        return value
    if isinstance(value, np.ndarray):
        return as_value(tensor_of(value))
    if hasattr(value, "__dlpack__"):
        return as_value(tensor_from(value))
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
