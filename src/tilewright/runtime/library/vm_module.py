"""An artifact (`.vmfb`) as a module: kind `vm`, whose functions are those of its bytecode.

A function takes tensors and gives one tensor, or an array of them when it has several results; the
main function of an artifact of ours runs by its plan.  In a library the module travels as the bytes of the
archive.

Source: `runtime.session` for what a call does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Unpack, final

from tilewright.base.bound_to_process import BoundToProcess
from tilewright.base.errors import InputError
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.lazy import lazy
from tilewright.base.output_file import open_output
from tilewright.base.target import Target
from tilewright.formats.artifact import Artifact, extract, is_artifact
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.formats.plan import to_json
from tilewright.formats.plan.weights import weights_of
from tilewright.formats.variant_choice import choose_variant
from tilewright.formats.vmfb import ModuleDef, read_archive
from tilewright.runtime.graph_executor.executor_module import ExecutorModule
from tilewright.runtime.graph_executor.factory import create_executor_module, local_device
from tilewright.runtime.hal.device import Device
from tilewright.runtime.library.session_machine import machine_of_sessions, tensors_of
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import PackedFunction, packed_function
from tilewright.runtime.packed.machine_module import LOAD_MACHINE
from tilewright.runtime.packed.module import Module, ModuleProperties
from tilewright.runtime.packed.tensors import given, tensor_of
from tilewright.runtime.plan_executor import PlanExecutor
from tilewright.runtime.session import Session
from tilewright.runtime.session_options import MAIN, LoadOptions

_INTERNAL: Final = "__"  # begins names that are no functions for users


@final
class VmModule(BoundToProcess, Module):
    """A module of bytecode.

    Args:
        data: the archive, which must stay unchanged; kept alive.
        location: how errors call it.
        options: how sessions run its functions (`tilewright.load`); the signature of the archive itself is
            checked by whoever read it (`load_module`).

    Raises: ArchiveError for a damaged archive.
    Ownership: keeps the archive (and its mapped file) alive.
    Thread-safety: functions may be called by several threads.
    """

    _made_again = "tilewright.runtime.load_module(path)"
    kind = "vm"
    properties = ModuleProperties.BINARY_SERIALIZABLE | ModuleProperties.RUNNABLE

    def __init__(
        self, data: Buffer, location: str = "module", **options: Unpack[LoadOptions]
    ) -> None:
        super().__init__()
        self._data: Buffer = data
        self.location: str = location
        self.definition: Final[ModuleDef] = read_archive(data, location)
        self._options: LoadOptions = options
        self._functions: dict[str, PackedFunction] = {}
        self._lock = fork_lock(Rank.IMPORT)

    @lazy
    def _artifact(self) -> Artifact | None:
        has_plan = is_artifact(self.definition)
        return extract(self.definition, self.location) if has_plan else None

    def session(self, function: str | None = None, device: Device | None = None) -> Session:
        """What runs a function: a session of its own.

        Raises: as `tilewright.load`.
        """
        options: LoadOptions = {**self._options}
        if function is not None:
            options["function"] = function
        if device is not None:
            options["device"] = device
        return Session.from_bytes(
            self._data, location=self.location, is_checked=True, **options
        )

    def find_function(self, name: str) -> PackedFunction | None:
        with self._lock:
            if name not in self._functions:
                if name in self._exported:
                    call = _caller(self.session(name))
                elif name in self._of_module:
                    call = self._of_module[name]
                else:
                    return None
                self._functions[name] = packed_function(call)
            return self._functions[name]

    def function_names(self) -> Sequence[str]:
        return tuple(dict.fromkeys((*self._exported, *self._of_module)))

    @lazy
    def _exported(self) -> tuple[str, ...]:
        names = dict.fromkeys(export.name for export in self.definition.exports)
        return tuple(name for name in names if not name.startswith(_INTERNAL))

    @lazy
    def _of_module(self) -> Mapping[str, Callable[..., Any]]:
        """What users of executors and virtual machines ask a module for."""
        found: dict[str, Callable[..., Any]] = {
            LOAD_MACHINE: lambda: machine_of_sessions(self.session, self._exported)
        }
        if self._artifact is not None:
            found |= {
                "default": self._executor,
                "debug_create": lambda _, *devices: self._executor(*devices),
                "get_graph_json": self._graph_json,
                "get_graph_params": self._graph_params,
            }
        return found

    def _executor(self, *devices: object) -> ExecutorModule:
        executor = self.session(MAIN, local_device(devices)).executor
        assert isinstance(executor, PlanExecutor)
        return create_executor_module(executor)

    def _graph_json(self) -> str:
        assert self._artifact is not None, "asked of artifacts only"
        variant = choose_variant(self._artifact.variants, Target.host(), self.location)
        return bytes(to_json(variant.plan)).decode()

    def _graph_params(self) -> dict[str, tvm_ffi.Tensor]:
        """The weights by name, also those in a file of their own: copies, which may be written to."""
        executor = self.session(MAIN).executor
        assert isinstance(executor, PlanExecutor)
        weights = weights_of(executor.plan, executor.constants)
        return {name: tensor_of(array.copy()) for name, array in weights.items()}

    def save_to_bytes(self) -> bytes:
        return bytes(view_bytes(self._data))

    def get_write_formats(self) -> Sequence[str]:
        return ("vmfb",)

    def write_to_file(self, file_name: str | Path, fmt: str = "") -> None:
        """Write the archive.  Raises: InputError for another format."""
        if fmt not in ("", "vmfb"):
            raise InputError(
                f"a module of kind 'vm' is not written as '{fmt}'",
                location=str(file_name),
                hint="formats: vmfb",
            )
        with open_output(Path(file_name)) as file:
            file.write(view_bytes(self._data))

    def inspect_source(self, fmt: str = "") -> str:
        """A text of the artifact (`graph`, `kernel/<name>`, `llvm/<name>`, ...); the graph by default.

        Empty for a module without texts.  Raises: InputError for a text that it does not have.
        """
        sources = {} if self._artifact is None else self._artifact.sources
        if fmt in sources or not fmt:
            return sources.get(fmt or "graph", "")
        raise InputError(
            f"no text '{fmt}'",
            location=self.location,
            hint="there is " + (", ".join(sorted(sources)[:12]) or "none"),
        )


def _caller(session: Session) -> Callable[..., Any]:
    return lambda *arguments: tensors_of(session(*map(given, arguments)))
