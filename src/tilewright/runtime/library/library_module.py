"""Shared libraries as modules: kind `library`.

A library is read and checked before the system maps it (`formats.elf.shared_library`), because the system
trusts what it maps; then tvm-ffi loads it, so that compiled code finds what it imports
(`TVMFFIEnvModLookupFromImports`) as it does everywhere else.  The modules in its blob are made on the way by the
loaders of their kinds, ours, users' or tvm-ffi's; those of Python get something genuine that stands for
them while tvm-ffi builds the tree.

Source: tvm-ffi 0.1.15, `src/ffi/extra/library_module.cc`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final, final

from tilewright.base.errors import ArchiveError, InputError
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.host import architecture
from tilewright.formats.byte_view import Buffer
from tilewright.formats.elf.shared_library import SharedLibraryFile, read_shared_library
from tilewright.formats.library_blob import (
    LEGACY_SYMBOL,
    SYMBOL,
    LibraryBlob,
    read_blob,
)
from tilewright.formats.native_file import elf_machine
from tilewright.runtime.library.compiled_model import CompiledModel, interface_symbol
from tilewright.runtime.native.compiled_library import (
    OpenedLibrary,
    fill_variables,
    show_imported_functions,
    variables_of,
    write_pointer,
)
from tilewright.runtime.native.model_interface import ModelInterface, interface_address
from tilewright.runtime.native.shared_library import PathLibrary, new_spelling
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import (
    PackedFunction,
    get_global_func,
    packed_function,
    register_global_func,
    remove_global_func,
    take_raised,
)
from tilewright.runtime.packed.genuine import (
    GenuineModule,
    offer_functions,
    release_stand_in,
    stand_in,
)
from tilewright.runtime.packed.module import Module
from tilewright.runtime.packed.module_kinds import (
    GLOBAL_PREFIX,
    LoadFromBytes,
    how_to_register,
    made_module,
)

_FUNCTION_PREFIX: Final = "__tvm_ffi_"
_COMPILED_PREFIX: Final = "__tvm_ffi___vmtir__"
_LEGACY_MARKS: Final = (LEGACY_SYMBOL, "__tvm_module_ctx", "__tvm_main__")
_LOADING: Final = fork_lock(Rank.IMPORT)

FOREIGN_HINT: Final = "export it for this machine, or load it there"
"""For code of another machine."""

FindLoader = Callable[[str], "LoadFromBytes | None"]


@final
class LibraryModule(GenuineModule):
    """A shared library that is loaded.

    Args:
        genuine: tvm-ffi's module of it.
        function_names: without their prefix.
        location: the file, for errors.
        variables: addresses of pointers of the library that tell its code how to find functions.
        model: what it has an interface in C for, if it is an exported model of ours.

    Ownership: the library stays loaded as long as this module, its functions and what they gave are
    in use; `load_module` keeps it for the whole process unless it is told otherwise.
    """

    def __init__(
        self,
        genuine: tvm_ffi.Module,
        function_names: Sequence[str],
        location: str,
        variables: Mapping[str, int],
        model: CompiledModel | None = None,
    ) -> None:
        super().__init__(genuine)
        self._variables: dict[str, int] = dict(variables)
        more = () if model is None else model.functions
        self._names: tuple[str, ...] = tuple(dict.fromkeys((*function_names, *more)))
        self._model: CompiledModel | None = model
        self._made: dict[str, PackedFunction] = {}
        self.location: str = location

    def function_names(self) -> Sequence[str]:
        return self._names

    def find_function(self, name: str) -> PackedFunction | None:
        found = super().find_function(name)
        if found is not None or self._model is None or name not in self._model.functions:
            return found
        if name not in self._made:
            self._made[name] = packed_function(self._model.functions[name])
        return self._made[name]

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        return name in self._names or super().implements_function(name, query_imports)

    @property
    def has_model(self) -> bool:
        """Whether it is an exported model of ours."""
        return self._model is not None

    def set_variable(self, name: str, value: int) -> bool:
        """Give one of its `variables` a value; returns whether there is one of that name."""
        if name not in self._variables:
            return False
        write_pointer(self._variables[name], value)
        return True


def open_library(
    path: Path,
    data: Buffer,
    find_loader: FindLoader,
    *,
    location: str,
    keep_module_alive: bool,
) -> Module:
    """The root of the tree of modules in a library.

    Args:
        path: the library, absolute; its model looks for weights in the folder that this names.
        data: its bytes.
        find_loader: of a kind of modules in its blob.
        location: how errors call it.
        keep_module_alive: for the whole process, as tvm-ffi does.

    Raises: ArchiveError for a file that is damaged, for another machine or another system, or that
        the system does not load; InputError for modules of a kind that nobody registered.
    """
    _check_name(path, location)
    file = _checked(data, location)
    blob = None
    if SYMBOL in file.symbols:
        blob = read_blob(file.data_at(SYMBOL, "blob of modules"), location)
    loaders = _loaders_of(blob, find_loader, location)
    names = _function_names(file)
    with (
        _LOADING,
        _own_copy(path, file) as where,
        _system_loads(spelled := new_spelling(str(where)), location) as opened,
    ):

        def module(genuine: tvm_ffi.Module) -> LibraryModule:
            model = _model_of(file, opened, genuine, location)
            return LibraryModule(genuine, names, location, variables_of(opened), model)

        if blob is None:
            root: Module = module(_load(spelled, location))
        else:
            with _offering(loaders, blob, location) as made:
                genuine = _load(spelled, location)
                root = _assemble(genuine, blob, made, module)
        fill_variables(opened, tvm_ffi.LIB)
    if keep_module_alive:
        _keep(root)
    return root


# --- before it is loaded ------------------------------------------------------------------------


def _check_name(path: Path, location: str) -> None:
    """Raise for a name that tvm-ffi, whose strings are UTF-8, cannot be given."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise ArchiveError(
            "tvm-ffi loads no library whose name is not UTF-8",
            location=os.fsencode(location).decode(errors="backslashreplace"),
            hint="give the file, and the folders that it is in, other names",
        ) from error


