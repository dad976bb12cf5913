"""`load_module`: a file, by what it holds, to a module.

    shared library               mapped by the system, after it was checked        → library_module
    object, archive of objects   linked to a shared library first
    .tar                         its objects and sources likewise
    .c, .s, .ll                  compiled, then linked                             → load_sources
    .vmfb                        bytecode, or a plan of ours                        → vm_module

What a file is called does not matter, but for sources: text does not say its language.  A file of a stranger that is damaged is an error here; one that is
whole runs its code (see SECURITY.md).

Source: TVM 0.27, `tvm.runtime.load_module`.
"""

from __future__ import annotations

import atexit
import shutil
import weakref
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Unpack, cast

from tilewright.base.c_compiler.toolchain import (
    find_toolchain,
    temporary_files,
    working_folder,
)
from tilewright.base.errors import ArchiveError, UserError, reason_of
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.host import architecture
from tilewright.base.input_file import why_no_file
from tilewright.base.options import flag_option, path_option
from tilewright.formats.byte_view import Buffer
from tilewright.formats.file_kind import refused_kind
from tilewright.formats.native_file import (
    ARCHIVE_MAGIC,
    OBJECT,
    SHARED,
    built_for,
    describe,
    elf_type,
)
from tilewright.formats.tar import TarMember, is_tar, read_tar
from tilewright.formats.vmfb import is_archive
from tilewright.runtime.library.kinds import find_loader
from tilewright.runtime.library.library_module import (
    FOREIGN_HINT,
    LibraryModule,
    open_library,
)
from tilewright.runtime.library.load_sources import (
    EXPORT_INSTEAD,
    compile_sources,
    is_source,
)
from tilewright.runtime.library.vm_module import VmModule
from tilewright.runtime.native import map_file
from tilewright.runtime.packed.module import Module
from tilewright.runtime.session_options import LoadOptions, check_words

_LINKED: Final = (".o", ".obj", ".a", ".c", ".cc", ".cpp", ".cxx", ".s", ".S")
_LINK_OPTIONS: Final = ("-lm", "-lpthread", "-ldl")
_LINKED_NAME: Final = "linked.so"
_FORMS_HINT: Final = "load_module takes .so, .o, .a, .tar, .c, .s, .ll and .vmfb"


def load_module(
    path: str | Path, *, keep_module_alive: bool = True, **options: Unpack[LoadOptions]
) -> Module:
    """The module in a file, with the modules that it imports.

    Args:
        path: a shared library, an object or an archive of objects, a `.tar` of objects and sources, a
            source (`.c`, with the folder that its export wrote beside it; `.s`, `.ll`), or a `.vmfb`.
            What must be linked first needs a C compiler (`TILEWRIGHT_CC`, `CC`, `cc`, or the package
            ziglang), LLVM IR one that takes it (clang or ziglang).
        keep_module_alive: keep a library in memory for the rest of the process, as `tvm_ffi.load_module`
            does.  Otherwise it goes with the last module and function that is in use.  Results of models
            of ours outlive it; what functions of other libraries gave must be gone by then.
        options: of `tilewright.load`, for a `.vmfb`; `trusted_keys` for every form: one of them must
            have signed the file, which is checked before anything of it is linked, loaded or run.

    Raises: ArchiveError for a file that cannot be read, is damaged, or is for another machine, with the
    place; UserError when what must be linked cannot be; InputError for a module in a library whose
    kind nobody registered.
    """
    location = path_option("path", path)
    keep = flag_option("keep_module_alive", keep_module_alive)
    data = _map(location)
    keys = options.get("trusted_keys")
    if keys is not None:
        with LATE_IMPORTS:  # few ask for it
            from tilewright.runtime.loaders.trusted_keys import TrustedKeys  # noqa: PLC0415

        TrustedKeys(keys).check(data, location, location)
    if is_archive(data):
        check_words(options, location)
        words: LoadOptions = {"find_loader": find_loader, **options}
        return VmModule(data, location, **words)
    others = [name for name in options if name != "trusted_keys"]
    if others:
        raise UserError(
            f"the option '{others[0]}' is for artifacts (.vmfb), this is {describe(data)}",
            location=location,
        )
    return _load(data, location, keep, is_signed=keys is not None)


def _load(data: memoryview, location: str, keep: bool, *, is_signed: bool) -> Module:
    """The module of a file that is no artifact."""
    if elf_type(data) == SHARED:
        return _open(Path(location).resolve(), data, location, keep)
    if elf_type(data) == OBJECT or bytes(data[:8]) == ARCHIVE_MAGIC:
        return _link([Path(location)], Path(location).resolve().parent, location, keep)
    if is_tar(data):
        return _load_tar(data, location, keep)
    if is_source(data, location):
        with working_folder() as folder:
            objects = compile_sources(data, location, folder, is_signed=is_signed)
            return _link(objects, Path(location).resolve().parent, location, keep)
    kind = refused_kind(data, location)
    raise ArchiveError(
        f"is {describe(data) if kind is None else kind.subject}, expected a library, objects or an artifact",
        location=location,
        hint=(kind and kind.remedy) or _FORMS_HINT,
    )


