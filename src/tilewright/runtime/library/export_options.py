"""What `export_library` is told: its keyword arguments, checked before the work.

An option that a form of file has no use for is an error, so that none is taken and left aside.

Source: the meaning of `fcompile`, `fpack_imports`, `addons`, `workspace_dir` and of the attributes of `fcompile`
(`object_format`, `need_system_lib`) is TVM 0.27's, `python/tvm/runtime/module.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast, final

from tilewright.base.c_compiler.toolchain import Toolchain
from tilewright.base.errors import UserError
from tilewright.base.options import (
    choice_option,
    flag_option,
    names_option,
    path_option,
    paths_option,
    text_option,
    wrong,
)
from tilewright.base.output_file import check_output
from tilewright.base.record import record
from tilewright.base.text import did_you_mean
from tilewright.runtime.library.forms import (
    ARCHIVE,
    FORMS,
    PROGRAMS,
    TEXTS,
    check_form,
    form_of,
)

Compile = Callable[..., Any]

OBJECT_FORMATS: Final = ("o", "obj")
_PREFIX: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS: Final = (
    "fcompile", "fpack_imports", "addons", "workspace_dir", "name", "header", "weights", "cc",
    "kernel_functions", "system_lib", "c_symbol_prefix", "options",
)  # fmt: skip
_ALL: Final = frozenset(_WORDS)
_OBJECTS: Final = _ALL - {"options"}


@final
@record(kw_only=True)
class ExportOptions:
    """One export, as it was asked for.

    Attributes:
        path: the file.
        form: its suffix, a row of `forms`; of any spelling where `fcompile` decides.
        fcompile: links instead: `fcompile(file, objects, **words)`.
        fpack_imports: packs what is not linked: `(module, is_system_lib, prefix, folder) -> file`.
        addons: further objects, sources and archives.
        workspace_dir: the folder for what is made on the way; None: a temporary one.
        name: what the names of the C interface begin with; None: as the file's.
        header, weights: files for them; None: no header, weights inside.
        cc: the compiler; None: one that is found.
        kernel_functions: whether each kernel of a model is a packed function, too.
        system_lib: whether the functions are entered into tvm-ffi's table of the process.
        prefix: what their names begin with there.
        words: what else was given: `options`, and with `fcompile` its own words.
    """

    path: Path
    form: str
    fcompile: Compile | None
    fpack_imports: Callable[..., Any] | None
    addons: tuple[str, ...]
    workspace_dir: str | Path | None
    name: str | None
    header: Path | None
    weights: Path | None
    cc: str | None
    kernel_functions: bool
    system_lib: bool
    prefix: str
    words: Mapping[str, object]

    @property
    def toolchain(self) -> Toolchain | None:
        """The compiler in `fcompile`, where it is one of ours."""
        return cast("Toolchain | None", getattr(self.fcompile, "toolchain", None))

    @property
    def link_words(self) -> tuple[str, ...]:
        """Further words for the linker."""
        return tuple(cast("Sequence[str]", self.words.get("options", ())))

    @property
    def object_format(self) -> str:
        """The suffix that `fcompile` wants objects to have."""
        wanted = getattr(self.fcompile, "object_format", OBJECT_FORMATS[0])
        return choice_option("fcompile.object_format", wanted, OBJECT_FORMATS)


def read_options(path: str | Path, given: Mapping[str, object]) -> ExportOptions:
    """The options of an export of `path`.

    Raises: UserError for an option that there is not, that the form has no use for, or that makes no sense.
    """
    where = Path(path_option("path", path))
    fcompile = _function("fcompile", given.get("fcompile"))
    form = form_of(where) if fcompile is not None else check_form(where)
    asked = {word for word, value in given.items() if value is not None}
    asked -= {word for word in asked if given[word] is False}
    _check_words(asked, form, where, has_fcompile=fcompile is not None)
    system_lib = flag_option("system_lib", given.get("system_lib", False))
    options = ExportOptions(
        path=where,
        form=form,
        fcompile=fcompile,
        fpack_imports=_function("fpack_imports", given.get("fpack_imports")),
        addons=paths_option("addons", cast("Any", given.get("addons") or ())),
        workspace_dir=cast("str | None", given.get("workspace_dir")),
        name=text_option("name", given["name"], "a name") if given.get("name") else None,
        header=_output("header", given.get("header")),
        weights=_output("weights", given.get("weights")),
        cc=cast("str | None", given.get("cc")),
        kernel_functions=flag_option(
            "kernel_functions", given.get("kernel_functions", False)
        ),
        system_lib=system_lib,
        prefix=_prefix(given.get("c_symbol_prefix"), system_lib=system_lib),
        words={word: value for word, value in given.items() if word not in _OBJECTS},
    )
    _check_words_of_compiler(options)
    _check_header(options)
    return options


def _function(name: str, value: object) -> Compile | None:
    if value is not None and not callable(value):
        expected = {
            "fcompile": "a function of a path and a list of files",
            "fpack_imports": "a function of a module, a flag, a prefix and a folder",
        }
        raise wrong(name, value, expected[name])
    return cast("Compile | None", value)


def _output(name: str, value: object) -> Path | None:
    if value is None:
        return None
    path = Path(path_option(name, cast("Any", value)))
    check_output(path)
    return path


def _prefix(value: object, *, system_lib: bool) -> str:
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not _PREFIX.fullmatch(value):
        raise wrong("c_symbol_prefix", value, "the beginning of a name in C")
    if not system_lib:
        raise UserError(
            f"c_symbol_prefix is '{value}', which only the names of a system library have",
            hint="export one: system_lib=True",
        )
    return value


def _takes(form: str) -> frozenset[str]:
    """The options that a form has a use for."""
    if form == ARCHIVE:
        return frozenset({"weights"})
    if form in TEXTS:
        return frozenset()
    if form == ".c":
        return _ALL - {"options", "cc", "addons", "fpack_imports"}
    if form in PROGRAMS:
        return _ALL - {"system_lib", "c_symbol_prefix"}
    return _ALL if form in (".so", ".dylib", ".dll") else _OBJECTS


def _check_words(asked: set[str], form: str, path: Path, *, has_fcompile: bool) -> None:
    if has_fcompile:  # it may have words of its own, and makes what it likes
        return
    unknown = next((word for word in sorted(asked) if word not in _ALL), None)
    if unknown is not None:
        raise UserError(
            f"export_library has no option '{unknown}'",
            hint=did_you_mean(unknown, _WORDS) or f"options: {', '.join(_WORDS)}",
        )
    useless = next((word for word in sorted(asked) if word not in _takes(form)), None)
    if useless is not None:
        raise UserError(
            f"'{form}' is {FORMS[form]}, which has no {useless}",
            location=path,
            hint=f"leave out {useless}=, or write a library: .so",
        )


def _check_words_of_compiler(options: ExportOptions) -> None:
    if options.fcompile is None:
        names_option("options", options.words.get("options", ()), "words for the linker")
        return
    if getattr(options.fcompile, "need_system_lib", False) and not options.system_lib:
        raise UserError(
            "fcompile makes system libraries only (need_system_lib)",
            location=options.path,
            hint="export one: system_lib=True",
        )
    _ = options.object_format  # refuses what is none


def _check_header(options: ExportOptions) -> None:
    """Raise where the header would be written over the library."""
    header = options.header
    if header is not None and header.absolute() == options.path.absolute():
        raise UserError(
            "is to be both the library and its header",
            location=header,
            hint=f"give the header another name: {options.path.with_suffix('.h').name}",
        )
