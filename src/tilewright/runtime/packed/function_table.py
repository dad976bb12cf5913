"""A module whose functions are a table: Python callables or packed functions by name.

What most kinds of users are made of; also a module of its own, when it need not be saved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.runtime.packed.functions import PackedFunction, packed_function
from tilewright.runtime.packed.module import Module


class FunctionTable(Module):
    """Functions by name.

    Args:
        functions: Python callables and packed functions.
    """

    kind = "functions"

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__()
        self._functions: dict[str, PackedFunction] = {
            name: packed_function(function) for name, function in functions.items()
        }

    def find_function(self, name: str) -> PackedFunction | None:
        return self._functions.get(name)

    def function_names(self) -> Sequence[str]:
        return tuple(self._functions)
