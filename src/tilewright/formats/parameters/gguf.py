"""The tensors of a .gguf as parameters.

Not here: the format (`formats.gguf`), and what quantised blocks mean.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.formats.byte_view import ByteView
from tilewright.formats.gguf import read_gguf
from tilewright.formats.parameters.entries import StoredEntry


def read_entries(view: ByteView) -> Iterator[StoredEntry]:
    """All tensors.  Raises: ArchiveError."""
    for tensor in read_gguf(view.data, view.location).tensors.values():
        yield StoredEntry(
            tensor.name, tensor.offset, tensor.size_bytes, tensor.type.name, tensor.shape
        )
