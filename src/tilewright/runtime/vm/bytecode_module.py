"""A module of bytecode: what a `.vmfb` archive becomes.

Verified as a whole before anything of it runs; functions are translated, or bound to steps, when they
are first called.  Called by `runtime.bytecode_machine`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, Literal, final, get_args

from tilewright.base.budget import OBJECT_BYTES, Budget, Limits, budget_of
from tilewright.base.errors import UserError
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.lazy import lazy
from tilewright.base.status import StatusCode, failure
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.bytecode.encoding import Instruction
from tilewright.formats.calling_convention import (
    CallingConvention,
    parse_calling_convention,
)
from tilewright.formats.vmfb import OPTIONAL, ModuleDef, decode_module, verify_module
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.effects import Effects, effects_of
from tilewright.runtime.vm.frame import Debugger, Function, State, Tracer
from tilewright.runtime.vm.handlers.operands import CodeContext
from tilewright.runtime.vm.interpreter import bind_blocks, block_indices, run
from tilewright.runtime.vm.invocation import Invocation
from tilewright.runtime.vm.module import (
    Callee,
    Module,
    ModuleDependency,
    ModuleFunction,
    ModuleImport,
    ModuleState,
)
from tilewright.runtime.vm.ref import Instance
from tilewright.runtime.vm.stack import Stack
from tilewright.runtime.vm.translator import Translation, imports_of, translate

BytecodeMode = Literal["translate", "interpret"]
DEFAULT_MODE: BytecodeMode = "translate"

_REFERENCE_BYTES: Final = 8
_RUN_ONCE: Final = frozenset({"__init", "__deinit"})
_DECODED_BYTES: Final = 32
"""What a byte of code becomes in memory, at most: instructions, steps, Python functions."""
_FUNCTION_BYTES: Final = 2048
_TRANSLATED_LIMIT: Final = 20_000
"""Instructions of a metered function that is translated: Python's compiler looks at no clock."""
_MOVES_SINCE_MAJOR: Final = 16
"""Before, compilers set the move bit of plain operands without meaning it."""


