"""What a compiled model can be written as: the suffix of the file decides.

One table for the functions that write and the command line, which checks before the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tilewright.base.errors import UserError
from tilewright.base.file_kinds import ARTIFACT_SUFFIX
from tilewright.base.output_file import check_output, is_regular_output
from tilewright.base.text import did_you_mean

ARCHIVE: Final = ARTIFACT_SUFFIX
FORMS: Final[Mapping[str, str]] = {
    ARCHIVE: "an archive for Tilewright's and IREE's runtime",
    ".so": "a shared library for Linux",
    ".dylib": "a shared library for macOS",
    ".dll": "a shared library for Windows",
    ".o": "one relocatable object",
    ".a": "a static library",
    ".tar": "objects, linked when they are loaded",
    ".c": "the model in C: host side and kernels, for any compiler",
    ".ll": "the kernels as LLVM IR",
    ".s": "the kernels as assembly",
    "": "a program",
    ".exe": "a program for Windows",
}
PROGRAMS: Final = ("", ".exe")
TEXTS: Final = (".ll", ".s")
SHARED: Final[Mapping[str, str]] = {"linux": ".so", "macos": ".dylib", "windows": ".dll"}


def form_of(path: str | Path) -> str:
    """The row of a file.  What is no regular file (a FIFO, standard output) gets an archive."""
    return Path(path).suffix.lower() if is_regular_output(path) else ARCHIVE


def check_form(path: str | Path, *, inputs: Iterable[str | Path] = ()) -> str:
    """The row of a file that can be written; said before the work what would go wrong after it.

    Raises: UserError for a suffix that no form has, and as `base.output_file.check_output`.
    """
    form = form_of(path)
    if form not in FORMS:
        known = ", ".join(
            f"{name or 'none'} ({subject})" for name, subject in FORMS.items()
        )
        guess = did_you_mean(form, FORMS)
        raise UserError(
            f"there is no format '{form}', expected one that says what to write",
            location=path,
            hint=f"{guess}; formats: {known}" if guess else f"formats: {known}",
        )
    check_output(path, inputs=inputs)
    return form


def check_system(path: str | Path, system: str) -> None:
    """Raise UserError where the suffix is that of another system than the code is for."""
    form = form_of(path)
    is_other = form in SHARED.values() and form != SHARED[system]
    if is_other or (form == ".exe" and system != "windows"):
        raise UserError(
            f"the code is for {system}, the file is called '{form}'",
            location=path,
            hint=f"call it '{SHARED[system]}', or compile for another system: "
            "target='x86_64-windows', 'aarch64-macos'",
        )
