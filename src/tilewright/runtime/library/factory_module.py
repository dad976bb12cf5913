"""A compiled model as a module that makes executors: kind `graph`, the root of what is exported.

    lib["default"](device)       an executor on that device
    lib["main"](x, ...)          the model itself, as of every form that it is exported in
    lib["debug_create"]("default", device)   the same, which GraphModuleDebug can look into
    lib["get_graph_json"]()      the plan, as TVM's graph executor has it
    lib["get_graph_params"]()    the weights by name
    lib["vm_load_executable"]()  a virtual machine whose function `main` is the model

Its imports are the kernels (`llvm`) and the weights (`params`); a library of it has them inside.  What only
a compiler knows its maker hands in as functions.  Made by `api.factory`.

Source: TVM 0.19, `src/runtime/graph_executor/graph_executor_factory.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from tilewright.base.bound_to_process import BoundToProcess
from tilewright.base.errors import UserError
from tilewright.base.lazy import lazy
from tilewright.base.record import record
from tilewright.base.target import Target
from tilewright.formats.artifact import Artifact
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.plan import Plan, to_json
from tilewright.formats.plan.weights import weights_of
from tilewright.formats.variant_choice import choose_variant
from tilewright.runtime.drivers import DEFAULT_DEVICE
from tilewright.runtime.graph_executor.factory import create_executor_module, host_of
from tilewright.runtime.hal.device import Device
from tilewright.runtime.library.link_files import LinkFiles, LinkOptions
from tilewright.runtime.library.session_machine import machine_of_sessions, tensors_of
from tilewright.runtime.loaders.library_image import load_library
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import PackedFunction, packed_function
from tilewright.runtime.packed.machine_module import LOAD_MACHINE, MachineModule
from tilewright.runtime.packed.module import Module, ModuleProperties
from tilewright.runtime.packed.tensors import given, tensor_of
from tilewright.runtime.plan_executor import HostFunction, PlanExecutor
from tilewright.runtime.session import Session
from tilewright.runtime.session_options import MAIN, HostOptions, PlanOptions

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]
_LINKED_KINDS: Final = ("llvm", "params")


@final
@record(kw_only=True)
class Maker:
    """What the maker of a model can do.

    Attributes:
        host_function: runs ops that have no kernel.
        link: the model's files for a linker (see `Linkable`); None for a model that was loaded.
        save: writes a `.vmfb`, with the weights in another file where one is named.
        saved: the modules that come with it, besides those that are linked.
        text: a level of the compilation: `graph` …
    """

    host_function: HostFunction | None
    link: Callable[[LinkOptions], LinkFiles] | None
    save: Callable[[Path, Path | None], int]
    saved: Sequence[object]
    text: Callable[[str], str]


@final
class FactoryModule(BoundToProcess, Module):
    """A compiled model.

    Args:
        artifact: its plans, code and weights.
        maker: what its maker can do.
        name: how errors call it.
    """

    _made_again = "tilewright.runtime.load_module(path) of what export_library(path) wrote"
    kind = "graph"
    properties = ModuleProperties.RUNNABLE | ModuleProperties.COMPILATION_EXPORTABLE
    entry_name = "default"

    def __init__(self, artifact: Artifact, maker: Maker, name: str) -> None:
        super().__init__()
        self._artifact: Artifact = artifact
        self._maker: Maker = maker
        self._name: str = name

    @property
    def plan(self) -> Plan:
        """The plan; of several levels the first one's: kernels know their own (`CodeModule.plan_of`)."""
        return self._artifact.variants[0].plan

    @lazy
    def graph_json(self) -> str:
        """The plan, as TVM's graph executor has it."""
        return to_json(self.plan).decode()

    @lazy
    def params(self) -> Mapping[str, Array]:
        """The weights by the names of the plan: views, not copies."""
        first = self._artifact.variants[0]
        return weights_of(first.plan, self._artifact.constants_of(first))

    @lazy
    def _functions(self) -> Mapping[str, PackedFunction]:
        table: Mapping[str, Callable[..., Any]] = {
            "default": self._make_executor,
            "debug_create": lambda _, *devices: self._make_executor(*devices),
            "get_graph_json": lambda: self.graph_json,
            "get_graph_params": self._tensors,
            MAIN: self._main,
            LOAD_MACHINE: self._load_machine,
        }
        return {name: packed_function(function) for name, function in table.items()}

    def _make_executor(self, *devices: object) -> Module:
        """An executor on the first of the devices; all share code and weights."""
        variant = choose_variant(self._artifact.variants, Target.host(), self._name)
        image = view_bytes(variant.image)
        pool, heap = host_of(list(devices))
        executor = PlanExecutor(
            variant.plan,
            load_library(variant.format, image, self._name) if image.nbytes else None,
            self._artifact.constants_of(variant),
            pool=pool,
            host_function=self._maker.host_function,
            heap=heap,
            find_function=self._find_called,
        )
        return create_executor_module(executor)

    def _find_called(self, name: str) -> PackedFunction | None:
        """What the plan calls: of modules that code generators of the user made."""
        return self.get_function(name, query_imports=True)

    def _session(self, device: str | Device = DEFAULT_DEVICE) -> Session:
        host = HostOptions(
            device=device,
            host_function=self._maker.host_function,
            find_function=self._find_called,
        )
        return Session(self._artifact, PlanOptions(host=host), location=self._name)

    @lazy
    def _whole(self) -> Session:
        return self._session()

    def _main(self, *arguments: object) -> object:
        """Call the model."""
        return tensors_of(self._whole(*map(given, arguments)))

    def _load_machine(self) -> MachineModule:
        """The virtual machine whose function `main` is the model."""
        return machine_of_sessions(lambda _, device: self._session(device), (MAIN,))

    def _tensors(self) -> dict[str, tvm_ffi.Tensor]:
        # Copies: weights are read-only, which DLPack cannot say.
        return {n: tensor_of(array.copy()) for n, array in self.params.items()}

    def find_function(self, name: str) -> PackedFunction | None:
        return self._functions.get(name)

    def function_names(self) -> Sequence[str]:
        return tuple(self._functions)

    def get_write_formats(self) -> Sequence[str]:
        return ("c",) if self._maker.link is not None else ()

    def inspect_source(self, fmt: str = "") -> str:
        """The plan as JSON (by default), or another level by name: `graph`.

        Raises: InputError for a level that there is not.
        """
        return self.graph_json if fmt in ("", "json") else self._maker.text(fmt)

    def link_files(self, options: LinkOptions) -> LinkFiles:
        """See `Linkable`.  Raises: UserError for a model that was loaded, not compiled."""
        if self._maker.link is None:
            raise UserError(
                "a loaded archive has linked code, which no linker takes again",
                location=self._name,
                hint="compile the model again and export that, or write a .vmfb",
            )
        return self._maker.link(options)

    def goes_along(self, module: object) -> bool:
        """Whether a module is linked with this one."""
        if not isinstance(module, Module) or module.kind not in _LINKED_KINDS:
            return False
        return any(module.identity() == one.identity() for one in self.imports)

    def save(self, path: str | Path, weights: str | Path | None = None) -> int:
        """Write a `.vmfb`; returns its size in bytes.

        Raises: UserError for an import that the model does not call, which it has no place for; as
        `Model.save`.
        """
        for one in self.imports:
            if one not in self._maker.saved and not self.goes_along(one):
                raise UserError(
                    f"an archive holds what its model calls, not a module of kind '{one.kind}' beside it",
                    location=path,
                    hint="export a library: .so .o .a .tar",
                )
        return self._maker.save(Path(path), None if weights is None else Path(weights))
