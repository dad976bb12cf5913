"""The result of a build: plan, kernels and weights, apart and as one module that makes executors.

    factory = tw.build("net.onnx")
    graph_json, lib, params = factory
    factory.export_library("net.so")
    net = tw.graph_executor.GraphModule(factory["default"](tw.cpu(0)))

Joins the roofs: what only the compiler knows (objects, C sources, texts) reaches the runtime's modules as
functions.  The words are those of TVM's `GraphExecutorFactoryModule`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, cast, final

import numpy as np

from tilewright.api.load import run_reference
from tilewright.base.bound_to_process import BoundToProcess
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.errors import InputError, UserError
from tilewright.base.target import Target
from tilewright.base.text import did_you_mean, identifier
from tilewright.compiler.backends.backend import Backend, CompiledKernel
from tilewright.compiler.backends.c import compile as c_compile
from tilewright.compiler.backends.c.backend import source_file
from tilewright.compiler.backends.registry import backend_of
from tilewright.compiler.graph.text import to_text
from tilewright.compiler.packaging.kernel_objects import kernel_objects
from tilewright.compiler.packaging.library import (
    HostSources,
    WeightsFile,
    level_of,
    make_host_sources,
    make_kernel_sources,
)
from tilewright.compiler.packaging.library.level import level_label
from tilewright.compiler.packaging.parts import (
    Part,
    carried_modules,
    make_artifact,
    named_weights,
)
from tilewright.compiler.packaging.provenance import describe_library
from tilewright.compiler.packaging.weights_file import FORMATS, UNALIGNED, storing_weights
from tilewright.compiler.pipeline import Compiled
from tilewright.compiler.printers.c_text.function import FLAGS as C_FLAGS
from tilewright.runtime.library.code_module import CodeModule, KernelSources
from tilewright.runtime.library.factory_module import FactoryModule, Maker
from tilewright.runtime.library.link_files import LinkFiles, LinkOptions
from tilewright.runtime.library.params_module import ParamsModule
from tilewright.runtime.packed.function_table import FunctionTable
from tilewright.runtime.packed.functions import PackedFunction
from tilewright.runtime.packed.module import Module

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


_Levels = list[tuple[Part, tuple[CompiledKernel, ...]]]


@final
class _CompiledCode:
    """The kernels of a compiled model, for linkers and readers."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled: Final = compiled

    def levels(self, owner: str) -> _Levels:
        """Per level its kernels under symbols that only `owner` has, for a linker of its system."""
        cache = CompilationCache.default()
        return [
            (
                part,
                kernel_objects(
                    [record.compiled for record in records],
                    part.target,
                    f"{owner}/{level_label(part.target)}",
                    cache=cache,
                ),
            )
            for part, records in zip(
                self.compiled.parts, self.compiled.kernels, strict=True
            )
        ]

    def objects(self, owner: str) -> dict[str, bytes]:
        return _object_files(self.levels(owner))

    def sources(self, levels: _Levels, owner: str) -> dict[str, bytes]:
        """One file in C per level, with the symbols that its objects have."""
        found: dict[str, bytes] = {}
        for (part, kernels), records in zip(levels, self.compiled.kernels, strict=True):
            written = [
                (record.scheduled, kernel.export.function)
                for record, kernel in zip(records, kernels, strict=True)
            ]
            name = f"{owner}_code_{identifier(level_label(part.target))}.c"
            found[name] = source_file(written, part.target).encode()
        return found

    def files(self, levels: _Levels, owner: str, *, as_sources: bool) -> dict[str, bytes]:
        """The kernels for a linker, or for a compiler first, as all are of which there are no objects."""
        objects = {} if as_sources else _object_files(levels)
        return objects or self.sources(levels, owner)

    def text(self, fmt: str) -> str:
        """All kernels as C, LLVM IR, assembly, or loops."""
        if fmt == "kernel":
            return "\n".join(r.kernel_ir for r in self.compiled.kernels[0])
        name = self.compiled.graph.name
        if fmt == "c":
            return "\n".join(
                f.decode() for f in self.sources(self.levels(name), name).values()
            )
        first = self.compiled.parts[0].target.backend
        kernels = [
            (kernel, part.target)
            for part, level in self.levels(name)
            for kernel in level
            if part.target.backend == first
        ]
        return self.backend.joined_text(kernels, _SPELLINGS.get(fmt, fmt))

    @property
    def backend(self) -> Backend:
        """What made the code of the first level."""
        return backend_of(self.compiled.parts[0].target)

    @property
    def text_forms(self) -> tuple[str, ...]:
        """What `text` knows."""
        return ("c", *self.backend.text_forms, "kernel")


