"""The form `.c`: a source that a program is compiled with, and a folder of what it needs.

Called by `export`.
"""

from __future__ import annotations

import shlex
import shutil
from contextlib import ExitStack
from pathlib import Path

from tilewright.base.errors import UserError
from tilewright.base.output_file import make_output_folder, open_output
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.runtime.library.link_files import LinkFiles


def write_sources(path: Path, files: LinkFiles) -> None:
    """The last unit as the file itself, everything that it needs in a folder beside it.

    Raises: UserError where nothing is in C, or when a file cannot be written: a folder that was made for it
        is gone then.
    """
    if not files.units:
        raise UserError("these modules have no source in C", location=path)
    beside = path.with_name(f"{path.stem}.library")
    was_there = beside.exists()
    try:
        _make_folders(beside, files)
        with ExitStack() as written:  # nothing is there before everything is written

            def put(place: Path, data: Buffer) -> None:
                file = written.enter_context(open_output(place))
                file.write(view_bytes(data))
                file.flush()

            put(path, _source(path, beside, files).encode())
            for name, data in {**files.files, **files.objects}.items():
                if name != files.units[-1]:
                    put(beside / name, data)
    except BaseException:
        if not was_there:
            shutil.rmtree(beside, ignore_errors=True)
        raise


def _make_folders(beside: Path, files: LinkFiles) -> None:
    for folder in {beside, *((beside / name).parent for name in files.files)}:
        make_output_folder(folder)


def _source(path: Path, beside: Path, files: LinkFiles) -> str:
    parts = shlex.quote(beside.name)  # not the stars behind it
    command = [
        *("cc", *(flag for flag in files.flags if not flag.startswith("-f")), "app.c"),
        *(shlex.quote(path.name), f"{parts}/*.[cSo]", f"{parts}/*/*.c"),
        *(f"-Wa,-I{parts}", *files.link_flags),
    ]
    text = bytes(view_bytes(files.files[files.units[-1]])).decode()
    text = text.replace('#include "', f'#include "{beside.name}/')
    return f"// {' '.join(command)}\n{text}"
