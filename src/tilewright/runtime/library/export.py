"""Modules written as one file: a library, an archive, objects, sources, a program.

    tree of modules → what is linked, what is saved → objects → the file that the suffix asks for

The steps and the meaning of the arguments are those of TVM's `Module.export_library`.  Not here: which
compiler (`toolchain`), what a module brings (`link_files`).  Called by `Module.export_library`.

Source: TVM 0.27, `python/tvm/runtime/module.py`.
"""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast, final

from tilewright.base.errors import UserError
from tilewright.base.options import (
    names_option,
    path_option,
    paths_option,
    text_option,
    wrong,
)
from tilewright.base.output_file import (
    check_output,
    make_output_folder,
    open_output,
    write_text_output,
)
from tilewright.base.record import record
from tilewright.base.target import Target
from tilewright.base.text import did_you_mean, identifier
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.formats.library_blob import SYMBOL, write_blob
from tilewright.runtime.library.factory_module import FactoryModule
from tilewright.runtime.library.forms import (
    ARCHIVE,
    FORMS,
    PROGRAMS,
    TEXTS,
    check_form,
    check_system,
    form_of,
)
from tilewright.runtime.library.link_files import Linkable, LinkFiles
from tilewright.runtime.library.module_groups import group_modules
from tilewright.runtime.library.toolchain import (
    Toolchain,
    find_toolchain,
    working_folder,
)
from tilewright.runtime.packed.module import Module

Compile = Callable[..., Any]

_WEAK: Final = "weak_entries.h"
_WORDS: Final = ("options",)
_NOT_IN_TEXTS: Final = ("header", "weights", "addons")


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


def export_library(  # noqa: PLR0913 - keyword-only options
    module: Module,
    path: str | Path,
    *,
    fcompile: Compile | None = None,
    addons: Sequence[str] | None = None,
    workspace_dir: str | Path | None = None,
    name: str | None = None,
    header: str | Path | None = None,
    weights: str | Path | None = None,
    cc: str | None = None,
    **kwargs: object,
) -> Any:
    """Write a tree of modules as one file; see `Module.export_library`."""
    path = Path(path_option("path", path))
    _check_compile(fcompile)
    suffix = form_of(path) if fcompile is not None else check_form(path)
    extra = paths_option("addons", addons or ())
    header = None if header is None else path_option("header", header)
    weights = None if weights is None else path_option("weights", weights)
    if fcompile is None:
        _check_words(kwargs)
        _check_room(path, suffix, header=header, weights=weights, addons=extra)
    if suffix == ARCHIVE and fcompile is None:
        return _save_archive(module, path, weights)
    groups = group_modules(module)
    if suffix in TEXTS and fcompile is None:
        return _write_text(groups.linked, path, suffix[1:])
    name = identifier(text_option("name", name, "a name") if name else _stem(path))
    _check_header(header, path)
    for output in filter(None, (header, weights)):
        check_output(output)
    with working_folder(workspace_dir) as folder:
        brought = _bring(groups.linked, name, Path(weights) if weights else None, folder)
        if groups.blob is not None:
            brought = _with_blob(brought, write_blob(groups.blob))
        if suffix in PROGRAMS and fcompile is None:
            brought = _with_main(brought, path)
        check_system(path, brought.os)
        if header is not None:
            _write_header(header, brought)
        if suffix == ".c" and fcompile is None:
            return _write_sources(path, brought)
        link = _compile(brought, folder, extra, cc=cc, toolchain=_toolchain_of(fcompile))
        if fcompile is not None:
            files = [str(file) for file in link.everything]
            return fcompile(str(path), files, **_arguments(brought, kwargs))
        words = cast("Sequence[str]", kwargs.get("options", ()))
        return _FORMS[suffix](link, path, words)


# --- before the work -------------------------------------------------------------------------


def _check_compile(fcompile: object) -> None:
    if fcompile is not None and not callable(fcompile):
        raise wrong("fcompile", fcompile, "a function of a path and a list of files")


def _check_header(header: str | Path | None, path: Path) -> None:
    """Raise where the header would be written over the library."""
    if header is not None and Path(header).absolute() == path.absolute():
        raise UserError(
            "is to be both the library and its header",
            location=header,
            hint=f"give the header another name: {path.with_suffix('.h').name}",
        )


def _check_words(given: Mapping[str, object]) -> None:
    """Raise for options that nobody would look at."""
    for word in given:
        if word not in _WORDS:
            known = (
                "fcompile",
                "addons",
                "workspace_dir",
                "name",
                "header",
                "weights",
                "cc",
            )
            raise UserError(
                f"export_library has no option '{word}'",
                hint=did_you_mean(word, (*known, *_WORDS))
                or f"options: {', '.join(known)}",
            )
    names_option("options", given.get("options", ()), "words for the linker")


def _check_room(path: Path, suffix: str, **given: object) -> None:
    """Raise for what was given and has no room in the form."""
    left_out = {ARCHIVE: ("header", "addons"), **dict.fromkeys(TEXTS, _NOT_IN_TEXTS)}
    for word in left_out.get(suffix, ()):
        if given[word]:
            raise UserError(
                f"'{suffix}' is {FORMS[suffix]}, which has no {word}",
                location=path,
                hint=f"leave out {word}=, or write a library: .so",
            )


def _stem(path: Path) -> str:
    return path.name.partition(".")[0].removeprefix("lib") or "model"


# --- what goes in ----------------------------------------------------------------------------


