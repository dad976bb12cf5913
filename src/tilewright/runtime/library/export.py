"""Modules written as one file: a library, an archive, objects, sources, a program.

    tree of modules → what is linked, what is saved → objects → the file that the suffix asks for

The steps and the meaning of the arguments are those of TVM's `Module.export_library`.  Not here: which
compiler (`toolchain`), what a module brings (`link_files`).  Called by `Module.export_library`.

Source: TVM 0.27, `python/tvm/runtime/module.py`.
"""

from __future__ import annotations

import inspect
import io
import tarfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast, final

from tilewright.base.c_compiler.toolchain import (
    Toolchain,
    find_toolchain,
    working_folder,
)
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.errors import UserError
from tilewright.base.options import path_option
from tilewright.base.output_file import open_output, write_text_output
from tilewright.base.record import record
from tilewright.base.target import Target
from tilewright.base.text import identifier
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.formats.library_blob import SYMBOL, write_blob
from tilewright.runtime.library.export_options import ExportOptions, read_options
from tilewright.runtime.library.export_sources import write_sources
from tilewright.runtime.library.factory_module import FactoryModule
from tilewright.runtime.library.forms import (
    ARCHIVE,
    PROGRAMS,
    SHARED,
    TEXTS,
    check_system,
)
from tilewright.runtime.library.link_files import (
    FUNCTION,
    Linkable,
    LinkFiles,
    LinkOptions,
    linkable,
)
from tilewright.runtime.library.module_groups import Groups, group_modules
from tilewright.runtime.library.system_library import with_system_library
from tilewright.runtime.packed.module import Module

_WEAK: Final = "weak_entries.h"
_SOURCES: Final = (".c", ".cc", ".cpp", ".cxx", ".s", ".S")


@final
@record(kw_only=True)
class _Link:
    """One export on its way: the compiler, the folder, and the objects so far."""

    toolchain: Toolchain
    folder: Path
    files: LinkFiles
    objects: tuple[Path, ...]
    entry_objects: tuple[Path, ...]
    addons: tuple[str, ...]

    @property
    def everything(self) -> list[str | Path]:
        return [*self.objects, *self.entry_objects, *self.addons]


def export_library(module: Module, path: str | Path, **given: object) -> Any:
    """Write a tree of modules as one file; see `Module.export_library`."""
    options = read_options(path, given)
    path, form = options.path, options.form
    is_ours = options.fcompile is None
    if form == ARCHIVE and is_ours:
        return _save_archive(module, path, options.weights)
    groups = group_modules(module)
    if is_ours and not groups.linked and form in (".c", *TEXTS, *PROGRAMS):
        raise UserError(
            f"modules of kind {_kinds(module)} have no sources and no code to link",
            location=path,
            hint="compile the model again and export that; .so, .o, .a and .tar hold such modules as they are",
        )
    if form in TEXTS and is_ours:
        return _write_text(groups.linked, path, form[1:])
    with working_folder(options.workspace_dir) as folder, ExitStack() as written:
        brought = _bring(groups.linked, _link_options(options, written), folder)
        brought, packed = _pack(module, groups, brought, options, folder)
        if form in PROGRAMS and is_ours:
            brought = _with_main(brought, path)
        if options.system_lib:
            brought = with_system_library(brought, options.prefix)
        check_system(path, brought.os)
        with _header(options.header, brought):
            if form == ".c" and is_ours:
                return write_sources(path, brought)
            link = _compile(brought, folder, (*options.addons, *packed), options)
            if options.fcompile is None:
                return _FORMS[form](link, path, options.link_words)
            files = [str(file) for file in link.everything]
            words = _arguments(brought, options.words, options.fcompile)
            return options.fcompile(str(path), files, **words)


def _kinds(module: Module) -> str:
    return ", ".join(dict.fromkeys(f"'{one.kind}'" for one in module.walk()))


def _link_options(options: ExportOptions, written: ExitStack) -> LinkOptions:
    return LinkOptions(
        name=identifier(options.name or _stem(options.path)),
        weights=options.weights,
        written=written,
        kernel_functions=options.kernel_functions,
        symbol_prefix=options.prefix,
        kernel_sources=options.path.suffix == ".c" and options.fcompile is None,
        is_closed=options.form in (*SHARED.values(), *PROGRAMS)
        and options.fcompile is None,
    )


def _stem(path: Path) -> str:
    return path.name.partition(".")[0].removeprefix("lib") or "model"


# --- what goes in ----------------------------------------------------------------------------