def _checked(data: Buffer, location: str) -> SharedLibraryFile:
    machine = elf_machine(data)
    if machine and machine != architecture():
        raise ArchiveError(
            f"is a library for {machine}, this machine is {architecture()}",
            location=location,
            hint=FOREIGN_HINT,
        )
    file = read_shared_library(data, location)
    legacy = next((name for name in _LEGACY_MARKS if name in file.symbols), None)
    if legacy is not None and SYMBOL not in file.symbols:
        raise ArchiveError(
            f"is a library of TVM up to 0.20 (symbol '{legacy}'), whose functions are called "
            "in another way than tvm-ffi's",
            location=location,
            hint="compile the model again with TVM 0.21 or newer, or with Tilewright",
        )
    return file


def _function_names(file: SharedLibraryFile) -> tuple[str, ...]:
    """The packed functions; a second underscore begins names of tvm-ffi's own."""
    begin = len(_FUNCTION_PREFIX)
    return tuple(
        sorted(
            name[begin:]
            for name, symbol in file.symbols.items()
            if symbol.is_code
            and name.startswith(_FUNCTION_PREFIX)
            and name[begin:][:1] != "_"
        )
    )


def _loaders_of(
    blob: LibraryBlob | None, find_loader: FindLoader, location: str
) -> dict[str, LoadFromBytes]:
    """The loader of each kind in a blob, before anything of it is loaded."""
    found: dict[str, LoadFromBytes] = {}
    for module in blob.modules if blob else ():
        if module.is_library or module.kind in found:
            continue
        loader = find_loader(module.kind)
        if loader is None:
            raise missing_loader(module.kind, location)
        found[module.kind] = loader
    return found


def missing_loader(kind: str, location: str) -> InputError:
    """The error for modules of a kind that nobody registered."""
    return InputError(
        f"has a module of kind '{kind}', which nobody registered in this process",
        location=location,
        hint=how_to_register(kind),
    )


# --- loading ------------------------------------------------------------------------------------


@contextmanager
def _own_copy(path: Path, file: SharedLibraryFile) -> Generator[Path]:
    """The file, or a copy for as long as it is loaded: of functions that TVM compiled for its machine.

    Their library remembers which functions it found by name, ours or TVM's own, so it may not be the one
    that TVM has loaded in the same process.
    """
    if not any(name.startswith(_COMPILED_PREFIX) for name in file.symbols):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        copy = Path(folder, path.name)
        shutil.copyfile(path, copy)
        yield copy


@contextmanager
def _system_loads(path: str, location: str) -> Generator[OpenedLibrary]:
    """Open a library with all its symbols: one that is missing would end the process at its first use."""
    show_imported_functions()
    try:
        library = PathLibrary(path)
    except OSError as error:
        said = str(error).removeprefix(f"{path}: ")
        is_program = "position-independent executable" in said
        raise ArchiveError(
            f"the system does not load it: {said}",
            location=location,
            hint="it is a program: run it, or export a library (.so)"
            if is_program
            else None,
        ) from error
    with library as opened:
        yield opened