def _bring(
    linked: Sequence[Module], name: str, weights: Path | None, folder: Path
) -> LinkFiles:
    """The files of all modules that are linked, as one set."""
    found: LinkFiles | None = None
    others: dict[str, Buffer] = {}
    sources: list[str] = []
    covered: list[Module] = []
    for index, module in enumerate(linked):
        if any(cast("Linkable", one).goes_along(module) for one in covered):
            continue
        if not hasattr(module, "link_files"):
            file = _write_module(module, folder, f"lib{index}")
            others[file.name] = file.read_bytes()
            if file.suffix not in (".o", ".obj", ".a"):
                sources.append(file.name)
            continue
        if found is not None:
            raise UserError(
                "two models cannot become one library",
                hint="export each alone; a program may link several of them",
            )
        found = cast("Linkable", module).link_files(name, weights)
        covered.append(module)
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
#define SYMBOL _{SYMBOL}
    .section __TEXT,__const
#else
#define SYMBOL {SYMBOL}
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


def _with_blob(files: LinkFiles, blob: Buffer) -> LinkFiles:
    added = {_BLOB_FILE: blob, "devc.S": _BLOB_SOURCE.encode()}
    return replace(
        files,
        files={**files.files, **added},
        entry_units=(*files.entry_units, "devc.S"),
        exports=(*files.exports, SYMBOL),
    )


_MAIN: Final = "program.c"
_TYPES: Final = ("interface", "tensor", "tensor_info", "dim_info", "options")


def _with_main(files: LinkFiles, path: Path) -> LinkFiles:
    """The files with a main function for the model's interface."""
    if not files.public:
        raise UserError(
            "a program runs a model, and these modules have none",
            location=path,
            hint="give the file a suffix: .so",
        )
    name = files.name
    lines = [f'#include "{files.public[0]}"', f"typedef {name} model;"]
    lines += [f"typedef {name}_{word} model_{word};" for word in _TYPES]
    added = {
        _MAIN: Path(__file__).with_name(_MAIN).read_bytes(),
        "program.h": "\n".join([*lines, ""]).encode(),
    }
    return replace(
        files,
        files={**files.files, **added},
        entry_units=(*files.entry_units, _MAIN),
    )


# --- to objects ------------------------------------------------------------------------------


def _toolchain_of(fcompile: Compile | None) -> Toolchain | None:
    return cast("Toolchain | None", getattr(fcompile, "toolchain", None))


def _compile(
    files: LinkFiles,
    folder: Path,
    addons: Sequence[str],
    *,
    cc: str | None,
    toolchain: Toolchain | None,
) -> _Link:
    """Everything as objects, in the folder."""
    for name, data in {**files.files, **files.objects}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(view_bytes(data))
    target = Target.parse(f"{files.arch}-{files.os}")
    chosen = toolchain or find_toolchain(target, cc=cc)
    flags = ["-I.", *files.flags]
    (folder / _WEAK).write_text("".join(f"#pragma weak {s}\n" for s in files.exports))

    def compiled(units: Sequence[str], *further: str) -> list[Path]:
        return chosen.compile(units, folder, [*flags, *further])

    return _Link(
        toolchain=chosen,
        folder=folder,
        files=files,
        objects=(*compiled(files.units), *(folder / name for name in files.objects)),
        # Of several models that are linked into one process the first is the one that is found.
        entry_objects=tuple(compiled(files.entry_units, "-include", _WEAK)),
        addons=tuple(addons),
    )


def _arguments(files: LinkFiles, given: Mapping[str, object]) -> dict[str, object]:
    """What an `fcompile` gets besides the files."""
    options = [*files.link_flags, *cast("Sequence[str]", given.get("options", ()))]
    return {**given, "options": options} if options or "options" in given else dict(given)


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


def _save_archive(module: Module, path: Path, weights: str | Path | None) -> None:
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


def _write_header(path: str | Path, files: LinkFiles) -> None:
    if not files.public:
        raise UserError("these modules have no C interface, so no header", location=path)
    plain, suffix = files.public[0], Path(path).suffix
    chosen = next((name for name in files.public if Path(name).suffix == suffix), plain)
    places = {chosen: Path(path)}
    if chosen != plain:  # the class for C++ includes the interface
        places[plain] = Path(path).with_name(plain)
    for name, place in places.items():
        with open_output(place) as file:
            file.write(view_bytes(files.files[name]))


def _write_sources(path: Path, files: LinkFiles) -> None:
    """The last unit as the file itself, everything that it needs in a folder beside it."""
    if not files.units:
        raise UserError("these modules have no source in C", location=path)
    beside = path.with_name(f"{path.stem}.library")
    for folder in {beside, *((beside / name).parent for name in files.files)}:
        make_output_folder(folder)
    for name, data in {**files.files, **files.objects}.items():
        if name != files.units[-1]:
            with open_output(beside / name) as file:
                file.write(view_bytes(data))
    parts = shlex.quote(beside.name)  # not the stars behind it
    command = [
        *("cc", *(flag for flag in files.flags if not flag.startswith("-f")), "app.c"),
        *(shlex.quote(path.name), f"{parts}/*.[cSo]", f"{parts}/*/*.c"),
        *(f"-Wa,-I{parts}", *files.link_flags),
    ]
    text = bytes(view_bytes(files.files[files.units[-1]])).decode()
    text = text.replace('#include "', f'#include "{beside.name}/')
    write_text_output(path, f"// {' '.join(command)}\n{text}")
