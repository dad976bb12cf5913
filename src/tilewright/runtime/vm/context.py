"""A context: modules that see each other, each with its own state.

Modules are registered after those they depend on; registering resolves their imports and runs
`__init`.  Called by `runtime.bytecode_machine`.

Source: IREE `vm/context.h`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast, final

from tilewright.base.status import StatusCode, failure
from tilewright.base.text import did_you_mean, plural
from tilewright.runtime.vm.invocation import Invocation
from tilewright.runtime.vm.module import Callee, Module, ModuleImport, ModuleState

_NEWER: Final = "it was made by a newer compiler than this runtime knows, or for another module of this name"


@final
class Context:
    """Modules and their states.

    Thread-safety: one call at a time into bytecode modules.
    """

    def __init__(self, modules: Sequence[Module] = ()) -> None:
        self._modules: dict[str, Module] = {}
        self._states: dict[str, ModuleState] = {}
        self._is_frozen: bool = False
        self._is_closed: bool = False
        for module in modules:
            self.register(module)

    @property
    def modules(self) -> tuple[Module, ...]:
        """In order of registration."""
        return tuple(self._modules.values())

    def register(self, module: Module) -> None:
        """Add a module, bind its imports, run its `__init`.

        Raises: DeviceError for a missing dependency or import, naming both sides, and for a name
        that is taken (ALREADY_EXISTS); whatever
        `__init` raises.
        """
        if self._is_frozen:
            raise failure(
                StatusCode.FAILED_PRECONDITION,
                f"module '{module.name}' comes after the freeze",
            )
        if module.name in self._modules:
            raise failure(
                StatusCode.ALREADY_EXISTS,
                f"there is a module '{module.name}' already",
                hint="modules that run together have names of their own: load this one in a session of its own",
            )
        self._check_dependencies(module)
        state = module.create_state()
        for index, wanted in enumerate(module.imports):
            callee = self._resolve(module, wanted)
            state.resolve_import(index, callee, self._waits(wanted))
        self._modules[module.name] = module
        self._states[module.name] = state
        initialize = state.lookup("__init", None)
        if initialize is not None:
            try:
                initialize()
            except BaseException:
                del self._modules[module.name], self._states[module.name]
                raise

    def freeze(self) -> None:
        """Allow no more modules."""
        self._is_frozen = True

    def fork(self) -> Context:
        """A context of the same modules with fresh states."""
        return Context(self.modules)

    def lookup(self, full_name: str) -> Callee:
        """The function `module.function`; a call with another number of arguments is a DeviceError.

        Raises: DeviceError (StatusCode.NOT_FOUND) with the closest names, and of a context that is closed.
        """
        found = self.unchecked(full_name)
        check = self._argument_check(full_name)

        def checked(*arguments: object) -> object:
            check(arguments)
            return found(*arguments)

        return checked

    def unchecked(self, full_name: str) -> Callee:
        """As `lookup`, for callers that have counted the arguments.

        Raises: DeviceError as there.
        """
        module_name, _, name = full_name.partition(".")
        state = self._states.get(module_name)
        found = None if state is None else state.lookup(name, None)
        if found is None and self._is_closed:
            raise failure(
                StatusCode.FAILED_PRECONDITION, f"no '{full_name}': the context is closed"
            )
        if found is None:
            known = [f"{m.name}.{f.name}" for m in self.modules for f in m.functions]
            raise failure(
                StatusCode.NOT_FOUND,
                f"no function '{full_name}'",
                hint=did_you_mean(full_name, known)
                or (f"known: {' '.join(known[:8])}" if known else None),
            )
        return found

    def begin(self, full_name: str, *arguments: object) -> Invocation:
        """A call of a bytecode function that can be suspended, stepped and awaited.

        Raises: DeviceError (NOT_FOUND) with the closest names.
        """
        module_name, _, name = full_name.partition(".")
        state = self._states.get(module_name)
        if state is not None:
            self._argument_check(full_name)(arguments)
        found = None if state is None else state.begin(name, arguments)
        if found is None:
            self.unchecked(full_name)
            raise failure(
                StatusCode.UNIMPLEMENTED,
                f"'{full_name}' is not bytecode: it runs in one go",
                hint="call it",
            )
        return cast("Invocation", found)

    def notify(self, signal: str) -> None:
        """Tell every module of a signal."""
        for state in self._states.values():
            state.notify(signal)

    def close(self) -> None:
        """Run `__deinit` of every module, last first."""
        for state in reversed(self._states.values()):
            leave = state.lookup("__deinit", None)
            if leave is not None:
                leave()
        self._states.clear()
        self._modules.clear()
        self._is_closed = True

    def _argument_check(self, full_name: str) -> Callable[[Sequence[object]], None]:
        module_name, _, name = full_name.partition(".")
        function = self._modules[module_name].function(name)
        wanted = None if function is None else len(function.convention.arguments)

        def check(arguments: Sequence[object]) -> None:
            if wanted is not None and len(arguments) != wanted:
                raise failure(
                    StatusCode.INVALID_ARGUMENT,
                    f"got {plural(len(arguments), 'argument')}, expected {wanted}",
                    location=full_name,
                )

        return check

    def _check_dependencies(self, module: Module) -> None:
        for wanted in module.dependencies:
            found = self._modules.get(wanted.name)
            if found is None:
                if wanted.required:
                    raise failure(
                        StatusCode.NOT_FOUND,
                        f"module '{wanted.name}' is missing",
                        location=f"module '{module.name}'",
                        hint="register it before the modules that depend on it",
                    )
            elif found.version < wanted.minimum_version:
                raise failure(
                    StatusCode.NOT_FOUND,
                    f"module '{wanted.name}' has version {found.version}, expected at least "
                    f"{wanted.minimum_version}",
                    location=f"module '{module.name}'",
                    hint=_NEWER,
                )

    def _waits(self, wanted: ModuleImport) -> Callee | None:
        module_name, _, name = wanted.name.partition(".")
        state = self._states.get(module_name)
        return None if state is None else state.waits(name, wanted.calling_convention)

    def _resolve(self, module: Module, wanted: ModuleImport) -> Callee | None:
        module_name, _, name = wanted.name.partition(".")
        state = self._states.get(module_name)
        found = None if state is None else state.lookup(name, wanted.calling_convention)
        if found is not None or not wanted.required:
            return found
        where = f"module '{module.name}'"
        if state is None:
            raise failure(
                StatusCode.NOT_FOUND,
                f"import '{wanted.name}': module '{module_name}' is missing",
                location=where,
            )
        functions = self._modules[module_name].functions
        offered = [f.calling_convention for f in functions if f.name == name]
        if offered:
            raise failure(
                StatusCode.INTERNAL,
                f"import '{wanted.name}' has the signature '{wanted.calling_convention}', "
                f"the module offers {' '.join(repr(o) for o in offered)}",
                location=where,
            )
        raise failure(
            StatusCode.NOT_FOUND,
            f"import '{wanted.name}' {wanted.calling_convention}: no such function",
            location=where,
            hint=did_you_mean(name, [f.name for f in functions]) or _NEWER,
        )