@final
class BytecodeModule(Module):
    """A verified module.

    Args:
        definition: as read from an archive, whose memory it keeps.
        instance: knows the types that the module names.
        location: how errors call it.
        tracer: hears of `trace` and `print` instructions.
        mode: `translate` (the default) makes a Python function of each function, `interpret`
            runs them step by step.
        limits: what calls may take, or the budget that it shares with others; for modules that are
            not trusted.
        debugger: called at `break` and `cond_break` instructions, for example `breakpoint`.

    Raises:
        ArchiveError: the module does not verify, or is of another bytecode version.
        DeviceError: it names an unknown type.
        LimitError: its code takes more memory or time than the limits allow.
    """

    def __init__(
        self,
        definition: ModuleDef,
        instance: Instance,
        *,
        location: str = "module",
        tracer: Tracer | None = None,
        mode: BytecodeMode | None = None,
        limits: Limits | Budget | None = None,
        debugger: Debugger | None = None,
    ) -> None:
        self.budget: Budget | None = budget_of(limits)
        self.definition: ModuleDef = definition
        self.instance: Instance = instance
        self.tracer: Tracer | None = tracer
        if mode not in (None, *get_args(BytecodeMode)):
            raise UserError(
                f"unknown mode of bytecode '{mode}'",
                hint=f"known: {' '.join(get_args(BytecodeMode))}",
            )
        self.mode: BytecodeMode = mode or DEFAULT_MODE
        self.debugger: Debugger | None = debugger
        with nullcontext() if self.budget is None else self.budget.call():
            self._code: tuple[tuple[Instruction, ...], ...] = self._decode(location)
        self._names: list[str] = definition.function_names()
        self._exports: dict[str, int] = {}
        for export in definition.exports:
            self._exports.setdefault(export.name, export.function)
        self._types: tuple[type | None, ...] = tuple(
            instance.resolve(text) for text in definition.types
        )
        self._rodata: tuple[VmBuffer, ...] = tuple(
            VmBuffer(view_bytes(item.data).toreadonly()) for item in definition.rodata
        )
        self._imports: tuple[CallingConvention, ...] = tuple(
            parse_calling_convention(item.signature.calling_convention)
            for item in definition.imports
        )
        self._import_names: tuple[str, ...] = tuple(
            item.name for item in definition.imports
        )
        self._contexts: dict[int, CodeContext] = {}
        self._bound: dict[int, Function] = {}
        self._translated: dict[int, Translation] = {}
        self._lock: threading.RLock = fork_lock(Rank.MODULE)

    def _decode(self, location: str) -> tuple[tuple[Instruction, ...], ...]:
        """The verified code, its memory taken from the budget first."""
        definition = self.definition
        if self.budget is not None:
            size = len(view_bytes(definition.bytecode)) * _DECODED_BYTES
            self.budget.keep(self, size + len(definition.functions) * _FUNCTION_BYTES)
        verify_module(definition, location)
        return decode_module(definition, location)

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def version(self) -> int:
        return self.definition.version

    @property
    def attributes(self) -> Mapping[str, str]:
        return self.definition.attributes

    @property
    def dependencies(self) -> Sequence[ModuleDependency]:
        return tuple(
            ModuleDependency(
                name=item.name,
                minimum_version=item.minimum_version,
                required=not item.flags & OPTIONAL,
            )
            for item in self.definition.dependencies
        )

    @property
    def imports(self) -> Sequence[ModuleImport]:
        return tuple(
            ModuleImport(
                name=item.name,
                calling_convention=item.signature.calling_convention,
                required=not item.flags & OPTIONAL,
            )
            for item in self.definition.imports
        )

    @lazy
    def _functions(self) -> tuple[ModuleFunction, ...]:
        found: list[ModuleFunction] = []
        for export in self.definition.exports:
            signature = self.definition.signatures[export.function]
            found.append(
                ModuleFunction(
                    name=export.name,
                    calling_convention=signature.calling_convention,
                    convention=parse_calling_convention(signature.calling_convention),
                    attributes=signature.attributes,
                )
            )
        return tuple(found)

    @property
    def functions(self) -> Sequence[ModuleFunction]:
        return self._functions

    @lazy
    def _function_of(self) -> dict[str, ModuleFunction]:
        found: dict[str, ModuleFunction] = {}
        for function in self._functions:
            found.setdefault(function.name, function)
        return found

    def function(self, name: str) -> ModuleFunction | None:
        return self._function_of.get(name)

    def export(self, name: str) -> int | None:
        """The ordinal of an exported function."""
        return self._exports.get(name)

    def create_state(self) -> ModuleState:
        return _BytecodeState(self)

    def state(self, call: Callable[[int, Sequence[object]], tuple[object, ...]]) -> State:
        """Blank globals and unbound imports."""
        definition = self.definition
        return State(
            instance=self.instance,
            words=bytearray(definition.state.global_bytes),
            refs=[None] * definition.state.global_refs,
            imports=[None] * len(definition.imports),
            rodata=self._rodata,
            call=call,
            stack=Stack(),
            tracer=self.tracer,
            waits=[None] * len(definition.imports),
            budget=self.budget,
            debugger=self.debugger,
        )

    def effects(self, index: int) -> Effects:
        """What a function may do, by its code and that of all that it calls here."""
        return effects_of(self.definition, self._code, index)

    @property
    def function_count(self) -> int:
        """How many functions there are, internal ones among them."""
        return len(self._code)

    def bound(self, index: int) -> Function:
        """A function, bound to steps now if it was not."""
        found = self._bound.get(index)
        if found is None:
            with self._lock:
                found = self._bound.setdefault(index, self._bind(index))
        return found

    def translated(self, index: int, missing: frozenset[int]) -> Translation:
        """A function as Python, translated now if it was not.

        Args:
            index: of the function.
            missing: imports that are not there.
        """
        missing &= imports_of(self._code[index])
        if missing:
            return self._translate(index, missing)  # a case too rare to keep
        found = self._translated.get(index)
        if found is None:
            with self._lock:
                found = self._translated.get(index)
                if found is None:
                    found = self._translated[index] = self._translate(index, missing)
        return found

    @property
    def translated_count(self) -> int:
        """How many functions are Python by now."""
        return len(self._translated)

    def _translate(self, index: int, missing: frozenset[int]) -> Translation:
        return translate(
            self.definition,
            self._function(index),
            self._code[index],
            self.context(index),
            missing,
            is_metered=self.budget is not None,
        )

    def is_translated(self, index: int) -> bool:
        """Whether a function becomes Python when it is called."""
        is_long = self.budget is not None and len(self._code[index]) > _TRANSLATED_LIMIT
        return self.mode == "translate" and not is_long

    def _bind(self, index: int) -> Function:
        function = self._function(index)
        function.blocks = bind_blocks(self._code[index], self.context(index))
        return function

    def context(self, index: int) -> CodeContext:
        """What handlers need to know around a function."""
        found = self._contexts.get(index)
        if found is None:
            definition = self.definition
            found = self._contexts[index] = CodeContext(
                self._types,
                definition.types,
                self._imports,
                self._import_names,
                block_indices(self._code[index]),
                self._convention(index).results,
                honours_moves=definition.bytecode_version >> 16 >= _MOVES_SINCE_MAJOR,
            )
        return found

    def _convention(self, index: int) -> CallingConvention:
        return parse_calling_convention(
            self.definition.signatures[index].calling_convention
        )

    def _function(self, index: int) -> Function:
        descriptor = self.definition.functions[index]
        convention = self._convention(index)
        return Function(
            index=index,
            name=self._names[index],
            convention=convention,
            word_registers=descriptor.word_registers,
            ref_registers=descriptor.ref_registers,
            argument_places=tuple(
                (bank == "ref", place) for bank, place in convention.argument_registers()
            ),
        )


