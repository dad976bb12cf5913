"""A model in a library, ours or TVM's, as the verbs `run` and `inspect` see it.

Called by these verbs for what `load_module` takes, archives of ours aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, final

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.file_kinds import LOAD_MODULE, kind_of
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.formats.tensor_text import Array

if TYPE_CHECKING:
    from tilewright.runtime.packed.module import Module, PackedFunction


def is_library(path: str | Path) -> bool:
    """Whether a file is called as libraries are."""
    called = kind_of(path)
    return called is not None and called.remedy == LOAD_MODULE


@final
class LibraryModel:
    """The model of a library, called as a session is.

    Args:
        make: what makes its executor on a device.
        threads: that a call may use; None: what `TILEWRIGHT_THREADS` says, or one per processor.
    """

    def __init__(self, make: PackedFunction, threads: int | None) -> None:
        from tilewright.runtime.graph_executor.executor_module import executor_of
        from tilewright.runtime.packed.devices import cpu

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


@final
class MachineFunction:
    """A function of a library that TVM made, called as a session is; what it gives, only a call tells.

    Raises: InputError for a function that is not there.
    """

    inputs: Final[tuple[TensorSpec, ...]] = ()

    def __init__(self, module: Module, function: str) -> None:
        from tilewright.runtime.packed.devices import cpu
        from tilewright.runtime.virtual_machine.machine import VirtualMachine

        machine = VirtualMachine(module, cpu())
        self._call: PackedFunction = machine[function]
        count = int(machine.module["get_function_arity"](function))
        name = machine.module["get_function_param_name"]
        self.input_names: tuple[str, ...] = tuple(
            str(name(function, index)) for index in range(count)
        )
        self.output_names: tuple[str, ...] = ()

    @property
    def executor(self) -> MachineFunction:
        """What has the names, as of a session."""
        return self

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Run it; nested results one after the other.  Raises: InputError for results that are no tensors."""
        results = tuple(map(np.array, _leaves(self._call(*arrays))))
        self.output_names = tuple(f"result_{index}" for index in range(len(results)))
        return results


def _leaves(value: object) -> Iterator[Any]:
    from tilewright.runtime.packed.machine_module import is_tuple

    if is_tuple(value):
        for part in cast("Sequence[object]", value):
            yield from _leaves(part)
    elif hasattr(value, "__dlpack__"):
        yield np.from_dlpack(cast("Any", value))
    else:
        raise InputError(f"the function gives {type(value).__name__}, expected tensors")


def library_model(
    path: str,
    *,
    function: str | None = None,
    threads: int | None = None,
    trusted_keys: Sequence[str] = (),
) -> LibraryModel | MachineFunction:
    """The model of a library, or one function of a library that TVM made (default: `main`).

    Args:
        path: of the library.
        function: of one of TVM's.
        threads: as for `LibraryModel`, of one of ours.
        trusted_keys: of which one must have signed it; none: nobody must.

    Raises: ArchiveError for a file that is no library, or that nobody of those signed; InputError for
        one that holds no model, and for what its kind does not take.
    """
    from tilewright.runtime.library.load import load_module
    from tilewright.runtime.virtual_machine.machine import LOAD_MACHINE

    module = load_module(path, trusted_keys=trusted_keys or None)
    make = module.get_function("default")
    is_machine = make is None and module.get_function(LOAD_MACHINE) is not None
    for option, value, fits in (
        ("--function", function, is_machine),
        ("--threads", threads, not is_machine),
    ):
        if value is not None and not fits:
            whose = "TVM's libraries" if is_machine else "libraries of Tilewright"
            raise InputError(f"{option} is not for {whose}", location=path)
    if make is not None:
        return LibraryModel(make, threads)
    if is_machine:
        return MachineFunction(module, function or "main")
    raise InputError(
        "the library holds no model",
        location=path,
        hint="tilewright inspect shows its functions, load_module(path)[name] calls one",
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
        model = library_model(str(path))
    except InputError:
        return ()
    if isinstance(model, MachineFunction):
        return [f"input {name} of main" for name in model.input_names]
    return [
        *(f"input {spec}" for spec in model.inputs),
        *(f"output {spec}" for spec in model.outputs),
    ]