def _load(path: str, location: str) -> tvm_ffi.Module:
    load = get_global_func("ffi.Module.load_from_file.so")
    try:
        genuine: tvm_ffi.Module = load(path, "so")
    except RuntimeError as error:
        raise ArchiveError(
            f"tvm-ffi does not load it: {error}", location=location
        ) from error
    return genuine


def _model_of(
    file: SharedLibraryFile, opened: OpenedLibrary, genuine: tvm_ffi.Module, location: str
) -> CompiledModel | None:
    symbol = interface_symbol(file)
    if symbol is None:
        return None
    address = interface_address(opened, symbol)
    if not address:
        return None
    return CompiledModel(ModelInterface(address, location, genuine, take_raised))


def _keep(root: Module) -> None:
    """Keep the library in a tree for the rest of the process."""
    add = get_global_func("ffi.ModuleGlobalsAdd")
    for module in root.walk():
        if isinstance(module, LibraryModule):
            add(module.genuine)


@final
class _Made:
    """The modules that loaders of kinds made while a library was loaded.

    Attributes:
        modules: by their place in the blob.
    """

    def __init__(self) -> None:
        self.modules: dict[int, Module] = {}
        self._stand_ins: list[tvm_ffi.Module] = []

    def add(self, place: int, module: Module) -> tvm_ffi.Module:
        self.modules[place] = module
        if isinstance(module, GenuineModule):
            return module.genuine
        self._stand_ins.append(stand_in(module))
        return self._stand_ins[-1]

    def release(self) -> None:
        """Let stand-ins go that nothing genuine looks for functions in."""
        for one in self._stand_ins:
            release_stand_in(one)


@contextmanager
def _offering(
    loaders: Mapping[str, LoadFromBytes], blob: LibraryBlob, location: str
) -> Generator[_Made]:
    """Let tvm-ffi make modules with our loaders.

    Its registry holds them only while it loads: a package that is imported later (TVM) registers some of
    the same kinds itself, and may not find them taken.
    """
    made = _Made()

    def offered(kind: str, loader: LoadFromBytes) -> Callable[[bytes], tvm_ffi.Module]:
        places = (i for i, module in enumerate(blob.modules) if module.kind == kind)

        def make(data: bytes) -> tvm_ffi.Module:
            return made.add(next(places), made_module(kind, loader, bytes(data), location))

        return make

    before = {
        GLOBAL_PREFIX + kind: get_global_func(GLOBAL_PREFIX + kind, allow_missing=True)
        for kind in loaders
    }
    try:
        for kind, loader in loaders.items():
            name = GLOBAL_PREFIX + kind
            register_global_func(name, offered(kind, loader), override=True)
        yield made
    finally:
        made.release()
        for name, function in before.items():
            if function is not None:
                register_global_func(name, function, override=True)
            elif get_global_func(name, allow_missing=True) is not None:
                remove_global_func(name)


def _assemble(
    root: tvm_ffi.Module,
    blob: LibraryBlob,
    made: _Made,
    library: Callable[[tvm_ffi.Module], LibraryModule],
) -> Module:
    """Our tree of the one that tvm-ffi built; the root is first."""
    genuine: dict[int, tvm_ffi.Module] = {0: root}
    waiting = [0]
    while waiting:
        index = waiting.pop()
        for child, one in zip(blob.imports[index], genuine[index].imports, strict=True):
            if child not in genuine:
                genuine[child] = one
                waiting.append(child)
    modules = {
        index: made.modules[index] if index in made.modules else library(one)
        for index, one in genuine.items()
    }
    # Importers first: what is imported has no imports yet that would be looked through for a circle.
    order = TopologicalSorter(dict(enumerate(blob.imports))).static_order()
    for index in reversed(tuple(order)):
        module = modules.get(index)
        if module is not None and not isinstance(module, GenuineModule):
            for child in blob.imports[index]:
                module.import_module(modules[child])
    for index in _below_genuine(blob, modules):
        offer_functions(genuine[index])
    return modules[0]


def _below_genuine(blob: LibraryBlob, modules: Mapping[int, Module]) -> set[int]:
    """The modules among which compiled code looks for functions: all below one of tvm-ffi's."""
    waiting = [
        child
        for index, module in modules.items()
        if isinstance(module, GenuineModule)
        for child in blob.imports[index]
    ]
    found: set[int] = set()
    while waiting:
        index = waiting.pop()
        if index not in found:
            found.add(index)
            waiting.extend(blob.imports[index])
    return found