def _bring(linked: Sequence[Module], options: LinkOptions, folder: Path) -> LinkFiles:
    """The files of all modules that are linked, as one set."""
    found: LinkFiles | None = None
    others: dict[str, Buffer] = {}
    sources: list[str] = []
    functions: dict[str, str] = {}
    covered: list[Linkable] = []
    for index, module in enumerate(linked):
        if any(one.goes_along(module) for one in covered):
            continue
        own = linkable(module)
        if own is None:
            file = _write_module(module, folder, f"lib{index}")
            others[file.name] = file.read_bytes()
            functions |= {name: FUNCTION.format(name) for name in module.function_names()}
            if file.suffix not in (".o", ".obj", ".a"):
                sources.append(file.name)
            continue
        if found is not None:
            raise UserError(
                "two models cannot become one library",
                hint="export each alone; a program may link several of them",
            )
        found = own.link_files(options)
        covered.append(own)
    if found is None:
        host = Target.host()
        found = LinkFiles(name="", arch=host.arch, os=host.os)
    objects = {n: data for n, data in others.items() if n not in sources}
    files = {n: data for n, data in others.items() if n in sources}
    return replace(
        found,
        objects={**found.objects, **objects},
        files={**found.files, **files},
        units=(*found.units, *sources),
        functions={**functions, **found.functions},
    )


def _write_module(module: Module, folder: Path, stem: str) -> Path:
    """One file of a module that is not ours: an object, or source for a compiler."""
    formats = list(module.get_write_formats()) or ["o"]
    fmt = "o" if "o" in formats else formats[0]
    path = folder / f"{stem}.{fmt}"
    module.write_to_file(str(path), fmt)
    return path


_BLOB_FILE: Final = "devc.bin"
_BLOB_SOURCE: Final = f"""\
// The modules that no linker takes, for whoever loads the library.
#ifdef __APPLE__
#define SYMBOL _@SYMBOL@
    .section __TEXT,__const
#else
#define SYMBOL @SYMBOL@
#ifdef _WIN32
    .section .rdata,"dr"
#else
    .section .rodata
#endif
#endif
    .globl SYMBOL
    .p2align 6
SYMBOL:
    .incbin "{_BLOB_FILE}"
#ifdef __ELF__
    .section .note.GNU-stack,"",%progbits
#endif
"""


def _pack(
    module: Module,
    groups: Groups,
    files: LinkFiles,
    options: ExportOptions,
    folder: Path,
) -> tuple[LinkFiles, tuple[str, ...]]:
    """The modules that no linker takes: among the files, or what the user's function made of them."""
    if groups.blob is None:
        return files, ()
    if options.fpack_imports is None:
        return _with_blob(files, write_blob(groups.blob), options.prefix), ()
    made = options.fpack_imports(module, options.system_lib, options.prefix, str(folder))
    path = path_option("what fpack_imports returned", made)
    if not Path(path).is_file():
        raise UserError("fpack_imports returned the name of no file", location=path)
    return files, (path,)


def _with_blob(files: LinkFiles, blob: Buffer, prefix: str) -> LinkFiles:
    symbol = f"{prefix}{SYMBOL}"
    source = _BLOB_SOURCE.replace("@SYMBOL@", symbol)
    return replace(
        files,
        files={**files.files, _BLOB_FILE: blob, "devc.S": source.encode()},
        entry_units=(*files.entry_units, "devc.S"),
        exports=(*files.exports, symbol),
        loader_symbols=(*files.loader_symbols, symbol),
    )


_MAIN: Final = "program.c"
_MAIN_PARTS: Final = (
    "program_archive.h",
    "program_expected.h",
    "program_inputs.h",
    "program_numbers.h",
    "program_outputs.h",
)
_TYPES: Final = ("interface", "tensor", "tensor_info", "dim_info", "options")


def _with_main(files: LinkFiles, path: Path) -> LinkFiles:
    """The files with a main function for the model's interface."""
    if not files.has_model:
        raise UserError(
            "a program runs a model, and these modules have none",
            location=path,
            hint="give the file a suffix: .so",
        )
    name = files.name
    lines = [f'#include "{files.public[0]}"', f"typedef {name} model;"]
    lines += [f"typedef {name}_{word} model_{word};" for word in _TYPES]
    added = {
        **{
            part: Path(__file__).with_name(part).read_bytes()
            for part in (_MAIN, *_MAIN_PARTS)
        },
        "program.h": "\n".join([*lines, ""]).encode(),
    }
    return replace(
        files,
        files={**files.files, **added},
        entry_units=(*files.entry_units, _MAIN),
    )


# --- to objects ------------------------------------------------------------------------------


