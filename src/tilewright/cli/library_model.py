"""A model in a library, as the verbs `run` and `inspect` see it.

Called by these verbs for what `load_module` takes, archives of ours aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.file_kinds import LOAD_MODULE, kind_of
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.formats.tensor_text import Array

if TYPE_CHECKING:
    from tilewright.runtime.packed.module import Module


def is_library(path: str | Path) -> bool:
    """Whether a file is called as libraries are."""
    called = kind_of(path)
    return called is not None and called.remedy == LOAD_MODULE


@final
class LibraryModel:
    """The model of a library, called as a session is.

    Args:
        path: of the library.
        threads: that a call may use; None: what `TILEWRIGHT_THREADS` says, or one per processor.
        trusted_keys: of which one must have signed it; none: nobody must.

    Raises: ArchiveError for a file that is no library, or that nobody of those signed; InputError for
    one that holds no model.
    """

    def __init__(
        self, path: str, *, threads: int | None = None, trusted_keys: Sequence[str] = ()
    ) -> None:
        from tilewright.runtime.graph_executor.executor_module import executor_of
        from tilewright.runtime.library.load import load_module
        from tilewright.runtime.packed.devices import cpu

        module = load_module(path, trusted_keys=trusted_keys or None)
        make = module.get_function("default")
        if make is None:
            raise InputError(
                "the library holds no model of Tilewright",
                location=path,
                hint="tilewright inspect shows its functions; libraries of TVM run in Python: "
                "tilewright.VirtualMachine(load_module(path), cpu(0))",
            )
        device = cpu() if threads is None else f"local-task://?threads={threads}"
        self._graph = executor_of(make(device))
        self.inputs: tuple[TensorSpec, ...] = tuple(self._graph.program.inputs)
        self.outputs: tuple[TensorSpec, ...] = tuple(self._graph.program.outputs)

    @property
    def executor(self) -> LibraryModel:
        """What has the names, as of a session."""
        return self

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.outputs)

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Run it.  Raises: InputError for arrays that do not fit."""
        if len(arrays) != len(self.inputs):
            raise InputError(f"got {len(arrays)} inputs, expected {len(self.inputs)}")
        for index, array in enumerate(arrays):
            self._graph.set_input(index, array)
        self._graph.run()
        return tuple(
            np.array(self._graph.get_output(index)) for index in range(len(self.outputs))
        )


def describe_library(path: str | Path, *, trusted_keys: Sequence[str] = ()) -> list[str]:
    """The modules of a library and their functions, as lines: who imports whom by indentation."""
    from tilewright.runtime.library.load import load_module

    lines: list[str] = []
    waiting: list[tuple[int, Module]] = [
        (0, load_module(str(path), trusted_keys=trusted_keys or None))
    ]
    while waiting:
        depth, module = waiting.pop()
        lines.append(f"{'  ' * depth}module of kind '{module.kind}'")
        lines += [f"{'  ' * depth}  {name}" for name in sorted(module.function_names())]
        waiting += [(depth + 1, child) for child in reversed(module.imports)]
    return [*lines, *_signature(path)]


def _signature(path: str | Path) -> Sequence[str]:
    try:
        model = LibraryModel(str(path))
    except InputError:
        return ()
    return [
        *(f"input {spec}" for spec in model.inputs),
        *(f"output {spec}" for spec in model.outputs),
    ]
