"""A compiled model as a module that makes executors: kind `graph`, the root of what is exported.

    lib["default"](device)       an executor on that device
    lib["get_graph_json"]()      the plan, as TVM's graph executor has it
    lib["get_graph_params"]()    the weights by name

Its imports are the kernels (`llvm`) and the weights (`params`); a library of it has them inside.  How it is
linked and saved its maker hands in, because the runtime knows no compiler.  Made by `api.build`.

Source: TVM 0.19, `src/runtime/graph_executor/graph_executor_factory.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from tilewright.base.errors import UserError
from tilewright.base.lazy import lazy
from tilewright.base.record import record
from tilewright.runtime.library.link_files import LinkFiles
from tilewright.runtime.packed.functions import PackedFunction, packed_function
from tilewright.runtime.packed.module import Module, ModuleProperties

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]
_LINKED_KINDS: Final = ("llvm", "params")


@final
@record(kw_only=True)
class Factory:
    """What a model's maker knows.

    Attributes:
        graph_json: the plan.
        params: its weights by the names of the plan.
        executor: makes an executor on devices (tvm-ffi's).
        link: its files for a linker (see `Linkable`); None for a model that was loaded.
        save: writes a `.vmfb`, with the weights in another file where one is named.
        text: `graph` and other texts to look at.
    """

    graph_json: Callable[[], str]
    params: Callable[[], Mapping[str, Array]]
    executor: Callable[..., Module]
    link: Callable[[str, Path | None], LinkFiles] | None
    save: Callable[[Path, Path | None], int]
    text: Callable[[str], str]


@final
class FactoryModule(Module):
    """A compiled model.

    Args:
        factory: what its maker knows.
    """

    kind = "graph"
    properties = ModuleProperties.RUNNABLE | ModuleProperties.COMPILATION_EXPORTABLE
    entry_name = "default"

    def __init__(self, factory: Factory) -> None:
        super().__init__()
        self._factory: Factory = factory

    @lazy
    def _functions(self) -> Mapping[str, PackedFunction]:
        table: Mapping[str, Callable[..., Any]] = {
            "default": self._factory.executor,
            "get_graph_json": self._factory.graph_json,
            "get_graph_params": lambda: dict(self._factory.params()),
        }
        return {name: packed_function(function) for name, function in table.items()}

    def find_function(self, name: str) -> PackedFunction | None:
        return self._functions.get(name)

    def function_names(self) -> Sequence[str]:
        return tuple(self._functions)

    def get_write_formats(self) -> Sequence[str]:
        return ("c",)

    def inspect_source(self, fmt: str = "") -> str:
        """The plan as JSON (by default), or another level by name: `graph`.

        Raises: InputError for a level that there is not.
        """
        return (
            self._factory.graph_json() if fmt in ("", "json") else self._factory.text(fmt)
        )

    @property
    def graph_json(self) -> str:
        """The plan, as TVM's graph executor has it."""
        return self._factory.graph_json()

    @property
    def params(self) -> Mapping[str, Array]:
        """The weights by the names of the plan."""
        return self._factory.params()

    def link_files(self, name: str, weights: Path | None) -> LinkFiles:
        """See `Linkable`.  Raises: UserError for a model that was loaded, not compiled."""
        if self._factory.link is None:
            raise UserError(
                "a loaded archive has linked code, which no linker takes again",
                hint="compile the model again and export that, or write a .vmfb",
            )
        return self._factory.link(name, weights)

    def goes_along(self, module: object) -> bool:
        """Whether a module is linked with this one."""
        return (
            isinstance(module, Module)
            and module in self.imports
            and module.kind in _LINKED_KINDS
        )

    def save(self, path: str | Path, weights: str | Path | None = None) -> int:
        """Write a `.vmfb`; returns its size in bytes.  Raises: as `Model.save`."""
        return self._factory.save(Path(path), None if weights is None else Path(weights))