def _compile(
    files: LinkFiles, folder: Path, addons: Sequence[str], options: ExportOptions
) -> _Link:
    """Everything as objects, in the folder."""
    for name, data in {**files.files, **files.objects}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(view_bytes(data))
    target = Target.parse(f"{files.arch}-{files.os}")
    chosen = options.toolchain or find_toolchain(target, cc=options.cc)
    flags = ["-I.", *files.flags]
    weak = "".join(f"#pragma weak {symbol}\n" for symbol in files.exports)
    (folder / _WEAK).write_text(weak, encoding="utf-8")
    cache = CompilationCache.default()

    def compiled(units: Sequence[str], *further: str) -> list[Path]:
        return chosen.compile(units, folder, [*flags, *further], cache=cache)

    suffix = f".{options.object_format}"
    objects = [*compiled(files.units), *(folder / name for name in files.objects)]
    # Of several models that are linked into one process the first is the one that is found.
    entries = compiled(files.entry_units, "-include", _WEAK)
    if options.fcompile is None:
        addons = _compiled_addons(addons, folder, chosen)
    return _Link(
        toolchain=chosen,
        folder=folder,
        files=files,
        objects=tuple(_called(path, suffix) for path in objects),
        entry_objects=tuple(_called(path, suffix) for path in entries),
        addons=tuple(addons),
    )


def _called(path: Path, suffix: str) -> Path:
    """An object under the suffix that it is to have."""
    return path if path.suffix == suffix else path.rename(path.with_suffix(suffix))


def _compiled_addons(
    addons: Sequence[str], folder: Path, toolchain: Toolchain
) -> list[str]:
    """Addons that an archive can hold as well: sources as objects, each in a folder of its own."""
    found: list[str] = []
    for index, addon in enumerate(addons):
        if Path(addon).suffix not in _SOURCES:
            found.append(addon)
            continue
        own = folder / f"addon{index}"
        own.mkdir(exist_ok=True)
        found += map(str, toolchain.compile([Path(addon).absolute()], own))
    return found


def _arguments(
    files: LinkFiles, given: Mapping[str, object], fcompile: Callable[..., Any]
) -> dict[str, object]:
    """What an `fcompile` gets besides the files: flags of ours only if it takes some."""
    if "options" not in given and not _takes_options(fcompile):
        return dict(given)
    options = [*files.link_flags, *cast("Sequence[str]", given.get("options", ()))]
    return {**given, "options": options} if options or "options" in given else dict(given)


def _takes_options(function: Callable[..., Any]) -> bool:
    """Whether a function has a parameter `options`, or takes any; also where nobody can tell."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    kinds = {parameter.kind for parameter in parameters.values()}
    return "options" in parameters or inspect.Parameter.VAR_KEYWORD in kinds


# --- forms -----------------------------------------------------------------------------------


def _link_shared(link: _Link, path: Path, options: Sequence[str]) -> None:
    link.toolchain.link_shared(path, link.everything, [*link.files.link_flags, *options])


def _merge(link: _Link, path: Path, options: Sequence[str]) -> None:
    del options
    link.toolchain.merge(path, link.everything)


def _archive(link: _Link, path: Path, options: Sequence[str]) -> None:
    del options
    link.toolchain.archive(path, link.everything)


def _tar(link: _Link, path: Path, options: Sequence[str]) -> None:
    """The objects, always in the same order and of the same time."""
    del options
    with open_output(path) as file, tarfile.open(fileobj=file, mode="w") as archive:
        for item in map(Path, link.everything):
            data = item.read_bytes()
            entry = tarfile.TarInfo(item.name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def _link_program(link: _Link, path: Path, options: Sequence[str]) -> None:
    link.toolchain.link_executable(
        path, link.everything, [*link.files.link_flags, *options]
    )


_FORMS: Final[Mapping[str, Callable[..., None]]] = {
    ".so": _link_shared,
    ".dylib": _link_shared,
    ".dll": _link_shared,
    ".o": _merge,
    ".a": _archive,
    ".tar": _tar,
    "": _link_program,
    ".exe": _link_program,
}


def _save_archive(module: Module, path: Path, weights: Path | None) -> None:
    """The `.vmfb` of the model that the tree is of."""
    if not isinstance(module, FactoryModule):
        raise UserError(
            f"an archive holds a model, the module is of kind '{module.kind}'",
            location=path,
        )
    module.save(path, weights)


def _write_text(linked: Sequence[Module], path: Path, fmt: str) -> None:
    """The kernels as text, of the module that has them."""
    module = next((m for m in linked if fmt in m.get_write_formats()), None)
    if module is None:
        raise UserError(f"no module has kernels to write as '.{fmt}'", location=path)
    write_text_output(path, module.inspect_source(fmt))


@contextmanager
def _header(path: Path | None, files: LinkFiles) -> Generator[None]:
    """Write the header where one is wanted; it appears when the block ends, with the library or not at all."""
    if path is None:
        yield
        return
    if not files.public:
        raise UserError("these modules have no C interface, so no header", location=path)
    plain, suffix = files.public[0], path.suffix
    chosen = next((name for name in files.public if Path(name).suffix == suffix), plain)
    places = {chosen: path}
    if chosen != plain:  # the class for C++ includes the interface
        places[plain] = path.with_name(plain)
    with ExitStack() as written:
        for name, place in places.items():
            file = written.enter_context(open_output(place))
            file.write(view_bytes(files.files[name]))
        yield