_SPELLINGS: Final = {"asm": "s"}


def _object_files(levels: _Levels) -> dict[str, bytes]:
    """One file per object; the name says level and kernel to whoever looks into an archive."""
    found: dict[str, tuple[str, bytes]] = {}
    for part, kernels in levels:
        for kernel in kernels:
            if not kernel.object_bytes:
                continue
            name = f"{level_label(part.target)}.{kernel.name}.o"
            found.setdefault(kernel.export.function, (name, kernel.object_bytes))
    return dict(found.values())


def link_files(compiled: Compiled, options: LinkOptions) -> LinkFiles:
    """What a compiled model brings to a linker.

    Raises: UserError for ops that run in Python, and as writing the weights does.
    """
    code = _CompiledCode(compiled)
    name, weights = options.name, options.weights
    levels = code.levels(name)
    target = compiled.parts[0].target
    artifact = make_artifact(compiled.parts)
    constants = artifact.constants
    code_files = code.files(levels, name, as_sources=options.kernel_sources)
    targets = [str(part.target) for part in compiled.parts]
    host = make_host_sources(
        [
            level_of(part, kernels, variant.constants)
            for (part, kernels), variant in zip(levels, artifact.variants, strict=True)
        ],
        constants,
        name,
        weights=None
        if weights is None
        else options.written.enter_context(_weights_file(compiled, weights)),
        kernel_functions=options.kernel_functions,
        symbol_prefix=options.symbol_prefix,
        texts=describe_library(
            name,
            code_files,
            targets,
            constants,
            carried_modules(compiled.modules),
            compiled.origin,
        ),
    )
    return _to_link(host, code_files, target, options, has_model=True)


def kernel_files(compiled: Compiled, options: LinkOptions) -> LinkFiles:
    """What the kernels of a compiled model bring to a linker to be packed functions of a library.

    Raises: UserError where none can be called alone.
    """
    name = options.name
    code = _CompiledCode(compiled)
    levels = code.levels(name)
    code_files = code.files(levels, name, as_sources=options.kernel_sources)
    targets = [str(part.target) for part in compiled.parts]
    host = make_kernel_sources(
        [level_of(part, kernels) for part, kernels in levels],
        compiled.graph.name,
        name,
        symbol_prefix=options.symbol_prefix,
        texts=describe_library(name, code_files, targets, (), (), compiled.origin),
    )
    target = compiled.parts[0].target
    return _to_link(host, code_files, target, options, has_model=False)


def _to_link(
    host: HostSources,
    kernels: Mapping[str, bytes],
    target: Target,
    options: LinkOptions,
    *,
    has_model: bool,
) -> LinkFiles:
    """The host side and the kernels, which are objects or sources."""
    host = host.closed() if options.is_closed else host
    sources = {name: data for name, data in kernels.items() if name.endswith(".c")}
    assert not sources.keys() & host.files.keys(), "kernels and host side are files apart"
    objects = {name: data for name, data in kernels.items() if name not in sources}
    return LinkFiles(
        name=host.name,
        arch=target.arch,
        os=target.os,
        files={**host.files, **sources},
        objects=objects,
        units=(*sources, *host.units),
        entry_units=host.entry_units,
        public=host.public,
        exports=host.exports,
        flags=(*host.flags, *(C_FLAGS if sources else ())),
        link_flags=(*host.link_flags, *(c_compile.LINK_FLAGS if sources else ())),
        functions=host.functions,
        loader_symbols=host.loader_symbols,
        has_model=has_model,
    )


@contextmanager
def _weights_file(compiled: Compiled, path: Path) -> Generator[WeightsFile]:
    """The weights, in a file that a library maps, which is there when the block ends without an error.

    Raises: UserError for a format whose weights lie anywhere; as `storing_weights`.
    """
    if path.suffix.lower() in UNALIGNED:
        aligned = [suffix for suffix in FORMATS if suffix not in UNALIGNED]
        raise UserError(
            f"a library reads its weights where they lie, and '{path.suffix}' aligns none",
            location=path,
            hint=f"suffixes for a library: {' '.join(aligned)}",
        )
    arrays = named_weights(compiled.parts)
    with storing_weights(path, arrays, inputs=compiled.files) as stored:
        begin = min((entry.offset for entry in stored.entries), default=0)
        yield WeightsFile(
            name=path.name,
            size_bytes=stored.index.contents.nbytes,
            header=bytes(stored.index.contents[:begin]),
            offsets=tuple(entry.offset for entry in stored.entries),
        )


