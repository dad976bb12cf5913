"""References and their types: what the strings in a module's type table stand for.

A reference is a Python object or None; its type is its class, which an instance has registered
under a name.

Source: IREE `vm/ref.h`, `vm/instance.h`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from tilewright.base.errors import InternalError
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.list import VmList

_PRIMITIVES: Final = frozenset({"i8", "i16", "i32", "i64", "f32", "f64", "?", ""})


@final
class Instance:
    """The types that modules of one process can name.

    Thread-safety: register before use.
    """

    def __init__(self) -> None:
        self._types: dict[str, type] = {}
        self.register_type("vm.buffer", VmBuffer)
        self.register_type("vm.list", VmList)

    @property
    def types(self) -> Mapping[str, type]:
        """Name to class."""
        return self._types

    def register_type(self, name: str, type_: type) -> None:
        """Enter a type; entering it again does nothing.

        Raises: InternalError when the name means another class.
        """
        if self._types.setdefault(name, type_) is not type_:
            raise InternalError(f"type '{name}' is registered twice")

    def resolve(self, text: str) -> type | None:
        """The class of `!hal.buffer` or `!vm.list<i32>`; None for `i32`, `!vm.ref<?>` and `?`.

        Raises: DeviceError (INVALID_ARGUMENT) for a type nobody registered.
        """
        name = text.removeprefix("!").partition("<")[0]
        if text in _PRIMITIVES or name in ("vm.ref", "vm.opaque", *_PRIMITIVES):
            return None
        found = self._types.get(name)
        if found is None:
            raise failure(
                StatusCode.INVALID_ARGUMENT,
                f"unknown type '{text}'",
                hint=f"known: {' '.join(sorted(self._types))}",
            )
        return found

    def name_of(self, value: object) -> str:
        """`!hal.buffer` for a buffer; `null` for None."""
        if value is None:
            return "null"
        for name, type_ in self._types.items():
            if isinstance(value, type_):
                return f"!{name}"
        return type(value).__name__
