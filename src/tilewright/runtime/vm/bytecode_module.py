"""A module of bytecode: what a `.vmfb` archive becomes.

Verified as a whole before anything of it runs; functions are translated, or bound to steps, when they
are first called.  Called by `runtime.virtual_machine`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, final, get_args

from tilewright.base.errors import UserError
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.lazy import lazy
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
from tilewright.runtime.vm.meter import Limits, Meter
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

Engine = Literal["translate", "interpret"]
DEFAULT_ENGINE: Engine = "translate"

_RUN_ONCE: Final = frozenset({"__init", "__deinit"})
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
        engine: `translate` (the default) makes a Python function of each function, `interpret`
            runs them step by step.
        limits: how much one call may take; for modules that are not trusted.
        debugger: called at `break` and `cond_break` instructions, for example `breakpoint`.

    Raises:
        ArchiveError: the module does not verify, or is of another bytecode version.
        DeviceError: it names an unknown type.
    """

    def __init__(
        self,
        definition: ModuleDef,
        instance: Instance,
        *,
        location: str = "module",
        tracer: Tracer | None = None,
        engine: Engine | None = None,
        limits: Limits | None = None,
        debugger: Debugger | None = None,
    ) -> None:
        verify_module(definition, location)
        self.definition: ModuleDef = definition
        self.instance: Instance = instance
        self.tracer: Tracer | None = tracer
        if engine not in (None, *get_args(Engine)):
            raise UserError(
                f"unknown engine of bytecode '{engine}'",
                hint=f"known: {' '.join(get_args(Engine))}",
            )
        self.engine: Engine = engine or DEFAULT_ENGINE
        self.limits: Limits | None = limits
        self.debugger: Debugger | None = debugger
        self._code: tuple[tuple[Instruction, ...], ...] = decode_module(
            definition, location
        )
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
        self._bound: dict[int, Function] = {}
        self._translated: dict[int, Translation] = {}
        self._lock: threading.Lock = fork_lock(Rank.MODULE)

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def version(self) -> int:
        return self.definition.version

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
            meter=None if self.limits is None else Meter(self.limits),
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
            is_metered=self.limits is not None,
        )

    def _bind(self, index: int) -> Function:
        function = self._function(index)
        function.blocks = bind_blocks(self._code[index], self.context(index))
        return function

    def context(self, index: int) -> CodeContext:
        """What handlers need to know around a function."""
        definition = self.definition
        return CodeContext(
            self._types,
            definition.types,
            self._imports,
            tuple(item.name for item in definition.imports),
            block_indices(self._code[index]),
            self._convention(index).results,
            honours_moves=definition.bytecode_version >> 16 >= _MOVES_SINCE_MAJOR,
        )

    def _convention(self, index: int) -> CallingConvention:
        return parse_calling_convention(
            self.definition.signatures[index].calling_convention
        )

    def _function(self, index: int) -> Function:
        descriptor = self.definition.functions[index]
        convention = self._convention(index)
        return Function(
            index=index,
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
        self._state: State = module.state(self._call)
        self._translated: dict[int, Callee] = {}
        make = self._translating if module.engine == "translate" else self._interpreting
        self._calls: list[Callee] = [
            make(i) for i in range(len(module.definition.functions))
        ]

    def lookup(self, name: str, calling_convention: str | None) -> Callee | None:
        for export in self._module.definition.exports:
            if export.name == name:
                break
        else:
            return None
        signature = self._module.definition.signatures[export.function].calling_convention
        if calling_convention is not None and signature != calling_convention:
            return None
        # What runs once, `__init` first of all, is done before it would be translated.
        return self._callee(export.function, runs_once=name in _RUN_ONCE)

    def resolve_import(
        self, index: int, callee: Callee | None, waits: Callee | None = None
    ) -> None:
        self._state.imports[index] = callee
        self._state.waits[index] = waits

    def begin(self, name: str, arguments: Sequence[Any]) -> Invocation | None:
        """A call that can be suspended, before its first instruction; None without the function."""
        for export in self._module.definition.exports:
            if export.name == name:
                return Invocation(self._module, self._state, export.function, arguments)
        return None

    def notify(self, signal: str) -> None:
        callee = self.lookup("__notify", "0i_v")
        if callee is not None:
            callee({"resume": 0, "suspend": 1, "low_memory": 2}.get(signal, 0))

    def _callee(self, index: int, *, runs_once: bool) -> Callee:
        is_translated = self._module.engine == "translate" and not runs_once
        function = self._translate(index) if is_translated else self._interpreting(index)
        meter = self._state.meter
        if meter is None:
            return function

        def metered(*arguments: Any) -> object:
            with meter.call():
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
                index,
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

    def _enter(self, index: int, *arguments: Any) -> object:
        return _returned(self._call(index, arguments))


def _returned(results: tuple[object, ...]) -> object:
    """As Python returns them: nothing, one value, or a tuple."""
    if len(results) == 1:
        return results[0]
    return results or None