def compiled_module(
    compiled: Compiled, save: Callable[[Path, Path | None], int]
) -> FactoryModule:
    """A compiled model as a tree of modules: factory, kernels, weights.

    Args:
        compiled: the model.
        save: writes it as an archive.
    """
    code = _CompiledCode(compiled)
    name = compiled.graph.name
    artifact = make_artifact(compiled.parts)
    maker = Maker(
        host_function=run_reference,
        link=partial(link_files, compiled),
        save=save,
        saved=compiled.modules,
        text=partial(_text, compiled, code),
    )
    module = FactoryModule(artifact, maker, name)
    made = cast("Sequence[Module]", compiled.modules)  # by code generators of the user
    if compiled.kernels[0]:
        kernels = KernelSources(
            target=compiled.parts[0].target,
            objects=partial(code.objects, name),
            link=partial(kernel_files, compiled),
            text=code.text,
            text_formats=code.text_forms,
        )
        code_module = CodeModule(artifact.variants, kernels, name)
        _import_all(code_module, made)
        module.import_module(code_module)
    module.import_module(ParamsModule(lambda: module.params))
    _import_all(module, made)
    return module


def _import_all(importer: Module, modules: Iterable[Module]) -> None:
    for one in modules:
        importer.import_module(one)


def _text(compiled: Compiled, code: _CompiledCode, fmt: str) -> str:
    if fmt == "graph":
        return to_text(compiled.graph)
    if _SPELLINGS.get(fmt, fmt) not in code.text_forms:
        known = ("json", "graph", *code.text_forms)
        raise InputError(
            f"a model has no text '{fmt}'",
            hint=did_you_mean(fmt, known) or f"texts: {' '.join(known)}",
        )
    return code.text(fmt)


@final
class Factory(BoundToProcess):
    """A built model: `factory.graph_json`, `.lib` and `.params`, also by unpacking, in this order.

    Args:
        module: the root of its modules.

    Thread-safety: immutable; executors are independent of each other.
    """

    _made_again = "tilewright.runtime.load_module(path) of what export_library(path) wrote"

    def __init__(self, module: FactoryModule) -> None:
        self.module: Final[FactoryModule] = module

    @property
    def graph_json(self) -> str:
        """The plan, as TVM's graph executor has it."""
        return self.module.graph_json

    @property
    def lib(self) -> Module:
        """The kernels: functions of their tensors, by name; it imports what code generators of yours made."""
        kernels = [m for m in self.module.imports if m.kind == CodeModule.kind]
        if kernels:
            return kernels[0]
        table = FunctionTable({})
        _import_all(
            table, [m for m in self.module.imports if not self.module.goes_along(m)]
        )
        return table

    @property
    def params(self) -> dict[str, Array]:
        """The weights by name, as the kernels want them: views, not copies."""
        return dict(self.module.params)

    def get_graph_json(self) -> str:
        """As `graph_json`."""
        return self.graph_json

    def get_lib(self) -> Module:
        """As `lib`."""
        return self.lib

    def get_params(self) -> dict[str, Array]:
        """As `params`."""
        return self.params

    def __iter__(self) -> Iterator[Any]:
        """`graph_json, lib, params = factory`."""
        return iter((self.graph_json, self.lib, self.params))

    def __getitem__(self, name: str) -> PackedFunction:
        """`main`, `default`, `get_graph_json` or `get_graph_params`.  Raises: InputError for another name."""
        return self.module[name]

    def export_library(
        self,
        file_name: str | Path,
        fcompile: Callable[..., Any] | None = None,
        addons: Sequence[str] | None = None,
        workspace_dir: str | Path | None = None,
        fpack_imports: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Write it as one file; the suffix says what it becomes.

        `.so` `.dylib` `.dll` `.o` `.a` `.tar` `.c` `.ll` `.s` `.vmfb`, or a program (no suffix, or `.exe`). What the
        arguments mean, and what is raised, is with `Module.export_library`.
        """
        return self.module.export_library(
            file_name,
            fcompile=fcompile,
            addons=addons,
            workspace_dir=workspace_dir,
            fpack_imports=fpack_imports,
            **kwargs,
        )

    def inspect_source(self, fmt: str = "") -> str:
        """The plan (`json`), the `graph`, or the kernels as `kernel`, `ll` or `s`.

        Raises: InputError for another text.
        """
        return self.module.inspect_source(fmt)

    def __repr__(self) -> str:
        return f"<factory of '{self.module.plan.name}', {len(self.module.params)} weights>"