def _map(location: str) -> memoryview:
    reason = why_no_file(location)
    if reason is not None:
        raise ArchiveError(reason, location=location)
    try:
        data = map_file(location)
    except (OSError, ValueError) as error:
        raise ArchiveError(
            f"cannot read the file: {reason_of(error)}", location=location
        ) from error
    return memoryview(data)[: data.size_bytes]


def _open(path: Path, data: Buffer, location: str, keep: bool) -> Module:
    return open_library(path, data, find_loader, location=location, keep_module_alive=keep)


# --- what is linked first -----------------------------------------------------------------------


def _link(files: Sequence[Path], beside: Path, location: str, keep: bool) -> Module:
    """One library of objects, archives and sources, loaded, with its weights in the folder `beside`.

    The system keeps what it has mapped when the file goes.  A model looks for weights in the folder that its
    library was opened from: that is a link, which leads to `beside` from then on.
    """
    with temporary_files():
        place = _temporary_folder()
    made, opened_from = Path(place.name, "made"), Path(place.name, "beside")
    try:
        with temporary_files():
            made.mkdir()
            opened_from.symlink_to(made.name)
            _link_shared(files, made / _LINKED_NAME, location)
        library = opened_from / _LINKED_NAME
        module = _open(library, _map(str(library)), location, keep)
        _refuse_empty(module, location)
        opened_from.unlink()
        opened_from.symlink_to(beside)
        shutil.rmtree(made)
    except BaseException:
        place.cleanup()
        raise
    if _has_model(module):
        _remove_later(place, module, keep)
    else:
        place.cleanup()
    return module


def _refuse_empty(module: Module, location: str) -> None:
    """Raise for kernels alone and for archives of nothing: linkers make a library of them, which nobody can call."""
    if any(
        not isinstance(one, LibraryModule) or one.has_model or one.function_names()
        for one in module.walk()
    ):
        return
    raise ArchiveError(
        "holds no packed function (__tvm_ffi_<name>) when it is linked: kernels without the host side that calls them, "
        "or nothing",
        location=location,
        hint=EXPORT_INSTEAD,
    )


def _temporary_folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="tilewright-", ignore_cleanup_errors=True)


def _has_model(module: Module) -> bool:
    return any(isinstance(one, LibraryModule) and one.has_model for one in module.walk())


def _remove_later(folder: TemporaryDirectory[str], module: Module, keep: bool) -> None:
    """Remove a folder when nobody looks into it any more.

    Functions of a model open its weights at their first call, which may be when the module is gone.
    """
    if keep and _has_model(module):
        atexit.register(folder.cleanup)
    else:
        weakref.finalize(module, folder.cleanup)


def _link_shared(files: Sequence[Path], output: Path, location: str) -> None:
    whole = [
        word
        for file in files
        for word in (
            ("-Wl,--whole-archive", str(file), "-Wl,--no-whole-archive")
            if file.suffix == ".a" or _is_archive(file)
            else (str(file),)
        )
    ]
    try:
        find_toolchain().link_shared(output, whole, _LINK_OPTIONS)
    except UserError as error:
        _refuse_foreign(files, location)
        raise UserError(
            f"cannot be linked: {error.message}", location=location, hint=error.hint
        ) from error


def _refuse_foreign(files: Sequence[Path], location: str) -> None:
    """Raise for objects of another machine: what a linker says of them is long and does not tell it."""
    here = architecture()
    machines = (built_for(_map(str(file))) for file in files if file.stat().st_size)
    other = next((machine for machine in machines if machine not in ("", here)), None)
    if other is not None:
        raise ArchiveError(
            f"holds objects for {other}, this machine is {here}",
            location=location,
            hint=FOREIGN_HINT,
        )


def _is_archive(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(ARCHIVE_MAGIC)) == ARCHIVE_MAGIC


def _load_tar(data: Buffer, location: str, keep: bool) -> Module:
    members = read_tar(data, location)
    linked = [member for member in members if Path(member.name).suffix in _LINKED]
    if not linked:
        names = ", ".join(member.name for member in members[:8]) or "nothing"
        raise ArchiveError(
            "has no objects or sources to link", location=location, hint=f"it has {names}"
        )
    only_linked = len(linked) == len(members)
    with temporary_files():
        folder = _temporary_folder()
    try:
        with temporary_files():
            _unpack(members, Path(folder.name))
        files = [Path(folder.name) / member.name for member in linked]
        beside = Path(location).resolve().parent if only_linked else Path(folder.name)
        module = _link(files, beside, location, keep)
    except BaseException:
        folder.cleanup()
        raise
    if only_linked:
        folder.cleanup()
    else:  # what lies beside the library (weights) is opened when it is needed
        _remove_later(folder, module, keep)
    return module


def _unpack(members: Sequence[TarMember], folder: Path) -> None:
    """Write the members: plain names in a folder of this process alone."""
    for member in members:
        file = folder / member.name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as opened:
            opened.write(cast("bytes", member.data))
