"""A module: named functions that a context can call.

The interface; `bytecode_module` and `native_module` implement it.

Source: IREE `vm/module.h`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from tilewright.formats.calling_convention import CallingConvention

Callee = Callable[..., object]
"""How functions are called across modules: arguments in order, lists of a variadic call as Python
lists (of tuples where entries have several members); returns None, the value, or a tuple."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleDependency:
    """A module that must, or may, have been registered before."""

    name: str
    minimum_version: int = 0
    required: bool = True


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleImport:
    """A function of another module."""

    name: str  # module.function
    calling_convention: str
    required: bool = True


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFunction:
    """An exported function."""

    name: str
    calling_convention: str
    convention: CallingConvention
    attributes: Mapping[str, str] = field(default_factory=dict)


class ModuleState(ABC):
    """A module in one context: its globals and bound imports.

    Thread-safety: one call at a time, unless the module says otherwise.
    """

    @abstractmethod
    def lookup(self, name: str, calling_convention: str | None) -> Callee | None:
        """The function of that name; of that signature, where one is given."""

    def waits(self, name: str, calling_convention: str | None) -> Callee | None:
        """A function of the same arguments that tells what a call would have to wait for.

        It returns something with `wait` and `__await__`, or None where the call would not wait.
        Functions that never wait have none.
        """
        del name, calling_convention
        return None

    def resolve_import(
        self, index: int, callee: Callee | None, waits: Callee | None = None
    ) -> None:
        """Bind an import; None for an optional one that is not there."""
        del index, callee, waits

    def begin(self, name: str, arguments: Sequence[object]) -> object | None:
        """A call that can be suspended (an `Invocation`); None where functions run in one go."""
        del name, arguments
        return None

    def notify(self, signal: str) -> None:
        """Hear of `suspend`, `resume` or `low_memory`."""
        del signal


class Module(ABC):
    """Code without state; the same module may be in many contexts.

    Thread-safety: immutable.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What comes before the dot in the names of its functions."""

    @property
    def version(self) -> int:
        """What minimum versions are compared with."""
        return 0

    @property
    def attributes(self) -> Mapping[str, str]:
        """What its maker wrote into it, key to value."""
        return {}

    @property
    def dependencies(self) -> Sequence[ModuleDependency]:
        """Modules that it calls."""
        return ()

    @property
    def imports(self) -> Sequence[ModuleImport]:
        """Functions that it calls."""
        return ()

    @property
    @abstractmethod
    def functions(self) -> Sequence[ModuleFunction]:
        """Its exported functions."""

    @abstractmethod
    def create_state(self) -> ModuleState:
        """A fresh state for a context."""

    def function(self, name: str) -> ModuleFunction | None:
        """An exported function by name."""
        return next((f for f in self.functions if f.name == name), None)