@final
class _BytecodeState(ModuleState):
    """Globals and imports of a module in one context."""

    def __init__(self, module: BytecodeModule) -> None:
        self._module: BytecodeModule = module
        if module.budget is not None:
            state = module.definition.state
            size = state.global_bytes + state.global_refs * _REFERENCE_BYTES
            module.budget.keep(self, size + OBJECT_BYTES)
        try:
            self._state: State = module.state(self._call)
        except MemoryError as error:
            state = module.definition.state
            raise failure(
                StatusCode.RESOURCE_EXHAUSTED,
                f"no memory for {state.global_bytes} bytes of globals",
                location=f"module '{module.name}'",
            ) from error
        self._translated: dict[int, Callee] = {}
        self._calls: list[Callee] = [
            self._translating(i) if module.is_translated(i) else self._interpreting(i)
            for i in range(len(module.definition.functions))
        ]

    def lookup(self, name: str, calling_convention: str | None) -> Callee | None:
        function = self._module.export(name)
        if function is None:
            return None
        signature = self._module.definition.signatures[function].calling_convention
        if calling_convention is not None and signature != calling_convention:
            return None
        # What runs once, `__init` first of all, is done before it would be translated.
        return self._callee(function, runs_once=name in _RUN_ONCE)

    def resolve_import(
        self, index: int, callee: Callee | None, waits: Callee | None = None
    ) -> None:
        self._state.imports[index] = callee
        self._state.waits[index] = waits

    def begin(self, name: str, arguments: Sequence[Any]) -> Invocation | None:
        """A call that can be suspended, before its first instruction; None without the function."""
        function = self._module.export(name)
        if function is None:
            return None
        return Invocation(self._module, self._state, function, arguments)

    def notify(self, signal: str) -> None:
        callee = self.lookup("__notify", "0i_v")
        if callee is not None:
            callee({"resume": 0, "suspend": 1, "low_memory": 2}.get(signal, 0))

    def _callee(self, index: int, *, runs_once: bool) -> Callee:
        is_translated = self._module.is_translated(index) and not runs_once
        function = self._translate(index) if is_translated else self._interpreting(index)
        budget = self._state.budget
        if budget is None:
            return function

        def metered(*arguments: Any) -> object:
            with budget.call():
                return function(*arguments)

        return metered

    # --- translated -----------------------------------------------------------------------------

    def _translating(self, index: int) -> Callee:
        """Stands for a function until it is called for the first time."""
        return lambda *arguments, depth=1: self._translate(index)(*arguments, depth=depth)

    def _translate(self, index: int) -> Callee:
        found = self._translated.get(index)
        if found is None:
            state = self._state
            missing = frozenset(i for i, f in enumerate(state.imports) if f is None)
            translation = self._module.translated(index, missing)
            found = translation.bind(
                self._module.definition,
                state,
                self._calls,
                functools.partial(self._resume, index),
            )
            self._translated[index] = self._calls[index] = found
        return found

    def _resume(self, index: int, block: int, registers: Mapping[str, object]) -> object:
        """What a translated function returns that goes on in the interpreter."""
        function = self._module.bound(index)
        values = function.named_registers(registers)
        return _returned(run(self._module.definition, function, values, self._state, block))

    # --- interpreted ----------------------------------------------------------------------------

    def _interpreting(self, index: int) -> Callee:
        return functools.partial(self._enter, index)

    def _call(self, index: int, arguments: Sequence[Any]) -> tuple[object, ...]:
        function = self._module.bound(index)
        registers = function.registers(arguments)
        return run(self._module.definition, function, registers, self._state)

    def _enter(self, index: int, *arguments: Any, depth: int = 1) -> object:
        del depth  # frames of the interpreter are counted by its stack
        return _returned(self._call(index, arguments))


def _returned(results: tuple[object, ...]) -> object:
    """As Python returns them: nothing, one value, or a tuple."""
    if len(results) == 1:
        return results[0]
    return results or None
