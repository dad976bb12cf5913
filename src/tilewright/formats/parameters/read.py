"""Tells parameter files apart and reads their index."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final

from tilewright.base.errors import ArchiveError
from tilewright.formats.byte_view import Buffer, ByteView
from tilewright.formats.gguf import MAGIC as GGUF_MAGIC
from tilewright.formats.parameters.entries import Entry, ParameterIndex, index_entries
from tilewright.formats.parameters.gguf import read_entries as read_gguf
from tilewright.formats.parameters.irpa import MAGIC as IRPA_MAGIC
from tilewright.formats.parameters.irpa import read_entries as read_irpa
from tilewright.formats.parameters.safetensors import looks_like as looks_like_safetensors
from tilewright.formats.parameters.safetensors import read_entries as read_safetensors
from tilewright.formats.parameters.tvm import MAGIC as TVM_MAGIC
from tilewright.formats.parameters.tvm import read_entries as read_tvm

_Reader = Callable[[ByteView], Iterable[Entry]]
_MAGICS: Final[tuple[tuple[bytes, str, _Reader], ...]] = (
    (IRPA_MAGIC, "irpa", read_irpa),
    (GGUF_MAGIC, "gguf", read_gguf),
    (TVM_MAGIC, "params", read_tvm),
)


def scope_and_path(spec: str) -> tuple[str, str]:
    """The scope, empty for the one without a name, and the file of `path` or `scope=path`.

    No scope has a separator of folders: of `/runs/lr=0.1/w.irpa` all is the path.  `=path` takes any path.
    """
    scope, equals, path = spec.partition("=")
    is_scope = equals and "/" not in scope and os.sep not in scope
    return (scope, path) if is_scope else ("", spec)


def read_parameters(data: Buffer, location: str = "parameters") -> ParameterIndex:
    """The index of a parameter file.

    Args:
        data: the whole file, which must stay unchanged; nothing is copied.
        location: how errors call it.
    Raises: ArchiveError naming the field that is wrong.
    """
    view = ByteView(data, location)
    for magic, name, read_entries in _MAGICS:
        if bytes(view.data[: len(magic)]) == magic:
            return index_entries(name, view, read_entries(view))
    if looks_like_safetensors(view):
        return index_entries("safetensors", view, read_safetensors(view))
    raise ArchiveError(
        "not a parameter file",
        location=location,
        hint="known are .irpa, .safetensors, .gguf and .params",
    )
